"""Freezing the first layers of a tower."""

from typing import Literal

from torch import nn

from training.errors import RecipeError
from training.models.tower import Backbone


def frozen_modules(backbone: Backbone, count: int | Literal["all"]) -> tuple[nn.Module, ...]:
    """The stem and the first `count` layers; nothing for 0, the whole backbone for "all".

    Raises:
        RecipeError: The backbone has fewer layers.
    """
    if count == "all":
        return (backbone,)
    if count == 0:
        return ()
    layers = backbone.layers()
    if count > len(layers):
        raise RecipeError(
            f"frozen_layers is {count}, but the tower has {len(layers)} layers: choose fewer, or 'all'."
        )
    return (*backbone.stem(), *(module for layer in layers[:count] for module in layer))


class Freezer:
    """Keeps modules as they are: no gradients, and evaluation mode, so that batch-norm statistics stay."""

    def __init__(self, modules: tuple[nn.Module, ...]) -> None:
        self._modules = modules
        for module in modules:
            module.requires_grad_(False)
        self.hold()

    def hold(self) -> None:
        """Put the modules back into evaluation mode; called after every `train()` of their owner."""
        for module in self._modules:
            module.eval()
