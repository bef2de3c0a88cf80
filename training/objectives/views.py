"""Two views of each image, and what a slow copy of the encoder says of them."""

from training.common.errors import RecipeError
from training.models.features import Features, ModalityFeatures


def two_views(features: Features) -> tuple[ModalityFeatures, ModalityFeatures]:
    """The features of both views of the images.

    Raises:
        RecipeError: There are no second views.
    """
    if "view" not in features.modalities:
        raise RecipeError("The objective compares two views of an image: give augmentation.")
    return features["image"], features["view"]


def targets_of_views(features: Features) -> tuple[ModalityFeatures, ModalityFeatures]:
    """What the copy says of both views of the images.

    Raises:
        RecipeError: The batch has nothing of it.
    """
    if "momentum" not in features.modalities or "momentum_view" not in features.modalities:
        raise RecipeError("The objective learns from a copy of the encoder, which the batch has nothing of.")
    return features["momentum"], features["momentum_view"]
