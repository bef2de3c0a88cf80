"""Verdict on a new model: whether it is better than the active one on images that are held out."""

from collections.abc import Sequence
from typing import Final

from app.lifecycle.verdict import ModelVerdict
from training.data.manifest import Manifest, Record, Split
from training.data.pairs import differ_in_texts
from training.errors import RecipeError
from training.evaluation.embedding.images_and_texts import embed_manifest
from training.evaluation.evaluate import measure
from training.models.bundle import BundleInfo
from training.models.encoder import load_encoder

_HELD_OUT: Final[tuple[Split, ...]] = ("test", "val")
_METRICS: Final = ("rsum", "precision_at_10")


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
        None if the held-out images tell no model from another: no two have different texts, and too few have
        labels.

    Raises:
        RecipeError: The held-out images give no such metric.
    """
    held_out = judging_split(manifest)
    if held_out is None:
        return None
    figures = []
    for info in (base, new):
        encoder = load_encoder(info.folder, device)
        embedded = embed_manifest(encoder, held_out, batch_size=batch_size)
        figures.append(measure(encoder, embedded, label_template=label_template).metrics())
    before, after = figures
    usable = _METRICS if differ_in_texts(held_out.records) else _METRICS[1:]
    chosen = metric or next((name for name in usable if name in before), None)
    if chosen is None:
        return None
    if chosen not in before or chosen not in after:
        known = ", ".join(before) or "none"
        raise RecipeError(f"{chosen} cannot be measured on the held-out images; these can: {known}.")
    return ModelVerdict(
        metric=chosen,
        before=before[chosen],
        after=after[chosen],
        held_out=held_out.records[0].split,
        images=_measured(chosen, held_out.records),
        passed=new.digest != base.digest and after[chosen] >= before[chosen] + gain,
    )


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
    return f"Held out: {epoch}, and {_described(judges.records)} judge the new model ({split})."


def _described(records: Sequence[Record]) -> str:
    texts = sum(bool(record.texts) for record in records)
    return f"{texts:,} images with texts" if texts else f"{_measured('precision', records):,} with labels"


def _measured(metric: str, records: Sequence[Record]) -> int:
    """Number of images that a metric is measured on."""
    if "precision" in metric:
        return sum(bool(record.labels) for record in records)
    return sum(bool(record.texts) for record in records)
