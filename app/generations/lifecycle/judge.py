"""Verdict on a new model: whether it is better than the active one on images that are held out."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.generations.lifecycle.verdict import ModelVerdict, Verdict
from training.common.errors import RecipeError
from training.common.manifest import Manifest, Record, Split
from training.data.pairs import differ_in_texts
from training.evaluation.embedding import embed_manifest
from training.evaluation.paired import compare_figures, figures_by_image
from training.models.bundle import BundleInfo
from training.models.encoder import load_encoder

_HELD_OUT: Final[tuple[Split, ...]] = ("test", "val")
_METRICS: Final = ("rsum", "image_precision_at_10")
_MEANS: Final = frozenset({"precision_at_5", "precision_at_10", "precision_at_50"})
# Fewer held-out images tell no model from another: the interval of rsum is some 40 points wide at 100.
MIN_IMAGES: Final = 100
# Images of one patient are drawn together: few patients tell no model from another either.
_IMAGES_A_GROUP: Final = 4


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

    Args:
        base: Bundle of the active model.
        new: Bundle of the new model.
        manifest: Manifest of the collection.
        gain: Amount that the interval of the rise has to be above; if negative, the metric may fall.
        metric: A name of `figures_by_image`; None: rsum, or else image_precision_at_10.
        device: A torch device, or auto.
        batch_size: Images a forward pass.

    Returns:
        None if the held-out images tell no model from another: no two have different texts, and too few have
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
        # Sentences of labels are too few to be drawn anew.
        chosen = f"image_{chosen}"
    if chosen not in figures:
        known = ", ".join(figures) or "none"
        raise RecipeError(f"{chosen} cannot be measured on the held-out images; these can: {known}.")
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
    """The held-out images that tell one model from another: those of `test`, else of `val`."""
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
