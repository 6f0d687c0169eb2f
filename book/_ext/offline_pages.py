"""Sphinx extension: what a page would fetch from a CDN lies beside it, copied at build time.

MathJax comes from the package sphinx-mathjax-offline and plotly.js from the installed plotly, so
the pages open from a disk with no network, and the project holds no file of a third party.
"""

from __future__ import annotations

import shutil
from importlib.metadata import files
from pathlib import Path
from typing import Any

# Distribution, folder or file in it, place under _static/vendor. MathJax's parts are what its SVG
# output may ask for later: rare TeX macros, and the menu's help for screen readers.
MATHJAX = "sphinx-mathjax-offline/static/mathjax"
ASSETS = [
    ("plotly", "plotly/package_data/plotly.min.js", "plotly.min.js"),
    *(
        ("sphinx-mathjax-offline", f"{MATHJAX}/{part}", f"mathjax/{part}")
        for part in ["tex-svg.js", "a11y", "input/tex", "sre", "ui"]
    ),
]


def installed(distribution: str, path: str) -> list[tuple[Path, str]]:
    """The files of an installed distribution at or under `path`, with their names from there."""
    found = [
        (Path(str(file.locate())), file.as_posix().removeprefix(path))
        for file in files(distribution) or []
        if file.as_posix() == path or file.as_posix().startswith(f"{path}/")
    ]
    if not found:
        raise FileNotFoundError(
            f"{path} is not in the installed {distribution}; install requirements.txt again"
        )
    return found


def copy_assets(app: Any, exception: Exception | None) -> None:
    """Copy the assets beside the pages, those that are not there yet."""
    if exception or app.builder.format != "html":
        return
    vendor = Path(app.outdir) / "_static" / "vendor"
    for distribution, path, place in ASSETS:
        for source, name in installed(distribution, path):
            target = vendor / f"{place}{name}"
            if not target.exists() or target.stat().st_size != source.stat().st_size:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)


def setup(app: Any) -> dict[str, Any]:
    """Copy once the pages are written: Sphinx has made `_static` by then."""
    app.connect("build-finished", copy_assets)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
