"""Chapter 14: the offset of a patch, one camera in another's frame, a frame of the reader's own."""

from __future__ import annotations

import torch
from torch import Tensor

from rove_lab.axial import AxialRotary
from rove_lab.checks.verdict import call, compare, draw, read, require, verdict
from rove_lab.frames import Frame, frame_attention

__all__ = ["check_between", "check_clocks", "check_patch_offset"]


def check_patch_offset(patch_offset: object) -> None:
    """Check ``patch_offset(sent, heard)``: how far a message came, in rows and columns.

    Args:
        patch_offset: From a message ``[4]`` as its patch sent it and as its reader hears it, of
            ``AxialRotary(4, interleaved=True)``, to the sender's row and column less the
            reader's, ``[2]``.

    Example:
        >>> check_patch_offset(lambda sent, heard: torch.zeros(2))
        Not solved yet: on one of our inputs it is off by up to 3.
    """
    with verdict("two planes that turn with two coordinates say how far a message came in both."):
        random = draw(1401)
        axial = AxialRotary(4, interleaved=True)
        for r, c, rows, columns in ((4, 7, -2, 3), (0, 5, 1, -3), (11, 11, 3, 2), (2, 9, -1, 0)):
            sent = torch.randn(1, 1, 4, generator=random, dtype=torch.float64)
            said = axial(rows=[r + rows], columns=[c + columns]).apply(sent)
            heard = axial(rows=[r], columns=[c]).undo(said)
            right = torch.tensor([rows, columns], dtype=torch.float64)
            bearing = _angles(heard)
            mistakes: dict[str, Tensor | float] = {
                "from the reader to the sender, not the other way round.": -right,
                "rows first: channels 0 and 1 turn with the row.": right.flip(0),
                "columns first and the wrong way round: rows come first, reader to sender.": (
                    -right.flip(0)
                ),
                "that is where the arrow points as it is heard: compare with how it was sent.": (
                    bearing
                ),
                "an angle of more than half a turn comes back from the other side: wrap it.": (
                    bearing - _angles(sent)
                ),
                "by one radian a patch, not one degree.": right.rad2deg(),
                "how far and in which direction: the sign is missing.": right.abs(),
                "a plane is channels (0, 1) or (2, 3), not (0, 2) and (1, 3).": (
                    _wrapped(_halves(heard) - _halves(sent))
                ),
            }
            got = read(call(patch_offset, sent[0, 0], heard[0, 0]), [2])
            compare(got, right, mistakes)


def check_between(between: object) -> None:
    """Check ``between(E_i, E_j)``: the matrix from the frame of camera j to that of camera i.

    Args:
        between: From two extrinsics ``[4, 4]``, world to camera, to ``[4, 4]``.

    Example:
        >>> check_between(lambda E_i, E_j: torch.linalg.inv(E_i) @ E_j)
        Not solved yet: that takes E for camera to world; extrinsics are the inverse, ...
    """
    with verdict("from the sender to the world and on to the reader: the world drops out."):
        random = draw(1402)
        for _ in range(3):
            E_i, E_j = _cameras(2, random)
            back_i, back_j = torch.linalg.inv(E_i), torch.linalg.inv(E_j)
            unturned = E_i @ back_j
            unturned[:3, 3] = E_i[:3, 3] - E_j[:3, 3]
            mistakes: dict[str, Tensor | float] = {
                "that takes E for camera to world; extrinsics are the inverse, world to camera.": (
                    back_i @ E_j
                ),
                "that is the way back, from camera i to camera j.": E_j @ back_i,
                "matrices act from the left: what comes first stands on the right.": back_j @ E_i,
                "the transpose is the inverse of a turn, not of a pose, which also shifts.": (
                    E_i @ E_j.mT
                ),
                "the sender's extrinsics lead from the world to it: invert those.": E_i @ E_j,
                "from the world to the reader use its extrinsics as they are.": back_i @ back_j,
                "poses do not subtract; they compose.": E_i - E_j,
                "the sender's shift is turned as well, into the reader's frame.": unturned,
            }
            compare(read(call(between, E_i, E_j), [4, 4]), E_i @ back_j, mistakes)


def check_clocks(clocks: object) -> None:
    r"""Check ``clocks(rate, start)``: frames of clocks, :math:`(u, w) \mapsto (su + tw, w)`.

    Each move is compared with its matrix, then attention with a double loop over matrices; and
    then the time of the world is changed, which must change nothing.

    Args:
        clocks: From rates and starts, ``[pos]`` each, to an object with ``apply``, ``undo`` and
            ``dual`` of tensors ``[..., heads, pos, d_head]``, pairs of neighbouring channels.

    Example:
        >>> check_clocks(lambda rate, start: rate)
        Not solved yet: expected an object with apply, undo and dual, got Tensor.
    """
    with verdict("three moves make a frame: what all clocks share drops out of attention."):
        random = draw(1403)
        for pos, d_head in ((5, 6), (4, 2)):
            rate = 0.5 + torch.rand(pos, generator=random, dtype=torch.float64)
            start = torch.randn(pos, generator=random, dtype=torch.float64)
            frame = _frame(clocks, rate, start)
            rho = _matrices(rate, start)
            x = torch.randn(2, pos, d_head, generator=random, dtype=torch.float64)
            _compare_moves(frame, rho, x)
            q, k, v = torch.randn(3, 2, pos, d_head, generator=random, dtype=torch.float64)
            right = _attention(q, k, v, rho)
            moved = _frame(clocks, 1.7 * rate, 1.7 * start + 0.6)  # h g: the world's own clock
            for here in (frame, moved):
                compare(read(call(frame_attention, q, k, v, here, here), v.shape), right)


