"""FineWeb-Edu into shards: the path from the hub, walked offline on small parquet files."""

import shlex
import subprocess
import sys
from itertools import islice

import datasets
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from token_documents import files

from rove_lab import fineweb
from rove_lab.data import is_held_out
from rove_lab.fineweb import prepare_fineweb
from rove_lab.gpt2_tokenizer import load_gpt2_tokenizer
from rove_lab.shard_index import read_index
from rove_lab.token_shards import open_shards

ROWS = [
    {
        "text": " ".join(
            f"Sentence {n} of document {number}, naïve or not." for n in range(number % 7)
        ),
        "id": f"<urn:uuid:{number:08}>",
        "token_count": number % 7 * 9,
    }
    for number in range(700)
]
SETTINGS = {"shard_tokens": 4000, "held_out_one_in": 10, "progress": False}


def write_parquet(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=64)
    return path


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    """Three files in the layout of the hub, whose rows go on from file to file."""
    folder = tmp_path_factory.mktemp("parquet")
    for number in range(3):
        rows = ROWS[number * 250 : (number + 1) * 250]
        write_parquet(folder / "sample" / "10BT" / f"{number:03}_00000.parquet", rows)
    return folder


@pytest.fixture(scope="module")
def prepared(parquet, tmp_path_factory):
    folder = tmp_path_factory.mktemp("prepared")
    prepare_fineweb(folder, parquet=parquet, **SETTINGS)
    return folder


def part_by_hand(held_out):
    """One document after the other, as plainly as it can be done."""
    tokenizer = load_gpt2_tokenizer()
    chosen = [row for row in ROWS if is_held_out(row["id"], 10) == held_out]
    return [t for row in chosen for t in (*tokenizer.encode_ordinary(row["text"]), 50256)]


@pytest.mark.parametrize("held_out", [False, True])
def test_the_shards_are_the_tokens_of_the_texts_in_order(prepared, held_out):
    shards = read_index(prepared).part(held_out)
    assert len(shards) > 3
    written = np.concatenate([np.fromfile(prepared / shard.name, "<u2") for shard in shards])
    assert written.tolist() == part_by_hand(held_out)


def test_what_was_prepared_is_a_corpus_to_train_on(prepared):
    split = open_shards(prepared, n_ctx=64)
    assert split.train.d_in == 50257
    assert split.train.n_documents + split.held_out.n_documents == len(ROWS)
    inputs, _ = next(split.train.batches(8, seed=0))
    assert inputs.shape == (8, 64)
    text = load_gpt2_tokenizer().decode(part_by_hand(held_out=False))
    assert load_gpt2_tokenizer().decode(inputs[0].tolist()).strip("�") in text
    assert split.train.index.source == (
        "3 parquet file(s), 000_00000.parquet to 002_00000.parquet; tokens of GPT-2"
    )


@pytest.mark.parametrize("stop", [0, 249, 511, 512, 513, 690])
def test_stopped_anywhere_it_goes_on_to_the_same_bytes(
    tmp_path, parquet, prepared, monkeypatch, stop
):
    whole, asked = fineweb._documents, []

    def cut_short(names, start, tokenizer):
        yield from islice(whole(names, start, tokenizer), stop)
        raise KeyboardInterrupt

    def watched(names, start, tokenizer):
        asked.append(start)
        return whole(names, start, tokenizer)

    monkeypatch.setattr(fineweb, "_documents", cut_short)
    with pytest.raises(KeyboardInterrupt):
        prepare_fineweb(tmp_path, parquet=parquet, **SETTINGS)
    with pytest.raises(ValueError, match=r"(?s)unfinished preparation. Go on with: python -c"):
        open_shards(tmp_path, n_ctx=8)
    kept = read_index(tmp_path).documents
    monkeypatch.setattr(fineweb, "_documents", watched)
    prepare_fineweb(tmp_path, parquet=parquet, **SETTINGS)
    assert asked == [kept]
    ours, theirs = files(tmp_path), files(prepared)
    ours.pop("index.json"), theirs.pop("index.json")  # they name the folder
    assert ours == theirs


def test_the_command_that_goes_on_does(tmp_path, parquet, prepared):
    folder = tmp_path / "a 'quoted' folder"
    prepare_fineweb(folder, parquet=parquet, n_tokens=5000, **SETTINGS)
    index = read_index(folder)
    assert index.tokens < 5100
    lost = folder / index.shards[0].name
    content = lost.read_bytes()
    lost.unlink()
    command = shlex.split(index.go_on)
    subprocess.run([sys.executable, *command[1:]], check=True, capture_output=True)
    assert lost.read_bytes() == content


