"""All scripts under experiments/ and all records under results/: each belongs to the other."""

import json
import math
import os
import re
import subprocess
import sys
from dataclasses import fields, is_dataclass
from numbers import Real

import pytest
from experiment_scripts import ROOT, as_recorded, names, script

from rove_lab.experiment import Experiment, described
from rove_lab.records import open_record, read_record

RECORDS = {path.parent.name: path for path in sorted(ROOT.glob("results/*/record.json"))}
MEASURED = {  # by other means
    "compatibility": "experiments",
    "rotation_speed": "benchmarks",
    "mutation": "benchmarks",
    "numerics": "benchmarks",
    "training_step": "benchmarks",
}
SCRIPTS = sorted(path.stem for path in ROOT.glob("experiments/*.py") if path.stem not in MEASURED)


ON_A_GPU = {slug for slug in RECORDS if slug.startswith("gpu_")}  # benchmarks/on_gpu.py


@pytest.fixture
def experiment(request, monkeypatch):
    return script(request.param, monkeypatch).EXPERIMENT


every_script = pytest.mark.parametrize("experiment", SCRIPTS, indirect=True, ids=SCRIPTS)


def test_every_record_has_a_script_and_every_script_a_record():
    assert {*RECORDS} == {*SCRIPTS, *MEASURED, *ON_A_GPU}
    for slug, folder in MEASURED.items():
        assert (ROOT / folder / f"{slug}.py").exists()
    assert not [path.name for path in (ROOT / "results").iterdir()
                if path.is_dir() and path.name not in RECORDS]  # fmt: skip


@pytest.mark.parametrize("slug", RECORDS)
def test_a_record_keeps_to_the_schema_and_the_log_says_what_was_seen(slug):
    record = read_record(RECORDS[slug])
    assert open_record(slug) == record
    assert (record.kind == "measurement") == (slug in {*MEASURED, *ON_A_GPU})
    assert not record.commit.endswith("-dirty")
    assert {"python", "torch"} <= {*record.versions}
    assert record.cpu_s > 0
    log = (ROOT / "results" / "LOG.md").read_text(encoding="utf-8")
    assert re.search(rf"^- \d{{4}}-\d\d-\d\d, `{slug}`: \S", log, re.MULTILINE)


@every_script
def test_a_script_is_an_experiment_of_its_own_name(experiment):
    assert isinstance(experiment, Experiment)
    assert experiment.slug in SCRIPTS
    assert experiment.run.__code__.co_filename == str(ROOT / f"experiments/{experiment.slug}.py")
    assert experiment.root == ROOT
    assert experiment.kind in ("experiment", "checkpoint")
    assert experiment.seeds >= (3 if experiment.kind == "experiment" else 1)


@every_script
def test_the_record_says_what_the_script_sets(experiment):
    record = read_record(RECORDS[experiment.slug])
    assert record.question == experiment.question
    assert record.kind == experiment.kind
    assert record.seeds == [*range(experiment.seeds)]
    if experiment.kind == "experiment":
        config = json.loads(json.dumps(experiment.config(experiment.budget)))
        assert record.config == as_recorded(config, record.config)
    else:  # what was written depends on the machine: its marks are in the config
        budget = described(experiment.budget)
        assert as_recorded(budget, record.config).items() <= record.config.items()


@every_script
def test_a_record_has_numbers_for_every_job(experiment):
    values = read_record(RECORDS[experiment.slug]).values
    for job in experiment.jobs(experiment.budget):
        at = values
        for name in job:
            at = at[name]
        assert at


def numbers(thing):
    """All numbers inside a budget."""
    if is_dataclass(thing):
        thing = [getattr(thing, field.name) for field in fields(thing) if field.init]
    if isinstance(thing, dict):
        thing = [*thing, *thing.values()]
    if isinstance(thing, (list, tuple)):
        return [number for inside in thing for number in numbers(inside)]
    return [thing] if isinstance(thing, Real) else []


@every_script
def test_there_is_a_budget_for_two_cores_and_a_larger_one_for_a_gpu(experiment):
    assert experiment.budget != experiment.gpu_budget
    assert type(experiment.budget) is type(experiment.gpu_budget)
    for budget in (experiment.budget, experiment.gpu_budget):
        assert all(math.isfinite(number) for number in numbers(budget))
        jobs = [*experiment.jobs(budget)]
        assert len({*jobs}) == len(jobs) > 0


def test_a_record_is_made_anew_by_one_command(tmp_path):
    record = read_record(RECORDS["messenger"])
    command = [sys.executable, "experiments/messenger.py", "--folder", str(tmp_path)]
    for trial in record.config:
        command += ["--change", f"trials.{trial}.training.steps=1"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert "[96/96] " in done.stdout
    again = read_record(tmp_path)
    assert names(again.values) == names(record.values)
    assert again.values != record.values
    for trial in again.config.values():
        assert trial["training"].pop("steps") == 1
    for trial in record.config.values():
        trial["training"].pop("steps")
    assert record.config == as_recorded(again.config, record.config)
    assert (again.question, again.kind, again.seeds) == (
        record.question,
        record.kind,
        record.seeds,
    )


def test_a_change_that_cannot_be_is_refused_with_its_reason(tmp_path):
    command = [sys.executable, "experiments/messenger.py", "--change", "trials.edges.steps=1"]
    command += ["--folder", str(tmp_path)]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=env)
    assert done.returncode != 0
    assert "expected a name among distance recall, ordered pair, edge, 4 orth" in done.stderr
