"""Draw the items of training steps, a text for each, and which of them match."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.common.errors import DataError
from training.common.record import Record

# One text of an item, or all its texts as sentences.
Text = str | tuple[str, ...]
TextUnit = Literal["sentence", "report"]
_LARGEST_DRAW: Final = 2**63 - 1


class HardNegatives:
    """Images that are hard negatives of texts, according to the records.

    A contrastive loss compares a text with the images of its batch, so a hard negative only helps in the same
    batch as the text.
    """

    def __init__(self, records: Sequence[Record]) -> None:
        self._rows: dict[object, list[int]] = {}
        for row, record in enumerate(records):
            for text in record.not_texts:
                self._rows.setdefault(text, []).append(row)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._rows)

    def bring_together(
        self,
        order: NDArray[np.int64],
        texts: Sequence[object],
        batch_size: int,
        generator: np.random.Generator,
    ) -> NDArray[np.int64]:
        """Reorder an epoch so that a hard negative of each drawn text, if there is one, is in its batch.

        It swaps positions with a random row. A text gets none if all its hard negatives are needed in other
        batches, or if its batch is full of needed rows.
        """
        order = order.copy()
        position_of = {row: position for position, row in enumerate(order.tolist())}
        needed: set[int] = set()
        for row, text in zip(order.tolist(), texts, strict=True):
            negatives = [position_of[other] for other in self._rows.get(text, ()) if other in position_of]
            if not negatives:
                continue
            needed.add(position_of[row])
            first = position_of[row] // batch_size * batch_size
            batch = range(first, min(first + batch_size, len(order)))
            here = [position for position in negatives if position in batch]
            sources = [position for position in negatives if position not in needed]
            targets = [position for position in batch if position not in needed]
            if here or not sources or not targets:
                needed.update(here[:1])
                continue
            moved = [int(generator.choice(sources)), int(generator.choice(targets))]
            order[moved] = order[moved[::-1]]
            position_of |= {int(order[position]): position for position in moved}
            needed.add(moved[1])
        return order


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs of one batch, or b of its B pairs.

    Attributes:
        rows: (b,) row of each record.
        texts: Text of each; empty if none are drawn.
        positive_mask: (b, B) bool, True where text j belongs to image i; None: each text in the batch only
            belongs to its own image.
        turns: (b,) index of each text among its image's if an epoch iterates over texts; otherwise None.
    """

    rows: NDArray[np.int64]
    texts: tuple[Text, ...]
    positive_mask: Tensor | None
    turns: NDArray[np.int64] | None = None


@dataclass(frozen=True, slots=True)
class Position:
    """Progress of a run: finished steps, and epoch and index of the next batch, all from 0."""

    step: int = 0
    epoch: int = 0
    index: int = 0

    def next(self, batches_per_epoch: int) -> "Position":
        """The position after one more step."""
        if self.index + 1 < batches_per_epoch:
            return Position(self.step + 1, self.epoch, self.index + 1)
        return Position(self.step + 1, self.epoch + 1, 0)


def describable(records: Sequence[Record], label_template: str | None) -> tuple[Record, ...]:
    """Records with texts; images without one get a sentence made from their labels.

    The template contains `{labels}`; None: such images are left out.
    """
    described = []
    for record in records:
        if record.texts:
            described.append(record)
        elif record.labels and label_template is not None:
            sentence = label_template.replace("{labels}", ", ".join(record.labels))
            described.append(replace(record, texts=(sentence,)))
    return tuple(described)


def differ_in_texts(records: Sequence[Record]) -> bool:
    """Whether any two records have different texts; otherwise every text matches every image."""
    return len({frozenset(record.texts) for record in records if record.texts}) > 1


