"""Training, validation and test images of a manifest, and the labels to predict."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from training.classification.images.config import ImageDataConfig
from training.classification.images.share import stratified_share
from training.data.labels import known_labels, positives
from training.data.manifest import Manifest
from training.errors import DataError
from training.tasks.held_out import whole_groups


@dataclass(frozen=True)
class LabelledSplits:
    """Images of one manifest.

    Attributes:
        labels: Labels to predict, in the order of a classifier's outputs.
        train: The share that is trained on.
        val: Chooses the best checkpoint.
        test: Images of the final metrics.
    """

    labels: tuple[str, ...]
    train: Manifest
    val: Manifest
    test: Manifest

    @property
    def fingerprint(self) -> str:
        """SHA-256 over the ids and labels that are trained on and chosen by, in their order."""
        digest = hashlib.sha256(json.dumps(self.labels).encode())
        for record in (*self.train.records, *self.val.records):
            digest.update(json.dumps([record.id, record.labels]).encode())
        return digest.hexdigest()


def labelled_splits(manifest: Manifest, config: ImageDataConfig) -> LabelledSplits:
    """The splits that a run needs.

    Raises:
        DataError: A label is not in the train split, or a split has no images or none to tell apart.
    """
    whole, val = manifest.split("train"), manifest.split("val")
    labels = _labels(whole, config.labels)
    if config.validation_images:
        names = [("image", r.id) if r.group is None else ("group", r.group) for r in whole.records]
        held_out = whole_groups(names, config.validation_images, config.share_seed)
        val = replace(whole, records=tuple(whole.records[row] for row in held_out))
        out = set(held_out)
        whole = replace(whole, records=tuple(r for row, r in enumerate(whole.records) if row not in out))
    test = manifest.split(config.test_split)
    if not whole.records:
        raise DataError(
            f"No image of {manifest.folder} is left to train on: set data.validation_images to less."
        )
    _check_measurable(val, labels, "validation")
    _check_measurable(test, labels, "test")
    rows = stratified_share(positives(whole.records, labels), config.share, config.share_seed)
    train = replace(whole, records=tuple(whole.records[row] for row in rows))
    return LabelledSplits(labels, train, val, test)


def _labels(train: Manifest, wanted: tuple[str, ...] | None) -> tuple[str, ...]:
    known = known_labels(train.records)
    if not known:
        raise DataError(f"No training image of {train.folder} has labels: add `labels` to the manifest.")
    if wanted is None:
        return known
    missing = [label for label in wanted if label not in known]
    if missing:
        raise DataError(
            f"No training image of {train.folder} has the label {missing[0]!r}: choose data.labels among "
            f"{', '.join(known)}."
        )
    return wanted


def _check_measurable(split: Manifest, labels: Sequence[str], name: str) -> None:
    """Make sure that at least one label has images with it and images without it."""
    found = positives(split.records, labels)
    if not (found.any(axis=0) & ~found.all(axis=0)).any():
        raise DataError(
            f"The {name} images of {split.folder} have no label that some have and others have not, so there "
            "is no AUC: add images, or see data.labels, data.validation_images and data.test_split."
        )
