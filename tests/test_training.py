"""The training loop: matched pairs, seeds, what it reports, and how it ends."""

from dataclasses import replace

import pytest
import torch
from accelerate.state import AcceleratorState, GradientState
from torch import nn

from rove_lab.data import ByteText
from rove_lab.evaluation import held_out_scores
from rove_lab.filters import Filter
from rove_lab.messenger import MessengerConfig
from rove_lab.model import GPTConfig
from rove_lab.progress import Step
from rove_lab.tasks import DistanceRecall
from rove_lab.training import Run, TrainConfig, train, train_matched

TASK = DistanceRecall(3, 3, 6)
ROVE = MessengerConfig(TASK.d_in, TASK.d_out, d_model=8, d_head=8)
ROPE = replace(ROVE, rotate_values=False)
SHORT = TrainConfig(steps=6, batch_size=8, log_every=2)


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def weights(run):
    return torch.cat([p.detach().flatten() for p in run.model.parameters()])


def quiet(*arguments, **more):
    return train(*arguments, progress=False, **more)


def by_hand(config, how, task):
    """The same training in plain PyTorch: AdamW, clipping, warm-up, no decay of biases."""
    torch.manual_seed(2 * how.seed)
    model, batches = config.build(), task.batches(how.batch_size, 2 * how.seed + 1)
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    rest = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": how.weight_decay}, {"params": rest}]
    betas = (0.9, how.beta2)
    optimizer = torch.optim.AdamW(groups, lr=1.0, betas=betas, weight_decay=0.0)
    losses = []
    for step in range(1, how.steps + 1):
        warm = min(1.0, step / how.warmup_steps) if how.warmup_steps else 1.0
        for group in optimizer.param_groups:
            group["lr"] = how.learning_rate * warm
        inputs, targets = next(batches)
        loss = task.loss(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), how.clip)
        optimizer.step()
        losses.append(loss.item())
    return Run(model, losses=losses)


@pytest.mark.parametrize(
    "how",
    [
        SHORT,
        replace(
            SHORT,
            seed=3,
            warmup_steps=4,
            weight_decay=0.1,
            beta2=0.95,
            clip=0.01,
            learning_rate=3e-3,
        ),
    ],
    ids=["plain", "warm-up, decay, clipping"],
)
def test_the_loop_is_adamw_written_out(how):
    expected, run = by_hand(ROVE, how, TASK), quiet(ROVE, how, TASK)
    torch.testing.assert_close(weights(run), weights(expected))
    pairs = torch.tensor(expected.losses).reshape(-1, how.log_every)
    torch.testing.assert_close(torch.tensor(run.losses), pairs.mean(1))
    assert run.steps == [2, 4, 6]


def test_a_matched_arm_trains_as_it_would_alone():
    runs = train_matched({"RoPE": ROPE, "RoVE": ROVE}, SHORT, TASK, progress=False)
    for name, config in {"RoPE": ROPE, "RoVE": ROVE}.items():
        torch.testing.assert_close(weights(runs[name]), weights(quiet(config, SHORT, TASK)))
    assert not torch.equal(weights(runs["RoPE"]), weights(runs["RoVE"]))


def test_matched_arms_start_alike_and_see_the_same_batches():
    seen = {"RoPE": [], "RoVE": []}

    class Watched:
        def __init__(self, config, name):
            self.config, self.name = config, name

        def build(self):
            model = self.config.build()
            seen[self.name].append(torch.cat([p.detach().flatten() for p in model.parameters()]))
            model.register_forward_pre_hook(lambda _, x: seen[self.name].append(x[0].clone()))
            return model

    arms = {"RoPE": Watched(ROPE, "RoPE"), "RoVE": Watched(ROVE, "RoVE")}
    train_matched(arms, SHORT, TASK, progress=False)
    assert len(seen["RoPE"]) == len(seen["RoVE"]) == 1 + SHORT.steps
    for one, other in zip(seen["RoPE"], seen["RoVE"], strict=True):
        assert torch.equal(one, other)


def test_the_same_seed_repeats_and_another_does_not():
    one, again = quiet(ROVE, SHORT, TASK), quiet(ROVE, SHORT, TASK)
    assert torch.equal(weights(one), weights(again))
    assert one.losses == again.losses
    assert quiet(ROVE, replace(SHORT, seed=1), TASK).losses != one.losses


def test_training_leaves_the_global_random_state_alone():
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    quiet(ROVE, SHORT, TASK)
    assert torch.equal(torch.rand(3), expected)


def test_it_learns():
    run = quiet(ROVE, replace(SHORT, steps=60, batch_size=32), TASK)
    assert run.losses[-1] < 0.7 * run.losses[0]
    scores = held_out_scores(run.model, TASK, 256)
    assert list(scores) == ["token", "distance", "both"]
    assert scores["token"] > 0.5
    assert not run.model.training
    assert run.wall_s > 0
    assert run.cpu_s > 0


