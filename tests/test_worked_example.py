"""The worked example of the reference runs as it stands."""

import re
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "book" / "api_evaluation.md"


def test_the_worked_example_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    code = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(code) == 2
    names = {}
    for part in code:
        exec(compile(part, str(PAGE), "exec"), names)
    said = capsys.readouterr().out
    assert said.count("step 20 of 20") == 2
    assert "{32: " in said
    assert re.search(r"\{64: .*\} chance 0.0625", said)
    assert (tmp_path / "pair" / "checkpoint-20").is_dir()
