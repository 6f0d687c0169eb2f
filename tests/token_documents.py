"""Documents of tokens, and what their shards must hold by the plainest reading of the rules."""

import random

from rove_lab.data import is_held_out
from rove_lab.shard_index import ShardIndex
from rove_lab.shard_writer import write_shards

END = 0
ONE_IN = 4


def made_up(number, seed=0, d_vocab=100):
    """Documents of 1 to 40 tokens under names that never change."""
    draw = random.Random(seed)
    return [
        (f"document {n}", [draw.randrange(1, d_vocab) for _ in range(draw.randrange(1, 41))])
        for n in range(number)
    ]


def settings(**changes):
    of = {"d_vocab": 100, "end_of_text": END, "shard_tokens": 500, "held_out_one_in": ONE_IN}
    return ShardIndex("made-up documents", "the same call", **of | changes)


def write(documents, folder, **changes):
    return write_shards(lambda n: documents[n:], folder, settings(**changes), progress=False)


def text_of(documents, held_out):
    """A part laid end to end."""
    wanted = [tokens for name, tokens in documents if is_held_out(name, ONE_IN) == held_out]
    return [token for tokens in wanted for token in (*tokens, END)]


def files(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}
