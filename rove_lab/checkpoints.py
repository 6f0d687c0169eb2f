r"""A model on disk: its weights as safetensors, its config as JSON, each write all or nothing."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rove_lab.model import GPT, GPTConfig

try:
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import load_model as load_weights_into
    from safetensors.torch import save_model as write_weights
except ImportError as error:
    raise ImportError(
        'checkpoints need safetensors, which is missing: pip install "rove-lab[training]"'
    ) from error

__all__ = ["load_model", "load_weights", "save_model", "save_weights", "sha256", "write_folder"]

_CONFIG, _WEIGHTS = "config.json", "model.safetensors"
_KIND = "rove-lab-gpt"


def save_model(model: GPT, folder: Path | str) -> Path:
    """Write a model into a folder: ``config.json`` and ``model.safetensors``.

    The folder is complete or not there at all: it is written under another name and renamed. One
    that held a model before is replaced.

    Args:
        model: The model; its weights are stored in their dtype.
        folder: Where to.

    Returns:
        The folder.

    Raises:
        TypeError: If ``model`` is not a :class:`GPT`.
        ValueError: If the folder holds something else than a model.
        OSError: If the disk is full; what was there before is kept.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     load_model(save_model(GPT(GPTConfig()), f"{folder}/mine")).config.n_layers
        2
    """
    if not isinstance(model, GPT):
        raise TypeError(
            f"expected a GPT, got {type(model).__name__}: a Hugging Face model has "
            "save_pretrained, any other torch.nn.Module has save_weights here."
        )
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"expected a folder for the model, got the file {folder}: choose another.")
    found = [file.name for file in folder.glob("*")]
    others = [name for name in found if name not in (_CONFIG, _WEIGHTS)]
    if found and not others and not _is_ours(folder):
        others = found  # under the names that transformers gives, too
    if others:
        raise ValueError(
            f"expected a new folder or a model's, got {folder} with {sorted(others)[0]!r} in it: "
            "choose a folder of the model's own."
        )
    return write_folder(folder, lambda place: save_weights(model, place))


def load_model(folder: Path | str) -> GPT:
    """Read a model back from the folder that :func:`save_model` or a training run wrote.

    Args:
        folder: Holds ``config.json`` and ``model.safetensors``.

    Returns:
        The model on the CPU, in evaluation mode, with the stored dtype.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is damaged, or the weights do not fit the config.

    Example:
        >>> load_model("no/such/folder")
        Traceback (most recent call last):
        FileNotFoundError: expected config.json in no/such/folder, ...
    """
    folder = Path(folder)
    stored = read_json(folder / _CONFIG)
    if stored.pop("kind", None) != _KIND:
        raise ValueError(
            f"expected the config of a {_KIND} in {folder / _CONFIG}, got another kind of file: "
            "load_causal_lm reads Hugging Face models."
        )
    unknown = stored.keys() - GPTConfig.__dataclass_fields__.keys()
    if unknown:
        raise ValueError(
            f"expected fields of GPTConfig in {folder / _CONFIG}, got {sorted(unknown)}: was it "
            "written by a newer rove_lab?"
        )
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        model = GPT(GPTConfig(**stored))
    load_weights(model, folder)
    return model.eval()


def save_weights(model: nn.Module, folder: Path) -> None:
    """Write the weights of any module, and a GPT's config, into a folder that is there.

    Args:
        model: The module; tied weights are stored once.
        folder: Where to.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     save_weights(nn.Linear(2, 2), Path(folder))
    """
    write_weights(model, str(folder / _WEIGHTS))
    if isinstance(model, GPT):
        config = {"kind": _KIND} | asdict(model.config)
        (folder / _CONFIG).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


def load_weights(model: nn.Module, folder: Path) -> None:
    """Read weights into a module of the same shapes; it takes their dtype.

    Args:
        model: The module.
        folder: Holds ``model.safetensors``.

    Raises:
        FileNotFoundError: If the file is missing.
        ValueError: If it is damaged, or its weights are not those of this module.

    Example:
        >>> load_weights(nn.Linear(2, 2), Path("no/such/folder"))
        Traceback (most recent call last):
        FileNotFoundError: expected model.safetensors in no/such/folder, ...
    """
    path = folder / _WEIGHTS
    if not path.is_file():
        raise FileNotFoundError(
            f"expected {_WEIGHTS} in {folder}, got none: is this the folder of a model?"
        )
    try:
        with safe_open(path, "pt") as stored:
            dtypes = {stored.get_tensor(name).dtype for name in stored.keys()}  # noqa: SIM118
        if len(dtypes) == 1:
            model.to(dtypes.pop())
        load_weights_into(model, path)
    except SafetensorError as error:
        raise ValueError(
            f"expected safetensors in {path}, got a damaged file ({error}): take a copy of it, or "
            "save the model again."
        ) from error
    except RuntimeError as error:
        raise ValueError(
            f"expected the weights of this {type(model).__name__} in {path}, got others: the "
            f"config is not that of the checkpoint.\n{error}"
        ) from error


def write_folder(folder: Path | str, write: Callable[[Path], None]) -> Path:
    """Make a folder whole or not at all: write it under another name, then rename it.

    The other names are ``.NAME.partial`` and, for what is replaced, ``.NAME.replaced``; they are
    this function's own. Where a kill fell between the two renames the next call puts the latter
    back first. A link to a folder stays a link.

    Args:
        folder: The folder to be; one that is there is replaced.
        write: Writes the files into the path it is given.

    Returns:
        The folder.

    Raises:
        OSError: If it cannot be written; the folder is as it was.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     write_folder(f"{folder}/new", lambda place: None).name
        'new'
    """
    asked, folder = Path(folder), Path(folder).resolve()
    partial, old = (folder.parent / f".{folder.name}.{end}" for end in ("partial", "replaced"))
    shutil.rmtree(partial, ignore_errors=True)
    try:
        if old.exists() and not folder.exists():
            old.rename(folder)
        partial.mkdir(parents=True)
        write(partial)
        for file in partial.rglob("*"):
            if file.is_file():
                _to_disk(file)
        if folder.exists():
            shutil.rmtree(old, ignore_errors=True)
            folder.rename(old)
        partial.rename(folder)
        _to_disk(folder.parent)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(partial, ignore_errors=True)
        raise OSError(
            f"expected room to write {asked}, got: {error}. Make room, or choose another folder."
        ) from error
    shutil.rmtree(old, ignore_errors=True)
    return asked


def sha256(path: Path) -> str:
    """The SHA-256 of a file, in hex.

    Args:
        path: The file.

    Returns:
        64 hex digits.

    Example:
        >>> len(sha256(Path(__file__)))
        64
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Args:
        path: The file.

    Returns:
        Its names and values.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it holds no JSON object.
    """
    if not path.is_file():
        raise FileNotFoundError(
            f"expected {path.name} in {path.parent}, got none: is this the right folder?"
        )
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"expected JSON in {path}, got a damaged file: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"expected names and values in {path}, got {type(found).__name__}.")
    return found


def _is_ours(folder: Path) -> bool:
    try:
        return read_json(folder / _CONFIG).get("kind") == _KIND
    except (FileNotFoundError, ValueError):
        return False


def _to_disk(path: Path) -> None:
    # A rename may reach the disk before what it names: after a power cut the file would be empty.
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
