r"""The arms that are compared: RoPE and RoVE of one config, and RoVE in half of its planes."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from rove_lab.messenger import MessengerConfig
from rove_lab.model import GPTConfig

__all__ = ["rope_and_rove", "value_halves"]

Config = TypeVar("Config", GPTConfig, MessengerConfig)


def rope_and_rove(config: Config) -> dict[str, Config]:
    """A matched pair: the same config with values that stay and with values that turn.

    Rotations have no weights. So :func:`rove_lab.training.train_matched` starts both from the same
    ones, and whatever differs at the end is the rotation's doing.

    Args:
        config: Of either arm; its own ``rotate_values`` does not matter.

    Returns:
        ``"RoPE"`` and ``"RoVE"`` to their configs.

    Raises:
        TypeError: If it is neither a GPT's config nor a messenger's.
        ValueError: If it names planes of the values: RoPE turns none.

    Example:
        >>> {name: arm.rotate_values for name, arm in rope_and_rove(GPTConfig()).items()}
        {'RoPE': False, 'RoVE': True}
    """
    if not isinstance(config, (GPTConfig, MessengerConfig)):
        raise TypeError(
            f"expected a GPTConfig or a MessengerConfig, got {type(config).__name__}: pass the "
            "sizes of both arms."
        )
    return {
        "RoPE": replace(config, rotate_values=False),
        "RoVE": replace(config, rotate_values=True),
    }


def value_halves(config: GPTConfig) -> dict[str, GPTConfig]:
    """RoVE in the planes that turn fastest, and in the others: which of them make a difference?

    Queries and keys turn in all planes in either. Of an odd number the middle one is slow.

    Args:
        config: Of either arm; its own ``rotate_values`` and ``value_planes`` do not matter.

    Returns:
        ``"RoVE, fast half"`` and ``"RoVE, slow half"`` to their configs.

    Raises:
        TypeError: If it is not a GPT's config.

    Example:
        >>> [arm.value_planes for arm in value_halves(GPTConfig(d_head=8)).values()]
        [(0, 1), (2, 3)]
    """
    if not isinstance(config, GPTConfig):
        raise TypeError(
            f"expected a GPTConfig, got {type(config).__name__}: no other names the planes in "
            "which its values turn."
        )
    planes = range(len(config.rotaries()[0].inv_freq))
    half = len(planes) // 2
    return {
        "RoVE, fast half": replace(config, rotate_values=True, value_planes=tuple(planes[:half])),
        "RoVE, slow half": replace(config, rotate_values=True, value_planes=tuple(planes[half:])),
    }
