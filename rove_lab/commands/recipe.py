r"""What is trained, on what and how: a preset, a corpus, and every size and setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from rove_lab.data import ByteText, Split, standard_library, text_files
from rove_lab.model import GPTConfig
from rove_lab.shard_index import read_index
from rove_lab.token_shards import open_shards
from rove_lab.train_config import TrainConfig

try:
    import tyro as tyro  # for all commands
except ImportError as error:
    raise ImportError(
        'the command line is read by tyro, which is missing: pip install "rove-lab[training]"'
    ) from error

__all__ = ["Corpus", "Recipe", "Start"]


@dataclass(frozen=True)
class Corpus:
    """Which text: yours, or without one the sources of Python's standard library, 10 MB of bytes.

    Args:
        text: A text file or a folder of them, read as bytes.
        shards: A folder that prepare-data wrote, read as GPT-2's tokens.

    Example:
        >>> Corpus().d_vocab
        256
    """

    text: Path | None = None
    shards: Path | None = None

    @property
    def d_vocab(self) -> int:
        """Tokens of its vocabulary."""
        self._check()
        return ByteText.d_in if self.shards is None else read_index(self.shards).d_vocab

    def open(self, n_ctx: int) -> Split[Any]:
        """Its two parts, to learn from and to be scored on, in windows of ``n_ctx`` tokens.

        Raises:
            FileNotFoundError: If there is no such text.
            ValueError: If two are named, or the text is shorter than a window.
        """
        self._check()
        if self.shards is not None:
            return open_shards(self.shards, n_ctx)
        return standard_library(n_ctx) if self.text is None else text_files(self.text, n_ctx)

    def _check(self) -> None:
        if self.text is not None and self.shards is not None:
            raise ValueError(
                f"expected one corpus, got --text {self.text} and --shards {self.shards}: leave "
                "one out."
            )


@dataclass(frozen=True)
class Start:
    """What the other defaults follow from.

    Args:
        preset: Sizes of the model, and how it is trained. tiny: a minute on two cores. small: five
            million parameters, minutes on a GPU. gpt2-124m and gpt2-354m: the paper's, for one GPU
            or more, on shards of GPT-2's tokens.
        corpus: What it reads.

    Example:
        >>> Start().model().d_vocab
        256
    """

    preset: Literal["tiny", "small", "gpt2-124m", "gpt2-354m"] = "tiny"
    corpus: Corpus = field(default_factory=Corpus)

    @classmethod
    def named(cls, arguments: Sequence[str], command: str) -> Start:
        """The preset and the corpus among the arguments of a command, whatever else is there."""
        start, _ = tyro.cli(
            cls,
            args=arguments,
            prog=f"rove-lab {command}",
            return_unknown_args=True,
            add_help=False,
            config=(tyro.conf.OmitArgPrefixes,),
        )
        return start

    @property
    def unread(self) -> bool:
        """Whether the preset is for tokens and no corpus is named: bytes are not what it means."""
        named = self.corpus.text or self.corpus.shards
        return named is None and GPTConfig.preset(self.preset).d_vocab != ByteText.d_in

    def model(self) -> GPTConfig:
        """The preset's sizes with the corpus's vocabulary."""
        if self.unread:
            return GPTConfig.preset(self.preset)
        return GPTConfig.preset(self.preset, d_vocab=self.corpus.d_vocab)


@dataclass(frozen=True)
class Recipe:
    """A training, from the text to the folder.

    Args:
        start: Preset and corpus.
        model: Sizes of the model.
        training: How to train.
        folder: Where everything is kept: settings, checkpoints with the models in them, results.
            runs/COMMAND-PRESET by default. An unfinished training in it goes on.

    Example:
        >>> Recipe.named(["--preset", "small"], "train").model.n_layers
        6
    """

    start: Annotated[Start, tyro.conf.arg(name="")] = field(default_factory=Start)
    model: GPTConfig = field(default_factory=GPTConfig)
    training: TrainConfig = field(default_factory=TrainConfig)
    folder: Path = Path("runs/train-tiny")

    @classmethod
    def named(cls, arguments: Sequence[str], command: str) -> Recipe:
        """The defaults that the preset and the corpus among a command's arguments bring."""
        start = Start.named(arguments, command)
        return cls(
            start,
            start.model(),
            TrainConfig.preset(start.preset),
            Path("runs") / f"{command}-{start.preset}",
        )

    def open_corpus(self) -> Split[Any]:
        """The corpus in the model's windows.

        Raises:
            FileNotFoundError: If there is no such text.
            ValueError: If the model does not fit the text: its vocabulary, its windows.
        """
        start = self.start
        if start.unread:
            raise ValueError(
                f"expected --shards FOLDER for preset {start.preset}, which reads GPT-2's tokens, "
                "got no corpus: make one with rove-lab prepare-data, or train on bytes with --text."
            )
        d_vocab = start.corpus.d_vocab
        if self.model.d_vocab != d_vocab:
            raise ValueError(
                f"expected d_vocab {d_vocab}, as many tokens as the corpus has, got "
                f"{self.model.d_vocab}: leave --d-vocab out."
            )
        return start.corpus.open(self.model.n_ctx)
