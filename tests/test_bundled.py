"""The models that come with the package: whole, and the ones that the record is of."""

import shutil
import subprocess
import sys

import pytest

from rove_lab import bundled
from rove_lab.bundled import SHA256, bundled_folder
from rove_lab.records import open_record


def test_they_are_the_ones_that_the_record_is_of():
    assert open_record("byte_pair").config["sha256"] == SHA256


@pytest.mark.parametrize("name", SHA256)
def test_a_folder_holds_a_model_and_nothing_else(name):
    found = sorted(file.name for file in bundled_folder(name).iterdir())
    assert found == ["config.json", "model.safetensors"]


@pytest.fixture
def copied(tmp_path, monkeypatch):
    """An installation of one's own, to be damaged."""
    for name in SHA256:
        shutil.copytree(bundled_folder(name), tmp_path / "byte_models" / name)
    monkeypatch.setattr(bundled, "__file__", str(tmp_path / "bundled.py"))
    return tmp_path / "byte_models"


def test_another_name_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match=r"expected .* byte-rope or byte-rove, got 'gpt2'"):
        bundled_folder("gpt2")


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_one_bit_is_noticed(copied, file):
    file = copied / "byte-rove" / file
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"expected SHA-256 .*got .*: the file is damaged"):
        bundled_folder("byte-rove")
    assert bundled_folder("byte-rope") == copied / "byte-rope"


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_a_missing_file_is_named(copied, file):
    (copied / "byte-rope" / file).unlink()
    with pytest.raises(FileNotFoundError, match=rf"expected .*{file}, got no such file"):
        bundled_folder("byte-rope")


def test_without_safetensors_it_says_what_to_install():
    code = """
import sys
sys.modules["safetensors"] = None
from rove_lab.model import load_pretrained
try:
    load_pretrained("byte-rove")
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 'pip install "rove-lab[training]"' in done.stdout
