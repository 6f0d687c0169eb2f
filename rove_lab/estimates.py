r"""What a training costs before it is run: parameters, FLOPs, hours, bytes."""

from __future__ import annotations

from dataclasses import dataclass

from rove_lab.arguments import check_flag, check_number, check_size
from rove_lab.model import GPTConfig

__all__ = [
    "TrainingFlops",
    "TrainingMemory",
    "parameter_count",
    "tokens_per_second",
    "training_flops",
    "training_hours",
    "training_memory",
    "utilisation",
]


@dataclass(frozen=True)
class TrainingFlops:
    """Floating-point operations of a training, forward and backward; a multiply-add counts as two.

    Args:
        weights: In products with the weights, 6 for each weight and token.
        attention: In the scores and in the sums that they weigh.
        rotations: In turning queries and keys and, under RoVE, values and sums; not matrix
            products, and not in ``matmul``.

    Example:
        >>> TrainingFlops(weights=6, attention=2, rotations=1).matmul
        8
    """

    weights: int
    attention: int
    rotations: int

    @property
    def matmul(self) -> int:
        """What is compared with the peak of a machine: the matrix products."""
        return self.weights + self.attention


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes that a training holds at its largest, on one device.

    Args:
        weights: In float32, with a bfloat16 copy under autocast.
        gradients: In float32.
        moments: AdamW's two, in float32.
        activations: What the backward pass needs of the forward pass: an estimate.

    Example:
        >>> TrainingMemory(weights=4, gradients=4, moments=8, activations=9).total
        25
    """

    weights: int
    gradients: int
    moments: int
    activations: int

    @property
    def total(self) -> int:
        """All of it; what the device's library and its work space take comes on top."""
        return self.weights + self.gradients + self.moments + self.activations


@dataclass(frozen=True)
class _Sizes:
    """The widths of a layer, with what a config leaves open filled in."""

    query: int
    key: int
    mlp: int

    @classmethod
    def of(cls, config: GPTConfig) -> _Sizes:
        d_head = config.d_head or config.d_model // config.n_heads
        n_kv_heads = config.n_kv_heads or config.n_heads
        mlp = config.d_mlp or 4 * config.d_model
        return cls(config.n_heads * d_head, n_kv_heads * d_head, mlp)


def parameter_count(config: GPTConfig) -> int:
    r"""The parameters of a :class:`~rove_lab.model.GPT`, all of them, exactly.

    :math:`n_\text{layers}\,(2 d\,(d_q + d_{kv} + d_\text{mlp}) + 2d) + d + V d`, and once more
    :math:`V d` where reading in and reading out do not share a matrix. RoVE adds none.

    Args:
        config: The sizes.

    Returns:
        How many there are.

    Example:
        >>> parameter_count(GPTConfig.preset("gpt2-124m"))
        123551232
    """
    c = config
    norms = (2 * c.n_layers + 1) * c.d_model
    read_in = 0 if c.tied else c.d_vocab * c.d_model
    return _multiplied(c) + norms + read_in


def training_flops(config: GPTConfig, n_tokens: int) -> TrainingFlops:
    r"""The operations of training on ``n_tokens`` in sequences of ``config.n_ctx``.

    A token takes :math:`6 N + 12\,n_\text{layers}\,d_q\,n_\text{ctx}` in matrix products, N the
    weights that are multiplied (no norms, and the vocabulary's matrix once): a third forward, two
    thirds backward. Chowdhery et al. (2022), arXiv:2204.02311, appendix B. They count the whole
    square of scores; a causal kernel may skip half of it, which is how Kaplan et al. (2020),
    arXiv:2001.08361, table 1, count. Turning a channel takes 3, there and back:
    :math:`6\,n_\text{layers}\,(d_q + d_{kv})` for RoPE, twice that for RoVE, however long the
    sequence.

    Args:
        config: The sizes.
        n_tokens: Tokens to train on.

    Returns:
        The operations, by what they are spent on.

    Raises:
        TypeError: If ``n_tokens`` is not an integer.
        ValueError: If it is not positive.

    Example:
        >>> f"{training_flops(GPTConfig.preset('gpt2-124m'), 10**10).matmul:.2e}"
        '8.54e+18'
    """
    n_tokens, sizes = check_size("n_tokens", n_tokens), _Sizes.of(config)
    turned = (2 if config.rotate_values else 1) * (sizes.query + sizes.key)
    return TrainingFlops(
        weights=6 * _multiplied(config) * n_tokens,
        attention=12 * config.n_layers * sizes.query * config.n_ctx * n_tokens,
        rotations=6 * config.n_layers * turned * n_tokens,
    )


