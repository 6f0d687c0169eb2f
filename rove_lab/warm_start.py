r"""A model to train on from weights that are there already, with its values rotated or not."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from rove_lab.model import GPT, GPTConfig

__all__ = ["WarmStart"]


@dataclass(frozen=True)
class WarmStart:
    """A model config whose model starts from trained weights instead of random ones.

    RoPE and RoVE have the same parameters, so either may start from the other's.

    Args:
        config: Of the new model; ``rotate_values`` and ``value_planes`` may differ from the
            trained one's, the sizes may not.
        trained: The model to start from; it is copied and stays as it is.

    Raises:
        TypeError: If ``trained`` is not a :class:`GPT`.
        ValueError: If a size differs.

    Example:
        >>> rope = GPT(GPTConfig(rotate_values=False))
        >>> rove = WarmStart(GPTConfig(rotate_values=True), rope).build()
        >>> bool((rove.embed.weight == rope.embed.weight).all())
        True
    """

    config: GPTConfig
    trained: nn.Module

    def __post_init__(self) -> None:
        if not isinstance(self.trained, GPT):
            raise TypeError(
                f"expected trained to be a GPT, got {type(self.trained).__name__}: pass run.model."
            )
        own, others = self.config, self.trained.config
        differ = [
            name
            for name in own.__dataclass_fields__
            if name not in ("rotate_values", "value_planes")
            and getattr(own, name) != getattr(others, name)
        ]
        if differ:
            raise ValueError(
                f"expected the trained model's config but for its values' rotation, got another "
                f"{', '.join(differ)}: use dataclasses.replace(trained.config, rotate_values=...)."
            )

    def build(self) -> GPT:
        """A new model with the trained weights."""
        model = GPT(self.config).to(next(self.trained.parameters()))  # its dtype and device
        model.load_state_dict(self.trained.state_dict())
        return model
