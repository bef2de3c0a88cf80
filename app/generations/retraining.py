"""A retraining: its recipe, the verdict on the new model, and what becomes of that."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

import numpy as np
import typer
import yaml
from numpy.typing import NDArray

from app.generations.build import build_generation, open_generation, swap_to
from app.generations.schemas import Decision, ModelVerdict, Outcome, StoredVerdict, Verdict
from app.jobs.launch import without_copies
from app.settings import Settings
from index.catalogue.collections import Generation, require_active
from index.engine import SearchEngine
from index.errors import ActiveChangedError
from index.files.bundles import registered_bundle
from index.home import Home
from training.common.atomic import write_text
from training.common.errors import DataError, RecipeError
from training.common.manifest import Manifest, Record, Split, read_manifest
from training.data.pairs import differ_in_texts, draw_units
from training.evaluation.embedding import embed_manifest
from training.evaluation.paired import compare_figures, figures_by_image
from training.models.bundle import BundleInfo
from training.models.encoder import load_encoder
from training.recipes.library import shipped
from training.recipes.load import apply_overrides, load_recipe, parse_recipe
from training.recipes.schema import Recipe, TrainConfig
from training.trainer.requirements import used_modalities
from training.trainer.setup import usable_records

# Measured: fewer epochs or lower rates learn less from judgements, higher rates forget what the model knows.
_EPOCHS: Final = 5
_SLOWER: Final = 0.3
# An epoch of a small collection has about as many batches, and each of them at least so many pairs.
_BATCHES: Final = 8
_LEAST_BATCH: Final = 8
# Measured on 64 photographs: fewer steps change little, and the best epoch isn't the last.
_LEAST_STEPS: Final = 80
_WARMUP_SHARE: Final = 0.1
# With fewer images, rsum moves by more than two points with a single rank.
_LEAST_FOR_RSUM: Final = 50
_DEEP: Final = 10
_LENGTH: Final = frozenset({"train.epochs", "train.steps", "schedule.warmup_steps"})
_HELD_OUT: Final[tuple[Split, ...]] = ("test", "val")
_METRICS: Final = ("rsum", "image_precision_at_10")
_MEANS: Final = frozenset({"precision_at_5", "precision_at_10", "precision_at_50"})
# Fewer held-out images can't distinguish models: the interval of rsum is some 40 points wide at 100.
MIN_IMAGES: Final = 100
# Images of one patient are drawn together: few patients can't distinguish models either.
_IMAGES_A_GROUP: Final = 4
# Comparisons before the decision is left to the operator who keeps changing the active model.
_MAX_COMPARISONS: Final = 3
_JUDGED: Final = "judged.json"


def version_name(base: BundleInfo, taken: Collection[str]) -> str:
    """Return a name for the next version of a model that no other has: `clip-src`, `clip-src-2`, ..."""
    retrained = ((yaml.safe_load(base.recipe) or {}).get("train") or {}).get("start_from") is not None
    stem, _, number = base.name.rpartition("-")
    if not (retrained and stem and number.isdecimal()):
        stem, number = base.name, "1"
    return next(name for version in count(int(number) + 1) if (name := f"{stem}-{version}") not in taken)


def continued_recipe(
    base: BundleInfo, recipe: str | None, overrides: Sequence[str], name: str | None = None
) -> Recipe:
    """The recipe that trains a model further: its own or another, shorter and at lower learning rates.

    A recipe that starts from a model is short and has low rates already: both stay. Images of a service are
    copied to no disk.

    `recipe` is a name or a file; None: the one that the model was trained with. `overrides`,
    `dotted.key=value` each, win over what is shortened and lowered, and over `name`.

    Raises:
        RecipeError: The model has no recipe, or encodes images alone where the recipe takes texts, or an
            override does not fit.
    """
    tree = _tree(base, recipe)
    if recipe is None:
        # The chunk size of the model's recipe fits the machine that it was trained on.
        tree["train"]["chunk_size"] = "auto"
    if tree["train"].get("start_from") is None:
        for rate in ("lr", "tower_lr"):
            if tree["optimizer"].get(rate) is not None:
                tree["optimizer"][rate] *= _SLOWER
        tree["train"] |= {"steps": None, "epochs": _EPOCHS}
    if name is not None:
        tree["name"] = name
    apply_overrides(tree, overrides)
    tree["train"]["start_from"] = str(base.folder)
    parsed = parse_recipe(tree, f"The recipe of {base.name!r}")
    _check_texts(base, taken=parsed.draws_texts)
    return without_copies(parsed, overrides)


def settled_settings(base: BundleInfo, recipe: str | None, overrides: Sequence[str]) -> frozenset[str]:
    """Keys of settings that don't depend on the collection.

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