def tokens_per_second(config: GPTConfig, flops_per_s: float, utilisation: float) -> float:
    r"""The speed of a training: peak times utilisation, over the FLOPs of a token. An estimate.

    Args:
        config: The sizes.
        flops_per_s: The peak of the machine for matrix products in the precision used, all its
            devices together.
        utilisation: The share of it that is reached, from 0 to 1; see :func:`utilisation`.

    Returns:
        Tokens per second.

    Raises:
        TypeError: If a value is not a number.
        ValueError: If ``flops_per_s`` is not positive, or the utilisation not between 0 and 1.

    Example:
        >>> f"{tokens_per_second(GPTConfig.preset('gpt2-124m'), 312e12, 0.4):.0f}"
        '146061'
    """
    _check_positive("flops_per_s", flops_per_s)
    if not 0 < check_number("utilisation", utilisation) <= 1:
        raise ValueError(f"expected utilisation as a share from 0 to 1, got {utilisation}.")
    return flops_per_s * utilisation / training_flops(config, 1).matmul


def utilisation(config: GPTConfig, tokens_per_s: float, flops_per_s: float) -> float:
    """The share of a machine's peak that a measured speed comes to: model FLOPs utilisation.

    Chowdhery et al. (2022), arXiv:2204.02311, appendix B.

    Args:
        config: The sizes.
        tokens_per_s: The measured speed.
        flops_per_s: The peak of the machine, all its devices together.

    Returns:
        The share, 0.3 to 0.5 where a training is well set up.

    Raises:
        TypeError: If a value is not a number.
        ValueError: If a value is not positive.

    Example:
        >>> round(utilisation(GPTConfig.preset("gpt2-124m"), 146_061, 312e12), 3)
        0.4
    """
    _check_positive("tokens_per_s", tokens_per_s)
    _check_positive("flops_per_s", flops_per_s)
    return tokens_per_s * training_flops(config, 1).matmul / flops_per_s


def training_hours(n_tokens: int, tokens_per_s: float) -> float:
    """How long a training takes at a speed, measured or from :func:`tokens_per_second`.

    Args:
        n_tokens: Tokens to train on.
        tokens_per_s: The speed.

    Returns:
        Hours.

    Raises:
        TypeError: If ``n_tokens`` is not an integer, or the speed not a number.
        ValueError: If a value is not positive.

    Example:
        >>> training_hours(10**10, 250_000.0)
        11.11111111111111
    """
    _check_positive("tokens_per_s", tokens_per_s)
    return check_size("n_tokens", n_tokens) / tokens_per_s / 3600


def training_memory(config: GPTConfig, batch_size: int, *, bf16: bool = False) -> TrainingMemory:
    r"""The memory of training on ``batch_size`` sequences at a time. An estimate.

    Weights and gradients take 4 bytes a parameter, AdamW's moments 8. For each token a layer keeps
    the inputs and outputs of its norms, :math:`4d`, its queries, keys, values and their sums by
    head and by position, :math:`3 d_q + 2 d_{kv}`, and the MLP's hidden layer before and after
    GELU; the loss keeps its logits and their gradient. No square of scores: torch's attention makes
    them anew. Checkpointing of activations would lower this, and is not counted.

    Args:
        config: The sizes.
        batch_size: Sequences of ``config.n_ctx`` at a time on one device: those of an optimiser's
            step, divided by devices and by accumulation.
        bf16: Whether products are taken in bfloat16 by autocast.

    Returns:
        The bytes, by what they hold.

    Raises:
        TypeError: If ``batch_size`` is not an integer, or ``bf16`` not a bool.
        ValueError: If ``batch_size`` is not positive.

    Example:
        >>> f"{training_memory(GPTConfig.preset('gpt2-124m'), 16).total / 1e9:.0f} GB"
        '19 GB'
    """
    c, sizes, parameters = config, _Sizes.of(config), parameter_count(config)
    n_tokens = check_size("batch_size", batch_size) * c.n_ctx
    narrow = 2 if check_flag("bf16", bf16) else 4  # bytes of what a matrix product reads
    products = 2 * c.d_model + 3 * sizes.query + 2 * sizes.key + 2 * sizes.mlp
    layer = narrow * products + 4 * 2 * c.d_model  # the residual stream stays wide
    top = (4 + narrow) * c.d_model + 2 * 4 * c.d_vocab
    return TrainingMemory(
        weights=(4 + 2 * bf16) * parameters,
        gradients=4 * parameters,
        moments=8 * parameters,
        activations=n_tokens * (c.n_layers * layer + top),
    )


def _multiplied(config: GPTConfig) -> int:
    """The weights that every token is multiplied with."""
    sizes = _Sizes.of(config)
    layer = 2 * config.d_model * (sizes.query + sizes.key + sizes.mlp)
    return config.n_layers * layer + config.d_vocab * config.d_model


def _check_positive(name: str, value: float) -> None:
    if check_number(name, value) <= 0:
        raise ValueError(f"expected a positive {name}, got {value}.")
