"""Chapter 11: what it says stands in the record, and what it says of others in what they say."""

import json

import pytest
import torch
from experiment_scripts import ROOT

from rove_lab.claims import claims
from rove_lab.model import GPTConfig
from rove_lab.published import published
from rove_lab.records import open_record
from rove_lab.scaling import YarnScaling

ARMS = ("RoPE", "RoVE")
TINY = GPTConfig.preset("tiny", rotate_values=False)


def loss_of(part, table):
    return {
        arm: torch.tensor(seeds)
        for arm, seeds in open_record("length").curves(part, table, score="nats per byte").items()
    }  # [seed, length]


def said(numbers, digits=2):
    """Numbers as the chapter lists them: "0.10, 0.22 and 0.28"."""
    *first, last = (f"{number:.{digits}f}" for number in numbers)
    return f"{', '.join(first)} and {last}"


def error(seeds):
    return seeds.std() / len(seeds) ** 0.5


T_5_PERCENT = 3.18  # Student's t with 3 degrees of freedom: four pairs


@pytest.fixture(scope="module")
def words():
    cells = json.loads((ROOT / "book" / "11_length.ipynb").read_text(encoding="utf-8"))["cells"]
    return " ".join(" ".join("".join(cell["source"]) for cell in cells).split())


def test_the_chapter_says_how_far_rove_is_ahead(words):
    plain = loss_of("pair", "plain")
    rope, rove, patient = plain.values()
    assert (
        f"RoPE goes from {rope[:, 0].mean():.2f} nats per byte to {said(rope.mean(0)[1:])}" in words
    )
    assert f"RoVE from {rove[:, 0].mean():.2f} to {said(rove.mean(0)[1:])}" in words
    ahead, even = rope - rove, patient - rove

    assert (ahead > 0).sum(0).tolist() == [3, 4, 4, 4, 3]
    inside = (
        f"ahead by {ahead[:, 0].mean():.3f} nats per byte in the mean, with a standard error of"
    )
    assert f"{inside} {error(ahead[:, 0]):.3f} and one pair of four" in words
    assert f"two, four and eight times the length, by {said(ahead.mean(0)[1:4])}" in words
    assert f"(C10): by {said(ahead.mean(0)[1:4])} nats per byte" in words
    last = ahead[:, 4]
    assert f"it is {last.mean():.2f} in the mean, but one pair is {-last.min():.2f} behind" in words
    assert f"and the standard error is {error(last):.2f}: four pairs" in words
    assert last.mean() / error(last) < T_5_PERCENT
    assert f"sixteen times it is {last.mean():.2f} ± {error(last):.2f} at equal steps" in words

    assert (even > 0).sum(0).tolist() == [3, 4, 4, 4, 4]
    assert f"beyond the window, by {said(even.mean(0)[1:])} in the mean" in words
    assert (patient.mean(0)[1:] > rope.mean(0)[1:]).all()
    harm = patient - rope
    assert harm[:, 3].argmax() == 1
    assert f"in seed 1 they cost it {harm[1, 3]:.2f} at eight times" in words
    within = f"it is {even[:, 0].mean():.3f}, with a standard error of {error(even[:, 0]):.3f}"
    assert within in words
    both = [f"{x[:, 0].mean():.3f} ± {error(x[:, 0]):.3f}" for x in (ahead, even)]
    assert f"ahead by {both[0]} at equal steps and {both[1]} at equal time" in words
    assert f"{rope.mean(0)[3]:.2f} to {loss_of('pair', 'YaRN')['RoPE'].mean(0)[3]:.2f} at eight"


