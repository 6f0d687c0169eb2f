"""Chapter 12's section on SmolLM2, chapter 9's and the log: what they say stands in the record."""

import json

import pytest
import torch
from experiment_scripts import ROOT

from rove_lab.records import open_record

RECORD = open_record("smollm2")
ASKED = ("needle", "variables", "common words")


def losses(task, score="nats"):
    return {how: torch.tensor(of) for how, of in RECORD.curves(task, score=score).items()}


def dearer(task, how):
    """What a condition costs, [seed, length]."""
    nats = losses(task)
    return nats[how] - nats["as it is"]


def cost(task, how, length):
    by_seed = dearer(task, how)[:, length]
    return f"{by_seed.mean():.3f} ± {by_seed.std() / len(by_seed) ** 0.5:.3f}".replace("-", "−")


def means(task, how, digits=2):
    return [f"{mean:.{digits}f}" for mean in dearer(task, how).mean(0)]


def words_of(chapter):
    cells = json.loads((ROOT / "book" / f"{chapter}.ipynb").read_text(encoding="utf-8"))["cells"]
    return " ".join(" ".join("".join(cell["source"]) for cell in cells).split())


@pytest.fixture(scope="module")
def words():
    return words_of("12_retrieval")


def test_the_chapter_says_what_a_text_costs(words):
    first, second, third = means("text", "RoVE")
    assert f"RoVE in all planes {first}, {second} and {third} nats a token, in every draw" in words
    assert (dearer("text", "RoVE") > 0).all()
    slow = [cost("text", "RoVE, 16 slowest", length) for length in range(3)]
    assert f"cost nothing that shows in a text of 512 tokens ({slow[0]})" in words
    assert f"they cost {slow[1]} with 2,048 tokens read and {slow[2]} with 8,192" in words
    _, short, long = means("text", "RoVE, 16 slowest, YaRN", 3)
    assert f"({short} with YaRN in all); at 8,192 it does not ({long})" in words
    assert round(float(dearer("text", "YaRN").mean(0).max()), 2) == 0.02
    assert "By itself YaRN costs 0.02 or less" in words
    assert (
        f"costs {float(third[:4]) and dearer('text', 'RoVE, 16 slowest')[:, 2].mean():.2f}" in words
    )


def test_the_chapter_says_what_an_answer_costs(words):
    short, long = (
        [cost(task, "RoVE, 16 slowest", length) for task in ASKED] for length in range(2)
    )
    assert "needles {} nats a token, variables {} and common words {};".format(*short) in words
    assert "among 2,048 it is {}, {} and {}, all four draws of each".format(*long) in words
    assert all((dearer(task, "RoVE, 16 slowest")[:, 1] > 0).all() for task in ASKED)
    eased = [means(task, "RoVE, 16 slowest, YaRN", 3)[1] for task in ASKED]
    assert "with YaRN {}, {} and {}.".format(*eased) in words
    by_length = [sorted(float(means(task, "RoVE")[n]) for task in ASKED) for n in range(2)]
    said = [f"{costs[0]:.2f} to {costs[-1]:.2f}" for costs in by_length]
    assert "All planes cost {} and {}:".format(*said) in words
    alone = {task: cost(task, "YaRN", 0).removeprefix("−") for task in ASKED}
    said = "YaRN without RoVE costs common words {} among 512 tokens and gains variables {}"
    assert said.format(alone["common words"], alone["variables"]) in words
    assert f"and needles {alone['needle']}; among 2,048 it does nothing sure" in words
    for task in ASKED:
        at_512, at_2048 = dearer(task, "YaRN").unbind(1)
        assert (at_512 > 0).all() == (task == "common words")
        assert abs(at_2048.mean()) < 2 * at_2048.std() / 4**0.5


def test_the_chapter_says_what_yarn_takes_away(words):
    def eased(task):
        return dearer(task, "RoVE, 16 slowest") - dearer(task, "RoVE, 16 slowest, YaRN")

    for task in ("text", "needle", "variables"):
        assert (eased(task)[:, 1] > 0).all()
        share = eased(task)[:, 1].mean() / dearer(task, "RoVE, 16 slowest")[:, 1].mean()
        assert 0.4 < share < 0.65
    at_2048 = eased("common words")[:, 1]
    assert at_2048.min() < 0 < at_2048.max()
    assert abs(eased("text")[:, 2].mean()) < 0.02
    assert "about half of what the slow half costs text, needles and variables at 2,048" in words
    assert "(on common words the draws disagree), and nothing of what it costs text at" in words


def test_the_chapter_says_what_its_records_took(words):
    minutes = [open_record(slug).cpu_s / 60 for slug in ("retrieval", "needles", "smollm2")]
    said = "three records, whose work took {:.0f}, {:.0f} and {:.0f} minutes of processor time"
    assert said.format(*minutes) in words


def test_the_chapter_says_how_many_tokens_are_right_and_that_no_answer_is(words):
    right = {how: of[:, 1].mean() for how, of in losses("needle", "tokens right").items()}
    said = "{:.0%} are then right among 2,048, where the model as it is has {:.0%}"
    assert said.format(right["RoVE"], right["as it is"]).replace("%", " %") in words
    for task in ASKED:
        assert not any(of.any() for of in losses(task, "answers right").values())
    assert "A whole answer of three or four parts it gives in no condition" in words


def test_chapter_9_and_the_summary_say_what_the_slow_half_costs(words):
    _, short, long = means("text", "RoVE, 16 slowest")
    said = f"with 2,048 tokens read it costs SmolLM2 {short} nats a token, with 8,192 it costs"
    assert f"{said} {long}" in words_of("09_retrofit")
    assert f"free in a text of 512 tokens, costs {long} nats a token in one of 8,192" in words


def test_the_log_says_the_same():
    text = (ROOT / "results" / "LOG.md").read_text(encoding="utf-8")
    (entry,) = [part for part in text.split("\n- ") if "`smollm2`:" in part.partition("\n")[0]]
    logged = " ".join(entry.split())

    def listed(numbers):
        *first, last = numbers
        return f"{', '.join(first)} and {last}"

    read = [f"{nats:.2f}" for nats in losses("text")["as it is"].mean(0)]
    assert f"cost {listed(read)} nats with 512, 2,048 and 8,192" in logged
    assert f"in all planes {listed(means('text', 'RoVE'))} more" in logged
    assert f"16 fastest {listed(means('text', 'RoVE, 16 fastest'))}," in logged
    slow = [cost("text", "RoVE, 16 slowest", n).replace("0.", ".") for n in range(3)]
    first, *last = (f"{mean} ({error})" for mean, error in (of.split(" ± ") for of in slow))
    assert (
        f"16 slowest {first}, {last[0]} and {last[1]}:".replace("(", "(standard error ", 1)
        in logged
    )
    for how, form in {
        "YaRN": "{}, {}, {};",
        "RoVE, 16 slowest, YaRN": "{}, {} and {} in all",
    }.items():
        assert form.format(*(m.replace("0.", ".") for m in means("text", how, 3))) in logged
    pairs = [
        "{} and {}".format(*(m.replace("0.", ".") for m in means(task, "RoVE, 16 slowest", 3)))
        for task in ASKED
    ]
    assert "needles {}, variables {}, common words {};".format(*pairs) in logged
