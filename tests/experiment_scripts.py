"""The scripts under experiments/ and benchmarks/ as modules."""

import sys
from dataclasses import fields
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from rove_lab.data import standard_library
from rove_lab.train_config import TrainConfig

ROOT = Path(__file__).resolve().parents[1]


def script(name, monkeypatch, folder="experiments"):
    """A script as a module that this test alone sees."""
    spec = spec_from_file_location(f"{name}_script", ROOT / folder / f"{name}.py")
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, f"{name}_script", module)
    spec.loader.exec_module(module)
    return module


def script_on_small_files(name, monkeypatch, folder):
    """A script whose standard library is 40 small files in a folder that is not there yet."""
    module = script(name, monkeypatch)
    folder.mkdir()
    for number in range(40):
        (folder / f"file_{number}.py").write_bytes(b"value = %d\n" % number * 40)
    monkeypatch.setattr(module, "standard_library", lambda n_ctx: standard_library(n_ctx, folder))
    return module


def names(values):
    """The nested names of a record's values, without the numbers."""
    return {k: names(v) for k, v in values.items()} if isinstance(values, dict) else None


def as_recorded(config, record):
    """What a script sets, without settings that came after the record and change nothing.

    A record lists what could be set when it was made. A field of `TrainConfig` that is newer may be
    missing there, as long as the script leaves it as it is by default.
    """
    if not (isinstance(config, dict) and isinstance(record, dict)):
        return config
    defaults = {field.name: field.default for field in fields(TrainConfig)}
    return {
        name: as_recorded(value, record.get(name))
        for name, value in config.items()
        if name in record or name not in defaults or value != defaults[name]
    }