def test_the_chapter_says_what_yarn_does(words):
    plain, yarn = loss_of("pair", "plain"), loss_of("pair", "YaRN")
    pair = open_record("length").values["pair"]
    swept = {
        beta: {
            arm: torch.tensor([cell["nats per byte"] for cell in rows.values()]).mT
            for arm, rows in arms.items()
        }
        for beta, arms in pair["beta_fast"].items()
    }
    beyond = slice(1, None)
    for arms in swept.values():  # repairs more than RoVE does, and is never as bad as none
        assert (arms["RoPE"].mean(0)[beyond] < plain["RoVE"].mean(0)[beyond]).all()
    at_4 = swept["4"]["RoPE"].mean(0)[3]
    assert f"from {plain['RoPE'].mean(0)[3]:.2f} to {at_4:.2f} at eight times" in words

    best = {arm: torch.stack([arms[arm].mean(0) for arms in swept.values()]).min(0) for arm in ARMS}
    order = [float(beta) for beta in swept]
    found = [[order[i] for i in best[arm].indices.tolist()[1:]] for arm in ARMS]
    assert found == [[1, 4, 4, 8], [1, 2, 4, 32]]
    cost = [swept["32"][arm].mean(0) - best[arm].values for arm in ARMS]
    inner = torch.stack(cost)[:, 1:4]
    assert f"usual 32 costs {inner.min():.2f} to {inner.max():.2f} nats per byte" in words
    assert f"32 costs them up to {inner.max():.2f}, and is the choice of one" in words
    assert max(one[4] for one in cost) < 0.005

    chosen = {
        n: sorted(beta for arm in ARMS for beta in pair["chosen"][arm][n]["beta_fast"])
        for n in ("256", "512", "1024", "2048")
    }
    assert {n: set(betas) for n, betas in chosen.items()} == {
        "256": {1, 2},
        "512": {2, 4},
        "1024": {4},
        "2048": {4, 8},
    }
    assert chosen["2048"].count(4) == 1
    off = max(
        (yarn[arm] - torch.stack([arms[arm] for arms in swept.values()]).amin(0)).max()
        for arm in ARMS
    )
    assert f"within {off:.2f} of the best" in words


def test_the_chapter_says_what_is_left_of_the_lead(words):
    plain, yarn = loss_of("pair", "plain"), loss_of("pair", "YaRN")
    rope, rove, patient = yarn.values()
    left, even = (rope - rove)[:, 1:], (patient - rove)[:, 1:]
    assert f"At equal steps it is {said(left.mean(0))} in the mean" in words
    assert (left > 0).sum(0).tolist() == [3, 4, 4, 4]
    assert left[0, 1:].max() < 0.02  # "in one pair by hardly anything"
    assert f"(standard errors {said(map(error, left.mT), 3)})" in words
    assert f"standard errors of {said(map(error, even.mT), 3)}: none of these" in words
    assert all(seeds.mean() / error(seeds) < T_5_PERCENT for seeds in even.mT)
    (c11,) = (claim for claim in claims() if claim.name == "C11")
    told = (
        "the means are as large and their errors half as large again or more; at 16 times one pair"
    )
    assert told in c11.parts[0].seen
    for steps, time in zip(left.mT[1:], even.mT[1:], strict=True):
        assert time.mean() > steps.mean()
        assert error(time) > 1.5 * error(steps)
    assert f"by {left.mean(0).min():.2f} to {left.mean(0).max():.2f} at equal steps" in words
    inside = (rope - rove)[:, :1]
    assert f"{inside.mean():.3f} of it RoVE has within the window already" in words
    twice, four_times = (
        f"{seeds.mean():.3f} ± {error(seeds):.3f}" for seeds in (left - inside).mT[:2]
    )
    assert f"hardly anything ({twice} and {four_times})" in words
    assert f"At equal time it is {said(even.mean(0), 3)}, with one pair behind" in words
    assert (even > 0).sum(0).tolist() == [3, 4, 4, 3]

    alone, stretched = plain["RoPE"] - plain["RoVE"], plain["RoPE"] - rope
    both = plain["RoPE"] - rove
    eight = [gain.mean(0)[3] for gain in (alone, stretched, both, alone + stretched)]
    assert (
        "RoVE alone gains {:.2f} and YaRN alone {:.2f}; both gain {:.2f} and not {:.2f}".format(
            *eight
        )
        in words
    )
    overlap = alone + stretched - both
    assert (overlap[:, 1:4] > 0).all()
    assert f"times the length ({', '.join(f'{x:.2f}' for x in alone.mean(0)[1:4])})" in words
    assert f"as well ({said(overlap.mean(0)[1:4])})" in words
    assert f"the gains overlap by {said(overlap.mean(0)[1:4])} of these" in words
    last = overlap[:, 4]
    assert f"({last.mean():.2f} with a standard error of {error(last):.2f})" in words
    four = torch.stack([plain["RoPE"], plain["RoVE"], rope, rove]).mean(1)
    assert (four.amin(0) == four[3]).all()

    training = open_record("length").values["pair"]["training"]
    steps = training["RoPE for RoVE's time"]["steps"]
    assert f"({min(steps)} to {max(steps)} steps)" in words
    pairs = list(zip(*(arm["processor seconds"] for arm in training.values()), strict=True))
    less = [100 * (1 - again / rove) for _, rove, again in pairs]
    assert f"They took {min(less):.0f} to {max(less):.0f} % less." in words
    more = [100 * (rove / rope - 1) for rope, rove, _ in pairs]
    assert f"RoVE took {min(more):.0f} to {max(more):.0f} % more" in words


