"""The libraries a page needs are found in the installed packages and copied beside it, once."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "book" / "_ext"))

import offline_pages


def test_assets_are_copied_once(tmp_path: Path) -> None:
    app = SimpleNamespace(outdir=str(tmp_path), builder=SimpleNamespace(format="html"))
    offline_pages.copy_assets(app, None)
    vendor = tmp_path / "_static" / "vendor"
    plotly = vendor / "plotly.min.js"
    assert plotly.read_text(encoding="utf-8").lstrip().startswith("/**\n* plotly.js v")
    for part in ["tex-svg.js", "a11y/assistive-mml.js", "input/tex/extensions/boldsymbol.js"]:
        assert (vendor / "mathjax" / part).stat().st_size > 1000
    written = plotly.stat().st_mtime_ns
    (vendor / "mathjax" / "tex-svg.js").write_text("cut short")
    offline_pages.copy_assets(app, None)
    assert plotly.stat().st_mtime_ns == written
    assert (vendor / "mathjax" / "tex-svg.js").stat().st_size > 1_000_000


@pytest.mark.parametrize(
    ("kind", "exception"), [("latex", None), ("html", RuntimeError("the build failed"))]
)
def test_nothing_is_copied_for_other_builders_or_after_a_failure(
    tmp_path: Path, kind: str, exception: Exception | None
) -> None:
    app = SimpleNamespace(outdir=str(tmp_path), builder=SimpleNamespace(format=kind))
    offline_pages.copy_assets(app, exception)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_says_what_to_install() -> None:
    with pytest.raises(FileNotFoundError, match=r"plotly/no\.js is not in the installed plotly"):
        offline_pages.installed("plotly", "plotly/no.js")