def _compare_moves(frame: Frame, rho: Tensor, x: Tensor) -> None:
    """Each move against its matrix."""
    back = torch.linalg.inv(rho)
    rate, start = rho[:, :1, 0], rho[:, :1, 1]
    u, w = x.unflatten(-1, (-1, 2)).unbind(-1)
    apply, undo, dual = (_moved(m, x) for m in (rho, back, back.mT))
    halves = torch.cat(
        (x.chunk(2, -1)[0] * rate + x.chunk(2, -1)[1] * start, x.chunk(2, -1)[1]), -1
    )
    mistakes: dict[str, dict[str, Tensor | float]] = {
        "apply": {
            "that leads from the world to the clock; apply leads from the clock to the world.": (
                undo
            ),
            "the rate first, then the start: s u + t w, not s (u + t w).": (
                _pairs(rate * (u + start * w), w)
            ),
            "a duration has no start: t is multiplied by w.": _pairs(rate * u + start, w),
            "only the start is there: the rate is missing.": _pairs(u + start * w, w),
            "only the rate is there: the start is missing.": _pairs(rate * u, w),
            "a pair is two neighbouring channels, 2m and 2m + 1, not one of each half.": halves,
            "the matrix is transposed: u takes from w, not w from u.": _moved(rho.mT, x),
        },
        "undo": {
            "it moves once more, as apply does.": apply,
            "the transpose undoes a turn; rates and starts need the inverse.": _moved(rho.mT, x),
            "take the start off first, then divide by the rate.": _pairs(u / rate - start * w, w),
            "that is the dual: the inverse is not transposed here.": dual,
            "the start is still on.": _pairs(u / rate, w),
            "the rate is still on.": _pairs(u - start * w, w),
        },
        "dual": {
            "queries do not move as keys do: the inverse, transposed, is not the matrix.": apply,
            "the inverse is there; it has to be transposed, too.": undo,
            "the transpose is there; it has to be inverted, too.": _moved(rho.mT, x),
            "w changes as well: transposed, the start moves from u's line to w's.": (
                _pairs(u / rate, w)
            ),
            "what w loses is divided by the rate, as u is.": _pairs(u / rate, w - start * u),
            "the start is taken off, not added: it is an inverse.": (
                _pairs(u / rate, w + start * u / rate)
            ),
        },
    }
    for name, right in {"apply": apply, "undo": undo, "dual": dual}.items():
        given = x.clone()
        answer = read(call(lambda move, x=given: move(x), getattr(frame, name)), x.shape)
        require(
            torch.equal(given, x),
            f"{name}: the tensor it is given is changed, and keys and values are read again: "
            "return a new one.",
        )
        hints = {f"{name}: {hint}": value for hint, value in mistakes[name].items()}
        compare(answer, right, hints)


def _frame(clocks: object, rate: Tensor, start: Tensor) -> Frame:
    made = call(clocks, rate, start)
    got = made.__name__ if isinstance(made, type) else type(made).__name__
    require(
        isinstance(made, Frame) and not isinstance(made, type),
        f"expected an object with apply, undo and dual, got {got}.",
    )
    frame: Frame = made
    return frame


def _matrices(rate: Tensor, start: Tensor) -> Tensor:
    """The matrices of clocks, [pos, 2, 2]."""
    rho = torch.eye(2, dtype=torch.float64).repeat(len(rate), 1, 1)
    rho[:, 0, 0], rho[:, 0, 1] = rate, start
    return rho


def _moved(rho: Tensor, x: Tensor) -> Tensor:
    """Every pair of each token by its matrix."""
    return torch.einsum("pab,...pmb->...pma", rho, x.unflatten(-1, (-1, 2))).flatten(-2)


def _pairs(u: Tensor, w: Tensor) -> Tensor:
    return torch.stack((u, w), -1).flatten(-2)


def _attention(q: Tensor, k: Tensor, v: Tensor, rho: Tensor) -> Tensor:
    """Attention in frames, query by query, each key brought into the query's frame."""
    z = []
    for i in range(len(rho)):
        relative = torch.linalg.inv(rho[i]) @ rho
        keys, values = _moved(relative, k), _moved(relative, v)
        weights = ((keys @ q[:, i, :, None])[..., 0] / q.shape[-1] ** 0.5).softmax(-1)
        z.append((weights[..., None] * values).sum(-2))
    return torch.stack(z, -2)


def _cameras(n: int, random: torch.Generator) -> Tensor:
    """Extrinsics of cameras anywhere, turned anyhow."""
    spin = torch.randn(n, 3, 3, generator=random, dtype=torch.float64)
    E = torch.eye(4, dtype=torch.float64).repeat(n, 1, 1)
    E[:, :3, :3] = torch.matrix_exp(spin - spin.mT)
    E[:, :3, 3] = torch.randn(n, 3, generator=random, dtype=torch.float64)
    return E


def _angles(message: Tensor) -> Tensor:
    """The angle of each pair of neighbours."""
    return torch.view_as_complex(message.reshape(2, 2)).angle()


def _halves(message: Tensor) -> Tensor:
    """The angle of each pair of one channel of each half."""
    return torch.complex(*message.flatten().chunk(2)).angle()


def _wrapped(angles: Tensor) -> Tensor:
    """Within half a turn either way."""
    return torch.polar(torch.ones_like(angles), angles).angle()