def test_the_chapter_says_where_it_comes_from(words):
    plain, yarn = loss_of("pair", "plain"), loss_of("pair", "YaRN")
    window = {arm: seeds.mean(0) for arm, seeds in loss_of("pair", "window").items()}
    for n in (2, 3, 4):
        assert [f"{seeds[n]:.2f}" for seeds in window.values()] == ["1.53", "1.51"]
    assert "1.53 and 1.51 from 512 on" in words
    assert f"the best of the four, has {yarn['RoVE'].mean(0)[4]:.2f}" in words
    assert all((window[arm] <= plain[arm].mean(0) + 1e-5).all() for arm in ARMS)

    part = loss_of("pair", "RoVE, YaRN in part")
    assert f"scores alone slowed (below) {part['scores alone'].mean(0)[4]:.2f}" in words
    near = yarn["RoVE"].mean(0) - window["RoVE"]
    assert f"ahead of it by {near[1]:.2f} only" in words
    assert (near[3:] > 0.2).all()
    more = (yarn["RoVE"] - part["scores alone"])[:, 3:]
    assert (more > 0).all()
    assert "by {:.3f} and {:.3f}: the values are better left".format(*more.mean(0)) in words
    twice = part["scores alone"][:, 1] - yarn["RoVE"][:, 1]
    assert (twice > 0).all()
    assert f"it is {twice.mean():.3f} worse, in all four" in words
    nothing = part["values alone"] - plain["RoVE"]
    assert all(abs(seeds.mean()) < 2 * error(seeds) for seeds in nothing.mT[1:])

    where = open_record("length").values["pair"]["by position"]

    def mean(table, arm, group):
        return torch.tensor(where[table][arm][group]["nats per byte"]).mean()

    third = [mean("plain", arm, "257 to 512") for arm in ("RoVE", "RoPE")]
    assert "at 257 to 512 ({:.2f} against {:.2f})".format(*third) in words
    climb = [
        mean(table, "RoPE", group)
        for table in ("plain", "YaRN")
        for group in ("129 to 256", "257 to 512")
    ]
    told = (
        "RoPE has {:.2f} at 129 to 256 and {:.2f} at 257 to 512, where with YaRN it has {:.2f} and"
    )
    assert told.format(*climb) in words
    assert f"{climb[3]:.2f} on the same bytes" in words
    far = [torch.tensor(where["plain"][arm]["1025 to 2048"]["nats per byte"]) for arm in ARMS]
    lead = far[0] - far[1]
    assert f"after 1,024 ({lead.mean():.2f} ± {error(lead):.2f})" in words
    first = [mean(table, arm, "1 to 128") for arm in ARMS for table in ("YaRN", "plain")]
    assert (
        "{:.2f} instead of {:.2f} under RoPE, {:.2f} instead of {:.2f} under RoVE".format(*first)
        in words
    )


