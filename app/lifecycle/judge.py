"""Retraining a collection's model: the recipe that goes on from it, and whether the new model is better."""

from collections.abc import Sequence
from typing import Any, Final

import yaml

from app.launch.image_copies import without_copies
from app.lifecycle.verdict import ModelVerdict
from training.data.manifest import Manifest, Split
from training.data.pairs import draw_units
from training.errors import RecipeError
from training.evaluation.embedding.images_and_texts import embed_manifest
from training.evaluation.evaluate import measure
from training.models.bundle import BundleInfo
from training.models.encoder import load_encoder
from training.recipes.library import shipped
from training.recipes.load import apply_overrides, parse_recipe
from training.recipes.schema import Recipe
from training.trainer.requirements import used_modalities
from training.trainer.setup import usable_records

_HELD_OUT: Final[tuple[Split, ...]] = ("test", "val")
_METRICS: Final = ("rsum", "precision_at_10")
# Measured: fewer epochs or lower rates learn less of what was judged, higher rates lose what the model knows.
_EPOCHS: Final = 5
_SLOWER: Final = 0.3
# An epoch of a small collection has about as many batches, and each of them at least so many pairs.
_BATCHES: Final = 8
_LEAST_BATCH: Final = 8


def continued_recipe(base: BundleInfo, recipe: str | None, overrides: Sequence[str]) -> Recipe:
    """The recipe that goes on with a model: its own or another, shorter and at lower learning rates.

    A recipe that starts from a model is short and slow already, and stays what it is. Images of a service are
    copied to no disk.

    Args:
        base: The model's bundle.
        recipe: Name or file of a recipe; None: the one that the model was trained with.
        overrides: `dotted.key=value` each; they win over what is shortened and lowered.

    Raises:
        RecipeError: The model has no recipe, or an override does not fit.
    """
    tree: Any = shipped().tree(recipe) if recipe is not None else yaml.safe_load(base.recipe)
    if not isinstance(tree, dict) or "objective" not in tree:
        raise RecipeError(f"The model {base.name!r} does not say how it was trained: give --recipe.")
    if recipe is None:
        # The number fitted the machine that the model was trained on.
        tree["train"]["chunk_size"] = "auto"
    if tree["train"].get("start_from") is None:
        _shorten(tree)
    apply_overrides(tree, overrides)
    tree["train"]["start_from"] = str(base.folder)
    return without_copies(parse_recipe(tree, f"The recipe of {base.name!r}"), overrides)


def _shorten(tree: dict[str, Any]) -> None:
    """Lower the rates, and the epochs, of a recipe that trains from scratch."""
    optimizer = tree["optimizer"]
    for rate in ("lr", "tower_lr"):
        if optimizer.get(rate) is not None:
            optimizer[rate] *= _SLOWER
    tree["train"] |= {"steps": None, "epochs": _EPOCHS}


def with_filled_batches(recipe: Recipe, manifest: Manifest) -> Recipe:
    """The recipe with smaller batches where an epoch of a collection has fewer pairs than one holds.

    Raises:
        DataError: The collection has no pair to learn from.
    """
    records = usable_records(recipe, manifest.split("train"), used_modalities(recipe)).records
    if recipe.data.epoch_of == "texts":
        pairs = sum(len(record.texts) for record in records)
    else:
        pairs = len(draw_units(records, recipe.data.one_image_per))
    if pairs >= recipe.train.batch_size:
        return recipe
    # A power of two, which processes can share.
    filled = 1 << (max(pairs // _BATCHES, min(pairs, _LEAST_BATCH), 2).bit_length() - 1)
    return recipe.model_copy(update={"train": recipe.train.model_copy(update={"batch_size": filled})})


def compare_models(
    base: BundleInfo,
    new: BundleInfo,
    manifest: Manifest,
    *,
    gain: float,
    metric: str | None = None,
    label_template: str,
    device: str,
    batch_size: int = 64,
) -> ModelVerdict | None:
    """Compare a new model with the active one on held-out images.

    Args:
        base: Bundle of the active model.
        new: Bundle of the new model.
        manifest: Manifest of the collection.
        gain: Amount by which the metric has to rise; if negative, it may fall by as much.
        metric: A name that `recoquest evaluate --json` gives; None: rsum, or else precision_at_10.
        label_template: Makes the query sentence of a label.
        device: A torch device, or auto.
        batch_size: Images a forward pass.

    Returns:
        None if no held-out image has texts or labels.

    Raises:
        RecipeError: The held-out images give no such metric.
    """
    for split in _HELD_OUT:
        held_out = manifest.split(split)
        if any(record.texts or record.labels for record in held_out.records):
            break
    else:
        return None
    figures = []
    for info in (base, new):
        encoder = load_encoder(info.folder, device)
        embedded = embed_manifest(encoder, held_out, batch_size=batch_size)
        figures.append(measure(encoder, embedded, label_template=label_template).metrics())
    before, after = figures
    chosen = metric or next((name for name in _METRICS if name in before), "rsum")
    if chosen not in before or chosen not in after:
        known = ", ".join(before) or "none"
        raise RecipeError(f"{chosen} cannot be measured on the held-out images; these can: {known}.")
    return ModelVerdict(
        metric=chosen,
        before=before[chosen],
        after=after[chosen],
        held_out=split,
        images=len(held_out.records),
        passed=new.digest != base.digest and after[chosen] >= before[chosen] + gain,
    )
