"""What a training step is made of: images, one random text of each, and which pairs of them match."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.data.manifest import Record
from training.errors import DataError

_LARGEST_DRAW: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs of one batch.

    Attributes:
        rows: (B,) which records.
        texts: One text of each.
        positive_mask: (B, B) bool, True where text j belongs to image i; None when only the diagonal is.
    """

    rows: NDArray[np.int64]
    texts: tuple[str, ...]
    positive_mask: Tensor | None


@dataclass(frozen=True, slots=True)
class Position:
    """Where a run stands: steps done, and the next batch by epoch and index, all from 0."""

    step: int = 0
    epoch: int = 0
    index: int = 0

    def next(self, batches_per_epoch: int) -> "Position":
        """The position one step on."""
        if self.index + 1 < batches_per_epoch:
            return Position(self.step + 1, self.epoch, self.index + 1)
        return Position(self.step + 1, self.epoch + 1, 0)


def describable(records: Sequence[Record], label_template: str | None) -> tuple[Record, ...]:
    """The records that have a text; images without one get a sentence from their labels.

    Args:
        records: Any.
        label_template: The sentence, with the labels in place of `{labels}`; None: such images are left out.
    """
    described = []
    for record in records:
        if record.texts:
            described.append(record)
        elif record.labels and label_template is not None:
            sentence = label_template.replace("{labels}", ", ".join(record.labels))
            described.append(replace(record, texts=(sentence,)))
    return tuple(described)


class PairSampler:
    """Draws every image once an epoch, each with one of its texts.

    Order and texts are a function of seed and epoch alone, so a run can go on at any position. The last
    incomplete batch of an epoch is dropped: the size of a contrastive batch is part of the loss.

    Args:
        records: All with at least one text.
        batch_size: B.
        seed: Of the run.
        one_image_per: Metadata key; of all images with the same value one random image is drawn each epoch.

    Raises:
        DataError: There are fewer images than a batch needs.
    """

    def __init__(
        self, records: Sequence[Record], batch_size: int, seed: int, one_image_per: str | None = None
    ) -> None:
        self.records = tuple(records)
        self.batch_size = batch_size
        self._seed = seed
        self._units = _units(self.records, one_image_per)
        self._plan: tuple[int, NDArray[np.int64], NDArray[np.int64]] | None = None
        self.batches_per_epoch = len(self._units) // batch_size
        if self.batches_per_epoch == 0:
            raise DataError(
                f"Only {len(self._units):,} images have a text, fewer than a batch of {batch_size}: "
                "give more data, or set train.batch_size to less."
            )

    def draw(self, epoch: int, index: int) -> Pairs:
        """One batch of an epoch."""
        order, text_draws = self._epoch(epoch)
        rows = order[index * self.batch_size : (index + 1) * self.batch_size]
        drawn = [self.records[row] for row in rows]
        texts = tuple(
            record.texts[int(text_draws[row]) % len(record.texts)]
            for row, record in zip(rows, drawn, strict=True)
        )
        return Pairs(rows, texts, positive_mask(drawn, texts))

    def _epoch(self, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows in the order of the epoch, and a large random number a record that picks its text."""
        if self._plan is None or self._plan[0] != epoch:
            generator = np.random.default_rng([self._seed, epoch])
            picks = generator.integers(_LARGEST_DRAW, size=len(self._units))
            chosen = np.array(
                [unit[int(pick) % len(unit)] for unit, pick in zip(self._units, picks, strict=True)],
                dtype=np.int64,
            )
            order = generator.permutation(chosen)
            self._plan = epoch, order, generator.integers(_LARGEST_DRAW, size=len(self.records))
        return self._plan[1], self._plan[2]


def positive_mask(records: Sequence[Record], texts: Sequence[str]) -> Tensor | None:
    """(B, B) bool, True where text j is one of the texts of image i; None when only the diagonal is."""
    places: dict[str, list[int]] = {}
    for column, text in enumerate(texts):
        places.setdefault(text, []).append(column)
    matches = [
        (row, column)
        for row, record in enumerate(records)
        for text in record.texts
        for column in places.get(text, ())
    ]
    mask = torch.eye(len(texts), dtype=torch.bool)
    if all(row == column for row, column in matches):
        return None
    rows, columns = zip(*matches, strict=True)
    mask[list(rows), list(columns)] = True
    return mask


def _units(records: Sequence[Record], one_image_per: str | None) -> list[list[int]]:
    if one_image_per is None:
        return [[row] for row in range(len(records))]
    units: dict[object, list[int]] = {}
    alone = count()
    for row, record in enumerate(records):
        value = record.metadata.get(one_image_per)
        units.setdefault(("alone", next(alone)) if value is None else ("of", value), []).append(row)
    return list(units.values())
