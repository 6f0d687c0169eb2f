"""Records: what is written is what is read, and what is wrong is refused by name."""

import json
import math
import re
import tomllib
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from rove_lab import records
from rove_lab.records import Record, check_folder, open_record, read_record, write_record

ROOT = Path(__file__).resolve().parents[1]
RECORD = Record(
    question="Does it, μ?",
    kind="experiment",
    config={"steps": 3, "rows": {"1 head": {"n_heads": 1}}},
    seeds=[0, 1, 2],
    values={"RoPE": {"1 head": {"both": [0.1, 0.2, 0.3]}}, "steps": [1, 2, 3]},
    versions={"torch": "2.13.0"},
    device="CPU",
    wall_s=1.5,
    cpu_s=2.0,
    commit="0123456789abcdef" * 2 + "01234567",
)


def test_a_record_comes_back_as_it_was_written(tmp_path):
    path = write_record(RECORD, tmp_path / "new" / "slug")
    assert path == tmp_path / "new" / "slug" / "record.json"
    assert read_record(path) == read_record(path.parent) == RECORD
    text = path.read_text(encoding="utf-8")
    assert '"both": [0.1, 0.2, 0.3]' in text
    assert "μ" in text


def test_texts_come_back_as_they_were(tmp_path):
    config = {
        "words": ["a  b", "c"],
        "empty": [],
        "numbers": [1, -2.5e-7],
        "deep": [[1, 2], ["[ x,  y ]"]],
    }
    record = replace(RECORD, question="is [ a ] interval  [ x,   y ] fine?", config=config)
    assert read_record(write_record(record, tmp_path)) == record


@pytest.mark.parametrize("config", [{1: 2}, {"sizes": (1, 2)}])
def test_what_json_would_bring_back_otherwise_is_refused(config, tmp_path):
    with pytest.raises(TypeError, match="a record that JSON can hold"):
        write_record(replace(RECORD, config=config), tmp_path)
    assert not (tmp_path / "record.json").exists()


def test_a_table_shows_the_mean_and_the_spread_of_every_cell():
    values = {
        "task": {
            "RoPE": {"1 head": {"both": [0.1, 0.2, 0.6]}, "MLP": {"both": [0, 0, 0]}},
            "RoVE": {"1 head": {"both": [1.0, 1.0, 0.7]}, "MLP": {"both": [1, 1, 1]}},
        }
    }
    lines = replace(RECORD, values=values).table("task", score="both").splitlines()
    assert [line.split() for line in lines] == [
        ["RoPE", "RoVE"],
        ["1", "head", "0.300", "[0.100,", "0.600]", "0.900", "[0.700,", "1.000]"],
        ["MLP", "0.000", "[0.000,", "0.000]", "1.000", "[1.000,", "1.000]"],
    ]
    assert len({len(line) for line in lines}) == 1
    means = replace(RECORD, values=values).means("task", score="both")
    assert means == {"RoPE": [pytest.approx(0.3), 0], "RoVE": [pytest.approx(0.9), 1]}
    curves = replace(RECORD, values=values).curves("task", score="both")
    for arm, rows in values["task"].items():
        for seed, curve in enumerate(curves[arm]):
            assert curve == [cell["both"][seed] for cell in rows.values()]
    assert {arm: len(seeds) for arm, seeds in curves.items()} == {"RoPE": 3, "RoVE": 3}
    with pytest.raises(ValueError, match="expected a name among task, got 'other'"):
        replace(RECORD, values=values).table("other", score="both")
    with pytest.raises(ValueError, match="expected a name among both, got 'token'"):
        replace(RECORD, values=values).table("task", score="token")
    for names in (("task", "RoPE"), ("task", "RoPE", "MLP"), ("task", "RoPE", "MLP", "both")):
        with pytest.raises(ValueError, match=r"give fewer|got one more"):
            replace(RECORD, values=values).table(*names, score="both")
    with pytest.raises(ValueError, match="got one more: 'x'"):
        replace(RECORD, values=values).table("task", "RoPE", "MLP", "both", "x", score="both")
    with pytest.raises(ValueError, match="expected numbers in values\\['RoVE'\\], got none"):
        replace(RECORD, values={"RoVE": {}})


