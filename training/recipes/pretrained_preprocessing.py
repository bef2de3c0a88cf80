"""Preprocessing of a recipe whose towers are pretrained."""

import logging
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from training.errors import RecipeError
from training.models.config import ImagePreprocessingConfig
from training.recipes.schema import Recipe

_log = logging.getLogger(__name__)

_SETTINGS: Final = ("size", "resize", "resize_to", "filter", "rounding", "mean", "std")


def with_pretrained_preprocessing(recipe: Recipe) -> Recipe:
    """The recipe with the preprocessing of its pretrained towers where it names none.

    A warning names each setting of the recipe that differs from the towers'.

    Raises:
        RecipeError: The folder of a tower is missing, says a step that is not followed here, or does not fit
            the recipe.
    """
    pretrained = recipe.model.image.pretrained
    if pretrained is None or Path(pretrained).is_file():
        return recipe
    # The import of transformers takes seconds.
    from training.models.pretrained.folder import local_folder
    from training.models.pretrained.preprocessing import describes_images, image_preprocessing

    folder = local_folder(pretrained)
    if not describes_images(folder):
        return recipe
    given = recipe.preprocessing.image
    size = given.size if "size" in given.model_fields_set else None
    image = _completed(given, image_preprocessing(folder, size), pretrained)
    preprocessing = recipe.preprocessing.model_copy(update={"image": image})
    return recipe.model_copy(update={"preprocessing": preprocessing})


def _completed(
    given: ImagePreprocessingConfig, theirs: ImagePreprocessingConfig, pretrained: str
) -> ImagePreprocessingConfig:
    """Settings that were given, and those of the pretrained tower for all others."""
    named = given.model_fields_set
    taken: dict[str, Any] = {}
    for name in _SETTINGS:
        ours, other = getattr(given, name), getattr(theirs, name)
        # The margin of a crop belongs to the kind of resizing.
        if name not in named and not (name == "resize_to" and "resize" in named):
            taken[name] = other
        elif ours != other and not (name.startswith("resize") and _resized_alike(given, theirs)):
            _log.warning(
                "preprocessing.image.%s is %s; %s was trained with %s.", name, ours, pretrained, other
            )
    try:
        return ImagePreprocessingConfig.model_validate({**given.model_dump(), **taken})
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise RecipeError(f"preprocessing.image does not fit {pretrained}: {reason}.") from error


def _resized_alike(ours: ImagePreprocessingConfig, theirs: ImagePreprocessingConfig) -> bool:
    """Whether both crop the centre, or neither, with the same margin."""
    crops = [config.resize in ("crop", "shortest_edge") for config in (ours, theirs)]
    margins = [(config.resize_to or config.size) / config.size for config in (ours, theirs)]
    return (all(crops) or ours.resize == theirs.resize) and margins[0] == margins[1]
