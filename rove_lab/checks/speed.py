"""The chapter on speed: operations, memory traffic, and a part of a whole."""

from __future__ import annotations

from rove_lab.checks.verdict import call, compare, read, verdict

__all__ = ["check_copies", "check_operations", "check_whole"]


def check_operations(operations: object) -> None:
    """Check ``operations(n, d)``: what RoVE adds to a head, over the products of attention.

    A plane is turned with four multiplications and two additions, 3d of a token; RoVE turns two
    vectors of each token more. Scores and messages take 2n²d operations each, nothing masked.

    Args:
        operations: From the tokens and the channels of a head to the ratio of operations.

    Example:
        >>> check_operations(lambda n, d: 3 * n * d / (4 * n**2 * d))
        Not solved yet: RoVE turns two tensors more: the values, and the output back.
    """
    with verdict("in operations the rotations are next to nothing."):
        for n, d in ((1024, 64), (300, 128), (8192, 64)):
            right = 1.5 / n
            mistakes = {
                "RoVE turns two tensors more: the values, and the output back.": 0.75 / n,
                "twice too much: RoVE adds two turns of d / 2 planes to two products.": (3 / n),
                "six operations a plane, and d / 2 planes.": 0.5 / n,
                "that is the other way round: what is added, over what there is.": n / 1.5,
            }
            compare(read(call(operations, n, d), []), right, mistakes)


def check_copies(copies: object) -> None:
    """Check ``copies(heads, itemsize)``: the traffic of a fused rotation, in clones.

    It reads a head's numbers once and writes them once. Of cosines and sines, in float32, there is
    one of each for two channels of a token; all heads share them, and they are read once.

    Args:
        copies: From the heads and the bytes of a number to the ratio of bytes moved.

    Example:
        >>> check_copies(lambda heads, itemsize: 1.0)
        Not solved yet: the tables are read, too.
    """
    with verdict("a fused rotation moves hardly more bytes than a copy."):
        for heads, itemsize in ((12, 4), (12, 2), (9, 4), (96, 1)):
            right = 1 + 4 / (2 * heads * itemsize)
            mistakes = {
                "the tables are read, too.": 1.0,
                "all heads share the tables: they are read once.": 1 + 4 / (2 * itemsize),
                "the tables are float32, whatever is turned: four bytes a number.": (
                    1 + 1 / (2 * heads)
                ),
                "a cosine and a sine for two channels: one number a channel.": (
                    1 + 4 / (4 * heads * itemsize)
                ),
                "a copy reads and writes; of tables there is one number for each plane, twice.": (
                    1 + 4 / (heads * itemsize)
                ),
            }
            compare(read(call(copies, heads, itemsize), []), right, mistakes)


def check_whole(whole: object) -> None:
    """Check ``whole(share, ratio)``: a step in which one part of the time takes ``ratio`` as long.

    Args:
        whole: From the share of the step's time that the part takes, and how many times as long it
            then takes, to how many times as long the step does.

    Example:
        >>> check_whole(lambda share, ratio: share * ratio)
        Not solved yet: the rest of the step is still there.
    """
    with verdict("what a part costs is diluted by the rest of the step."):
        for share, ratio in ((0.2, 1.1), (0.35, 1.3), (0.05, 2.0)):
            right = 1 + share * (ratio - 1)
            mistakes = {
                "the rest of the step is still there.": share * ratio,
                "that is what is added: the step itself is there, too.": share * (ratio - 1),
                "the part is in the step already: only what is added comes on top.": (
                    1 + share * ratio
                ),
                "that is the step as if all of it took longer.": ratio,
                "that is by what part it gets faster: here the part takes longer.": (
                    1 / (1 - share + share / ratio)
                ),
            }
            compare(read(call(whole, share, ratio), []), right, mistakes)
