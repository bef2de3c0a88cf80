"""Low-rank updates of towers that keep their own weights (LoRA, Hu et al. 2022), by peft."""

from collections.abc import Iterator
from typing import Any

from torch import nn

from training.common.errors import RecipeError
from training.models.dual_encoder import DualEncoder
from training.models.tower import Backbone
from training.recipes.schema import LoraSettings


def add_lora(model: DualEncoder, settings: LoraSettings) -> None:
    """Freeze the towers of a model, and add low-rank updates to the linear layers of their layers.

    The updates begin at zero, so the embeddings are those of the towers. Frozen layers get none.

    Raises:
        RecipeError: A tower has no linear layers to update, as a convolutional net has none.
    """
    # The import takes seconds.
    import peft

    for name in sorted(model.modalities):
        backbone = getattr(model, name).backbone
        targets = list(_linear_layers(backbone))
        if not targets:
            raise RecipeError(
                f"train.lora updates transformer layers of transformers that are not frozen, and the {name} "
                "tower has none: set train.lora to null, or choose another tower or frozen_layers."
            )
        backbone.requires_grad_(False)
        config = peft.LoraConfig(
            r=settings.rank,
            lora_alpha=settings.rank if settings.alpha is None else settings.alpha,
            lora_dropout=settings.dropout,
            target_modules=targets,
        )
        peft.inject_adapter_in_model(config, backbone)


def merge_lora(model: nn.Module) -> None:
    """Add the low-rank updates of a model to its weights, under their own names."""
    from peft.tuners.lora import LoraLayer

    updated = [(name, layer) for name, layer in model.named_modules() if isinstance(layer, LoraLayer)]
    for name, layer in updated:
        parent, _, child = name.rpartition(".")
        merged: Any = layer
        merged.merge()
        setattr(model.get_submodule(parent), child, merged.get_base_layer())


def _linear_layers(backbone: Backbone) -> Iterator[str]:
    """Names of the linear layers in the trainable transformer layers of a model of transformers."""
    # Layers of PyTorch read the weights of their parts, which would pass an update by.
    if backbone.heads is None or not hasattr(backbone, "model"):
        return
    trained = {id(part) for layer in backbone.layers() for module in layer for part in module.modules()}
    for name, module in backbone.named_modules():
        if type(module) is nn.Linear and id(module) in trained and module.weight.requires_grad:
            yield name