def test_the_schema_is_the_contract_s():
    words = "question kind config seeds values versions device wall_s cpu_s commit"
    assert list(asdict(RECORD)) == words.split()


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"question": " "}, ValueError, "expected question in words, got an empty string"),
        ({"question": None}, TypeError, "expected question to be a string, got None"),
        ({"kind": "trial"}, ValueError, "kind among experiment, measurement, checkpoint, got 'tri"),
        ({"config": []}, TypeError, r"expected config to be a dict, got \[\]"),
        ({"seeds": (0, 1, 2)}, TypeError, r"expected seeds to be a list, got \(0, 1, 2\)"),
        ({"seeds": [0, 1, 1]}, ValueError, r"expected seeds that differ, got \[0, 1, 1\]"),
        ({"seeds": [0, 1, 2.0]}, TypeError, "expected seeds as integers, got 2.0"),
        ({"seeds": [0, 1]}, ValueError, "expected 3 seeds or more for kind 'experiment', got 2"),
        ({"seeds": [], "kind": "checkpoint"}, ValueError, "expected 1 seeds or more for kind 'che"),
        ({"values": {}}, ValueError, "expected values, got none"),
        ({"values": {"a": [1, 2]}}, ValueError, r"values\['a'\] with 3 numbers, one a seed, got 2"),
        ({"values": {"a": 1}}, TypeError, r"values\['a'\] to be a list of one number a seed"),
        ({"values": {"a": {"b": [1, 2, "3"]}}}, TypeError, r"numbers in values\['a'\]\['b'\], got"),
        ({"values": {"a": [1, True, 2]}}, TypeError, "got True"),
        (
            {"values": {"a": [1, math.nan, 2]}},
            ValueError,
            r"finite numbers in values\['a'\], got n",
        ),
        ({"versions": "2"}, TypeError, "expected versions to be a dict"),
        ({"device": ""}, ValueError, "expected device in words"),
        ({"wall_s": -1}, ValueError, "expected wall_s of 0 seconds or more, got -1"),
        ({"wall_s": math.inf}, ValueError, "expected wall_s of 0 seconds or more, got inf"),
        ({"cpu_s": "2 s"}, TypeError, "expected cpu_s in seconds, got '2 s'"),
        ({"commit": "main"}, ValueError, "expected a commit of 40 hex digits.*got 'main'"),
    ],
)
def test_a_bad_record_is_refused(change, error, words):
    with pytest.raises(error, match=words):
        replace(RECORD, **change)


def test_a_measurement_may_have_one_seed():
    assert replace(RECORD, kind="measurement", seeds=[0], values={"ms": [3.0]}).seeds == [0]


def test_a_bad_file_is_refused(tmp_path):
    path = tmp_path / "record.json"
    with pytest.raises(FileNotFoundError):
        read_record(path)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(ValueError, match=r"expected JSON in .*record\.json"):
        read_record(path)
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(ValueError, match=r"expected the fields of a record.*'commit'.*missing"):
        read_record(path)
    fields = asdict(RECORD)
    fields["colour"] = fields.pop("device")
    path.write_text(json.dumps(fields), encoding="utf-8")
    with pytest.raises(ValueError, match=r"\['device'\] missing and \['colour'\] unknown"):
        read_record(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"config": {"a": 1, "a": 2}}', r"a name twice in \['a', 'a'\]"),
        ('{"config": {"a": NaN}}', "NaN, which JSON has no word for"),
        ('{"config": {"a": -Infinity}}', "-Infinity, which JSON has no word for"),
    ],
)
def test_what_two_readers_would_read_differently_is_refused(tmp_path, text, words):
    path = tmp_path / "record.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=rf"expected JSON in .*record\.json.*{words}"):
        read_record(path)


def test_a_huge_integer_is_a_number():
    values = {"RoVE": {"accuracy": [10**400] * len(RECORD.seeds)}}
    assert replace(RECORD, values=values).values == values


def test_what_json_cannot_hold_is_refused(tmp_path):
    with pytest.raises(TypeError, match="not JSON serializable"):
        write_record(replace(RECORD, config={"path": Path()}), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_record_that_is_not_there_names_those_that_are():
    with pytest.raises(ValueError, match=r"expected a record among \[.*'messenger'.*got 'none'"):
        open_record("none")


def test_a_wheel_holds_every_record_that_a_chapter_or_the_package_opens():
    texts = [path.read_text(encoding="utf-8") for path in ROOT.glob("book/*.ipynb")]
    texts += [path.read_text(encoding="utf-8") for path in ROOT.glob("rove_lab/*.py")]
    opened = {slug for text in texts for slug in re.findall(r'open_record\(\\?"([\w-]+)', text)}
    assert opened
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    held = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    files = [f"results/{slug}/record.json" for slug in opened]
    assert {file: held.get(file) for file in files} == {file: f"rove_lab/{file}" for file in files}


def test_an_installed_package_brings_its_records(tmp_path, monkeypatch):
    write_record(RECORD, tmp_path / "rove_lab" / "results" / "slug")
    monkeypatch.setattr(records, "__file__", str(tmp_path / "rove_lab" / "records.py"))
    assert open_record("slug") == RECORD


def test_a_folder_that_cannot_be_written_to_is_refused_and_nothing_made(tmp_path):
    check_folder(tmp_path / "new" / "deep")
    assert [*tmp_path.iterdir()] == []
    (tmp_path / "file").touch()
    (tmp_path / "taken" / "record.json").mkdir(parents=True)
    for folder in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "taken"):
        with pytest.raises(ValueError, match=r"expected a folder to write record\.json to, got"):
            check_folder(folder)