def test_the_hub_is_asked_for_the_pinned_sample_and_gives_the_same(
    tmp_path, parquet, prepared, monkeypatch
):
    load, asked = datasets.load_dataset, []

    def hub(path, **how):
        asked.append((path, how))
        names = [str(file) for file in sorted(parquet.rglob("*.parquet"))]
        return load("parquet", data_files=names, split=how["split"], streaming=how["streaming"])

    monkeypatch.setattr(datasets, "load_dataset", hub)
    index = prepare_fineweb(tmp_path, **SETTINGS)
    assert index.shards == read_index(prepared).shards
    how = {"name": "sample-10BT", "revision": fineweb.REVISION, "split": "train", "streaming": True}
    assert asked == [("HuggingFaceFW/fineweb-edu", how)]
    assert index.source.startswith("HuggingFaceFW/fineweb-edu, sample-10BT, revision 87f09149")


def test_without_an_id_the_text_itself_decides_what_is_held_out(tmp_path):
    rows = [{"text": f"The text number {number % 50}."} for number in range(100)]  # each twice
    file = write_parquet(tmp_path / "own.parquet", rows)
    index = prepare_fineweb(tmp_path / "shards", parquet=file, **SETTINGS)
    held_out = sum(is_held_out(row["text"], 10) for row in rows)
    assert sum(shard.documents for shard in index.part(held_out=True)) == held_out
    assert held_out % 2 == 0, "copies of a text are never in both parts"


def test_a_text_that_spells_the_end_of_a_text_does_not_end_one(tmp_path):
    rows = [{"text": "one<|endoftext|>two", "id": 7}, {"text": "three", "id": None}]
    file = write_parquet(tmp_path / "own.parquet", rows)
    index = prepare_fineweb(tmp_path / "shards", parquet=file, **SETTINGS)
    stored = [np.fromfile(tmp_path / "shards" / shard.name, "<u2") for shard in index.shards]
    assert sum((tokens == 50256).sum() for tokens in stored) == 2


# What is refused


def test_out_of_the_hubs_reach_it_says_what_to_do(tmp_path):
    words = r"(?s)expected HuggingFaceFW/fineweb-edu from .*unset HF_HUB_OFFLINE .* or give parquet"
    with pytest.raises(FileNotFoundError, match=words):
        prepare_fineweb(tmp_path / "shards", **SETTINGS)
    file = write_parquet(tmp_path / "own.parquet", ROWS[:20])
    prepare_fineweb(tmp_path / "shards", parquet=file, **SETTINGS)  # nothing stands in its way


def test_files_that_will_not_do_are_refused_by_name(tmp_path):
    def prepare(path):
        prepare_fineweb(tmp_path / "shards", parquet=path, **SETTINGS)

    for path in (tmp_path / "missing.parquet", tmp_path):
        with pytest.raises(FileNotFoundError, match="expected a parquet file or a folder of them"):
            prepare(path)
    (tmp_path / "bad.parquet").write_bytes(b"no parquet")
    with pytest.raises(ValueError, match=r"expected a parquet file, got .*bad\.parquet: "):
        prepare(tmp_path)
    for rows, words in (
        (
            [{"content": "a", "n": 1}],
            r"'text' of strings in .*, got the columns content \(string\), n",
        ),
        ([{"text": 1}], r"got the columns text \(int64\): rename the one that holds the text"),
        ([{"text": "a"}, {"text": None}], "expected a text in every row, got none in row 1 "),
    ):
        with pytest.raises(ValueError, match=words):
            prepare(write_parquet(tmp_path / "own.parquet", rows))


def test_what_is_missing_is_named(tmp_path, monkeypatch):
    file = write_parquet(tmp_path / "own.parquet", ROWS[:20])
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match=r'datasets is .* missing: pip install "rove-lab\[train'):
        prepare_fineweb(tmp_path / "shards", parquet=file, **SETTINGS)


def test_importing_it_loads_none_of_what_it_reads_with():
    """The command line imports it for its words."""
    code = "import sys, rove_lab.fineweb; print({'datasets', 'tiktoken'} & {*sys.modules})"
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
