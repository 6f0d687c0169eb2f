"""Mistakes that readers make, an exercise's label to code and to words of the hint it must get."""

_DUAL = "self.of(x, lambda u, w: (u / s, w - t * u / s))"
_CLOCKS = """
def clocks(rate, start):
    s, t = rate[:, None], start[:, None]

    class Clocks:
        def of(self, x, move):
            u, w = x.unflatten(-1, (-1, 2)).unbind(-1)
            return torch.stack(move(u, w), -1).flatten(-2)

        def apply(self, x):
            return self.of(x, lambda u, w: (s * u + t * w, w))

        def undo(self, x):
            return self.of(x, lambda u, w: ((u - t * w) / s, w))

        def dual(self, x):
            return {dual}

    return Clocks()
"""

WRONG = {
    "ex-complex": [
        (
            """
def turn(x, t, omega):
    z = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    z = z * torch.exp(-1j * t[:, None] * omega)
    return torch.view_as_real(z).flatten(-2)
""",
            "clockwise",
        ),
        (
            """
def turn(x, t, omega):
    z = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    z = z * torch.exp(1j * torch.deg2rad(t[:, None] * omega))
    return torch.view_as_real(z).flatten(-2)
""",
            "not in degrees",
        ),
        (
            """
def turn(x, t, omega):
    z = torch.complex(*x.chunk(2, -1)) * torch.exp(1j * t[:, None] * omega)
    return torch.cat((z.real, z.imag), -1)
""",
            "interleaved",
        ),
        (
            """
def turn(x, t, omega):
    z = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return torch.view_as_real(z * torch.exp(1j * omega)).flatten(-2)
""",
            "position is missing",
        ),
        (
            """
def turn(x, t, omega):
    z = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous())
    return z * torch.exp(1j * t[:, None] * omega)
""",
            "complex",
        ),
    ],
    "ex-base": [
        (
            """
def planes_round(base, d_head, n_ctx):
    return (n_ctx * RotaryEmbedding(d_head, base=base).inv_freq >= 1).sum()
""",
            "whole turn",
        ),
        (
            """
def planes_round(base, d_head, n_ctx):
    return (n_ctx * RotaryEmbedding(d_head, base=base).inv_freq < 2 * torch.pi).sum()
""",
            "do not come round",
        ),
        (
            """
def planes_round(base, d_head, n_ctx):
    omega = base ** (-torch.arange(d_head // 2) / d_head)
    return (n_ctx * omega >= 2 * torch.pi).sum()
""",
            "exponent",
        ),
        ("planes_round = lambda base, d_head, n_ctx: 51", "the answer is"),
    ],
    "ex-shift": [
        ("def mark(t): return torch.eye(8).roll(t, 0)", "come round after 8 tokens"),
        ("def mark(t): return torch.eye(8)", "same mark"),
        ("def mark(t): return torch.eye(8)[torch.randperm(8)] if t else torch.eye(8)", "compose"),
        ("def mark(t): return rotary.matrix(t)", "no permutation"),
        (
            """
def mark(t):
    return torch.block_diag(torch.eye(2).roll(t, 0), torch.eye(6).roll(t, 0))
""",
            "come round after 6 tokens",
        ),
    ],
    "ex-only-queries": [
        ("def between(rotary, i, j): return rotary.matrix(j - i)", "that is RoPE"),
        ("def between(rotary, i, j): return rotary.matrix(i)", "transposed"),
        ("def between(rotary, i, j): return rotary.matrix(-j)", "cannot matter"),
        ("def between(rotary, i, j): return rotary.matrix(i - j)", "no offset is left"),
    ],
    "ex-planes-of-score": [
        (
            """
def parts(q, k, rotary, delta):
    product = q * (rotary.matrix(-delta) @ k)
    return product[rotary.plane_channels].sum(-1)
""",
            "sign of the offset",
        ),
        ("def parts(q, k, rotary, delta): return q @ rotary.matrix(delta) @ k", "one number"),
        (
            """
def parts(q, k, rotary, delta):
    return (q * (rotary.matrix(delta) @ k)).reshape(-1, 2).sum(-1)
""",
            "do not share a plane",
        ),
        (
            """
def parts(q, k, rotary, delta):
    return (q * (rotary.matrix(delta) @ k)).reshape(2, -1).sum(0)
""",
            "do not share a plane",
        ),
        (
            """
def parts(q, k, rotary, delta):
    product = q * (rotary.matrix(delta) @ k) / len(q) ** 0.5
    return product[rotary.plane_channels].sum(-1)
""",
            "square root",
        ),
    ],
    "ex-interpolation": [
        ("def mended(query, rotary, factor): return query", "unchanged"),
        (
            "def mended(query, rotary, factor): return rotary.matrix(1 / factor - 1) @ query",
            "wrong way",
        ),
        (
            "def mended(query, rotary, factor): return rotary.matrix(-1 / factor) @ query",
            "old rotation off first",
        ),
        ("def mended(query, rotary, factor): return rotary.matrix(1) @ query", "the key itself"),
        (
            "def mended(query, rotary, factor): return rotary.matrix(1 - factor) @ query",
            "you multiplied",
        ),
    ],
    "ex-take-away": [
        (
            "def without_turn(model, task): return held_out_scores(model, task)",
            "still rotated",
        ),
        (
            """
def without_turn(model, task):
    model.attention[0].rotate_values = False
    return held_out_scores(model, task)
""",
            "stays changed",
        ),
        (
            """
def without_turn(model, task):
    import copy

    layer = copy.deepcopy(model.attention[0])
    layer.rotate_values = False
    model.attention[0] = layer
    return held_out_scores(model, task)
""",
            "stays changed",
        ),
        (
            """
def without_turn(model, task):
    model.attention[0].rotate_values = False
    scores = held_out_scores(model, task)
    model.attention[0].rotate_values = True
    return scores["token"]
""",
            "a score for each question",
        ),
    ],
    "ex-blur": [
        (
            """
def one_head(taps):
    rows = taps.flatten(1)
    return torch.linalg.matrix_rank(rows) <= 1 and (rows @ rows[0] >= 0).all()
""",
            "both signs",
        ),
        (
            """
def one_head(taps):
    rows = taps.flatten(1)
    one_sign = ((rows[1:] * rows[:-1]).sum(-1) >= 0).all()
    return torch.linalg.matrix_rank(rows) <= 1 and one_sign
""",
            "both signs",
        ),
        (
            """
def one_head(taps):
    return torch.linalg.matrix_rank(taps.flatten(1)) == 1
""",
            "both signs",
        ),
        ("def one_head(taps): return (taps >= 0).all()", "rank two"),
        (
            """
def one_head(taps):
    return (taps >= 0).all() and torch.linalg.matrix_rank(taps.flatten(1)) == 1
""",
            "negative entries",
        ),
        (
            """
def one_head(taps):
    loud = taps.flatten(1).norm(dim=1).min() > 0
    return loud and abs(Filter(taps).blind_error(1)) < 1e-9
""",
            "a weight of zero",
        ),
    ],
    "ex-one-plane": [
        (
            """
def nearest(rotary, m, n):
    value = torch.ones(rotary.d_head, dtype=torch.float64)
    heard = rotary.planes([m]).matrix(torch.arange(-n, 0)) @ value
    return torch.cdist(heard, heard).min()
""",
            "different ones",
        ),
        (
            """
def nearest(rotary, m, n):
    value = torch.ones(rotary.d_head, dtype=torch.float64)
    heard = rotary.planes([m]).matrix(torch.arange(-n, 0)) @ value
    return heard.diff(dim=0).norm(dim=-1).min()
""",
            "neighbours only",
        ),
        (
            """
def nearest(rotary, m, n):
    value = torch.ones(rotary.d_head, dtype=torch.float64)
    return torch.pdist(rotary.matrix(torch.arange(-n, 0)) @ value).min()
""",
            "all planes turn",
        ),
        (
            """
def nearest(rotary, m, n):
    value = torch.ones(rotary.d_head, dtype=torch.float64)
    return torch.pdist(rotary.planes([m]).matrix(torch.arange(-n, 1)) @ value).min()
""",
            "n + 1 messages",
        ),
    ],
    "ex-length": [
        ("def length(delta, omega): return 1.0", "that is RoPE's"),
        ("def length(delta, omega): return torch.cos(delta * omega / 2)", "not negative"),
        ("def length(delta, omega): return torch.cos(delta * omega).abs()", "half of it"),
        ("def length(delta, omega): return 2 * torch.cos(delta * omega / 2).abs()", "attention"),
        (
            "def length(delta, omega): return torch.cos(torch.deg2rad(delta * omega / 2)).abs()",
            "degrees",
        ),
    ],
    "ex-any-kernel": [
        (
            """
def rove_head(q, k, v, rotary, t):
    return rope_attention(q, k, v, rotary, positions=t)
""",
            "that is RoPE",
        ),
        (
            """
def rove_head(q, k, v, rotary, t):
    at = rotary(t)
    return rope_attention(q, k, at.apply(v), rotary, positions=t)
""",
            "never undone",
        ),
        (
            """
def rove_head(q, k, v, rotary, t):
    at = rotary(t)
    return at.apply(rope_attention(q, k, at.apply(v), rotary, positions=t))
""",
            "once more",
        ),
        (
            """
def rove_head(q, k, v, rotary, t):
    return rove_attention(q, k, v, rotary, positions=t, is_causal=False)
""",
            "reads the future",
        ),
        ("def rove_head(q, k, v, rotary, t): return rove_attention(q, k, v, rotary)", "positions"),
        (
            """
def rove_head(q, k, v, rotary, t):
    return rove_attention(q, k, v, rotary.planes([]), value_rotary=rotary, positions=t)
""",
            "queries and keys",
        ),
    ],
    "ex-planes": [
        ("def furthest(q, k, v, rotary): return 0", "not always the fastest"),
        ("def furthest(q, k, v, rotary): return 5", "not always the slowest"),
        ("def furthest(q, k, v, rotary): return 9", "one of 6 planes"),
        (
            """
def furthest(q, k, v, rotary):
    return v[..., rotary.plane_channels].square().sum((0, 1, 3)).argmax()
""",
            "not always the loudest",
        ),
        (
            """
def furthest(q, k, v, rotary):
    sizes = []
    for m in range(len(rotary.inv_freq)):
        z = rove_attention(q, k, v, rotary, value_rotary=rotary.planes([m]))
        sizes.append(z.norm())
    return torch.stack(sizes).argmax()
""",
            "not the longest output",
        ),
        (
            """
def furthest(q, k, v, rotary):
    y, change = rope_attention(q, k, v, rotary), []
    for m in range(len(rotary.inv_freq)):
        z = rove_attention(q, k, v, rotary, value_rotary=rotary.planes([m]))
        change.append((z - y).norm())
    return torch.stack(change).argmin()
""",
            "least",
        ),
        (
            """
def furthest(q, k, v, rotary):
    y, change = rope_attention(q, k, v, rotary), []
    for m in range(len(rotary.inv_freq)):
        z = rove_attention(q, k, v, rotary, value_rotary=rotary.planes([m]))
        change.append((z - y).norm())
    return torch.stack(change).argmax() + 1
""",
            "numbered from 0",
        ),
    ],
    "ex-mismatch": [
        ("def angle(i, j, omega, other): return (j - i) * omega", "no single offset"),
        ("def angle(i, j, omega, other): return i * other - j * omega", "sign"),
        ("def angle(i, j, omega, other): return j * omega + i * other", "takes its angle off"),
        ("def angle(i, j, omega, other): return j * omega", "never undoes"),
        ("def angle(i, j, omega, other): return j * other - i * omega", "key's position"),
        (
            "def angle(i, j, omega, other): return torch.rad2deg(j * omega - i * other)",
            "in radians",
        ),
    ],
    "ex-floor": [
        ("def lowest(d_head, rotary_dim): return 1 - rotary_dim / d_head", "down to -1"),
        ("def lowest(d_head, rotary_dim): return -rotary_dim / d_head", "keep their part"),
        ("def lowest(d_head, rotary_dim): return 0", "one choice of rotary_dim"),
    ],
    "ex-yarn": [
        (
            """
def half_way(inv_freq, n):
    similarity = torch.cos(torch.arange(n) * inv_freq[:, None]).mean(0)
    return (similarity < 0.5).double().argmax() - 1
""",
            "last distance still above",
        ),
        (
            """
def half_way(inv_freq, n):
    similarity = torch.cos(torch.arange(n) * inv_freq[:, None]).sum(0)
    return (similarity < 0.5).double().argmax()
""",
            "mean",
        ),
        (
            """
def half_way(inv_freq, n):
    similarity = torch.cos(torch.arange(n) * inv_freq[:, None]).mean(0)
    return (similarity > 0.5).double().argmax()
""",
            "nothing has turned",
        ),
        (
            """
def half_way(inv_freq, n):
    similarity = torch.cos(torch.arange(n) * inv_freq[:, None]).mean(0)
    return (similarity < 0).double().argmax()
""",
            "below zero",
        ),
    ],
    "ex-slowest": [
        (
            """
def slow_share(W_V, rotary):
    n_planes = len(rotary.inv_freq)
    return kernel_spectrum(W_V, rotary)[:, : n_planes // 2].sum(-1)
""",
            "faster half",
        ),
        (
            """
def slow_share(W_V, rotary):
    energy = W_V.square().sum(1)
    return energy[:, energy.shape[1] // 2 :].sum(-1) / energy.sum(-1)
""",
            "pairs other channels",
        ),
        (
            """
def slow_share(W_V, rotary):
    return kernel_spectrum(W_V.mT.contiguous(), rotary)[:, len(W_V[0]) // 4 :].sum(-1)
""",
            "summed rows",
        ),
        (
            """
def slow_share(W_V, rotary):
    lengths = W_V.norm(dim=1)
    slow = rotary.plane_channels[len(rotary.inv_freq) // 2 :].flatten()
    return lengths[:, slow].sum(-1) / lengths.sum(-1)
""",
            "square of a norm",
        ),
    ],
    "ex-one-offset": [
        ("def pattern(n): return torch.ones(n, n).tril()", "how many offsets"),
        ("def pattern(n): return torch.zeros(n, n)", "must read something"),
        ("def pattern(n): return torch.eye(n).roll(1, 0)", "reads the future"),
        ("def pattern(n): return torch.eye(n)[[0] * n]", "all read one key"),
        ("def pattern(n): return torch.eye(8)", "expected a tensor of shape"),
    ],
    "ex-rank-planes": [
        ("def terms(d_head, turning): return turning", "cosine and its sine"),
        ("def terms(d_head, turning): return 2 * turning", "one for all of them"),
        ("def terms(d_head, turning): return 2 * turning + 1", "nothing is left"),
        ("def terms(d_head, turning): return d_head", "here some do not turn"),
    ],
    "ex-fft": [
        (
            """
def convolve(kernels, x):
    n = len(x)
    K, X = torch.fft.fft(kernels, 2 * n, dim=0), torch.fft.fft(x, 2 * n, dim=0)
    return torch.fft.ifft(torch.einsum("fi,fio->fo", X, K), dim=0)[:n]
""",
            "take `.real`",
        ),
        (
            """
def convolve(kernels, x):
    n = len(x)
    K, X = torch.fft.rfft(kernels, dim=0), torch.fft.rfft(x, dim=0)
    return torch.fft.irfft(torch.einsum("fi,fio->fo", X, K), n, dim=0)
""",
            "wraps round",
        ),
        (
            """
def convolve(kernels, x):
    n = len(x)
    K, X = torch.fft.rfft(kernels, 2 * n, dim=0), torch.fft.rfft(x, 2 * n, dim=0)
    Y = torch.einsum("fi,fio->fo", X, K.conj())
    return torch.fft.irfft(Y, 2 * n, dim=0)[:n]
""",
            "k ahead",
        ),
        (
            """
def convolve(kernels, x):
    n = len(x)
    K, X = torch.fft.rfft(kernels, 2 * n, dim=0), torch.fft.rfft(x, 2 * n, dim=0)
    Y = torch.einsum("fo,fio->fi", X, K)
    return torch.fft.irfft(Y, 2 * n, dim=0)[:n]
""",
            "x is a row",
        ),
        ("def convolve(kernels, x): return x @ kernels[0]", "only kernel 0"),
    ],
    "ex-copying": [
        (
            """
def copying(W_E, W_V, W_O, W_U):
    eigenvalues = torch.linalg.eigvals(W_V @ W_O)
    return eigenvalues.real.sum() / eigenvalues.abs().sum()
""",
            "W_E and W_U belong to it",
        ),
        (
            """
def copying(W_E, W_V, W_O, W_U):
    core = (W_O @ W_U) @ (W_E @ W_V)
    return core.trace() / torch.linalg.svdvals(W_E @ W_V @ W_O @ W_U).sum()
""",
            "singular values",
        ),
        (
            """
def copying(W_E, W_V, W_O, W_U):
    real = torch.linalg.eigvals((W_O @ W_U) @ (W_E @ W_V)).real
    return real.sum() / real.abs().sum()
""",
            "absolute value",
        ),
        (
            """
def copying(W_E, W_V, W_O, W_U):
    return torch.linalg.eigvals((W_O @ W_U) @ (W_E @ W_V)).real.sign().mean()
""",
            "not one a vote",
        ),
    ],
    "ex-duplicate": [
        (
            """
def duplicate_score(pattern, tokens):
    from rove_lab.circuits import induction_score
    return induction_score(pattern, tokens)
""",
            "that is induction",
        ),
        (
            """
def duplicate_score(pattern, tokens):
    same = (tokens[:, None] == tokens).tril()
    return (pattern * same).sum(-1).mean(-1)
""",
            "no occurrence of itself",
        ),
        (
            """
def duplicate_score(pattern, tokens):
    same = (tokens[:, None] == tokens).tril(-1)
    return (pattern * same).sum((-2, -1)) / same.any(-1).sum()
""",
            "only the latest",
        ),
        (
            """
def duplicate_score(pattern, tokens):
    same = (tokens[:, None] == tokens).tril(-1)
    again = same.any(-1).nonzero()[:, 0]
    return pattern[:, again, same[again].double().argmax(-1)].mean(-1)
""",
            "not the first",
        ),
    ],
    "ex-contributions": [
        (
            "def contributions(pattern, v, W_O, u): return (v @ W_O @ u)[:, None] + 0 * pattern",
            "missing",
        ),
        (
            "def contributions(pattern, v, W_O, u): return pattern * (v @ W_O @ u)[..., None]",
            "the key's",
        ),
        (
            """
def contributions(pattern, v, W_O, u):
    return (pattern * (v @ W_O @ u)[:, None]).mT
""",
            "keys by queries",
        ),
        (
            "def contributions(pattern, v, W_O, u): return pattern @ v @ W_O @ u",
            "expected a tensor",
        ),
    ],
    "ex-composition": [
        (
            """
def composition(W_V, W_O, W_Q, W_K):
    OV, QK = W_V @ W_O, W_Q @ W_K.T
    return (OV @ QK).norm() / (OV.norm() * QK.norm())
""",
            "Q-composition",
        ),
        (
            """
def composition(W_V, W_O, W_Q, W_K):
    OV, QK = W_V @ W_O, W_Q @ W_K.T
    return (QK.T @ OV).norm() / (OV.norm() * QK.norm())
""",
            "the order is the other one",
        ),
        (
            """
def composition(W_V, W_O, W_Q, W_K):
    return (W_V @ W_O @ W_K @ W_Q.T).norm()
""",
            "divide by both norms",
        ),
        (
            """
def composition(W_V, W_O, W_Q, W_K):
    return (W_O @ W_K).norm() / (W_O.norm() * W_K.norm())
""",
            "W_V and W_Q belong to it",
        ),
    ],
    "ex-curve": [
        (
            """
def curve(q, k, rotary, delta):
    return q.mean(0) @ rotary.matrix(-delta) @ k.mean(0) / q.shape[-1] ** 0.5
""",
            "the sign of the offset",
        ),
        (
            """
def curve(q, k, rotary, delta):
    n = min(len(q), len(k))
    return (q[:n] @ rotary.matrix(delta) * k[:n]).sum(-1).mean() / q.shape[-1] ** 0.5
""",
            "drawn independently",
        ),
        (
            "def curve(q, k, rotary, delta): return q.mean(0) @ rotary.matrix(delta) @ k.mean(0)",
            "square root of d_head",
        ),
        (
            """
def curve(q, k, rotary, delta):
    return (q @ rotary.matrix(delta) @ k.T / q.shape[-1] ** 0.5).sum()
""",
            "a sum over pairs",
        ),
    ],
    "ex-cosine": [
        ("def cosine_at(W_V, W_O, rotary, delta): return 1.0", "that is RoPE's"),
        (
            """
def cosine_at(W_V, W_O, rotary, delta):
    here, there = W_V @ W_O, W_V @ rotary.matrix(delta) @ W_O
    return (here * there).sum() / (here.norm() * there.norm())
""",
            "at -delta",
        ),
        (
            """
def cosine_at(W_V, W_O, rotary, delta):
    turned = W_V @ rotary.matrix(delta).T
    return (turned * W_V).sum() / W_V.square().sum()
""",
            "W_O is missing",
        ),
        (
            """
def cosine_at(W_V, W_O, rotary, delta):
    here, there = W_V @ W_O, W_V @ rotary.matrix(delta).T @ W_O
    return (here * there).sum() / here.square().sum()
""",
            "both norms",
        ),
    ],
    "ex-fooled": [
        ("def fooled(): return torch.eye(4)", "it copies"),
        ("def fooled(): return torch.eye(4).roll(1, 0)", "its copying score is"),
        ("def fooled(): return torch.eye(4) + 5 * torch.ones(4, 4).triu(1)", "token 3 raises"),
        ("def fooled(): return torch.ones(4, 4)", "as much as itself"),
        ("def fooled(): return torch.ones(4, 4).triu(1)", "all its eigenvalues are zero"),
    ],
    "ex-copying-at": [
        (
            """
def copying_at(W_E, W_V, W_O, W_U, rotary, delta):
    found = torch.linalg.eigvals(W_O @ W_U @ W_E @ W_V)
    return found.real.sum() / found.abs().sum()
""",
            "that is RoPE's",
        ),
        (
            """
def copying_at(W_E, W_V, W_O, W_U, rotary, delta):
    core = rotary.matrix(delta).to(W_V) @ W_O @ W_U @ W_E @ W_V
    found = torch.linalg.eigvals(core)
    return found.real.sum() / found.abs().sum()
""",
            "at -delta",
        ),
        (
            """
def copying_at(W_E, W_V, W_O, W_U, rotary, delta):
    core = rotary.matrix(delta).to(W_V).T @ W_O @ W_U @ W_E @ W_V
    return torch.linalg.eigvals(core).real.sum()
""",
            "the sum of the eigenvalues",
        ),
        (
            """
def copying_at(W_E, W_V, W_O, W_U, rotary, delta):
    found = torch.linalg.eigvals(W_V @ rotary.matrix(delta).to(W_V).T @ W_O)
    return found.real.sum() / found.abs().sum()
""",
            "W_E and W_U belong",
        ),
    ],
    "ex-perplexity": [
        (
            """
def perplexity(losses):
    return torch.stack([piece.mean() for piece in losses]).mean().exp()
""",
            "every token counts once",
        ),
        (
            """
def perplexity(losses):
    return torch.stack([piece.mean().exp() for piece in losses]).mean()
""",
            "mean of the pieces' perplexities",
        ),
        ("def perplexity(losses): return 2 ** torch.cat(losses).mean()", "the base is e"),
        ("def perplexity(losses): return torch.cat(losses).mean()", "that is the loss"),
    ],
    "ex-control": [
        (
            """
def damage_left(rope_before, rove_at_once, rope_after, rove_after):
    return (rove_after - rope_before) / (rove_at_once - rope_before)
""",
            "the control has learned too",
        ),
        (
            """
def damage_left(rope_before, rove_at_once, rope_after, rove_after):
    return 1 - (rove_after - rope_after) / (rove_at_once - rope_before)
""",
            "the share won back",
        ),
        (
            """
def damage_left(rope_before, rove_at_once, rope_after, rove_after):
    return rove_after - rope_after
""",
            "loss in nats",
        ),
        (
            """
def damage_left(rope_before, rove_at_once, rope_after, rove_after):
    return (rove_after - rope_after) / (rove_at_once - rope_after)
""",
            "before anything is trained on",
        ),
    ],
    "ex-hardly-turning": [
        (
            "def hardly_turning(rotary, n_ctx, angle): return rotary.inv_freq <= angle",
            "from one token to the next",
        ),
        (
            """
def hardly_turning(rotary, n_ctx, angle):
    return n_ctx * rotary.inv_freq <= angle
""",
            "n - 1 apart",
        ),
        (
            """
def hardly_turning(rotary, n_ctx, angle):
    return (n_ctx - 2) * rotary.inv_freq <= angle
""",
            "not n - 2",
        ),
        (
            """
def hardly_turning(rotary, n_ctx, angle):
    return (n_ctx - 1) * rotary.inv_freq > angle
""",
            "you want the slow ones",
        ),
        (
            """
def hardly_turning(rotary, n_ctx, angle):
    return torch.rad2deg((n_ctx - 1) * rotary.inv_freq) <= angle
""",
            "not in degrees",
        ),
    ],
    "ex-answer-place": [
        (
            "def answer_place(tokens): return (tokens == tokens[:, -1:]).int().argmax(-1)",
            "where the key stands",
        ),
        (
            """
def answer_place(tokens):
    return torch.full((len(tokens),), tokens.shape[1])
""",
            "past the end",
        ),
        (
            "def answer_place(tokens): return (tokens == tokens[:, -1:]).int().argmax(-1) - 1",
            "the value comes after it",
        ),
        (
            """
def answer_place(tokens):
    at = (tokens == tokens[:, -1:]).int().argmax(-1) + 1
    return tokens.gather(1, at[:, None])[:, 0]
""",
            "their places are asked",
        ),
    ],
    "ex-unseen": [
        (
            """
def unseen(inv_freq, n_ctx, times):
    return (times - 1) * n_ctx * inv_freq / (2 * torch.pi)
""",
            "meets nothing new",
        ),
        (
            """
def unseen(inv_freq, n_ctx, times):
    return ((times * n_ctx - 1) * inv_freq / (2 * torch.pi)).clamp(max=1)
""",
            "leave out those of training",
        ),
        (
            """
def unseen(inv_freq, n_ctx, times):
    long, short = (n * inv_freq / (2 * torch.pi) for n in (times * n_ctx, n_ctx))
    return long.clamp(max=1) - short.clamp(max=1)
""",
            "n - 1 away",
        ),
        (
            """
def unseen(inv_freq, n_ctx, times):
    return 1 - ((n_ctx - 1) * inv_freq / (2 * torch.pi)).clamp(max=1)
""",
            "rest of the circle",
        ),
    ],
    "ex-skipping": [
        (
            """
def skipping(n, cuts, gaps):
    positions = torch.arange(n)
    positions[cuts] += gaps
    return positions
""",
            "all after it move",
        ),
        (
            """
def skipping(n, cuts, gaps):
    marks = torch.zeros(n, dtype=torch.int64)
    marks[cuts + 1] = gaps
    return torch.arange(n) + marks.cumsum(0)
""",
            "comes after it",
        ),
        (
            """
def skipping(n, cuts, gaps):
    marks = torch.zeros(n, dtype=torch.int64)
    marks[cuts] = gaps
    return marks.cumsum(0)
""",
            "the gaps alone",
        ),
    ],
    "ex-steps-to": [
        (
            """
def steps_to(steps, losses, level):
    return steps[losses <= level][0]
""",
            "first report at or under it",
        ),
        (
            """
def steps_to(steps, losses, level):
    return steps[(losses <= level).nonzero()[0, 0] - 1]
""",
            "last report above it",
        ),
        (
            """
def steps_to(steps, losses, level):
    return steps[(losses - level).abs().argmin()]
""",
            "nearest report",
        ),
        (
            """
def steps_to(steps, losses, level):
    i = (losses <= level).nonzero()[0, 0]
    along = (losses[i - 1] - level) / (losses[i - 1] - losses[i])
    return steps[i] - along * (steps[i] - steps[i - 1])
""",
            "from the wrong end",
        ),
        (
            """
def steps_to(steps, losses, level):
    i = (losses > level).nonzero()[-1, 0] + 1
    along = (losses[i - 1] - level) / (losses[i - 1] - losses[i])
    return steps[i - 1] + along * (steps[i] - steps[i - 1])
""",
            "the first time counts",
        ),
        (
            """
def steps_to(steps, losses, level):
    i = (losses <= level).nonzero()[0, 0]
    return i - 1 + (losses[i - 1] - level) / (losses[i - 1] - losses[i])
""",
            "the steps are given",
        ),
        (
            """
def steps_to(steps, losses, level):
    i = (losses <= level).nonzero()[0, 0]
    return (losses[i - 1] - level) / (losses[i - 1] - losses[i]) * (steps[i] - steps[i - 1])
""",
            "add its step",
        ),
    ],
    "ex-paired": [
        (
            "def paired(rope, rove): return (rove - rope).mean(), (rove - rope).std()",
            "the spread of the seeds",
        ),
        (
            """
def paired(rope, rove):
    error = ((rope.var() + rove.var()) / len(rope)).sqrt()
    return rove.mean() - rope.mean(), error
""",
            "nothing in common",
        ),
        (
            """
def paired(rope, rove):
    apart = rope - rove
    return apart.mean(), apart.std() / len(apart) ** 0.5
""",
            "RoPE less RoVE",
        ),
        (
            """
def paired(rope, rove):
    apart = rove - rope
    return apart.mean(), apart.std(correction=0) / len(apart) ** 0.5
""",
            "divide by n - 1",
        ),
        (
            """
def paired(rope, rove):
    apart = rove - rope
    return apart.mean(), apart.var() / len(apart)
""",
            "its root",
        ),
        (
            """
def paired(rope, rove):
    apart = rove - rope
    return apart.mean(), apart.std() / len(apart)
""",
            "not by n",
        ),
        ("def paired(rope, rove): return (rove - rope).mean()", "expected a tensor"),
    ],
    "ex-schedule": [
        (
            "def share(step, steps, warmup, final): return step / warmup",
            "falls along a half cosine",
        ),
        (
            """
def share(step, steps, warmup, final):
    wave = 0.5 * (1 + torch.tensor(torch.pi * (step - warmup) / (steps - warmup)).cos())
    return final + (1 - final) * wave
""",
            "step over warmup",
        ),
        (
            """
def share(step, steps, warmup, final):
    if step < warmup:
        return step / warmup
    return final + (1 - final) * 0.5 * (1 + torch.tensor(torch.pi * step / steps).cos())
""",
            "not at step 0",
        ),
        (
            """
def share(step, steps, warmup, final):
    if step < warmup:
        return step / warmup
    return 0.5 * (1 + torch.tensor(torch.pi * (step - warmup) / (steps - warmup)).cos())
""",
            "end at the share",
        ),
        (
            """
def share(step, steps, warmup, final):
    if step < warmup:
        return step / warmup
    wave = 0.5 * (1 + torch.tensor(torch.pi * (step - warmup) / (steps - warmup)).cos())
    return final + wave
""",
            "only what lies over",
        ),
        (
            """
def share(step, steps, warmup, final):
    if step < warmup:
        return step / warmup
    return 1 - (1 - final) * (step - warmup) / (steps - warmup)
""",
            "take a half cosine",
        ),
        (
            """
def share(step, steps, warmup, final):
    if step < warmup:
        return step / warmup
    turn = 2 * torch.pi * (step - warmup) / (steps - warmup)
    return final + (1 - final) * 0.5 * (1 + torch.tensor(turn).cos())
""",
            "take half of it",
        ),
    ],
    "ex-scored": [
        ("def scored(n, lengths): return torch.arange(n) > 0", "every window has a first token"),
        (
            "def scored(n, lengths): return torch.arange(n) % lengths[-1] != 0",
            "shorter ones open more often",
        ),
        ("def scored(n, lengths): return torch.arange(n) % lengths[0] == 0", "the other way round"),
        (
            "def scored(n, lengths): return (torch.arange(n) + 1) % lengths[0] != 0",
            "it is the first that has nothing",
        ),
        ("def scored(n, lengths): return torch.arange(n) >= lengths[0]", "too strict"),
    ],
    "ex-kept": [
        (
            """
def kept(inv_freq, n_ctx, beta_fast):
    return (n_ctx * inv_freq > beta_fast).sum()
""",
            "2 pi radians",
        ),
        (
            """
def kept(inv_freq, n_ctx, beta_fast):
    return (n_ctx * inv_freq <= 2 * torch.pi * beta_fast).sum()
""",
            "turn less often",
        ),
        (
            """
def kept(inv_freq, n_ctx, beta_fast):
    return 1 + (n_ctx * inv_freq > 2 * torch.pi * beta_fast).sum()
""",
            "one too many",
        ),
        (
            """
def kept(inv_freq, n_ctx, beta_fast):
    return (n_ctx * inv_freq > 2 * torch.pi).sum()
""",
            "compare with beta_fast",
        ),
    ],
    "ex-ramp": [
        ("def ramp(inv_freq, factor, low, high): return inv_freq / factor", "slows every plane"),
        (
            """
def ramp(inv_freq, factor, low, high):
    along = ((torch.arange(len(inv_freq)) - low) / (high - low)).clamp(0, 1)
    return along * inv_freq + (1 - along) * inv_freq / factor
""",
            "wrong way round",
        ),
        (
            """
def ramp(inv_freq, factor, low, high):
    along = (torch.arange(len(inv_freq)) - low) / (high - low)
    return (1 - along) * inv_freq + along * inv_freq / factor
""",
            "clamp it",
        ),
        (
            """
def ramp(inv_freq, factor, low, high):
    along = ((torch.arange(len(inv_freq)) - low) / (high - low)).clamp(0, 1)
    return (1 - along) * inv_freq + along * inv_freq * factor
""",
            "makes them faster",
        ),
        (
            """
def ramp(inv_freq, factor, low, high):
    return torch.where(torch.arange(len(inv_freq)) <= low, inv_freq, inv_freq / factor)
""",
            "that is a step",
        ),
    ],
    "ex-overlap": [
        (
            "def overlap(rope, rove, rope_yarn, rove_yarn): return rope_yarn - rove_yarn",
            "how much less",
        ),
        (
            "def overlap(rope, rove, rope_yarn, rove_yarn): return rope - rove_yarn",
            "gain of both together",
        ),
        (
            "def overlap(rope, rove, rope_yarn, rove_yarn): return 2 * rope - rove - rope_yarn",
            "take away",
        ),
        (
            """
def overlap(rope, rove, rope_yarn, rove_yarn):
    return (rove - rope) - (rove_yarn - rope_yarn)
""",
            "the sign",
        ),
        (
            """
def overlap(rope, rove, rope_yarn, rove_yarn):
    return (rope - rove - rope_yarn + rove_yarn).mean().expand(len(rope))
""",
            "one number a seed",
        ),
    ],
    "ex-accumulate": [
        (
            "def accumulate(batch_size, n_devices, fits): return -(-batch_size // fits)",
            "each has its share",
        ),
        (
            """
def accumulate(batch_size, n_devices, fits):
    return -(-batch_size // (n_devices * fits))
""",
            "the number divides the share",
        ),
        (
            "def accumulate(batch_size, n_devices, fits): return batch_size // n_devices // fits",
            "rounds down",
        ),
        (
            "def accumulate(batch_size, n_devices, fits): return batch_size // n_devices",
            "one sequence at a time",
        ),
        (
            """
def accumulate(batch_size, n_devices, fits):
    share = batch_size // n_devices
    return max(n for n in range(1, fits + 1) if share % n == 0)
""",
            "size of a micro-batch",
        ),
    ],
    "ex-busy": [
        (
            """
def busy(tokens_per_s, flops_per_token, peak, n_devices):
    return tokens_per_s / (n_devices * peak)
""",
            "count them",
        ),
        (
            """
def busy(tokens_per_s, flops_per_token, peak, n_devices):
    return tokens_per_s * flops_per_token / peak
""",
            "n times the peak",
        ),
        (
            """
def busy(tokens_per_s, flops_per_token, peak, n_devices):
    return tokens_per_s * flops_per_token * n_devices / peak
""",
            "all devices together",
        ),
        (
            """
def busy(tokens_per_s, flops_per_token, peak, n_devices):
    return n_devices * peak / (tokens_per_s * flops_per_token)
""",
            "the other way round",
        ),
        (
            """
def busy(tokens_per_s, flops_per_token, peak, n_devices):
    return 100 * tokens_per_s * flops_per_token / (n_devices * peak)
""",
            "not per cent",
        ),
    ],
    "ex-pairs-for": [
        (
            """
def pairs_for(difference, noise, shared):
    return math.ceil(8 * noise**2 / difference**2)
""",
            "only the rest is left",
        ),
        (
            """
def pairs_for(difference, noise, shared):
    return math.ceil(4 * (1 - shared) * noise**2 / difference**2)
""",
            "noise of two runs",
        ),
        (
            """
def pairs_for(difference, noise, shared):
    return math.ceil(2 * (1 - shared) * noise**2 / difference**2)
""",
            "not one",
        ),
        (
            """
def pairs_for(difference, noise, shared):
    return math.ceil(8 * shared * noise**2 / difference**2)
""",
            "1 - shared is left",
        ),
        (
            """
def pairs_for(difference, noise, shared):
    return math.ceil(2 * math.sqrt(2 * (1 - shared)) * noise / abs(difference))
""",
            "square the ratio",
        ),
        (
            """
def pairs_for(difference, noise, shared):
    return int(8 * (1 - shared) * noise**2 / difference**2)
""",
            "round up",
        ),
        (
            """
def pairs_for(difference, noise, shared):
    return 8 * (1 - shared) * noise**2 / difference**2
""",
            "a whole one",
        ),
    ],
    "ex-sign-test": [
        (
            """
def sign_test(n, k):
    return sum(math.comb(n, heads) for heads in range(max(k, n - k), n + 1)) / 2**n
""",
            "one side only",
        ),
        (
            """
def sign_test(n, k):
    return min(1, 2 * sum(math.comb(n, heads) for heads in range(k, n + 1)) / 2**n)
""",
            "may be less than half",
        ),
        (
            "def sign_test(n, k): return min(1, 2 * math.comb(n, k) / 2**n)",
            "add what is more one-sided",
        ),
        (
            """
def sign_test(n, k):
    return 2 * sum(math.comb(n, heads) for heads in range(max(k, n - k), n + 1)) / 2**n
""",
            "at most 1",
        ),
        ("def sign_test(n, k): return k / n", "no chance"),
    ],
    "ex-borne": [
        ("def borne(gains): return gains.mean() > 0", "one pair says the opposite"),
        ("def borne(gains): return (gains > 0).all()", "within two standard errors"),
        (
            "def borne(gains): return (gains > 0).all() and gains.mean() > 2 * gains.std()",
            "over the root of n",
        ),
        (
            """
def borne(gains):
    error = gains.std(correction=0) / len(gains) ** 0.5
    return (gains > 0).all() and gains.mean() > 2 * error
""",
            "divide by n - 1",
        ),
        ("def borne(gains): return False", "bear it out"),
    ],
    "ex-by-chance": [
        ("def by_chance(claims, level): return claims * level", "can exceed 1"),
        ("def by_chance(claims, level): return (1 - level) ** claims", "none is passed"),
        ("def by_chance(claims, level): return level**claims", "all of them are passed"),
        ("def by_chance(claims, level): return 1 - level**claims", "not all of them"),
    ],
    "ex-nats-ahead": [
        ("def nats_ahead(rope, rove): return rope - rove", "in perplexity"),
        ("def nats_ahead(rope, rove): return math.log(rove / rope)", "ahead is positive"),
        ("def nats_ahead(rope, rove): return rope / rove", "that is a ratio"),
        ("def nats_ahead(rope, rove): return math.log2(rope / rove)", "in bits"),
        ("def nats_ahead(rope, rove): return math.log10(rope / rove)", "base ten"),
        ("def nats_ahead(rope, rove): return 1 - rove / rope", "that is the share"),
    ],
    "ex-beyond-sum": [
        (
            "def beyond_sum(plain, rove, yarn, both): return math.log(plain / both)",
            "take off what each gains",
        ),
        (
            "def beyond_sum(plain, rove, yarn, both): return math.log(yarn / both)",
            "what RoVE adds over YaRN",
        ),
        (
            "def beyond_sum(plain, rove, yarn, both): return math.log(rove / both)",
            "what YaRN adds over RoVE",
        ),
        (
            "def beyond_sum(plain, rove, yarn, both): return math.log(plain * both / rove / yarn)",
            "the other way round",
        ),
        ("def beyond_sum(plain, rove, yarn, both): return rove + yarn - plain - both", "logarithm"),
        (
            "def beyond_sum(plain, rove, yarn, both): return math.log(plain / rove * plain / yarn)",
            "the sum of the gains",
        ),
    ],
    "ex-reach": [
        (
            """
def reach(lengths, perplexities, limit):
    return lengths[perplexities <= limit][-1]
""",
            "last length that was measured below",
        ),
        (
            """
def reach(lengths, perplexities, limit):
    return lengths[perplexities > limit][0]
""",
            "first length that was measured above",
        ),
        (
            """
def reach(lengths, perplexities, limit):
    i = (perplexities > limit).long().argmax()
    along = (limit - perplexities[i - 1]) / (perplexities[i] - perplexities[i - 1])
    return lengths[i - 1] + along * (lengths[i] - lengths[i - 1])
""",
            "logarithms of both",
        ),
        (
            """
def reach(lengths, perplexities, limit):
    i = (perplexities > limit).long().argmax()
    low, high = perplexities[i - 1].log(), perplexities[i].log()
    along = (math.log(limit) - low) / (high - low)
    return lengths[i - 1] + along * (lengths[i] - lengths[i - 1])
""",
            "the length is not yet",
        ),
        (
            """
def reach(lengths, perplexities, limit):
    i = (perplexities > limit).long().argmax()
    low, high = perplexities[i - 1].log(), perplexities[i].log()
    along = (math.log(limit) - low) / (high - low)
    return lengths[i] * (lengths[i - 1] / lengths[i]) ** along
""",
            "from the wrong end",
        ),
    ],
    "ex-look-back": [
        (
            """
def look_back(tokens, targets, period):
    said = torch.full_like(targets, -1)
    said[:, period:] = tokens[:, :-period]
    asked = targets >= 0
    return (said == targets)[asked].double().mean()
""",
            "at t + 1 - period",
        ),
        (
            """
def look_back(tokens, targets, period):
    said = torch.full_like(targets, -1)
    said[:, period - 1 :] = tokens[:, : tokens.shape[1] - period + 1]
    return (said == targets).double().mean()
""",
            "not by all places",
        ),
        (
            """
def look_back(tokens, targets, period):
    asked = targets >= 0
    return (tokens.roll(period - 1, 1) == targets)[asked].double().mean()
""",
            "wraps around",
        ),
        (
            """
def look_back(tokens, targets, period):
    said, asked = tokens[:, : tokens.shape[1] - period + 1], targets[:, period - 1 :] >= 0
    return (said == targets[:, period - 1 :])[asked].double().mean()
""",
            "counts too, as wrong",
        ),
        (
            """
def look_back(tokens, targets, period):
    said = torch.full_like(targets, -1)
    said[:, period - 1 :] = tokens[:, : tokens.shape[1] - period + 1]
    asked = targets >= 0
    return (((said == targets) & asked).sum(1) / asked.sum(1)).mean()
""",
            "each token that is asked counts once",
        ),
    ],
    "ex-half-there": [
        (
            """
def half_there(steps, scores, level):
    return steps[scores.mean(0) >= level][0]
""",
            "one slow seed",
        ),
        (
            """
def half_there(steps, scores, level):
    return steps[2 * (scores >= level).sum(0) >= len(scores)][0]
""",
            "has been there",
        ),
        (
            """
def half_there(steps, scores, level):
    ever = (scores >= level).cummax(1).values
    return steps[2 * ever.sum(0) > len(scores)][0]
""",
            "half will do",
        ),
        (
            """
def half_there(steps, scores, level):
    there = [steps[seed >= level] for seed in scores]
    return torch.stack([some[0] for some in there if len(some)]).mean()
""",
            "the others count as well",
        ),
        (
            """
def half_there(steps, scores, level):
    return min(steps[seed >= level][0] for seed in scores if (seed >= level).any())
""",
            "wait for half of them",
        ),
    ],
    "ex-suite": [
        (
            """
def suite(right, chances):
    a, n = right.double().mean(1), right.shape[1]
    return a.mean(), (a * (1 - a) / n).sum().sqrt() / len(a)
""",
            "the mean accuracy",
        ),
        (
            """
def suite(right, chances):
    a, n = right.double().mean(1), right.shape[1]
    return (a - chances).mean(), (a * (1 - a) / n).sum().sqrt() / len(a)
""",
            "divide by 1 - c",
        ),
        (
            """
def suite(right, chances):
    a, n = right.double().mean(1), right.shape[1]
    score = ((a - chances) / (1 - chances)).mean()
    return score, (a * (1 - a) / n).sum().sqrt() / len(a)
""",
            "stretches the error too",
        ),
        (
            """
def suite(right, chances):
    centred = (right.double().mean(1) - chances) / (1 - chances)
    return centred.mean(), centred.std() / len(centred) ** 0.5
""",
            "spread of the tasks",
        ),
    ],
    "ex-patch-offset": [
        (
            """
def patch_offset(sent, heard):
    sent, heard = (torch.view_as_complex(z.reshape(2, 2)) for z in (sent, heard))
    return (sent / heard).angle().flip(0)
""",
            "columns first and the wrong way round",
        ),
        (
            """
def patch_offset(sent, heard):
    sent, heard = (torch.view_as_complex(z.reshape(2, 2)) for z in (sent, heard))
    return (sent / heard).angle()
""",
            "not the other way round",
        ),
        (
            """
def patch_offset(sent, heard):
    sent, heard = (torch.view_as_complex(z.reshape(2, 2)) for z in (sent, heard))
    return (heard / sent).angle().flip(0)
""",
            "rows first",
        ),
        (
            """
def patch_offset(sent, heard):
    return torch.view_as_complex(heard.reshape(2, 2)).angle()
""",
            "compare with how it was sent",
        ),
        (
            """
def patch_offset(sent, heard):
    sent, heard = (torch.view_as_complex(z.reshape(2, 2)).angle() for z in (sent, heard))
    return heard - sent
""",
            "wrap it",
        ),
        (
            """
def patch_offset(sent, heard):
    sent, heard = (torch.view_as_complex(z.reshape(2, 2)) for z in (sent, heard))
    return torch.rad2deg((heard / sent).angle())
""",
            "not one degree",
        ),
        (
            """
def patch_offset(sent, heard):
    sent, heard = (z.reshape(2, 2) for z in (sent, heard))
    return torch.nn.functional.cosine_similarity(sent, heard).clamp(-1, 1).arccos()
""",
            "the sign is missing",
        ),
        (
            """
def patch_offset(sent, heard):
    sent, heard = (torch.complex(z[:2], z[2:]) for z in (sent, heard))
    return (heard / sent).angle()
""",
            "not (0, 2) and (1, 3)",
        ),
    ],
    "ex-between-cameras": [
        (
            """
def between(E_i, E_j):
    moved = E_i - E_j
    moved[:3, :3], moved[3, 3] = E_i[:3, :3] @ E_j[:3, :3].T, 1
    return moved
""",
            "shift is turned as well",
        ),
        ("def between(E_i, E_j): return torch.linalg.inv(E_i) @ E_j", "camera to world"),
        ("def between(E_i, E_j): return E_j @ torch.linalg.inv(E_i)", "the way back"),
        ("def between(E_i, E_j): return torch.linalg.inv(E_j) @ E_i", "act from the left"),
        ("def between(E_i, E_j): return E_i @ E_j.mT", "not of a pose"),
        ("def between(E_i, E_j): return E_i @ E_j", "invert those"),
        ("def between(E_i, E_j): return E_i[:3, :3] @ E_j[:3, :3].mT", "shape [4, 4]"),
    ],
    "ex-clocks": [
        (_CLOCKS.format(dual="self.apply(x)"), "dual: queries do not move as keys do"),
        (_CLOCKS.format(dual="self.undo(x)"), "dual: the inverse is there; it has to be transp"),
        (_CLOCKS.format(dual="self.of(x, lambda u, w: (s * u, w + t * u))"), "inverted, too"),
        (_CLOCKS.format(dual="self.of(x, lambda u, w: (u / s, w))"), "w changes as well"),
        (_CLOCKS.format(dual="self.of(x, lambda u, w: (u / s, w - t * u))"), "divided by the rate"),
        (_CLOCKS.format(dual="self.of(x, lambda u, w: (u / s, w + t * u / s))"), "not added"),
        (
            _CLOCKS.format(dual=_DUAL).replace("(u - t * w) / s, w", "u / s, w"),
            "undo: the start is still on",
        ),
        (
            _CLOCKS.format(dual=_DUAL).replace("(u - t * w) / s, w", "u - t * w, w"),
            "undo: the rate is still on",
        ),
        (
            _CLOCKS.format(dual=_DUAL).replace("s * u + t * w, w", "u + t * w, w"),
            "apply: only the start is there",
        ),
        (
            _CLOCKS.format(dual=_DUAL).replace("s * u + t * w, w", "s * u, w"),
            "apply: only the rate is there",
        ),
        (
            _CLOCKS.format(dual=_DUAL).replace("(u - t * w) / s, w", "s * u, w + t * u"),
            "undo: the transpose undoes a turn",
        ),
        (
            _CLOCKS.format(dual=_DUAL).replace("(u - t * w) / s, w", "u / s - t * w, w"),
            "undo: take the start off first",
        ),
        (
            _CLOCKS.format(dual=_DUAL).replace("s * u + t * w, w", "s * (u + t * w), w"),
            "apply: the rate first",
        ),
        (
            _CLOCKS.format(dual=_DUAL).replace("s * u + t * w, w", "s * u + t, w"),
            "apply: a duration has no start",
        ),
        (
            _CLOCKS.format(dual=_DUAL).replace("s * u + t * w, w", "(u - t * w) / s, w"),
            "apply: that leads from the world to the clock",
        ),
        (
            _CLOCKS.format(dual=_DUAL)
            .replace("x.unflatten(-1, (-1, 2)).unbind(-1)", "x.chunk(2, -1)")
            .replace("torch.stack(move(u, w), -1).flatten(-2)", "torch.cat(move(u, w), -1)"),
            "apply: a pair is two neighbouring channels",
        ),
        (
            _CLOCKS.format(dual=_DUAL)
            .replace("torch.stack(move(u, w), -1)", "x")
            .replace(
                "return x.flatten",
                "u[:], w[:] = move(u, w); return torch.stack((u, w), -1).flatten",
            ),
            "apply: the tensor it is given is changed",
        ),
        (
            _CLOCKS.format(dual=_DUAL).replace("return Clocks()", "return Clocks"),
            "got Clocks",
        ),
        ("def clocks(rate, start): return rate, start", "expected an object with apply"),
    ],
    "ex-telling": [
        ("def telling(rotary): return torch.ones(rotary.d_head)", "do not turn stay"),
        ("def telling(rotary): return torch.zeros(rotary.d_head)", "nothing is undone"),
        (
            """
def telling(rotary):
    told = torch.zeros(rotary.d_head)
    told[-rotary.rotary_dim:] = 1
    return told if rotary.trailing else told.flip(0)
""",
            "at frequency 0 stands still",
        ),
        (
            """
def telling(rotary):
    told = torch.zeros(rotary.d_head)
    told[:rotary.rotary_dim] = 1
    return told
""",
            "may trail",
        ),
        (
            """
def telling(rotary):
    told = torch.zeros(rotary.d_head)
    told[rotary.plane_channels[:, 0]] = 1
    return told
""",
            "two channels",
        ),
        (
            """
def telling(rotary):
    told = torch.zeros(rotary.d_head)
    told[rotary.inv_freq.nonzero().flatten()] = 1
    return told
""",
            "planes are not channels",
        ),
        (
            """
def telling(rotary):
    told = torch.ones(rotary.d_head)
    told[rotary.plane_channels[rotary.inv_freq != 0].flatten()] = 0
    return told
""",
            "the channels that stay",
        ),
        (
            """
def telling(rotary):
    return torch.arange(rotary.d_head) >= rotary.d_head - rotary.rotary_dim
""",
            "may also lead",
        ),
        ("def telling(rotary): return rotary.plane_channels", "expected a tensor of shape [12]"),
    ],
    "ex-sink-share": [
        ("def left(logits, sinks): return torch.ones(logits.shape[:2])", "without a sink"),
        (
            "def left(logits, sinks): return torch.sigmoid(sinks[:, None] - logits.logsumexp(-1))",
            "the messages have the rest",
        ),
        (
            "def left(logits, sinks): return torch.sigmoid(logits.amax(-1) - sinks[:, None])",
            "not the largest alone",
        ),
        (
            """
def left(logits, sinks):
    total = logits.masked_fill(logits.isinf(), 0).sum(-1)
    return torch.sigmoid(total - sinks[:, None])
""",
            "logits are exponents",
        ),
        (
            "def left(logits, sinks): return torch.sigmoid(logits.sum(-1) - sinks[:, None])",
            "that of a key not seen",
        ),
        (
            """
def left(logits, sinks):
    total = logits.exp().sum(-1)
    return total / (total + sinks[:, None])
""",
            "take its exponential",
        ),
        (
            """
def left(logits, sinks):
    total = logits.logsumexp(-1)
    return total / (total + sinks[:, None])
""",
            "not logits",
        ),
        (
            "def left(logits, sinks): return torch.sigmoid(logits.logsumexp(-1) - sinks[0])",
            "sink of its own",
        ),
        (
            """
def left(logits, sinks):
    mean = logits.exp().mean(-1).log()
    return torch.sigmoid(mean - sinks[:, None])
""",
            "not scaled by the number of keys",
        ),
    ],
    "ex-step": [
        (
            """
def step(q, cache, rotary, t):
    at, kv = rotary([t]), cache.expand(len(q), -1, -1)
    kernel = torch.nn.functional.scaled_dot_product_attention
    return at.undo(kernel(at.apply(q), kv, kv, is_causal=True))
""",
            "is_causal counts from the first key",
        ),
        (
            """
def step(q, cache, rotary, t):
    kv = cache.expand(len(q), -1, -1)
    return torch.nn.functional.scaled_dot_product_attention(rotary([t]).apply(q), kv, kv)
""",
            "not turned back",
        ),
        (
            """
def step(q, cache, rotary, t):
    at, kv = rotary([t]), cache.expand(len(q), -1, -1)
    return at.apply(torch.nn.functional.scaled_dot_product_attention(at.apply(q), kv, kv))
""",
            "instead of undoing",
        ),
        (
            """
def step(q, cache, rotary, t):
    at, kv = rotary([t]), cache.expand(len(q), -1, -1)
    return at.undo(torch.nn.functional.scaled_dot_product_attention(q, kv, kv))
""",
            "query has to be rotated",
        ),
        (
            """
def step(q, cache, rotary, t):
    there = rotary(range(t + 1 - cache.shape[1], t + 1))
    at, kv = rotary([t]), there.apply(cache).expand(len(q), -1, -1)
    return at.undo(torch.nn.functional.scaled_dot_product_attention(at.apply(q), kv, kv))
""",
            "rotated already",
        ),
        (
            """
def step(q, cache, rotary, t):
    k = cache.expand(len(q), -1, -1)
    v = rotary(range(t + 1 - cache.shape[1], t + 1)).undo(cache).expand(len(q), -1, -1)
    return torch.nn.functional.scaled_dot_product_attention(rotary([t]).apply(q), k, v)
""",
            "it is RoPE",
        ),
        (
            """
def step(q, cache, rotary, t):
    at, kv = rotary([t]), cache.expand(len(q), -1, -1)
    q = at.apply(q)
    return at.undo(torch.nn.functional.scaled_dot_product_attention(q, kv, kv, scale=1.0))
""",
            "square root of d_head",
        ),
        (
            """
def step(q, cache, rotary, t):
    at, kv = rotary([cache.shape[1] - 1]), cache.expand(len(q), -1, -1)
    return at.undo(torch.nn.functional.scaled_dot_product_attention(at.apply(q), kv, kv))
""",
            "the query stands at t",
        ),
    ],
    "ex-first-lost": [
        ("def first_lost(dtype): return 2 / torch.finfo(dtype).eps", "last of those"),
        ("def first_lost(dtype): return 1 / torch.finfo(dtype).eps + 1", "must reach 2"),
        ("def first_lost(dtype): return 1 / torch.finfo(dtype).eps", "one over eps"),
        ("def first_lost(dtype): return torch.finfo(dtype).max", "largest number"),
        (
            """
def first_lost(dtype):
    return next(n for n in range(1, 3000) if torch.tensor(n, dtype=dtype) == n - 1) + 1
""",
            "first number after it",
        ),
    ],
    "ex-largest-error": [
        (
            """
def largest_error(angle, digits):
    return 2.0 ** (int(math.log2(angle)) - digits + 1)
""",
            "distance of two neighbours",
        ),
        ("def largest_error(angle, digits): return angle * 2.0**-digits", "from one power of two"),
        (
            """
def largest_error(angle, digits):
    return 2.0 ** (int(math.log(angle)) - digits)
""",
            "logarithm to base two",
        ),
        (
            """
def largest_error(angle, digits):
    return 2.0 ** (int(math.log2(angle)) - digits - 1)
""",
            "from the first one on",
        ),
        ("def largest_error(angle, digits): return int(math.log2(angle)) - digits", "exponent"),
    ],
    "ex-factor-in-tables": [
        (
            """
def turn_back(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos - torch.cat((-b, a), -1) * sin
""",
            "in it twice",
        ),
        (
            """
def turn_back(x, cos, sin):
    a, b = x.chunk(2, -1)
    return (x * cos - torch.cat((-b, a), -1) * sin) / (cos**2 + sin**2) ** 0.5
""",
            "once more",
        ),
        (
            """
def turn_back(x, cos, sin):
    a, b = x.chunk(2, -1)
    return (x * cos - torch.cat((-b, a), -1) * sin) / (cos**2 + sin**2) ** 1.5
""",
            "too often",
        ),
        (
            """
def turn_back(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin
""",
            "that turns on: turning back",
        ),
        (
            """
def turn_back(x, cos, sin):
    a, b = x.chunk(2, -1)
    return (x * cos + torch.cat((-b, a), -1) * sin) / (cos**2 + sin**2)
""",
            "the factor is out",
        ),
        ("def turn_back(x, cos, sin): return x", "still turned"),
    ],
}