class PairSampler:
    """Draw epochs of pairs: every image once with one or all of its texts, or every text once.

    Order and texts only depend on seed and epoch, so a run can resume at any position. All batches have the
    same size, which a contrastive loss depends on: an epoch's incomplete last batch is dropped or filled up.
    Hard negatives of a text are moved into its batch (`HardNegatives`). With `every_text` a batch may contain
    two texts of one image; the mask marks both as positives.

    Args:
        records: Each needs a text, unless none are drawn.
        batch_size: B.
        seed: Seed of the run.
        one_image_per: Metadata key; each epoch draws one random image per value.
        text_unit: One random text of an image, or all of them; None: no texts.
        every_text: Iterate over texts instead of images; for single texts, and without `one_image_per`.
        fill_up: Complete the last batch with the first items of the epoch.

    Raises:
        DataError: There are fewer items than `batch_size`.
    """

    def __init__(
        self,
        records: Sequence[Record],
        batch_size: int,
        seed: int,
        one_image_per: str | None = None,
        text_unit: TextUnit | None = "sentence",
        *,
        every_text: bool = False,
        fill_up: bool = False,
    ) -> None:
        self.records = tuple(records)
        self.batch_size = batch_size
        self._seed = seed
        self._text_unit = text_unit
        counts = [1 if text_unit is None else len(self._choices(record)) for record in self.records]
        self._text_counts = np.array(counts, dtype=np.int64)
        rows = np.arange(len(self.records), dtype=np.int64)
        # Row of each item, and the index of its text if that is fixed.
        self._item_rows = np.repeat(rows, self._text_counts) if every_text else rows
        self._turns = _positions_in_runs(self._text_counts) if every_text else None
        self._units = draw_units([self.records[row] for row in self._item_rows], one_image_per)
        self._hard_negatives = HardNegatives([self.records[row] for row in self._item_rows])
        self._plan: tuple[int, NDArray[np.int64], NDArray[np.int64]] | None = None
        self.batches_per_epoch = len(self._units) // batch_size
        if self.batches_per_epoch == 0:
            what = "images can be used" if text_unit is None else "images have a text"
            raise DataError(
                f"Only {len(self._units):,} {'texts have an image' if every_text else what}, "
                f"fewer than a batch of {batch_size}: give more data, or set train.batch_size to less."
            )
        if fill_up:
            self.batches_per_epoch = -(-len(self._units) // batch_size)

    def draw(self, epoch: int, index: int, own: slice = slice(None)) -> Pairs:
        """Draw a batch of an epoch, or the part `own` of it."""
        order, turns = self._epoch(epoch)
        batch = np.arange(index * self.batch_size, (index + 1) * self.batch_size) % len(order)
        rows, drawn = self._item_rows[order[batch]], turns[batch]
        if self._text_unit is None:
            return Pairs(rows[own], (), None)
        choices = [self._choices(self.records[row]) for row in rows]
        texts = tuple(texts[turn] for texts, turn in zip(choices, drawn, strict=True))
        fixed = None if self._turns is None else drawn[own]
        return Pairs(rows[own], texts[own], positive_mask(choices, texts, own), fixed)

    def longest_text(self) -> Text | None:
        """The text with most characters; None if no texts are drawn."""
        return max(self.every_text(), key=_characters, default=None)

    def every_text(self) -> Iterator[Text]:
        """All texts that can be drawn, once for each of their images."""
        if self._text_unit is not None:
            yield from (text for record in self.records for text in self._choices(record))

    def _choices(self, record: Record) -> tuple[Text, ...]:
        return (record.texts,) if self._text_unit == "report" else record.texts

    def _epoch(self, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Items in the order of the epoch, and the index of each one's text among its image's."""
        if self._plan is None or self._plan[0] != epoch:
            generator = np.random.default_rng([self._seed, epoch])
            picks = generator.integers(_LARGEST_DRAW, size=len(self._units))
            chosen = np.array(
                [unit[int(pick) % len(unit)] for unit, pick in zip(self._units, picks, strict=True)],
                dtype=np.int64,
            )
            order = generator.permutation(chosen)
            turns = self._turns
            if turns is None:
                turns = generator.integers(_LARGEST_DRAW, size=len(self.records)) % self._text_counts
            if self._hard_negatives and self._text_unit is not None:
                texts = [
                    self._choices(self.records[self._item_rows[item]])[turns[item]] for item in order.tolist()
                ]
                order = self._hard_negatives.bring_together(order, texts, self.batch_size, generator)
            self._plan = epoch, order, turns[order]
        return self._plan[1], self._plan[2]


def _characters(text: Text) -> int:
    return len(text) if isinstance(text, str) else sum(map(len, text))


def _positions_in_runs(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """0, 1, ... within each of consecutive runs of these lengths."""
    starts = np.cumsum(lengths) - lengths
    return np.arange(lengths.sum(), dtype=np.int64) - np.repeat(starts, lengths)


def positive_mask(
    choices: Sequence[Sequence[Text]], texts: Sequence[Text], own: slice = slice(None)
) -> Tensor | None:
    """Which images and texts of a batch match: an image matches all its texts.

    It isn't symmetric: image i may have the text drawn for j without j having that of i. `choices` are all
    texts of the B images, `texts` (B,) the drawn ones, and `own` selects the b rows of the mask.

    Returns:
        (b, B) bool, True where text j belongs to image i; None if no text in the whole batch belongs to
        another image.
    """
    columns: dict[Text, list[int]] = {}
    for column, text in enumerate(texts):
        columns.setdefault(text, []).append(column)
    others = {
        (row, column)
        for row, of_image in enumerate(choices)
        for text in of_image
        for column in columns.get(text, ())
        if row != column
    }
    if not others:
        return None
    first, stop, _ = own.indices(len(texts))
    mask = torch.zeros((stop - first, len(texts)), dtype=torch.bool)
    mask[torch.arange(stop - first), torch.arange(first, stop)] = True
    for row, column in others:
        if first <= row < stop:
            mask[row - first, column] = True
    return mask


def draw_units(records: Sequence[Record], one_image_per: str | None) -> list[list[int]]:
    """Groups of rows of which an epoch draws one: rows with the same metadata value; others alone."""
    if one_image_per is None:
        return [[row] for row in range(len(records))]
    units: dict[object, list[int]] = {}
    alone = count()
    for row, record in enumerate(records):
        value = record.metadata.get(one_image_per)
        units.setdefault(("alone", next(alone)) if value is None else ("of", value), []).append(row)
    return list(units.values())
