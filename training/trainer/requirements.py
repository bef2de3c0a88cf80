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
        "pair_attention": recipe.model.pair_attention is not None,
        "concepts": recipe.model.concepts is not None,
        "shared_head": recipe.model.share_local_head,
        "branches": recipe.model.branches is not None,
        "items": True,
        "targets": recipe.data.target_encoder is not None,
        "captions": recipe.data.captions is not None,
        "labels": True,
        "views": recipe.augmentation != AugmentationConfig(),
        "momentum": True,
        "one_vector": recipe.model.blades == 1,
    }
    advice: dict[Requirement, str] = {
        "local": "local features: set model.local_features to true",
        "shared_head": "local features that train what is searched by: set model.share_local_head to true",
        "pair_attention": "a way to compare pairs: give model.pair_attention, such as {queries: words}",
        "concepts": "concepts of images: give model.concepts, such as 256",
        "branches": "shared and unique features: give model.branches, such as {kind: mlp}",
        "items": "the rows of items",
        "targets": "embeddings of a frozen sentence encoder: give its folder as data.target_encoder",
        "captions": "texts as words: give data.captions, such as {vocabulary: words}",
        "labels": "labels",
        "views": "two views of an image that differ: give augmentation, such as {crop_scale: [0.2, 1.0]}",
        "momentum": "a copy of the encoder",
        "one_vector": "embeddings of one vector each: set model.blades to 1",
    }
    shortcut = recipe.data.shortcut
    if shortcut is not None and shortcut.in_targets and "targets" not in objective.requires:
        raise RecipeError(
            "data.shortcut.in_targets is about targets, and the objective has none: set it to false."
        )
    if recipe.data.captions is not None and "captions" not in objective.requires:
        raise RecipeError("data.captions is for objectives that write texts: set it to null.")
    if recipe.model.pair_attention is not None and "pair_attention" not in objective.requires:
        raise RecipeError("model.pair_attention is for scan: set it to null, or objective.name to scan.")
    if recipe.model.concepts is not None and "concepts" not in objective.requires:
        raise RecipeError("model.concepts is for sco: set it to null, or objective.name to sco.")
    lacking = [advice[name] for name in sorted(objective.requires) if not given[name]]
    if lacking:
        raise RecipeError(f"The objective needs {'; and '.join(lacking)}.")
    if recipe.model.retrieval not in objective.retrievals:
        raise RecipeError(
            f"A model is searched by what its objective trains: set model.retrieval from "
            f"{recipe.model.retrieval} to {' or '.join(sorted(objective.retrievals))}."
        )


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
