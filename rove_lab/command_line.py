r"""The command line, ``rove-lab`` or ``python -m rove_lab``: what is asked, and how it ends."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
import traceback
import warnings
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import Annotated, Any, Protocol

from rove_lab.commands.compare import Compare
from rove_lab.commands.evaluate import Evaluate
from rove_lab.commands.generate import Generate
from rove_lab.commands.prepare_data import PrepareData
from rove_lab.commands.processes import is_main_process, leave_group, rank
from rove_lab.commands.recipe import Recipe, tyro
from rove_lab.commands.train import Train

__all__ = ["parse", "run"]

_PROGRAM = "rove-lab"
_WORDS = """Train RoPE against RoVE, measure them, let them write.

For example: rove-lab compare trains both on this machine in a minute or two and prints what
differs.
"""


class Command(Protocol):
    """What a command offers."""

    def run(self) -> None:
        """Do it."""


def parse(arguments: Sequence[str]) -> Command:
    """The command that arguments ask for.

    Args:
        arguments: As typed, without the program.

    Returns:
        The command with its settings.

    Raises:
        FileNotFoundError: If shards are named that are not there.
        SystemExit: After --help, with status 0; for what is no command, with words that say so.
        ValueError: If shards are damaged.

    Example:
        >>> parse(["generate", "runs/compare-tiny", "--seed", "3"]).seed
        3
    """
    said, refused = StringIO(), StringIO()
    try:
        with redirect_stdout(said), redirect_stderr(refused):
            return _parsed(arguments)
    except SystemExit as end:
        print(_wrapped(said.getvalue()), end="")
        if not end.code:
            raise
        raise SystemExit(_in_a_line(refused.getvalue())) from end


def _parsed(arguments: Sequence[str]) -> Command:
    name, rest = (arguments[0], arguments[1:]) if arguments else ("", arguments)
    kind: Any
    default: dict[str, Any] = {}
    match name:  # the defaults of two commands follow from the preset among their arguments
        case "train":
            kind, default = Train, {"default": Train(Recipe.named(rest, name))}
        case "compare":
            kind, default = Compare, {"default": Compare(Recipe.named(rest, name))}
        case "evaluate":
            kind = Evaluate
        case "generate":
            kind = Generate
        case "prepare-data":
            kind = PrepareData
        case _:
            name, rest, default = "", arguments[:1], {"description": _WORDS}
            kind = (
                _listed(Train, "train", "Train one model on a text.")
                | _listed(Compare, "compare", "Train RoPE and RoVE alike, and compare them.")
                | _listed(Evaluate, "evaluate", "Measure a model: by position, length, in context.")
                | _listed(Generate, "generate", "Let a trained model write on.")
                | _listed(PrepareData, "prepare-data", "Turn text into shards of tokens.")
            )
    command: Command = tyro.cli(
        kind,
        prog=f"{_PROGRAM} {name}".strip(),
        args=rest,
        config=(tyro.conf.OmitArgPrefixes,),
        **default,
    )
    return command


def _listed(command: type, name: str, words: str) -> Any:
    return Annotated[command, tyro.conf.subcommand(name, description=words)]


def _in_a_line(box: str) -> str:
    """What tyro says of a wrong argument, without the title and the rules around it."""
    parts = [" ".join(part.split()) for part in re.split(r"-{5,}", box)]
    return "; ".join(part.rstrip(".") for part in parts[1:] or parts if part)


def _wrapped(text: str) -> str:
    """Help in plain words, its paragraphs as wide as the terminal."""
    width = max(40, shutil.get_terminal_size().columns)
    lines: list[str] = []
    for line in text.replace("``", "").replace("(default: )", "").splitlines():
        lines += textwrap.wrap(line, width, break_on_hyphens=False) or [""]
    return "".join(f"{line}\n" for line in lines)


def run(arguments: Sequence[str]) -> int:
    """Do what arguments ask for.

    Args:
        arguments: As typed, without the program.

    Returns:
        The exit status: 0; 2 for what cannot be done as it was asked, with a line on stderr that
        says why; 130 after Ctrl-C. A mistake of the program itself keeps its traceback: 1.

    Example:
        >>> run(["generate", "no/such/folder"])
        2
    """
    with warnings.catch_warnings():
        if not sys.warnoptions:  # a library's warnings are for programmers
            warnings.simplefilter("ignore")
        try:
            command = parse(arguments)
            if is_main_process() or isinstance(command, (Train, Compare)):  # these share the work
                command.run()
        except SystemExit as end:
            return _ended(end.code, 2) if isinstance(end.code, str) else 0
        except KeyboardInterrupt as stop:
            return _ended(str(stop) or "stopped", 130) if is_main_process() else 130
        except (ImportError, FloatingPointError, OSError, TypeError, ValueError) as error:
            if not _is_told(error):
                traceback.print_exc()
                return 1
            return _ended(str(error), 2)
        finally:
            leave_group()
    return 0


def _ended(words: str, status: int) -> int:
    process = f" (process {rank()})" if rank() else ""
    print(f"{_PROGRAM}{process}: {' '.join(words.split())}", file=sys.stderr, flush=True)
    return status


def _is_told(error: Exception) -> bool:
    """Whether an error is about what was asked: raised by us in words, or by the file system."""
    if isinstance(error, OSError) and error.errno is not None:
        return True
    steps = list(traceback.walk_tb(error.__traceback__))
    ours = steps[-1][0].f_globals.get("__name__", "").startswith("rove_lab.")
    # Python's own words for a mistake of ours ("unsupported operand ...") are raised there, too.
    words = str(error)
    return ours and (not isinstance(error, (TypeError, ValueError)) or words.startswith("expected"))