def fit_recipe(
    recipe: Recipe, manifest: Manifest, settled: frozenset[str] = frozenset()
) -> tuple[Recipe, list[str]]:
    """Fit batches, length and the choice of the best epoch to the number of images that a collection has.

    Settings named in `settled` stay, but a batch that cannot be filled becomes smaller all the same. Returns
    the recipe, and a sentence for each setting that was changed.

    Raises:
        DataError: The collection has no pair to learn from.
    """
    pairs = _pairs(recipe, manifest)
    train, schedule, changes = recipe.train, recipe.schedule, []
    if pairs < train.batch_size:
        # A power of two, which processes can share.
        size = 1 << (max(pairs // _BATCHES, min(pairs, _LEAST_BATCH), 2).bit_length() - 1)
        changes.append(f"Batches of {size} pairs instead of {train.batch_size}: there are too few pairs.")
        train = train.model_copy(update={"batch_size": size})
    steps_an_epoch = max(1, pairs // train.batch_size)
    # Without a choice of the best epoch, more of them may do harm.
    validated = bool(manifest.split("val").records)
    if validated and train.epochs is not None and not settled & {"train.epochs", "train.steps"}:
        epochs = max(train.epochs, -(-_LEAST_STEPS // steps_an_epoch))
        if epochs > train.epochs:
            changes.append(f"{epochs} epochs instead of {train.epochs}: there are few pairs.")
            train = train.model_copy(update={"epochs": epochs})
    if "schedule.warmup_steps" not in settled:
        steps = train.steps or (train.epochs or 0) * steps_an_epoch
        warmup = min(schedule.warmup_steps, int(_WARMUP_SHARE * steps))
        schedule = schedule.model_copy(update={"warmup_steps": warmup})
    if "train.select_by" not in settled:
        train, change = _selecting(train, recipe, manifest)
        changes += change
    return recipe.model_copy(update={"train": train, "schedule": schedule}), changes


def _pairs(recipe: Recipe, manifest: Manifest) -> int:
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


def compare_models(
    base: BundleInfo,
    new: BundleInfo,
    manifest: Manifest,
    *,
    gain: float,
    metric: str | None = None,
    device: str,
    batch_size: int = 64,
) -> ModelVerdict | None:
    """Compare a new model with the active one on held-out images.

    The interval of the rise has to be above `gain`; if negative, the metric may fall. `metric` is a name of
    `figures_by_image`; None: rsum, otherwise image_precision_at_10.

    Returns:
        None if the held-out images can't distinguish models: no two have different texts, and too few have
        labels.

    Raises:
        RecipeError: The held-out images give no such metric.
    """
    held_out = judging_split(manifest)
    if held_out is None:
        return None
    before, after = (
        embed_manifest(load_encoder(info.folder, device), held_out, batch_size=batch_size)
        for info in (base, new)
    )
    figures, groups = figures_by_image(before), _groups(before.records)
    usable = _METRICS if differ_in_texts(held_out.records) else _METRICS[1:]
    chosen = metric or next((name for name in usable if name in figures), None)
    if chosen is None:
        return None
    if chosen in _MEANS:
        # Sentences of labels are too few to be drawn again.
        chosen = f"image_{chosen}"
    if chosen not in figures:
        measurable = ", ".join(figures) or "none"
        raise RecipeError(f"{chosen} cannot be measured on the held-out images; these can: {measurable}.")
    figure = figures_by_image(after)[chosen]
    compared = compare_figures(figures[chosen], figure, groups)
    better = new.digest != base.digest and compared.low > gain and compared.above_chance
    if min(figure.images, _IMAGES_A_GROUP * len(np.unique(groups))) < MIN_IMAGES:
        verdict: Verdict = "not enough to judge"
    else:
        verdict = "better" if better else "not better"
    return ModelVerdict(
        metric=chosen,
        before=compared.before,
        after=compared.after,
        held_out=held_out.records[0].split,
        images=figure.images,
        passed=verdict == "better",
        verdict=verdict,
        low=compared.low,
        high=compared.high,
        chance=figure.chance,
    )


def _groups(records: Sequence[Record]) -> NDArray[np.int64]:
    """Number of each record's group; one without a group is a group of its own."""
    names = [(record.group, "") if record.group else ("", record.id) for record in records]
    return np.unique(names, axis=0, return_inverse=True)[1].reshape(-1)


def judging_split(manifest: Manifest) -> Manifest | None:
    """The held-out images that can distinguish models: those of `test`, otherwise of `val`."""
    for split in _HELD_OUT:
        held_out = manifest.split(split)
        if differ_in_texts(held_out.records) or any(record.labels for record in held_out.records):
            return held_out
    return None


def describe_held_out(manifest: Manifest) -> str:
    """A sentence on the images that choose the best epoch, and on those that judge the new model."""
    chooses, judges = manifest.split("val").records, judging_split(manifest)
    epoch = f"{_described(chooses)} choose the epoch (val)" if chooses else "none choose the epoch"
    if judges is None:
        return f"Held out: {epoch}, and none can judge the new model, so that it will wait for a person."
    split = judges.records[0].split
    if len(judges.records) < MIN_IMAGES:
        return (
            f"Held out: {epoch}, and {_described(judges.records)} ({split}) are not enough to judge the new "
            f"model, so that it will wait for a person: that takes {MIN_IMAGES}."
        )
    return f"Held out: {epoch}, and {_described(judges.records)} judge the new model ({split})."


def _described(records: Sequence[Record]) -> str:
    texts = sum(bool(record.texts) for record in records)
    labels = sum(bool(record.labels) for record in records)
    return f"{texts:,} images with texts" if texts else f"{labels:,} with labels"


def searched_with(home: Home, collection: str) -> tuple[Generation, BundleInfo]:
    """The active generation of a collection, and the bundle of its model."""
    with home.catalogue.read() as session:
        generation, _ = require_active(session, collection)
    return generation, registered_bundle(generation, home.bundles_folder)


@dataclass(frozen=True, slots=True)
class Retrained:
    """A retrained model, and what it has to reach to replace the one that its collection is searched with.

    Attributes:
        out: Folder of the retraining.
        metric: Metric that has to rise; None: see `compare_models`.
        gain: Amount by which it has to rise.
    """

    collection: str
    out: Path
    new: BundleInfo
    metric: str | None
    gain: float
    promote: bool


def decide(engine: SearchEngine, settings: Settings, retrained: Retrained, batch_size: int) -> Outcome:
    """Compare a retrained model with the active one, embed its collection if it passes, and promote it.

    It may replace that one only: if another model becomes active meanwhile, it is compared again.
    """
    collection, out, new = retrained.collection, retrained.out, retrained.new

    def outcome(decision: Decision, generation: int | None, verdict: ModelVerdict | None) -> Outcome:
        return Outcome(
            verdict=decision,
            collection=collection,
            generation=generation,
            bundle=None if decision == "unchanged" else new.digest,
            judgement=verdict,
        )

    # Bundles are in folders that are named by their digests.
    begun_with = Path(load_recipe(str(out / "recipe.yaml")).train.start_from or "").name
    if new.digest == begun_with:
        typer.echo(
            "No epoch made the model better on the images for validation, so there is no new model, and "
            f"{collection} is searched as before. Judge more hits, or try another rate or more "
            "epochs with --set and another --out."
        )
        return outcome("unchanged", None, _judged(retrained, new, settings.device, batch_size))
    for _ in range(_MAX_COMPARISONS):
        active, base = searched_with(engine.home, collection)
        if base.digest == new.digest:
            # An earlier attempt or an operator has activated it.
            kept = _stored_verdict(out)
            return outcome("promoted", active.id, None if kept is None else kept.judgement)
        verdict = _judged(retrained, base, settings.device, batch_size)
        if verdict is not None and verdict.verdict == "not better":
            return outcome("rejected", None, verdict)
        activated = verdict is not None and verdict.passed and retrained.promote
        generation, encoder, seconds = open_generation(engine, settings, collection, new.folder, None)
        build_generation(engine, generation, encoder, batch_size, activated=activated)
        if not activated:
            return outcome("waiting", generation.id, verdict)
        try:
            swap_to(engine, settings, generation, encoder, seconds, batch_size, instead_of=base.digest)
        except ActiveChangedError as error:
            typer.echo(str(error))
            continue
        return outcome("promoted", generation.id, verdict)
    typer.echo(
        f"It was judged {_MAX_COMPARISONS} times, and each time {collection!r} came to be searched "
        "with another model before it could take over."
    )
    return outcome("waiting", generation.id, verdict)


def _judged(retrained: Retrained, base: BundleInfo, device: str, batch_size: int) -> ModelVerdict | None:
    """Verdict on the new model against another, stored until it is compared with a third."""
    out, new, previous = retrained.out, retrained.new, _stored_verdict(retrained.out)
    # Earlier releases compared without an interval.
    if previous is not None and previous.against == base.digest and previous.judgement.verdict is not None:
        verdict: ModelVerdict | None = previous.judgement
    else:
        verdict = compare_models(
            base,
            new,
            read_manifest(out / "data"),
            gain=retrained.gain,
            metric=retrained.metric,
            device=device,
            batch_size=batch_size,
        )
    if verdict is None:
        typer.echo(
            "No held-out images (split test or val) can judge the new model: that takes two "
            "with different texts, or eleven with labels."
        )
        return None
    stored = StoredVerdict(against=base.digest, judgement=verdict)
    write_text(out / _JUDGED, stored.model_dump_json(indent=2))
    on = f"{verdict.metric} on {verdict.images:,} held-out images ({verdict.held_out})"
    if base.digest == new.digest:
        typer.echo(f"{on}: {verdict.before:.2f}.")
        return verdict
    typer.echo(
        f"{on}: {verdict.before:.2f} before, by {base.digest[:12]}, {verdict.after:.2f} after (a rise of "
        f"{verdict.low:.2f} to {verdict.high:.2f}; chance gives {verdict.chance:.2f}): the verdict "
        f"on the new model is {verdict.verdict}."
    )
    if verdict.verdict == "not enough to judge":
        typer.echo(f"It takes {MIN_IMAGES} held-out images with texts, or labels, of 25 patients.")
    return verdict


def _stored_verdict(out: Path) -> StoredVerdict | None:
    path = out / _JUDGED
    return StoredVerdict.model_validate_json(path.read_bytes()) if path.is_file() else None
