"""retrofit: RoVE goes on, and off again without a trace."""

import copy
import io

import pytest
import torch
from rove_models import ARCHITECTURES
from rove_situations import GAPS, POSITIONS, TOKENS
from torch import nn

from rove_lab.huggingface import RoveHandle, enable_rove


@pytest.fixture
def model():
    return ARCHITECTURES["llama"]()


def logits_of(model):
    with torch.no_grad():
        return model(TOKENS).logits


def hooks_of(model):
    """Every hook dict of every module, as it is now."""
    return {
        (name, kind): dict(hooks)
        for name, module in model.named_modules()
        for kind, hooks in vars(module).items()
        if "hook" in kind and isinstance(hooks, dict)
    }


def state_of(model):
    parameters = {name: (p, p.clone()) for name, p in model.named_parameters()}
    attributes = {name: set(vars(module)) for name, module in model.named_modules()}
    return hooks_of(model), parameters, attributes, list(vars(model.config).items())


def assert_as_before(model, before):
    hooks, parameters, attributes, config = state_of(model)
    assert hooks == before[0]
    assert parameters.keys() == before[1].keys()
    for name, (parameter, _) in parameters.items():
        assert parameter is before[1][name][0]
        assert torch.equal(parameter, before[1][name][1])
    assert attributes == before[2]
    assert config == before[3]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_removing_it_leaves_no_trace(architecture):
    model = ARCHITECTURES[architecture]()
    model.model_tag = "mine"
    before, logits = state_of(model), logits_of(model)
    rove = enable_rove(model)
    assert (logits_of(model) - logits).abs().max() > 1.5
    rove.remove()
    assert_as_before(model, before)
    assert torch.equal(logits_of(model), logits)


def test_leaves_other_hooks_where_they_are(model):
    seen = []
    projection = model.model.layers[1].self_attn.v_proj
    projection.register_forward_hook(lambda *_: seen.append("before"))
    rove = enable_rove(model)
    projection.register_forward_hook(lambda *_: seen.append("after"))
    rove.remove()
    assert len(projection._forward_hooks) == 2
    logits_of(model)
    assert seen == ["before", "after"]


def test_removing_it_twice_is_as_once(model):
    logits = logits_of(model)
    rove = enable_rove(model)
    rove.remove()
    rove.remove()
    again = enable_rove(model)
    rove.remove()  # the first handle has nothing to do with what the second switched on
    assert model.rove is again
    again.remove()
    assert torch.equal(logits_of(model), logits)


def test_is_on_inside_the_block_and_off_after_it(model):
    before, logits = state_of(model), logits_of(model)
    with enable_rove(model) as rove:
        assert model.rove is rove
        inside = logits_of(model)
    assert (inside - logits).abs().max() > 1.5
    assert_as_before(model, before)
    assert torch.equal(logits_of(model), logits)


def test_an_exception_inside_the_block_leaves_nothing_behind(model):
    before, logits = state_of(model), logits_of(model)
    with pytest.raises(IndexError), enable_rove(model):
        model(torch.full_like(TOKENS, 10_000))
    assert_as_before(model, before)
    assert torch.equal(logits_of(model), logits)


def test_an_exception_inside_a_pass_does_not_spoil_the_next(model):
    with enable_rove(model):
        expected = logits_of(model)
        with pytest.raises(IndexError):
            model(torch.full_like(TOKENS, 10_000))
        stop = model.model.layers[1].self_attn.o_proj.register_forward_pre_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            logits_of(model)
        stop.remove()
        assert torch.equal(logits_of(model), expected)


def test_the_handle_and_the_config_say_what_is_on(model):
    with enable_rove(model, layers=[-1, 0, 0], planes=slice(-2, None)) as rove:
        assert (rove.layers, rove.planes) == ([0, 2], [10, 11])
        assert repr(rove) == "RoveHandle(layers=[0, 2], planes=[10, 11])"
        assert model.config.rove == {"layers": [0, 2], "planes": [10, 11]}
    assert repr(rove) == "RoveHandle(layers=[0, 2], planes=[10, 11], removed)"
    with enable_rove(model, planes=torch.tensor([1])) as rove:
        assert model.config.rove == {"layers": [0, 1, 2], "planes": [1]}
    with enable_rove(model) as rove:
        assert isinstance(rove, RoveHandle)
        assert model.config.rove == {"layers": [0, 1, 2], "planes": None}


