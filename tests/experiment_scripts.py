"""The scripts under experiments/ and benchmarks/ as modules."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def script(name, monkeypatch, folder="experiments"):
    """A script as a module that this test alone sees."""
    spec = spec_from_file_location(f"{name}_script", ROOT / folder / f"{name}.py")
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, f"{name}_script", module)
    spec.loader.exec_module(module)
    return module


def names(values):
    """The nested names of a record's values, without the numbers."""
    return {k: names(v) for k, v in values.items()} if isinstance(values, dict) else None
