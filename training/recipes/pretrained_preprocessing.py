"""Preprocessing of a recipe whose towers are pretrained."""

import logging
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from training.common.errors import RecipeError
from training.models.config import ImagePreprocessingConfig
from training.recipes.schema import Recipe

_log = logging.getLogger(__name__)

_SETTINGS: Final = ("size", "resize", "resize_to", "filter", "rounding", "mean", "std", "scaled_decoding")


def with_pretrained_preprocessing(recipe: Recipe) -> Recipe:
    """The recipe with preprocessing and pooling of texts of its pretrained towers where it names none.

    A warning names each setting of the recipe that differs from the towers'.

    Raises:
        RecipeError: The folder of a tower is missing, says a step that is not followed here, or does not fit
            the recipe.
    """
    image = images_as_pretrained(
        recipe.preprocessing.image, recipe.model.image.pretrained, "preprocessing.image"
    )
    preprocessing = recipe.preprocessing.model_copy(update={"image": image})
    return _with_pretrained_texts(recipe.model_copy(update={"preprocessing": preprocessing}))


def images_as_pretrained(
    given: ImagePreprocessingConfig, pretrained: str | None, path: str
) -> ImagePreprocessingConfig:
    """Preprocessing of images with that of a pretrained tower where it names none.

    A warning names each setting that differs from the tower's.

    Args:
        given: Preprocessing of a recipe.
        pretrained: Folder, file or hub name of the tower; None: random weights.
        path: Path of the preprocessing in the recipe, for messages.

    Raises:
        RecipeError: The folder is missing, says a step that is not followed here, or does not fit.
    """
    if pretrained is None or Path(pretrained).is_file():
        return given
    # The import of transformers takes seconds.
    from training.models.pretrained.folder import local_folder
    from training.models.pretrained.preprocessing import describes_images, image_preprocessing

    folder = local_folder(pretrained)
    if not describes_images(folder):
        return given
    size = given.size if "size" in given.model_fields_set else None
    return _completed(given, image_preprocessing(folder, size), pretrained, path)


def _with_pretrained_texts(recipe: Recipe) -> Recipe:
    """The recipe with the pooling and the most tokens that a model for images and texts was trained with."""
    text, limit = recipe.model.text, recipe.preprocessing.text
    if text is None or text.pretrained is None:
        return recipe
    pretrained = text.pretrained
    from training.models.pretrained.folder import local_folder
    from training.models.transformers_backbones import trained_texts

    theirs = trained_texts(text.architecture, local_folder(pretrained))
    if theirs is None:
        return recipe
    if "pooling" not in text.model_fields_set:
        text = text.model_copy(update={"pooling": theirs.pooling})
    elif text.pooling != theirs.pooling:
        _warn("model.text.pooling", text.pooling, pretrained, theirs.pooling)
    if "max_tokens" not in limit.model_fields_set:
        limit = limit.model_copy(update={"max_tokens": theirs.max_tokens})
    elif limit.max_tokens != theirs.max_tokens:
        _warn("preprocessing.text.max_tokens", limit.max_tokens, pretrained, theirs.max_tokens)
    model = recipe.model.model_copy(update={"text": text})
    preprocessing = recipe.preprocessing.model_copy(update={"text": limit})
    return recipe.model_copy(update={"model": model, "preprocessing": preprocessing})


def _warn(name: str, ours: object, pretrained: str, theirs: object) -> None:
    _log.warning("%s is %s; %s was trained with %s.", name, ours, pretrained, theirs)


def _completed(
    given: ImagePreprocessingConfig, theirs: ImagePreprocessingConfig, pretrained: str, path: str
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
            _warn(f"{path}.{name}", ours, pretrained, other)
    try:
        return ImagePreprocessingConfig.model_validate({**given.model_dump(), **taken})
    except ValidationError as error:
        reason = error.errors()[0]["msg"]
        raise RecipeError(f"{path} does not fit {pretrained}: {reason}.") from error


def _resized_alike(ours: ImagePreprocessingConfig, theirs: ImagePreprocessingConfig) -> bool:
    """Whether both crop the centre, or neither, with the same margin."""
    crops = [config.resize in ("crop", "shortest_edge") for config in (ours, theirs)]
    margins = [(config.resize_to or config.size) / config.size for config in (ours, theirs)]
    return (all(crops) or ours.resize == theirs.resize) and margins[0] == margins[1]
