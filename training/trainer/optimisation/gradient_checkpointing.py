"""Gradients of towers without what their layers have computed."""

from training.errors import RecipeError
from training.models.dual_encoder import DualEncoder


def checkpoint_gradients(model: DualEncoder) -> None:
    """Compute the transformer layers of a model's towers a second time in the backward pass.

    Raises:
        RecipeError: No tower has layers that can be computed so.
    """
    backbones = [getattr(model, name).backbone for name in sorted(model.modalities)]
    able = [
        backbone.model
        for backbone in backbones
        if backbone.heads is not None and getattr(backbone, "model", None) is not None
    ]
    if not able:
        raise RecipeError(
            "train.gradient_checkpointing is for transformer layers of transformers, and no tower has any: "
            "set it to false, or train.chunk_size to less."
        )
    for inner in able:
        inner.activation_checkpointing_enable({"use_reentrant": False})
