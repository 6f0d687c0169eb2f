r"""A model on disk: its weights as safetensors, its config as JSON, each write all or nothing."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from torch import nn

from rove_lab.model import GPT, GPTConfig
from rove_lab.weight_files import CONFIG, KIND, WEIGHTS, load_weights, read_model, write_weights
from rove_lab.whole_files import read_json, sha256, write_folder

__all__ = ["load_model", "load_weights", "save_model", "save_weights", "sha256", "write_folder"]


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
    others = [name for name in found if name not in (CONFIG, WEIGHTS)]
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
    return read_model(Path(folder), GPTConfig)


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
    write_weights(model, folder)
    if isinstance(model, GPT):
        config = {"kind": KIND} | asdict(model.config)
        (folder / CONFIG).write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")


def _is_ours(folder: Path) -> bool:
    try:
        return read_json(folder / CONFIG).get("kind") == KIND
    except (FileNotFoundError, ValueError):
        return False
