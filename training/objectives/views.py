"""Two views of each image, which objectives of images alone compare."""

from torch import Tensor

from training.errors import RecipeError
from training.models.features import Features


def two_views(features: Features) -> tuple[Tensor, Tensor]:
    """The embeddings (b, D) of both views of the images.

    Raises:
        RecipeError: There are no second views, or embeddings are k-blades.
    """
    image = features["image"]
    if image.view is None or image.embedding.ndim != 2:
        raise RecipeError("The objective compares two views: give augmentation, and set model.blades to 1.")
    return image.embedding, image.view
