r"""``rove-lab train``: one model."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Annotated

from rove_lab.commands.learning import learn, say
from rove_lab.commands.measures import windows
from rove_lab.commands.processes import is_main_process, leave_group
from rove_lab.commands.recipe import Recipe, tyro
from rove_lab.evaluation import perplexity_by_length
from rove_lab.run_folder import last_checkpoint

__all__ = ["Train"]

_SCORED = 256  # windows


@dataclass(frozen=True)
class Train:
    """Train one model, RoVE unless --no-rotate-values makes it RoPE, on a text.

    A line says how far it is: loss in nats per byte or token, tokens per second, seconds left. At
    the end comes its loss on held-out text. The folder keeps everything; the same command again
    goes on where it was stopped.

    For example: python -m rove_lab train --preset small --text my-folder-of-texts

    On several GPUs: torchrun --nproc-per-node 8 -m rove_lab train --preset gpt2-124m --shards
    shards

    Args:
        recipe: What to train.

    Example:
        >>> Train().recipe.training.steps
        200
    """

    recipe: Annotated[Recipe, tyro.conf.arg(name="")] = field(default_factory=Recipe)

    def run(self) -> None:
        """Train, and say how good it is."""
        recipe = self.recipe
        config, text = recipe.model, recipe.open_corpus()
        scored = windows(text.held_out, config.n_ctx, _SCORED * config.n_ctx)
        name = "RoVE" if config.rotate_values else "RoPE"
        runs = learn({name: config}, recipe, recipe.training, text, recipe.folder)
        leave_group()
        if is_main_process():
            found = perplexity_by_length(runs[name].model, scored, [config.n_ctx])
            perplexity = found[config.n_ctx]
            unit = text.train.unit
            say(
                f"held-out text: {math.log(perplexity):.3f} nats per {unit}, perplexity "
                f"{perplexity:.3f} in windows of {config.n_ctx}; the model is in "
                f"{last_checkpoint(recipe.folder)}/{name}"
            )
