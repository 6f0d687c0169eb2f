"""Sphinx extension: notebooks run alike everywhere, and again when what they import has changed.

myst-nb's cache looks at a notebook's own cells. Here it lies in a folder named after a hash of
rove_lab and of the pinned requirements, so that a change in either starts an empty one.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from pathlib import Path
from typing import Any


def fingerprint(root: Path) -> str:
    """A short hash of the sources, pins and records that a notebook's outputs depend on."""
    digest = hashlib.sha256()
    sources = sorted((root / "rove_lab").rglob("*.py"))
    # How notebooks are executed, and what is recorded of it, is part of what the cache holds.
    how = [root / "book" / "_ext" / f"{name}.py" for name in ("notebook_cache", "execution_record")]
    records = sorted((root / "results").glob("*/record.json"))
    # tools/steps.py names the version of the package that brings a pretrained model.
    pins = [root / name for name in ("requirements.txt", "constraints.txt", "tools/steps.py")]
    for path in [*sources, *how, *records, *pins]:
        if path.exists():
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def plain_ipython(folder: Path) -> Path:
    """An IPython of the book's own: no start-up files of the reader's, no chatter of kernels."""
    profile = folder / "profile_default"
    profile.mkdir(parents=True, exist_ok=True)
    # Errors only: by default each kernel warns that it listens to this machine unencrypted.
    (profile / "ipython_kernel_config.py").write_text("get_config().IPKernelApp.log_level = 40\n")
    return folder


def prepare(app: Any, config: Any) -> None:
    """Choose the cache and the surroundings of the notebooks' kernels, which inherit ours."""
    root = Path(app.srcdir)
    caches = Path(app.outdir).parent / ".jupyter_cache"
    chosen = caches / fingerprint(root)
    for old in caches.glob("*"):
        if old.is_dir() and old != chosen:
            shutil.rmtree(old)
    # Sphinx reads every page again when this value changes, and an empty cache runs every notebook.
    config.nb_execution_cache_path = str(chosen)
    os.environ["ROVE_BOOK_BUILD"] = "1"  # rove_lab.notebook.where() reads it
    os.environ["PLOTLY_RENDERER"] = "plotly_mimetype"
    os.environ["IPYTHONDIR"] = str(plain_ipython(Path(app.outdir).parent / ".ipython"))
    # The code of this checkout, installed or not: for the kernels, and for autodoc in this process.
    inherited = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(root), *filter(None, inherited)])
    sys.path.insert(0, str(root))


def setup(app: Any) -> dict[str, Any]:
    """Before myst-nb reads its configuration (priority 500)."""
    app.connect("config-inited", prepare, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
