r"""The weights of a module as safetensors, and a module from the folder that holds them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import torch
from torch import Tensor, nn

from rove_lab.whole_files import read_json

try:
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import save_file, save_model
except ImportError as error:
    raise ImportError(
        'checkpoints need safetensors, which is missing: pip install "rove-lab[training]"'
    ) from error

__all__ = ["load_weights", "read_model", "write_tensors", "write_weights"]

CONFIG, WEIGHTS = "config.json", "model.safetensors"
KIND = "rove-lab-gpt"  # in a config: that it is of the lab's own GPT

ModelT = TypeVar("ModelT", bound=nn.Module, covariant=True)


class Builds(Protocol[ModelT]):
    """A config that builds its model."""

    def build(self) -> ModelT:
        """A new model."""


def write_weights(model: nn.Module, folder: Path) -> None:
    """Write ``model.safetensors`` into a folder that is there.

    Args:
        model: The module; tied weights are stored once.
        folder: Where to.

    Raises:
        OSError: If the disk is full.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     write_weights(nn.Linear(2, 2), Path(folder))
    """
    with _os_errors():
        save_model(model, str(folder / WEIGHTS))


def write_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write tensors by name into one file.

    Args:
        tensors: Name to tensor; no two share memory.
        path: The file.

    Raises:
        OSError: If the disk is full.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     write_tensors({"a": torch.zeros(2)}, Path(folder) / "a.safetensors")
    """
    with _os_errors():
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)


def read_model(folder: Path, config: Callable[..., Builds[ModelT]]) -> ModelT:
    """Build the model that ``config.json`` describes, and read its weights.

    Args:
        folder: Holds ``config.json`` and ``model.safetensors``.
        config: What makes the config from its stored fields: a dataclass.

    Returns:
        The model on the CPU, in evaluation mode, with the stored dtype.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is damaged, or the weights do not fit the config.

    Example:
        >>> from rove_lab.messenger import MessengerConfig
        >>> read_model(Path("no/such/folder"), MessengerConfig)
        Traceback (most recent call last):
        FileNotFoundError: expected config.json in no/such/folder, ...
    """
    stored = read_json(folder / CONFIG)
    if stored.pop("kind", None) != KIND:
        raise ValueError(
            f"expected the config of a {KIND} in {folder / CONFIG}, got another kind of file: "
            "load_causal_lm reads Hugging Face models."
        )
    unknown = stored.keys() - inspect.signature(config).parameters.keys()
    if unknown:
        raise ValueError(
            f"expected fields of {getattr(config, '__name__', 'the config')} in "
            f"{folder / CONFIG}, got {sorted(unknown)}: was it written by a newer rove_lab?"
        )
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        model = config(**stored).build()
    load_weights(model, folder)
    return model.eval()


def load_weights(model: nn.Module, folder: Path) -> None:
    """Read weights into a module of the same shapes; it takes their dtype, or stays as it was.

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
    path = folder / WEIGHTS
    if not path.is_file():
        raise FileNotFoundError(
            f"expected {WEIGHTS} in {folder}, got none: is this the folder of a model?"
        )
    try:
        with safe_open(path, "pt") as stored:
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(
            f"expected safetensors in {path}, got a damaged file ({error}): take a copy of it, or "
            "save the model again."
        ) from error
    if odd := _misfits(model, tensors):
        raise ValueError(
            f"expected the weights of this {type(model).__name__} in {path}, got others: the "
            f"config is not that of the checkpoint. What does not fit: {', '.join(odd)}"
        )
    dtypes = {tensor.dtype for tensor in tensors.values()}
    if len(dtypes) == 1:
        model.to(dtypes.pop())
    model.load_state_dict(tensors, strict=False)


def _misfits(model: nn.Module, tensors: dict[str, Tensor]) -> list[str]:
    """Names that only one of them has, or with other shapes; of tied weights one is stored."""
    own = model.state_dict(keep_vars=True)
    stored = [id(own[name]) for name in tensors if name in own]
    named = [
        name
        for name, tensor in tensors.items()
        if name not in own or own[name].shape != tensor.shape or stored.count(id(own[name])) > 1
    ]
    return named + [name for name, tensor in own.items() if id(tensor) not in stored]


@contextmanager
def _os_errors() -> Iterator[None]:
    """A full disk is an OSError, here as everywhere."""
    try:
        yield
    except SafetensorError as error:
        raise OSError(str(error)) from error
