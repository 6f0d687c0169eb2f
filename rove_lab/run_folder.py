r"""The folder of a training run: what was asked for, and the last checkpoint."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rove_lab.checkpoints import load_model
from rove_lab.model import GPT
from rove_lab.whole_files import read_json, sha256, whole_file, write_folder

__all__ = ["RunFolder", "trained_models"]

_CHECKPOINT = "checkpoint-"


class RunFolder:
    """The folder of a run: ``run.json`` says what was asked, ``checkpoint-<step>`` where it stands.

    A checkpoint holds a folder for each model (weights, the optimiser's moments, a GPT's config)
    and ``state.json`` with the curves so far and the SHA-256 of every file. The last one alone is
    kept, and only once the next is whole.

    Args:
        path: The folder; made where it is missing.
        asked: What determines the run, as JSON can hold it. A folder that was made for another
            run is refused.

    Raises:
        ValueError: If the folder belongs to another run, or to none.
        OSError: If it cannot be written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     print(RunFolder(f"{folder}/run", {"seed": 0}).checkpoint())
        None
    """

    def __init__(self, path: Path | str, asked: Mapping[str, Any]) -> None:
        self.path = Path(path)
        if self.path.exists() and not self.path.is_dir():
            raise ValueError(f"expected a folder for the run, got the file {self.path}.")
        file = self.path / "run.json"
        partial = f"{file.name}.partial"  # what a kill in the middle of the first line leaves
        if file.exists():
            differ = _differences(read_json(file), json.loads(json.dumps(asked)))
            if differ:
                raise ValueError(
                    f"expected the run that {self.path} was made for, got another: "
                    f"{'; '.join(differ)}. Give the same settings to go on with it, or another "
                    "folder."
                )
        elif self.path.exists() and any(found.name != partial for found in self.path.iterdir()):
            raise ValueError(
                f"expected an empty folder or a run's, got {self.path} with other files in it: "
                "choose another."
            )
        else:
            # In the folder itself, which may be a link, a mounted disk or the one we are in.
            text = json.dumps(asked, indent=1, ensure_ascii=False) + "\n"
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                with whole_file(file) as opened:
                    opened.write(text.encode())
            except OSError as error:
                raise OSError(
                    f"expected to write into {self.path}, got: {error}. Make room, or choose "
                    "another folder."
                ) from error

    def checkpoint(self) -> Path | None:
        """The last whole checkpoint, or None."""
        return last_checkpoint(self.path)

    def save(self, step: int, write: Callable[[Path], dict[str, Any]]) -> None:
        """Write a checkpoint and remove those before, and what a kill left of one.

        Args:
            step: Steps taken.
            write: Writes its files into the path it is given, and returns what else to remember.

        Raises:
            OSError: If there is no room; the checkpoint before is kept.
        """

        def whole(place: Path) -> None:
            state = write(place)
            files = sorted(file for file in place.rglob("*") if file.is_file())
            state["sha256"] = {file.relative_to(place).as_posix(): sha256(file) for file in files}
            text = json.dumps(state, indent=1, allow_nan=False, ensure_ascii=False) + "\n"
            (place / "state.json").write_text(text, encoding="utf-8")

        write_folder(self.path / f"{_CHECKPOINT}{step}", whole)
        for before, place in _checkpoints(self.path).items():
            if before < step:  # another process may be further
                shutil.rmtree(place)
        for place in self.path.glob(f".{_CHECKPOINT}*.partial"):
            shutil.rmtree(place)


def last_checkpoint(folder: Path | str) -> Path | None:
    """The last whole checkpoint in a run's folder, or None."""
    found = _checkpoints(folder)
    return found[max(found)] if found else None


def _checkpoints(folder: Path | str) -> dict[int, Path]:
    return {
        int(step): place
        for place in Path(folder).glob(f"{_CHECKPOINT}*")
        if (step := place.name.removeprefix(_CHECKPOINT)).isdecimal()
    }


def read_state(checkpoint: Path) -> dict[str, Any]:
    """What a checkpoint remembers, once each of its files is seen to be as it was written.

    Args:
        checkpoint: The folder ``checkpoint-<step>``.

    Returns:
        ``state.json``.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If a file is not as it was written, or ``state.json`` of another program.
    """
    state = read_json(checkpoint / "state.json")
    if not all(isinstance(state.get(name), dict) for name in ("runs", "sha256")):
        raise ValueError(
            f"expected the state of a run in {checkpoint / 'state.json'}, got another text: the "
            f"file is damaged. Remove {checkpoint} to begin anew."
        )
    for name, digest in state.pop("sha256").items():
        if not (checkpoint / name).is_file():
            raise FileNotFoundError(
                f"expected {name} in {checkpoint}, got none: remove {checkpoint} to begin anew."
            )
        if sha256(checkpoint / name) != digest:
            raise ValueError(
                f"expected {checkpoint / name} as it was written, got another SHA-256: the file is "
                f"damaged. Take a copy of it, or remove {checkpoint} to begin anew."
            )
    return state


def trained_models(folder: Path | str) -> dict[str, GPT]:
    """The models of a run's last checkpoint.

    Args:
        folder: The run's folder.

    Returns:
        Name to model, on the CPU.

    Raises:
        FileNotFoundError: If there is no checkpoint in it, or no GPT in that.
        ValueError: If a file is damaged.

    Example:
        >>> trained_models("no/such/run")
        Traceback (most recent call last):
        FileNotFoundError: expected a run with a checkpoint in no/such/run, ...
    """
    checkpoint = last_checkpoint(folder)
    if checkpoint is None:
        raise FileNotFoundError(
            f"expected a run with a checkpoint in {folder}, got none: train with this folder first."
        )
    names = read_state(checkpoint)["runs"]
    return {name: load_model(checkpoint / name) for name in names}


def _differences(stored: Any, given: Any, name: str = "") -> list[str]:
    if isinstance(stored, dict) and isinstance(given, dict):
        return [
            words
            for key in sorted(stored.keys() | given.keys())
            for words in _differences(
                stored.get(key, "nothing"), given.get(key, "nothing"), f"{name}{key} "
            )
        ]
    return [] if stored == given else [f"{name.strip()} was {stored!r} and is {given!r}"]
