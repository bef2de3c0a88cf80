"""What a run is made of, built from a recipe and a manifest."""

import logging
from collections.abc import Iterator
from dataclasses import replace

from training.data.audio_source import audible
from training.data.manifest import Manifest
from training.data.pairs import describable
from training.data.shortcuts.shortcuts import with_every_digit
from training.errors import DataError
from training.models.dual_encoder import DualEncoder, build_dual_encoder
from training.models.features import Modality
from training.models.preprocessing import Preprocessing
from training.models.tokenizer import build_tokenizer
from training.objectives.base import Objective, ObjectiveContext
from training.recipes.schema import Recipe
from training.trainer.requirements import check_requirements

logger = logging.getLogger(__name__)


def thaw_random_towers(recipe: Recipe) -> Recipe:
    """The recipe with nothing frozen in towers that start from random weights: noise is not worth keeping."""
    changes = {}
    towers = {"image": recipe.model.image, "text": recipe.model.text, "audio": recipe.model.audio}
    for name, tower in towers.items():
        if tower is not None and tower.pretrained is None and tower.frozen_layers:
            logger.warning(
                "The %s tower starts from random weights, so all its layers are trained. "
                "Give pretrained weights with --set model.%s.pretrained=FOLDER.",
                name,
                name,
            )
            changes[name] = tower.model_copy(update={"frozen_layers": 0})
    return recipe.model_copy(update={"model": recipe.model.model_copy(update=changes)})


def usable_records(recipe: Recipe, manifest: Manifest, modalities: frozenset[Modality]) -> Manifest:
    """The records of a split that can be trained on: those that have something of all modalities.

    A text may also be a sentence from their labels.

    Raises:
        DataError: There is none.
    """
    if "audio" in modalities:
        manifest = audible(manifest)
    if "text" not in modalities:
        return manifest
    template = recipe.data.label_template if recipe.data.label_sentences else None
    records = describable(manifest.records, template)
    if not records:
        raise DataError(
            f"No image of this split of {manifest.folder} has a text: add texts, or train on labels with "
            "--set data.label_sentences=true."
        )
    return replace(manifest, records=records)


def build_model(
    recipe: Recipe, train_split: Manifest, *, load_pretrained: bool
) -> tuple[DualEncoder, Preprocessing]:
    """The model and what feeds it; a learned tokenizer sees the texts of the train split only."""
    texts: Iterator[str] = (text for record in train_split.records for text in record.texts)
    if recipe.data.shortcut is not None and "text" in recipe.data.shortcut.modalities:
        texts = with_every_digit(texts)
    tokenizer = None if recipe.model.text is None else build_tokenizer(recipe.model.text, texts)
    preprocessing = Preprocessing(recipe.preprocessing, tokenizer)
    model = build_dual_encoder(recipe.model, tokenizer, load_pretrained=load_pretrained)
    model.check_preprocessing(preprocessing.config)
    return model, preprocessing


def build_objective(recipe: Recipe, train_split: Manifest, target_dim: int | None) -> Objective:
    """The objective for the records of the train split.

    Args:
        recipe: Of the run.
        train_split: What can be trained on; its rows are the items that an objective may remember.
        target_dim: Width of the targets, if there are any.

    Raises:
        RecipeError: The model or the data lack what it needs.
    """
    context = ObjectiveContext(
        dim=recipe.model.dim,
        instances=len(train_split.records),
        groups=_groups(train_split, recipe.data.one_image_per),
        target_dim=target_dim,
        embedding_dim=recipe.model.vector_dim,
    )
    objective = recipe.objective.build(context)
    check_requirements(objective, recipe)
    return objective


def _groups(split: Manifest, one_image_per: str | None) -> tuple[int, ...] | None:
    """For each record, the number of what it shows; None when all show something of their own."""
    shown = [(record.metadata.get(one_image_per or ""), record.image) for record in split.records]
    names = [image if value is None else ("of", value) for value, image in shown]
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return None if len(numbers) == len(names) else tuple(numbers[name] for name in names)
