"""Where a training that a service starts keeps its images."""

from collections.abc import Sequence

from training.recipes.schema import Recipe


def without_copies(recipe: Recipe, overrides: Sequence[str]) -> Recipe:
    """The recipe with images in memory in place of the disk, unless an override says where.

    Args:
        recipe: Recipe of the training.
        overrides: `dotted.key=value` each, as the user has given them.
    """
    said = any(override.partition("=")[0].strip() == "data.cache_images" for override in overrides)
    if said or recipe.data.cache_images is not True:
        return recipe
    return recipe.model_copy(update={"data": recipe.data.model_copy(update={"cache_images": "memory"})})
