"""What a training step is made of: items, the text that is drawn for each, and which of them match."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Final, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.common.errors import DataError
from training.common.manifest import Record
from training.data.hard_negatives import HardNegatives

# One text of an item, or all of them as its sentences.
Text = str | tuple[str, ...]
TextUnit = Literal["sentence", "report"]

_LARGEST_DRAW: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Pairs:
    """The pairs of one batch, or b of its B pairs.

    Attributes:
        rows: (b,) which records.
        texts: The text of each; empty where none are drawn.
        positive_mask: (b, B) bool, True where text j belongs to image i; None when only its own does, for
            every pair of the batch.
        turns: (b,) the place of each text among those of its image, where an epoch goes through all texts;
            None where it goes through images.
    """

    rows: NDArray[np.int64]
    texts: tuple[Text, ...]
    positive_mask: Tensor | None
    turns: NDArray[np.int64] | None = None


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


def differ_in_texts(records: Sequence[Record]) -> bool:
    """Whether two records have different texts: otherwise every text belongs to every image that has one."""
    return len({frozenset(record.texts) for record in records if record.texts}) > 1


class PairSampler:
    """Draws an epoch of pairs: every image once with one of its texts or all of them, or every text once.

    Order and texts are a function of seed and epoch alone, so a run can go on at any position. All batches
    have the same size, which is part of a contrastive loss: the last incomplete batch of an epoch is dropped,
    or filled up. A text that another image only seems to fit meets that image in its batch (`HardNegatives`).
    With `every_text` a batch may hold two texts of one image; each is a positive of both, by the mask.

    Args:
        records: All with at least one text, unless none are drawn.
        batch_size: B.
        seed: Of the run.
        one_image_per: Metadata key; of all images with the same value one random image is drawn each epoch.
        text_unit: One random text of an image, or all of them; None: no texts are drawn.
        every_text: An epoch is every text with its image; for single texts, and without `one_image_per`.
        fill_up: Fill the last batch up with the first items of the epoch, so that none is left out.

    Raises:
        DataError: There are fewer items than a batch needs.
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
        # The row of each item that an epoch draws from, and the place of its text where that is fixed.
        self._item_rows = np.repeat(rows, self._text_counts) if every_text else rows
        self._turns = _places_in_runs(self._text_counts) if every_text else None
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
        """One batch of an epoch, or the pairs at these places of it."""
        order, turns = self._epoch(epoch)
        places = np.arange(index * self.batch_size, (index + 1) * self.batch_size) % len(order)
        rows, drawn = self._item_rows[order[places]], turns[places]
        if self._text_unit is None:
            return Pairs(rows[own], (), None)
        choices = [self._choices(self.records[row]) for row in rows]
        texts = tuple(texts[turn] for texts, turn in zip(choices, drawn, strict=True))
        fixed = None if self._turns is None else drawn[own]
        return Pairs(rows[own], texts[own], positive_mask(choices, texts, own), fixed)

    def longest_text(self) -> Text | None:
        """The text of most characters; None where no texts are drawn."""
        return max(self.every_text(), key=_characters, default=None)

    def every_text(self) -> Iterator[Text]:
        """All texts that can be drawn, those of several images several times; none where none are drawn."""
        if self._text_unit is not None:
            yield from (text for record in self.records for text in self._choices(record))

    def _choices(self, record: Record) -> tuple[Text, ...]:
        return (record.texts,) if self._text_unit == "report" else record.texts

    def _epoch(self, epoch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The items in the order of the epoch, and the place of the text of each among those of its image."""
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


def _places_in_runs(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """0, 1, ... within each of several runs of these lengths, one run after another."""
    starts = np.cumsum(lengths) - lengths
    return np.arange(lengths.sum(), dtype=np.int64) - np.repeat(starts, lengths)


def positive_mask(
    choices: Sequence[Sequence[Text]], texts: Sequence[Text], own: slice = slice(None)
) -> Tensor | None:
    """Which images of a batch match which texts of it: those that have the text among their own.

    It is not symmetric: an image may have the text of another that does not have its.

    Args:
        choices: All texts of each of the B images.
        texts: (B,) those that were drawn.
        own: The pairs that the mask is for.

    Returns:
        (b, B) bool, True where text j belongs to image i, as its own does; None when in the whole batch no
        text belongs to another image.
    """
    places: dict[Text, list[int]] = {}
    for column, text in enumerate(texts):
        places.setdefault(text, []).append(column)
    others = {
        (row, column)
        for row, of_image in enumerate(choices)
        for text in of_image
        for column in places.get(text, ())
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
    """The rows of which one is drawn each epoch: those with the same metadata value, and each other alone."""
    if one_image_per is None:
        return [[row] for row in range(len(records))]
    units: dict[object, list[int]] = {}
    alone = count()
    for row, record in enumerate(records):
        value = record.metadata.get(one_image_per)
        units.setdefault(("alone", next(alone)) if value is None else ("of", value), []).append(row)
    return list(units.values())