def test_a_field_of_that_name_comes_back(model):
    model.config.rove = "theirs"
    with enable_rove(model):
        assert model.config.rove == {"layers": [0, 1, 2], "planes": None}
    assert model.config.rove == "theirs"


@pytest.mark.parametrize("nothing", [{"layers": []}, {"planes": []}])
def test_nothing_chosen_changes_nothing(model, nothing):
    logits = logits_of(model)
    with enable_rove(model, **nothing):
        torch.testing.assert_close(logits_of(model), logits, rtol=0, atol=1e-12)


def test_a_copy_has_a_rove_of_its_own(model):
    off = logits_of(model)
    rove = enable_rove(model)
    on = logits_of(model)
    twin = copy.deepcopy(model)
    rove.remove()
    assert torch.equal(logits_of(model), off)
    assert torch.equal(logits_of(twin), on)
    enable_rove(model)
    twin.rove.remove()
    assert not hasattr(twin.config, "rove")
    assert torch.equal(logits_of(twin), off)
    assert torch.equal(logits_of(model), on)


def test_a_pickled_model_has_it_on(model):
    with enable_rove(model):
        on = logits_of(model)
        file = io.BytesIO()
        torch.save(model, file)
    file.seek(0)
    twin = torch.load(file, weights_only=False)
    assert torch.equal(logits_of(twin), on)
    twin.rove.remove()
    assert torch.equal(logits_of(twin), logits_of(model))


def test_can_be_removed_from_a_model_whose_config_was_replaced(model):
    logits = logits_of(model)
    with enable_rove(model):
        model.config = copy.deepcopy(model.config)
        del model.config.rove, model.rove
    assert torch.equal(logits_of(model), logits)


def test_only_differences_of_positions_count():
    model = ARCHITECTURES["gpt_neox"]()
    given = {"attention_mask": torch.ones_like(TOKENS)}
    with enable_rove(model), torch.no_grad():
        for positions in (POSITIONS, GAPS):
            found = model(TOKENS, position_ids=positions, **given).logits
            moved = model(TOKENS, position_ids=positions + 17, **given).logits
            # Hugging Face's own rotation of queries and keys is rounded to float32
            torch.testing.assert_close(moved, found, rtol=0, atol=1e-4)


class Adapter(nn.Module):
    """A projection with something of low rank beside it, as LoRA makes it."""

    def __init__(self, base):
        super().__init__()
        self.base = base
        self.down = nn.Linear(base.in_features, 2, bias=False, dtype=torch.float64)
        self.up = nn.Linear(2, base.out_features, bias=False, dtype=torch.float64)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


@pytest.mark.parametrize("projection", ["v_proj", "o_proj"])
def test_an_adapter_that_is_there_already_turns_too(model, projection):
    torch.manual_seed(0)
    attention = model.model.layers[1].self_attn
    adapter = Adapter(attention.get_submodule(projection))
    setattr(attention, projection, adapter)
    with enable_rove(model):
        found = logits_of(model)
    assert (found - logits_of(model)).abs().max() > 1.0
    adapter.base.weight.data += adapter.up.weight @ adapter.down.weight
    setattr(attention, projection, adapter.base)
    with enable_rove(model):
        torch.testing.assert_close(logits_of(model), found, rtol=0, atol=1e-5)


def test_a_removed_handle_opens_no_block(model):
    rove = enable_rove(model)
    rove.remove()
    with pytest.raises(ValueError, match="got one that was removed: call enable_rove"), rove:
        pass


def test_a_compiled_model_is_restored_too(model):
    compiled = torch.compile(model, backend="eager")  # which marks the model by itself
    before, logits = state_of(model), logits_of(model)
    enable_rove(compiled).remove()
    assert_as_before(model, before)
    with enable_rove(model):
        assert (logits_of(model) - logits).abs().max() > 1.5


def test_what_is_saved_does_not_change_with_the_handle(model):
    with enable_rove(model, layers=[0], planes=[1]) as rove:
        rove.layers.append(99)
        rove.planes.append(99)
        assert model.config.rove == {"layers": [0], "planes": [1]}


def test_a_mask_of_layers_is_not_taken_for_indices(model):
    with pytest.raises(TypeError, match="expected layers as integer indices or a slice"):
        enable_rove(model, layers=torch.tensor([True, False, True]))