def test_reports_reach_the_callback():
    reports = []
    train_matched(
        {"RoPE": ROPE, "RoVE": ROVE}, SHORT, TASK, callback=reports.append, progress=False
    )
    assert [(r.name, r.step) for r in reports] == [
        (name, step) for step in (2, 4, 6) for name in ("RoPE", "RoVE")
    ]
    assert all(isinstance(r, Step) and r.steps == 6 and r.steps_per_s > 0 for r in reports)
    assert reports[0].seconds_left == pytest.approx(4 / reports[0].steps_per_s)
    assert reports[-1].seconds_left == 0
    tokens_a_step = 2 * SHORT.batch_size * TASK.n_ctx
    assert reports[0].tokens_per_s == pytest.approx(tokens_a_step * reports[0].steps_per_s)


def test_progress_goes_to_stdout_and_ends_with_the_last_step(capsys):
    train(ROVE, SHORT, TASK)
    out, err = capsys.readouterr()
    assert out.startswith("step 6 of 6: loss model ")
    assert out.endswith(" tokens/s, done\n")
    assert err == ""
    quiet(ROVE, SHORT, TASK)
    assert capsys.readouterr().out == ""


def test_the_last_step_is_reported_where_it_falls_between_two():
    assert quiet(ROVE, replace(SHORT, steps=5), TASK).steps == [2, 4, 5]


def test_settings_of_accelerate_change_nothing(monkeypatch):
    """What `accelerate config` once noted sets these: the run is what TrainConfig says."""
    expected = quiet(ROVE, SHORT, TASK)
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4")
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()
    run = quiet(ROVE, SHORT, TASK)
    assert run.losses == expected.losses
    assert torch.equal(weights(run), weights(expected))


# Endings


def test_ctrl_c_keeps_what_was_learned_in_every_arm(capsys):
    def stop(report):
        if report.step == 4:
            raise KeyboardInterrupt

    runs = train_matched({"RoPE": ROPE, "RoVE": ROVE}, SHORT, TASK, callback=stop)
    assert "interrupted in step 4 of 6: what was learned is kept" in capsys.readouterr().out
    for name, config in {"RoPE": ROPE, "RoVE": ROVE}.items():
        assert runs[name].interrupted
        four = quiet(config, replace(SHORT, steps=4), TASK)
        assert not four.interrupted
        torch.testing.assert_close(weights(runs[name]), weights(four))


def test_a_loss_that_is_not_finite_ends_it_with_advice():
    class Broken(Filter):
        def loss(self, output, targets):
            return super().loss(output, targets) * float("nan")

    task = Broken(torch.ones(1, 1, 1))
    with pytest.raises(
        FloatingPointError,
        match=r"the loss of model finite, got nan in step 2: lower learning_rate",
    ):
        quiet(MessengerConfig(1, 1, 4, 1, 4), SHORT, task)


# Refusals


def test_arms_that_do_not_start_alike_are_refused():
    wide = replace(ROVE, n_heads=2)
    with pytest.raises(ValueError, match="expected RoPE and wide to start from the same weights"):
        train_matched({"RoPE": ROPE, "wide": wide}, SHORT, TASK, progress=False)
    with pytest.raises(ValueError, match="expected at least one model config"):
        train_matched({}, SHORT, TASK, progress=False)


# Micro-batches and bfloat16


class Lopsided(DistanceRecall):
    """Asks some sequences more than others."""

    def batches(self, batch_size, seed):
        for tokens, answers in super().batches(batch_size, seed):
            answers[: batch_size // 4, 1:4] = 0
            yield tokens, answers


@pytest.mark.parametrize("task", [TASK, Lopsided(3, 3, 6)], ids=["even", "lopsided"])
def test_micro_batches_add_up_to_the_batch(task):
    whole, parts = quiet(ROVE, SHORT, task), quiet(ROVE, replace(SHORT, accumulate=4), task)
    torch.testing.assert_close(torch.tensor(parts.losses), torch.tensor(whole.losses))
    torch.testing.assert_close(weights(parts), weights(whole), atol=1e-4, rtol=1e-4)


def test_bfloat16_is_close_and_keeps_float32_weights():
    plain, rough = quiet(ROVE, SHORT, TASK), quiet(ROVE, replace(SHORT, bf16=True), TASK)
    assert weights(rough).dtype == torch.float32
    assert rough.losses != plain.losses
    torch.testing.assert_close(
        torch.tensor(rough.losses), torch.tensor(plain.losses), atol=0.05, rtol=0.05
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_a_compiled_model_learns_the_same():
    text = ByteText([bytes(range(256))], 16)
    config = GPTConfig(d_model=16, n_heads=2, n_layers=1)
    plain = quiet(config, SHORT, text)
    compiled = quiet(config, replace(SHORT, compile=True), text)
    torch.testing.assert_close(torch.tensor(compiled.losses), torch.tensor(plain.losses))
