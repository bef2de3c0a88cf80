"""The images of a manifest that a classifier is trained on, chosen by and tested on."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from training.classification.recipe import ImageDataConfig
from training.common.errors import DataError
from training.common.manifest import Manifest
from training.data.labels import known_labels, positives
from training.trainer.run_state.checkpoint import fingerprint


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
        records = (*self.train.records, *self.val.records)
        return fingerprint([self.labels, *([record.id, record.labels] for record in records)])


def labelled_splits(manifest: Manifest, config: ImageDataConfig) -> LabelledSplits:
    """The splits that a run needs.

    Raises:
        DataError: A label is not in the train split, or a split has no images or none to tell apart.
    """
    whole, val, test = manifest.split("train"), manifest.split("val"), manifest.split(config.test_split)
    present = known_labels(whole.records)
    if not present:
        raise DataError(f"No training image of {whole.folder} has labels: add `labels` to the manifest.")
    labels = present if config.labels is None else config.labels
    if missing := [label for label in labels if label not in present]:
        raise DataError(
            f"No training image of {whole.folder} has the label {missing[0]!r}: choose data.labels among "
            f"{', '.join(present)}."
        )
    if config.validation_images:
        names = [("image", r.id) if r.group is None else ("group", r.group) for r in whole.records]
        held_out = set(whole_groups(names, config.validation_images, config.share_seed))
        val = replace(whole, records=tuple(r for row, r in enumerate(whole.records) if row in held_out))
        whole = replace(whole, records=tuple(r for row, r in enumerate(whole.records) if row not in held_out))
    if not whole.records:
        raise DataError(
            f"No image of {manifest.folder} is left to train on: set data.validation_images to less."
        )
    for name, split in (("validation", val), ("test", test)):
        positive = positives(split.records, labels)
        if not (positive.any(axis=0) & ~positive.all(axis=0)).any():
            raise DataError(
                f"The {name} images of {split.folder} have no label that some have and others have not, so "
                "there is no AUC: add images, or see data.labels, data.validation_images and data.test_split."
            )
    rows = stratified_share(positives(whole.records, labels), config.share, config.share_seed)
    return LabelledSplits(
        labels, replace(whole, records=tuple(whole.records[row] for row in rows)), val, test
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


def whole_groups(groups: Sequence[Hashable], number: int, seed: int) -> list[int]:
    """Return the indices of the members of random groups, at most `number` of them, in order."""
    by_group: dict[Hashable, list[int]] = {}
    for index, group in enumerate(groups):
        by_group.setdefault(group, []).append(index)
    members = list(by_group.values())
    chosen: list[int] = []
    for group_number in np.random.default_rng(seed).permutation(len(members)):
        if len(chosen) + len(members[group_number]) <= number:
            chosen += members[group_number]
    return sorted(chosen)
