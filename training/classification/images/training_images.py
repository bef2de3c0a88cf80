"""The training images of a run: read, drawn in batches, and changed at random."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.classification.images.config import ImageDataConfig, ImageRecipe
from training.common.errors import DataError
from training.common.manifest import Manifest, Rejections
from training.data.augmentation import Augmentation
from training.data.image_source import Decoder, open_images
from training.data.labels import known_labels, positives
from training.data.pairs import PairSampler
from training.models.preprocessing import ImagePreprocessing
from training.tasks.held_out import whole_groups
from training.tasks.opening import OpenRun
from training.trainer.batches import Batch, BatchLoader, PixelPreparation, without_missing


@dataclass(frozen=True)
class TrainingImages:
    """Images and labels of a run's steps.

    Attributes:
        batches: Every image once an epoch in random order; the first of it fill the last batch up.
        smallest_share: Images that a process has of a batch.
        targets: (N, L), 1 where an image of the split has a label.
        prepare: Makes pixels of images in the way of a step.
        run: That trains on them.
    """

    batches: BatchLoader
    smallest_share: int
    targets: Tensor
    prepare: PixelPreparation
    run: OpenRun

    def inputs(self, batch: Batch, step: int) -> tuple[Tensor, Tensor]:
        """Pixels (B, 3, S, S), changed at random in the way of a step, and targets (B, L)."""
        batch, device = without_missing(batch, self.run.processes), self.run.fabric.device
        assert batch.items is not None
        pixels = self.prepare(batch.inputs.to(device), step)
        return pixels, self.targets[batch.items].to(device, non_blocking=True)


@contextmanager
def opened(
    split: Manifest,
    labels: tuple[str, ...],
    recipe: ImageRecipe,
    preprocessing: ImagePreprocessing,
    broken: Rejections,
    run: OpenRun,
) -> Iterator[TrainingImages]:
    """Read the images of a split, or decode them as they are needed while the block runs.

    Args:
        split: Images to train on.
        labels: Labels in the order of the classifier's outputs.
        recipe: Recipe of the run.
        preprocessing: Preprocessing of the classifier's images.
        broken: Counts images that cannot be read.
        run: That trains on them.

    Raises:
        DataError: Too many images are broken, or there is none.
    """
    data, train, processes = recipe.data, recipe.train, run.processes
    seen = preprocessing.whole() if recipe.augmentation.crops else preprocessing
    images = open_images(
        Decoder(split, seen),
        broken,
        cache=data.cache_images,
        threads=data.workers,
        device=run.fabric.device,
        processes=processes,
        show_progress=run.show_progress,
    )
    try:
        records = [split.records[row] for row in images.readable]
        if not records:
            raise DataError(f"No training image of {split.folder} can be read: mend the data.")
        count = processes.count
        size = max(count, min(train.batch_size, len(records) // count * count))
        sampler = PairSampler(records, size, train.seed, text_unit=None, fill_up=True)
        yield TrainingImages(
            batches=BatchLoader(
                sampler, images, None, rows=images.readable, training=True, processes=processes
            ),
            smallest_share=size // count,
            targets=torch.from_numpy(positives(split.records, labels)).float(),
            prepare=PixelPreparation(preprocessing, Augmentation(recipe.augmentation, train.seed)),
            run=run,
        )
    finally:
        images.close()


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


def stratified_share(positive: NDArray[np.bool_], share: float, seed: int) -> list[int]:
    """Rows of a random part in which each label has its share, as near as whole images allow; at least one.

    The rarest label that is left is dealt out first, each of its images to the side that wants the label
    more (iterative stratification, Sechidis et al. 2011, into two parts).

    Args:
        positive: (N, L), True where an image has a label.
        share: Fraction of the images, above 0 and at most 1.
        seed: Seed of the random order.

    Returns:
        The rows that are kept, rising.
    """
    count = len(positive)
    if share == 1:
        return list(range(count))
    order = np.random.default_rng(seed).permutation(count)
    sides = np.array([share, 1 - share])
    # Remaining demand of each side (2, L + 1): images of every label, and images in all.
    wants = sides[:, None] * np.append(positive.sum(axis=0), count)
    columns = np.column_stack([positive, np.ones(count, dtype=np.bool_)])
    kept: list[int] = []
    left = np.ones(count, dtype=np.bool_)
    while left.any():
        numbers = (positive & left[:, None]).sum(axis=0)
        labels = np.flatnonzero(numbers)
        label = labels[numbers[labels].argmin()] if len(labels) else -1
        for row in order[(columns[:, label] & left)[order]]:
            side = int(np.lexsort((wants[:, -1], wants[:, label]))[-1])
            wants[side, columns[row]] -= 1
            left[row] = False
            if side == 0:
                kept.append(int(row))
    return sorted(kept) or [int(order[0])]
