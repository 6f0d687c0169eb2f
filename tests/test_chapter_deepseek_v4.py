"""Chapter 15: its numbers are what its cells compute, its dates those of its sources."""

import json
import re
import subprocess
from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from book_exercises import ROOT, names_before_the_exercises, read_chapter
from transformers import DeepseekV4Config

from rove_lab.published import found_again

PATH = ROOT / "book" / "15_deepseek_v4.ipynb"
CELLS = json.loads(PATH.read_text(encoding="utf-8"))["cells"]
SOURCES = ["".join(cell["source"]) for cell in CELLS]
WORDS = " ".join(" ".join(SOURCES).replace('"\n    "', "").split())
MONTHS = (
    "January February March April May June July August September October November December"
).split()


@pytest.fixture(scope="module")
def computed():
    """What the chapter's cells leave behind."""
    gradients = torch.is_grad_enabled()
    yield names_before_the_exercises(read_chapter(PATH))
    torch.set_grad_enabled(gradients)


def says(*phrases):
    for phrase in phrases:
        assert phrase in WORDS, phrase


def test_a_transformers_that_is_too_old_is_replaced(monkeypatch, tmp_path):
    first, commands = SOURCES[1], []
    monkeypatch.setattr(subprocess, "run", lambda command, check: commands.append(command))
    exec(first, {})
    assert commands == []  # ours knows DeepSeek-V4
    old = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: old)
    exec(first, {})
    (command,) = commands
    assert command[-2:] == ["--quiet", "transformers>=5.24,<6"]


def test_their_layer_is_ours_and_not_without_one_of_its_parts(computed):
    q, c, said, how = (computed[name] for name in ("q", "c", "said", "how"))
    attention, rotary = computed["shared_kv_attention"], computed["rotary"]
    off = [
        (attention(q, c, rotary, **how | change) - said).abs().max()
        for change in computed["left_out"].values()
    ]
    assert off[0] < 1e-6
    assert min(off[1:]) > 1
    config = computed["config"]
    assert (config.num_attention_heads, config.head_dim, config.qk_rope_head_dim) == (4, 16, 8)
    assert computed["n"] > config.sliding_window == 8
    says("one layer of four heads, of whose 16 channels the last eight turn", "a window of eight")


def test_what_leaks(computed):
    still, moving = (torch.stack(computed["spoken"][undo]) for undo in (True, False))
    assert (still - still[0]).abs().max() < 1e-5
    step = (moving[1:] - moving[:-1]).abs().amax(1).mean(0)  # of a channel, from stop to stop
    assert step[:8].max() < 1e-5
    assert step[8:10].min() > 0.5
    assert 0.1 < step[10:12].min() < step[10:12].max() < 0.2
    assert step[12:].max() < 0.01
    shown = computed["changed"]
    assert torch.equal(shown[False], moving - moving[0])
    assert torch.equal(shown[True], still - still[0])
    says("0 to 7 stay blank and the others fill: 8 and 9 at once and back and forth, 10 and 11")
    says("10 and 11 slowly, 12 to 15 hardly", "Without the undo the rotary channels tell")


def test_what_the_model_makes_of_it(computed):
    undone, not_undone = map(torch.stack, computed["drift"].values())
    assert undone.max() < 1e-6
    later = 100 * not_undone[1:]
    assert [f"{x:.0f}" for x in (later[0], later.min(), later.max())] == ["6", "4", "19"]
    says("after one token by 6 % of their size and later by 4 to 19 %")
    says("change by 6 percent after one token and by 4 to 19 percent later", "by 4 to 19 %.")
    rises = (later[1:] > later[:-1]).tolist()
    assert sum(a != b for a, b in zip(rises[1:], rises[:-1], strict=True)) >= 5, "in waves"


def test_what_it_saves(computed):
    size = computed["size"]
    assert size["64 heads"] // size["shared"] == 128
    assert size["1 head"] == 2 * size["shared"]
    assert size["shared"] < size["V3's"] < 1.2 * size["shared"]
    says("takes 128 times less", "half of what one such pair takes", "a little less than V3's")
    v4 = DeepseekV4Config()
    assert (v4.qk_rope_head_dim, v4.head_dim, v4.num_hidden_layers) == (64, 512, 43)
    says("64 of its 512 channels turn", "as if all 43 layers kept all tokens")
    million = computed["whole"][-1] * v4.num_hidden_layers / 2**30
    assert [f"{gib:,.0f}" for gib in million.tolist()] == ["5,504", "688", "86", "48", "43"]
    says("5,504 GiB for keys and values of 64 heads, 688 for eight, 86 for one, 48 for V3's")
    says("43 for one shared latent", "halves the smallest ordinary cache")
    says("with a key and a value for each of 64 heads", "one rotation of each head's output")
    assert computed["tokens_kept"][-1] == v4.max_position_embeddings == 2**20


def test_what_the_default_config_keeps():
    v4 = DeepseekV4Config()
    assert v4.sliding_window == 128
    kinds = Counter(v4.layer_types)
    assert {kind: v4.compress_rates[kind] for kind in kinds} == v4.compress_rates
    assert sorted(v4.compress_rates.values()) == [4, 128]
    says("a window of the last 128 tokens, a layer keeps one latent for every 4 tokens")
    says("(and a small key to choose it by) or for every 128.")


def test_the_timeline_is_of_those_who_found_it_and_in_order():
    rows = re.findall(r"^\| (.*?) \| ([\w-]+) \{cite\}`(\w+)` \|", "\n".join(SOURCES), re.M)
    listed = {(name, cite) for _, name, cite in rows}
    assert {(one.name, one.cite) for one in found_again()} | {("RoVE", "garcia2026rove")} == listed
    entries = (ROOT / "book/references.bib").read_text(encoding="utf-8").split("\n@")
    urls = {
        re.search(r"\{([^,]+),", entry)[1]: re.search(r"url\s+= \{(.*)\}", entry)[1]
        for entry in entries
    }
    order = []
    for when, name, cite in rows:
        month, _, year = when.rpartition(" ")
        on_arxiv = re.search(r"arxiv\.org/abs/(\d\d)(\d\d)\.", urls[cite])
        if on_arxiv:
            assert (int(year), MONTHS.index(month) + 1) == (
                2000 + int(on_arxiv[1]),
                int(on_arxiv[2]),
            ), name
        order.append(int(year))
    assert order == sorted(order)
    years = {one.name: one.year for one in found_again()}
    assert all(int(when[-4:]) <= years.get(name, 2026) for when, name, _ in rows)
