"""What an objective asks of the model and the data, checked before any work."""

from training.errors import RecipeError
from training.models.features import Modality
from training.objectives.base import Objective, Requirement
from training.recipes.schema import Recipe


def used_modalities(recipe: Recipe) -> frozenset[Modality]:
    """The modalities that the objective brings together.

    Raises:
        RecipeError: The model has no tower for one of them.
    """
    used = frozenset(modality for pair in recipe.objective.pairs for modality in pair)
    towers: dict[Modality, object] = {
        "image": recipe.model.image,
        "text": recipe.model.text,
        "audio": recipe.model.audio,
    }
    for modality in sorted(used):
        if towers[modality] is None:
            raise RecipeError(
                f"objective.pairs names {modality}, but the model has no {modality} tower: add "
                f"model.{modality}, or leave it out of objective.pairs."
            )
    return used


def check_requirements(objective: Objective, recipe: Recipe) -> None:
    """Make sure that the model and the data give what the objective needs.

    Raises:
        RecipeError: They do not; the message names the setting that does.
    """
    given: dict[Requirement, bool] = {
        "local": recipe.model.local_features,
        "branches": recipe.model.branches is not None,
        "items": True,
        "targets": recipe.data.target_encoder is not None,
    }
    advice: dict[Requirement, str] = {
        "local": "local features: set model.local_features to true",
        "branches": "shared and unique features: give model.branches, such as {kind: mlp}",
        "items": "the rows of items",
        "targets": "embeddings of a frozen sentence encoder: give its folder as data.target_encoder",
    }
    lacking = [advice[name] for name in sorted(objective.requires) if not given[name]]
    if lacking:
        raise RecipeError(f"The objective needs {'; and '.join(lacking)}.")
