"""The recipe of a retraining: it goes on from a model, and fits the number of pairs that a collection has."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import yaml

from app.jobs.launch.image_copies import without_copies
from training.common.errors import DataError, RecipeError
from training.common.manifest import Manifest
from training.data.pairs import differ_in_texts, draw_units
from training.models.bundle import BundleInfo
from training.recipes.library import shipped
from training.recipes.load import apply_overrides, parse_recipe
from training.recipes.schema import Recipe, TrainConfig
from training.trainer.requirements import used_modalities
from training.trainer.setup import usable_records

# Measured: fewer epochs or lower rates learn less of what was judged, higher rates lose what the model knows.
_EPOCHS: Final = 5
_SLOWER: Final = 0.3
# An epoch of a small collection has about as many batches, and each of them at least so many pairs.
_BATCHES: Final = 8
_LEAST_BATCH: Final = 8
# Measured on 64 photographs: fewer steps change little, and the best epoch lies before the last.
_LEAST_STEPS: Final = 80
_WARMUP_SHARE: Final = 0.1
# Of fewer images, rsum moves by more than two points with a single rank.
_LEAST_FOR_RSUM: Final = 50
_DEEP: Final = 10
_LENGTH: Final = frozenset({"train.epochs", "train.steps", "schedule.warmup_steps"})


def version_name(base: BundleInfo, taken: Collection[str]) -> str:
    """Return a name for the next version of a model that no other has: `clip-src`, `clip-src-2`, ...

    Args:
        base: Bundle of the model that a retraining goes on from.
        taken: Names of all registered models.
    """
    retrained = ((yaml.safe_load(base.recipe) or {}).get("train") or {}).get("start_from") is not None
    stem, _, number = base.name.rpartition("-")
    if not (retrained and stem and number.isdecimal()):
        stem, number = base.name, "1"
    return next(name for version in count(int(number) + 1) if (name := f"{stem}-{version}") not in taken)


def continued_recipe(
    base: BundleInfo, recipe: str | None, overrides: Sequence[str], name: str | None = None
) -> Recipe:
    """The recipe that goes on with a model: its own or another, shorter and at lower learning rates.

    A recipe that starts from a model is short and has low rates already: both stay. Images of a service are
    copied to no disk.

    Args:
        base: The model's bundle.
        recipe: Name or file of a recipe; None: the one that the model was trained with.
        overrides: `dotted.key=value` each; they win over what is shortened and lowered, and over the name.
        name: Name of the new model; None: that of its recipe.

    Raises:
        RecipeError: The model has no recipe, or encodes images alone where the recipe takes texts, or an
            override does not fit.
    """
    tree = _tree(base, recipe)
    if recipe is None:
        # The chunk size of the model's recipe fits the machine that it was trained on.
        tree["train"]["chunk_size"] = "auto"
    if tree["train"].get("start_from") is None:
        _shorten(tree)
    if name is not None:
        tree["name"] = name
    apply_overrides(tree, overrides)
    tree["train"]["start_from"] = str(base.folder)
    parsed = parse_recipe(tree, f"The recipe of {base.name!r}")
    _check_texts(base, taken=parsed.draws_texts)
    return without_copies(parsed, overrides)


def settled_settings(base: BundleInfo, recipe: str | None, overrides: Sequence[str]) -> frozenset[str]:
    """Keys of settings that stay as they are, whatever the collection holds.

    Overrides do, and the length of a recipe that starts from a model.
    """
    named = {override.partition("=")[0].strip() for override in overrides}
    starts_from_model = _tree(base, recipe)["train"].get("start_from") is not None
    return frozenset(named | (_LENGTH if starts_from_model else frozenset()))


def _tree(base: BundleInfo, recipe: str | None) -> dict[str, Any]:
    tree: Any = shipped().tree(recipe) if recipe is not None else yaml.safe_load(base.recipe)
    if not isinstance(tree, dict) or "objective" not in tree:
        _check_texts(base, taken=True)
        raise RecipeError(f"The model {base.name!r} does not say how it was trained: give --recipe.")
    return tree


def _check_texts(base: BundleInfo, *, taken: bool) -> None:
    """Make sure that a model of images alone is not to be trained on texts."""
    if taken and base.config.modalities == {"image"}:
        raise RecipeError(
            f"The model {base.name!r} encodes images alone, so judgements of texts cannot train it: index "
            "the collection with an encoder of images and texts, or give by --recipe one that learns from "
            "images alone, such as simclr-mimic-cxr."
        )


def _shorten(tree: dict[str, Any]) -> None:
    """Lower the rates, and the epochs, of a recipe that trains from scratch."""
    optimizer = tree["optimizer"]
    for rate in ("lr", "tower_lr"):
        if optimizer.get(rate) is not None:
            optimizer[rate] *= _SLOWER
    tree["train"] |= {"steps": None, "epochs": _EPOCHS}


@dataclass(frozen=True, slots=True)
class FittedRecipe:
    """A recipe that fits a collection, and a sentence for each setting that was changed for it."""

    recipe: Recipe
    changes: tuple[str, ...]


def fit_recipe(recipe: Recipe, manifest: Manifest, settled: frozenset[str] = frozenset()) -> FittedRecipe:
    """Fit batches, length and the choice of the best epoch to the number of images that a collection has.

    Args:
        recipe: Recipe of the retraining.
        manifest: The collection.
        settled: Keys of settings to leave alone. A batch that cannot be filled becomes smaller all the same.

    Raises:
        DataError: The collection has no pair to learn from.
    """
    pairs = _pairs(recipe, manifest)
    train, schedule, changes = recipe.train, recipe.schedule, []
    if pairs < train.batch_size:
        # A power of two, which processes can share.
        size = 1 << (max(pairs // _BATCHES, min(pairs, _LEAST_BATCH), 2).bit_length() - 1)
        changes.append(f"Batches of {size} pairs in place of {train.batch_size}: there are too few pairs.")
        train = train.model_copy(update={"batch_size": size})
    steps_an_epoch = max(1, pairs // train.batch_size)
    # Without a choice of the best epoch, more of them may do harm.
    validated = bool(manifest.split("val").records)
    if validated and train.epochs is not None and not settled & {"train.epochs", "train.steps"}:
        epochs = max(train.epochs, -(-_LEAST_STEPS // steps_an_epoch))
        if epochs > train.epochs:
            changes.append(f"{epochs} epochs in place of {train.epochs}: there are few pairs.")
            train = train.model_copy(update={"epochs": epochs})
    if "schedule.warmup_steps" not in settled:
        steps = train.steps or (train.epochs or 0) * steps_an_epoch
        warmup = min(schedule.warmup_steps, int(_WARMUP_SHARE * steps))
        schedule = schedule.model_copy(update={"warmup_steps": warmup})
    if "train.select_by" not in settled:
        train, change = _selecting(train, recipe, manifest)
        changes += change
    return FittedRecipe(recipe.model_copy(update={"train": train, "schedule": schedule}), tuple(changes))


def _pairs(recipe: Recipe, manifest: Manifest) -> int:
    """Number of pairs that an epoch draws."""
    train = manifest.split("train")
    if recipe.draws_texts and not recipe.data.label_sentences and not any(r.texts for r in train.records):
        raise DataError(
            "There is nothing to learn from: no image for training (split train) has a text, and none was "
            "judged relevant to one. Judge more hits, or find such images by other texts."
        )
    modalities = used_modalities(recipe)
    records = usable_records(recipe, train, modalities).records
    by_texts = recipe.objective.compares_items and modalities == {"image", "text"}
    if by_texts and not differ_in_texts(records):
        raise DataError(
            "There is nothing to learn from: no two images for training (split train) have different texts, "
            "of their own or judged relevant; judge hits of at least two different searches as relevant."
        )
    if recipe.data.epoch_of == "texts":
        return sum(len(record.texts) for record in records)
    return len(draw_units(records, recipe.data.one_image_per))


def _selecting(train: TrainConfig, recipe: Recipe, manifest: Manifest) -> tuple[TrainConfig, list[str]]:
    """Choose the best epoch by another figure than rsum where few images for validation have texts."""
    by_loss = train.select_by == "loss"
    if train.select_by == "precision_at_10" or not recipe.draws_texts:
        return train, []
    if by_loss and not recipe.objective.compares_items:
        return train, []
    records = manifest.split("val").records
    described = sum(bool(record.texts) for record in records)
    labelled = sum(bool(record.labels) for record in records)
    compared = differ_in_texts(records)
    if compared and (by_loss or described >= _LEAST_FOR_RSUM):
        return train, []
    if compared:
        change = f"The loss of {described} images for validation chooses the epoch: too few for rsum."
        return train.model_copy(update={"select_by": "loss"}), [change]
    if labelled > _DEEP:
        change = f"precision_at_10 of {labelled} images for validation chooses the epoch: too few have texts."
        return train.model_copy(update={"select_by": "precision_at_10"}), [change]
    return train, []
