"""experiments/frames.py in miniature: its scenes, its arms, and what its record holds."""

import math
from dataclasses import replace

import pytest
import torch
from experiment_scripts import as_recorded, names, script
from references_frames import se2

from rove_lab.experiment import described
from rove_lab.records import open_record


@pytest.fixture
def frames(monkeypatch):
    return script("frames", monkeypatch)


def small(module):
    training = replace(module.CPU.training, steps=2, batch_size=4)
    sizes = module.Sizes(d_model=16, n_heads=2, n_layers=2, d_mlp=16)
    return module.Budget(module.Scenes(4, 8), sizes, training, n_scenes=8, scored_at=(1, 2))


def expected_names(module, budget):
    of_arm = {
        "error": dict.fromkeys(map(str, budget.scored_at), dict.fromkeys(budget.ways())),
        "milliseconds a step": dict.fromkeys(("wall", "processor")),
    }
    return dict.fromkeys(module.ARMS, of_arm)


def test_every_arm_is_trained_and_scored(frames, capsys):
    budget = small(frames)
    record = frames.EXPERIMENT.record(budget, [0, 1, 2])
    assert names(record.values) == expected_names(frames, budget)
    assert record.config == described(budget)
    assert "[18/18] " in capsys.readouterr().out
    errors = [record.values[arm]["error"]["2"]["as trained"][0] for arm in frames.ARMS]
    assert len({*errors}) == len(errors)


def test_the_committed_record_is_what_the_script_would_write(frames):
    record, budget = open_record("frames"), frames.EXPERIMENT.budget
    assert record.config == as_recorded(described(budget), record.config)
    assert names(record.values) == expected_names(frames, budget)


def parts(scenes, agents):
    widths = [scenes.n_keys, scenes.n_keys, 2, 2, 1]
    return agents.double().split(widths, -1)


@pytest.mark.parametrize("way", ["as trained", "turned and shifted", "twice the agents"])
def test_answers_are_the_points_of_others_in_the_own_frame(frames, way):
    """By matrices, agent by agent."""
    scenes = frames.CPU.ways()[way]
    agents, answers = next(scenes.batches(3, seed=1))
    keys, asks, seen, place, heading = parts(scenes, agents)
    assert agents.shape == (3, scenes.n_ctx, scenes.d_in)
    for b in range(3):
        assert keys[b].sum(0).max() == 1  # no key twice
        poses = [se2(*place[b, i].tolist(), heading[b, i].item()) for i in range(scenes.n_ctx)]
        for i in range(scenes.n_ctx):
            j = int((keys[b] @ asks[b, i]).argmax())
            assert keys[b, j].argmax() == asks[b, i].argmax()
            assert i != j
            point = torch.cat((seen[b, j], torch.ones(1).double()))
            expected = torch.linalg.inv(poses[i]) @ poses[j] @ point
            torch.testing.assert_close(answers[b, i].double(), expected[:2], rtol=0, atol=1e-5)


def test_a_moved_scene_is_the_same_scene_moved(frames):
    ways = frames.CPU.ways()
    still, answers = next(ways["as trained"].batches(64, seed=1))
    *content, _, heading = parts(ways["as trained"], still)
    assert heading.abs().max() <= math.pi / 4
    for way, farthest in (("turned", 2**0.5), ("shifted", 4 + 2**0.5), ("turned and shifted", 6)):
        agents, moved_answers = next(ways[way].batches(64, seed=1))
        *moved_content, moved_place, moved_heading = parts(ways[way], agents)
        for a, b in zip(content[:3], moved_content[:3], strict=True):
            assert torch.equal(a, b)
        torch.testing.assert_close(moved_answers, answers, rtol=0, atol=1e-5)
        turn = (moved_heading - heading)[:, :, 0]
        torch.testing.assert_close(turn, turn[:, :1].expand_as(turn), rtol=0, atol=1e-5)
        if "turned" in way:
            assert math.pi / 2 <= turn.min() < 2 < 4 < turn.max() <= 3 * math.pi / 2 + 1e-5
        else:
            assert turn.abs().max() < 1e-5
        assert moved_place.norm(dim=-1).max() < farthest
    agents, _ = next(frames.CPU.moved().batches(64, seed=1))
    assert parts(frames.CPU.scenes, agents)[3].norm(dim=-1).max() < 4 + 2**0.5


def models(module, budget):
    built = {}
    for name, how in module.ARMS.items():
        torch.manual_seed(0)
        built[name] = module.Reader(how, budget.sizes, budget.scenes).build()
    return built


def test_all_arms_start_from_the_same_weights(frames):
    first, *others = [model.state_dict() for model in models(frames, small(frames)).values()]
    for other in others:
        assert first.keys() == other.keys()
        assert all(map(torch.equal, first.values(), other.values()))


def test_only_arms_with_frames_and_no_pose_do_not_notice_a_move(frames):
    budget = small(frames)
    ways = budget.ways()
    still, _ = next(ways["as trained"].batches(8, seed=1))
    moved, _ = next(ways["turned and shifted"].batches(8, seed=1))
    for name, model in models(frames, budget).items():
        same = torch.allclose(model(still), model(moved), atol=1e-4)
        assert same == (not frames.ARMS[name].pose_as_input), name


def test_the_error_of_who_always_says_zero_is_one_and_of_who_knows_zero(frames):
    _, answers = next(frames.CPU.scenes.batches(8, seed=1))
    scenes = frames.CPU.scenes
    assert scenes.scores(torch.zeros_like(answers), answers)["error"] == scenes.blind == 1
    assert scenes.scores(answers, answers)["error"] == 0
    assert scenes.loss(answers + 3, answers).item() == pytest.approx(9)


def test_the_error_is_the_share_of_the_answers_square(frames):
    targets = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    output = torch.tensor([[3.0, 2.0], [1.0, 4.0]])
    error = frames.Scenes().scores(output, targets)["error"]
    assert error == pytest.approx((2**2 + 1**2) / (3**2 + 4**2))
    assert frames.Scenes().scores(0 * targets, targets)["error"] == frames.Scenes.blind


def test_rotations_by_place_take_a_quarter_of_a_unit_for_a_step(frames):
    """Rows by the second coordinate, columns by the first; headings play no part."""
    place = torch.tensor([[[0.5, -0.25], [1.0, 0.75]]])
    rotation = frames.axial(place, torch.tensor([[0.3, 2.0]]), 12)
    rows, columns = rotation.angles[0, 0, :, 0], rotation.angles[0, 0, :, 3]
    assert rows.tolist() == [-1.0, 3.0]
    assert columns.tolist() == [2.0, 4.0]
