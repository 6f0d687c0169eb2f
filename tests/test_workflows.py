"""The workflows of GitHub: they call what `make` has, with few rights and no one else's code."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).resolve().parent.parent
FILES = sorted((ROOT / ".github" / "workflows").glob("*"))
TEXTS = {path.name: path.read_text(encoding="utf-8") for path in FILES}
# PyYAML reads the key `on` as YAML 1.1 does: as true.
FLOWS = {name: {str(key): it for key, it in yaml.safe_load(TEXTS[name]).items()} for name in TEXTS}
JOBS = {
    f"{name} {key}": job
    for name, workflow in FLOWS.items()
    for key, job in workflow["jobs"].items()
}
TARGETS = set(
    re.findall(r"^([a-z-]+):.*## ", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
)

each_workflow = pytest.mark.parametrize("name", FLOWS)
each_job = pytest.mark.parametrize("job", JOBS.values(), ids=JOBS)


def rows(job: dict) -> list[dict[str, str]]:
    """The runs of a job: the rows of its matrix, or one without."""
    return job.get("strategy", {}).get("matrix", {}).get("include", [{}])


def filled(words: str, row: dict[str, str]) -> str:
    return re.sub(r"\$\{\{ matrix\.(\w+) \}\}", lambda found: row[found[1]], words)


def commands(job: dict) -> list[str]:
    """What a job runs, in each row of its matrix."""
    return [filled(step["run"], row) for row in rows(job) for step in job["steps"] if "run" in step]


def test_the_workflows_are_there() -> None:
    assert {*FLOWS} == {"test.yml", "nightly.yml", "pages.yml"}


@each_workflow
def test_a_workflow_may_read_and_no_more(name: str) -> None:
    assert FLOWS[name]["permissions"] == {"contents": "read"}
    assert "secrets." not in TEXTS[name]
    assert "pull_request_target" not in TEXTS[name]
    granted = {key: job["permissions"] for key, job in JOBS.items() if "permissions" in job}
    assert granted == {"pages.yml publish": {"pages": "write", "id-token": "write"}}


@each_job
def test_a_job_runs_a_target_of_make_or_ci_run(job: dict) -> None:
    for command in commands(job):
        made = re.fullmatch(r"make ([a-z-]+)", command)
        assert command == "bash .ci/run" or (made and made[1] in TARGETS), command


def test_each_of_what_they_are_for_is_run() -> None:
    run = {command for job in JOBS.values() for command in commands(job)}
    assert run == {
        "bash .ci/run", "make test-newest", "make test-lowest", "make test-notebooks", "make audit",
        "make book",
    }  # fmt: skip
    assert "schedule" in FLOWS["nightly.yml"]["True"]
    assert {"push", "pull_request"} == {*FLOWS["test.yml"]["True"]}


@each_job
def test_a_job_ends_and_takes_actions_of_github_alone(job: dict) -> None:
    assert 0 < job["timeout-minutes"] <= 120
    for step in job["steps"]:
        if "uses" in step:
            assert re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"])
            if "checkout" in step["uses"]:
                assert step["with"]["persist-credentials"] is False


@each_job
def test_a_python_is_one_that_the_package_is_for(job: dict) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    allowed = SpecifierSet(project["requires-python"])
    named = [
        filled(step["with"]["python-version"], row)
        for row in rows(job)
        for step in job["steps"]
        if "setup-python" in step.get("uses", "")
    ]
    assert len(named) == (len(rows(job)) if commands(job) else 0)
    assert all(version in allowed for version in named)


@each_job
def test_make_takes_the_python_that_is_set_up(job: dict) -> None:
    """A runner's own may be newer, and find_python.sh takes the newest."""
    (workflow,) = (flow for flow in FLOWS.values() if job in flow["jobs"].values())
    given = workflow.get("env", {}) | job.get("env", {})
    for row in rows(job):
        for step in job["steps"]:
            if "setup-python" in step.get("uses", ""):
                version = filled(step["with"]["python-version"], row)
                assert filled(given["PYTHON"], row) == f"python{version}"


def test_the_ends_of_what_is_promised_get_their_python() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest, before = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", project["requires-python"]).groups()
    given = {row["target"]: row["python"] for row in rows(JOBS["test.yml core"])}
    assert given == {"test-newest": f"3.{int(before) - 1}", "test-lowest": f"3.{oldest}"}


def test_the_change_of_the_last_commit_is_seen() -> None:
    """test_isolation asks git what changed since the commit before."""
    (checkout,) = (step for step in JOBS["test.yml everything"]["steps"] if "with" in step
                   and "fetch-depth" in step["with"])  # fmt: skip
    assert checkout["with"]["fetch-depth"] >= 2


def test_what_is_published_is_what_make_builds() -> None:
    build = JOBS["pages.yml build"]["steps"]
    assert [step["with"]["path"] for step in build if "upload" in step.get("uses", "")] == [
        "_build/html"
    ]
    assert JOBS["pages.yml publish"]["needs"] == "build"
