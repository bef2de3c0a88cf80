"""What an objective asks of the model and the data, checked before any work."""

import logging
from typing import Final

import torch

from training.common.errors import RecipeError
from training.data.augmentation_config import AugmentationConfig
from training.models.config import Modality
from training.models.dual_encoder import DualEncoder
from training.objectives.base import Objective, Requirement
from training.recipes.schema import Recipe

_log = logging.getLogger(__name__)

# A lower learning rate is made for pretrained towers.
_LEAST_RATE: Final = 5e-5
# Parts of a model or of batches that are trained for nothing unless the objective uses them.
_FOR_SOME_OBJECTIVES: Final = ("model.pair_attention", "model.concepts", "data.captions")


def used_modalities(recipe: Recipe) -> frozenset[Modality]:
    """The modalities that the objective has encoded.

    Raises:
        RecipeError: The model has no tower for one of them, or a tower for another that would stay untrained.
    """
    used = recipe.objective.modalities
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
    for modality, tower in towers.items():
        if tower is not None and modality not in used:
            removal = "" if modality == "image" else f", or set model.{modality} to null"
            if not recipe.objective.pairs:
                raise RecipeError(f"The objective leaves model.{modality} untrained: set it to null.")
            raise RecipeError(
                f"objective.pairs leaves model.{modality} untrained: name {modality} in it{removal}."
            )
    return used


def check_requirements(objective: Objective, recipe: Recipe) -> None:
    """Make sure that the model and the data give what the objective needs.

    Raises:
        RecipeError: They do not; the message names the setting that does.
    """
    if recipe.train.heads:
        _check_heads(objective)
    given: dict[Requirement, bool] = {
        "local": recipe.model.local_features,
        "branches": recipe.model.branches is not None,
        "views": recipe.augmentation != AugmentationConfig(),
        "one_vector": recipe.model.blades == 1,
    }
    advice: dict[Requirement, str] = {
        "local": "local features: set model.local_features to true",
        "branches": "shared and unique features: give model.branches, such as {kind: mlp}",
        "views": "two views of an image that differ: give augmentation, such as {crop_scale: [0.2, 1.0]}",
        "one_vector": "embeddings of one vector each: set model.blades to 1",
    }
    lacking = [advice[name] for name in sorted(objective.requires) if not given.get(name, True)]
    lacking += [what for setting, what in objective.needs.items() if not _setting(recipe, setting)]
    if lacking:
        raise RecipeError(f"The objective needs {'; and '.join(lacking)}.")
    shortcut = recipe.data.shortcut
    if shortcut is not None and shortcut.in_targets and "data.target_encoder" not in objective.needs:
        raise RecipeError(
            "data.shortcut.in_targets is about targets, and the objective has none: set it to false."
        )
    for setting in _FOR_SOME_OBJECTIVES:
        if _setting(recipe, setting) and setting not in objective.needs:
            raise RecipeError(f"The objective {recipe.objective.name} doesn't use {setting}: set it to null.")
    if recipe.model.retrieval not in objective.retrievals:
        raise RecipeError(
            f"A model is searched by what its objective trains: set model.retrieval from "
            f"{recipe.model.retrieval} to {' or '.join(sorted(objective.retrievals))}."
        )


def _setting(recipe: Recipe, name: str) -> object:
    """Return the value of a setting `part.name` of a recipe."""
    part, _, setting = name.partition(".")
    return getattr(getattr(recipe, part), setting)


def _check_heads(objective: Objective) -> None:
    """Make sure that an objective can be trained on one feature of each image and each text.

    Raises:
        RecipeError: It cannot.
    """
    lacking = {"local": "local features", "views": "two views of each image"}
    for name, what in lacking.items():
        if name in objective.requires:
            raise RecipeError(
                f"train.heads gives the objective one feature of each image and text, and it needs {what}: "
                "choose an objective of global embeddings, such as infonce, or leave train.heads out."
            )


def check_regions(objective: Objective, model: DualEncoder, image_size: int) -> None:
    """Make sure that the objective can take the model's local features of images.

    Raises:
        RecipeError: It cannot; the message names the setting that does.
    """
    if "local" not in objective.requires:
        return
    in_training = model.training
    model.eval()
    with torch.no_grad():
        regions = model.encode_image(torch.zeros(1, 3, image_size, image_size)).local
    model.train(in_training)
    if regions is not None:
        objective.check_regions(regions.shape[1])


def warn_of_slow_random_towers(recipe: Recipe) -> None:
    """Say which towers will hardly learn, since they have no pretrained weights and a tiny learning rate."""
    model, optimizer = recipe.model, recipe.optimizer
    rate = optimizer.lr if optimizer.tower_lr is None else optimizer.tower_lr
    towers = {"image": model.image, "text": model.text, "audio": model.audio}
    for name, tower in towers.items():
        if tower is not None and tower.pretrained is None and rate < _LEAST_RATE:
            _log.warning(
                "The %s tower starts from random weights, and its learning rate of %g is made for pretrained "
                "ones: it will hardly learn. Give weights with --set model.%s.pretrained=FOLDER.",
                name,
                rate,
                name,
            )