def test_the_chapter_says_what_halves_of_the_planes_do(words):
    plain, yarn = loss_of("pair", "plain"), loss_of("pair", "YaRN")
    for of_pair, table in ((plain, "plain"), (yarn, "YaRN")):
        halves = loss_of("planes", table)
        apart = halves["RoVE, fast half"] - of_pair["RoVE"]
        assert all(abs(seeds.mean()) < 2 * error(seeds) for seeds in apart.mT)
        slow = halves["RoVE, slow half"] - of_pair["RoPE"]
        if table == "plain":
            inside = abs(slow[:, 0].mean())
            assert f"({inside:.3f} ± {error(slow[:, 0]):.3f}) and with YaRN" in words
            little = -slow.mean(0)[1:]
            assert f"({little.min():.2f} to {little.max():.2f} ahead)" in words
        else:
            assert f"({slow.mean(0)[1:].max():.2f} behind at most)" in words

    switched = loss_of("pair", "without training")
    on = switched["RoPE, values turned"] - plain["RoPE"]
    assert f"Switched on in RoPE it costs {on[:, 0].mean():.2f} within the window" in words
    assert "({:.2f} and {:.2f} more in the mean)".format(*on.mean(0)[3:]) in words
    assert all((seeds > 0).any() and (seeds < 0).any() for seeds in on.mT[3:])
    slow = switched["RoPE, slow half turned"] - plain["RoPE"]
    assert (slow[:, 2:4] < 0).all()
    assert "helps all four a little, by {:.2f} and {:.2f}".format(*-slow.mean(0)[2:4]) in words
    assert slow[:, 0].abs().max() < 0.001
    trained = (plain["RoPE"] - loss_of("planes", "plain")["RoVE, slow half"]).mean(0)[3:]
    assert "trained ({:.2f} and {:.2f} in the mean)".format(*trained) in words
    assert torch.allclose(trained, -slow.mean(0)[3:], atol=0.001)
    fast = switched["RoPE, fast half turned"] - plain["RoPE"]
    assert (fast[:, 3] < 0).all()
    assert f"at eight times as well ({-fast[:, 3].mean():.2f})" in words
    assert f"after costing {fast[:, 0].mean():.2f} within the window" in words
    off = switched["RoVE, values still"] - plain["RoVE"]
    assert f"values stand still loses {off[:, 0].mean():.2f} more at once" in words


def test_the_solution_says_how_the_papers_gains_overlap(words):
    paper = published("beyond")
    alone = paper.gain("RoVE", "RoPE")
    left = paper.gain("RoVE + YaRN", "RoPE + YaRN")
    shared = [(one - other) / one for one, other in zip(alone, left, strict=True)]
    assert shared[0] > 0.95  # at twice the length nearly all of RoVE's gain is YaRN's as well
    assert abs(shared[1]) < 0.05  # at four times they add
    assert shared[2] < -0.2  # at eight they more than add
    assert f"{shared[3]:.2f}" == "0.25"  # at sixteen a quarter is shared
    assert "at eight they more than add, at sixteen a quarter is shared" in words
    assert f"In the paper it is {min(alone):.1f} to {max(alone):.1f} nats per token" in words
    assert "RoPE has 15.64 and RoVE 15.52" in words
    of_window = published("in distribution, 354M")
    assert [of_window[arm][-1] for arm in ARMS] == [15.64, 15.52]


def test_the_chapter_says_what_chapter_12_found_of_values_at_new_angles(words):
    turned = open_record("needles").values["why"]["value angles"]["YaRN"]["as it looks"]
    found = {how: torch.tensor(of["8 ×"]["accuracy"]) for how, of in turned.items()}
    told = f"RoVE answers {found['unscaled'].mean():.3f} of the needles if YaRN leaves the values"
    assert told in words
    assert (found["as the scores"] == 1).all()  # "and all of them if it does not"


def test_the_chapter_says_what_yarns_numbers_are(words):
    at_2, at_16 = (YarnScaling(factor, 128).mscale ** 2 for factor in (2.0, 16.0))
    assert f"{at_2:.2f} for twice the length and {at_16:.2f} for sixteen times" in words
    turns = TINY.n_ctx * TINY.rotaries()[0].inv_freq / (2 * torch.pi)
    assert turns[0] > 16 > turns[1]  # "only the first plane turns so often"
    assert f"in 128 bytes ({turns[0]:.0f} times)" in words
    at_16, at_32 = (YarnScaling(16.0, TINY.n_ctx, beta_fast=beta) for beta in (16, 32))
    assert torch.equal(at_16.inv_freq(TINY.base, 32), at_32.inv_freq(TINY.base, 32))
