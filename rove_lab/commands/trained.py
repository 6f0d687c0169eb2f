r"""What was trained, from its folder: the models, and the text they learned from."""

from __future__ import annotations

from pathlib import Path

import torch

from rove_lab.bundled import SHA256
from rove_lab.checkpoints import load_model
from rove_lab.commands.learning import SETTINGS
from rove_lab.commands.recipe import Corpus
from rove_lab.model import GPT, load_pretrained
from rove_lab.run_folder import last_checkpoint, trained_models
from rove_lab.whole_files import read_json

__all__ = ["corpus_of", "is_of_the_lab", "models_in"]


def is_of_the_lab(folder: Path) -> bool:
    """Whether a folder is a run's, or a model's that this lab wrote.

    Args:
        folder: The folder, or the name of a model that comes with the package.

    Returns:
        False for a Hugging Face model's, and for any other name that is no folder.

    Example:
        >>> is_of_the_lab(Path("no/such/folder"))
        False
    """
    files = ("run.json", "state.json")
    if _is_bundled(folder):
        return True
    if last_checkpoint(folder) is not None or any((folder / file).is_file() for file in files):
        return True
    config = folder / "config.json"
    return config.is_file() and read_json(config).get("kind") is not None


def models_in(folder: Path) -> dict[str, GPT]:
    """The models in a run's folder, or the one in a model's, where this machine computes fastest.

    Args:
        folder: The folder, or the name of a model that comes with the package.

    Returns:
        Name to model; a single model is named by what it does with its values.

    Raises:
        FileNotFoundError: If there is none.
        ValueError: If a file is damaged.

    Example:
        >>> models_in(Path("no/such/folder"))
        Traceback (most recent call last):
        FileNotFoundError: expected a run or a model in no/such/folder, ...
    """
    if not is_of_the_lab(folder):
        raise FileNotFoundError(
            f"expected a run or a model in {folder}, got neither: rove-lab train or compare makes "
            f"one, and {' and '.join(SHA256)} come with the package."
        )
    if (folder / "state.json").is_file():
        raise FileNotFoundError(
            f"expected a run or a model, got the checkpoint {folder}: give the run's folder, "
            f"{folder.parent}, or that of one model in the checkpoint."
        )
    bundled = _is_bundled(folder)
    if bundled or (folder / "config.json").is_file():
        model = load_pretrained(str(folder)) if bundled else load_model(folder)
        models = {"RoVE" if model.config.rotate_values else "RoPE": model}
    else:
        models = trained_models(folder)
    device = torch.accelerator.current_accelerator() or torch.device("cpu")
    return {name: model.to(device) for name, model in models.items()}


def corpus_of(folder: Path) -> Corpus:
    """The text that a run learned from, as it was noted.

    Args:
        folder: A run's folder, or a model's in one of its checkpoints.

    Returns:
        The corpus; the default one where nothing is noted.

    Example:
        >>> corpus_of(Path("no/such/folder"))
        Corpus(text=None, shards=None)
    """
    for place in (folder, *folder.resolve().parents[:2]):
        if (place / SETTINGS).is_file():
            noted = read_json(place / SETTINGS)
            paths = {name: noted.get(name) for name in ("text", "shards")}
            return Corpus(**{name: path and Path(path) for name, path in paths.items()})
    return Corpus()


def _is_bundled(folder: Path) -> bool:
    return str(folder) in SHA256 and not folder.exists()  # a folder of the user's goes first
