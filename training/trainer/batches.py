"""Batches as the loop takes them: drawn, loaded and tokenised one ahead of the step that runs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import count
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from training.data.audio import AudioSource
from training.data.augmentation import Augmentation
from training.data.image_source import ImageSource
from training.data.pairs import PairSampler, Position, Text
from training.models.features import Extra
from training.models.preprocessing import ImagePreprocessing, SpectrogramBatch, TokenBatch
from training.objectives.base import Extras, errors_of_own_code
from training.shortcuts.shortcuts import DigitOverlay, Shortcuts
from training.trainer.run_state.processes import Processes

Item = TypeVar("Item")
ReadTexts = Callable[[Sequence[Text]], TokenBatch | Tensor]
Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Inputs:
    """What the encoder sees of b items of a batch of B.

    Attributes:
        positions: (b,) int64, positions of the items in the batch; on the CPU.
        batch_size: B, as it was planned.
        images: uint8 (b, 3, S, S), or float32 (b, W), the pooled features of a locked image tower.
        tokens: Tokens of the texts, or float32 (b, W), the pooled features of a locked text tower; None if
            no texts are used.
        spectrograms: Spectrograms of the sounds; None where none are used.
        glyphs: (b, 6) int64, the digits that are pasted into the images; None: nothing is.
    """

    positions: Tensor
    batch_size: int
    images: Tensor
    tokens: TokenBatch | Tensor | None = None
    spectrograms: SpectrogramBatch | None = None
    glyphs: Tensor | None = None

    def __len__(self) -> int:
        return len(self.positions)

    def rows(self, rows: slice) -> "Inputs":
        """Some neighbouring items, padded as they were."""
        return Inputs(
            self.positions[rows],
            self.batch_size,
            self.images[rows],
            None if self.tokens is None else _rows(self.tokens, rows),
            None if self.spectrograms is None else _rows(self.spectrograms, rows),
            None if self.glyphs is None else self.glyphs[rows],
        )

    def to(self, device: torch.device) -> "Inputs":
        """The same on a device."""
        return replace(
            self,
            images=self.images.to(device, non_blocking=True),
            tokens=None if self.tokens is None else self.tokens.to(device),
            spectrograms=None if self.spectrograms is None else self.spectrograms.to(device),
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """Aligned items of this process: what the encoder sees, and what only the loss needs.

    Attributes:
        inputs: Inputs of b items.
        items: (b,) int64, their rows in the train split; None of another split.
        positive_mask: (b, B), its rows of the mask in `Features`; None in all processes or in none.
        extras: As in `Features`.
    """

    inputs: Inputs
    items: Tensor | None = None
    positive_mask: Tensor | None = None
    extras: Mapping[str, Extra] = field(default_factory=dict)


class BatchLoader:
    """Makes the batch of any position of a run, or one process's equal share of it.

    Args:
        sampler: Draws the whole batches; all processes have the same.
        images: By position among the sampler's records.
        text: Makes what the encoder sees of the drawn texts; None where no texts are used.
        audio: None where no sounds are used.
        extras: What the objective alone needs of the sampler's records and of the drawn texts.
        rows: Where in the split each of the sampler's records is; None: they are the split.
        training: The split is the train split: its rows are items to remember.
        shortcuts: Shortcuts that images and texts share; None: there are none.
        processes: Whose share is loaded.
    """

    def __init__(
        self,
        sampler: PairSampler,
        images: ImageSource,
        text: ReadTexts | None,
        *,
        audio: AudioSource | None = None,
        extras: Extras | None = None,
        rows: Sequence[int] | None = None,
        training: bool = False,
        shortcuts: Shortcuts | None = None,
        processes: Processes | None = None,
    ) -> None:
        self.batches_per_epoch = sampler.batches_per_epoch
        self._sampler = sampler
        self._images = images
        self._text = text
        self._audio = audio
        self._extras = extras or Extras()
        self._rows = np.asarray(range(len(sampler.records)) if rows is None else rows, dtype=np.int64)
        self._training = training
        self.shortcuts = shortcuts
        rank, parts = (0, 1) if processes is None else (processes.rank, processes.count)
        size = sampler.batch_size // parts
        self._share = slice(rank * size, (rank + 1) * size)

    @property
    def image_bytes(self) -> int:
        """Bytes of an image as it is loaded."""
        return self._images.blank(1).nbytes

    @property
    def cache_bytes(self) -> int:
        """Bytes that caches may still take, which fill as batches are loaded."""
        return 0 if self._audio is None else self._audio.cache_bytes

    def load(self, epoch: int, index: int) -> Batch:
        """One batch; without the items of which a streamed file turns out to be broken.

        Of those its mask still has the columns: see `without_missing`.
        """
        pairs = self._sampler.draw(epoch, index, self._share)
        images, kept = self._images.load(pairs.rows)
        spectrograms = None
        if self._audio is not None:
            spectrograms, heard = self._audio.load(self._rows[pairs.rows[kept]])
            images, kept = images[heard], [kept[index] for index in heard]
        rows = self._rows[pairs.rows[kept]]
        texts = [pairs.texts[index] for index in kept] if pairs.texts else []
        turns = None if pairs.turns is None else pairs.turns[kept]
        seen, glyphs = self._with_shortcuts(epoch, rows, texts, turns)
        own_texts = seen if self.shortcuts is not None and self.shortcuts.config.in_targets else texts
        inputs = Inputs(
            positions=torch.tensor(kept, dtype=torch.int64) + self._share.start,
            batch_size=self._sampler.batch_size,
            images=images,
            tokens=None if self._text is None else self._text(seen),
            spectrograms=spectrograms,
            glyphs=glyphs,
        )
        return Batch(
            inputs,
            items=torch.from_numpy(rows) if self._training else None,
            positive_mask=None if pairs.positive_mask is None else pairs.positive_mask[kept],
            extras=self._extras_of(pairs.rows[kept], own_texts),
        )

    def largest(self, items: int) -> Batch:
        """Made items, as many in each process, of the size that the largest of the split have.

        No file is read. All have the longest text, and every other thing that a batch may have.
        """
        longest = self._sampler.longest_text()
        texts = [] if longest is None else [longest] * items
        rows = np.zeros(items, dtype=np.int64)
        seen, glyphs = self._with_shortcuts(0, rows, texts, None)
        parts = self._sampler.batch_size // (self._share.stop - self._share.start)
        first = self._share.start // (self._share.stop - self._share.start) * items
        positions = torch.arange(first, first + items)
        inputs = Inputs(
            positions,
            batch_size=items * parts,
            images=self._images.blank(items),
            tokens=None if self._text is None else self._text(seen),
            spectrograms=None if self._audio is None else self._audio.longest(items),
            glyphs=glyphs,
        )
        return Batch(
            inputs,
            items=torch.from_numpy(np.resize(self._rows, items)) if self._training else None,
            positive_mask=torch.eye(items * parts, dtype=torch.bool)[positions] if texts else None,
            extras=self._extras_of(rows, texts),
        )

    def _extras_of(self, rows: Rows, texts: Sequence[Text]) -> dict[str, Extra]:
        by_row = {name: values[rows] for name, values in self._extras.rows.items()}
        with errors_of_own_code():
            return by_row | {name: make(texts) for name, make in self._extras.texts.items()}

    def _with_shortcuts(
        self, epoch: int, rows: Rows, texts: list[Text], turns: Rows | None
    ) -> tuple[list[Text], Tensor | None]:
        """The texts with their shortcuts, and what is pasted into the images."""
        if self.shortcuts is None:
            return texts, None
        ids = self.shortcuts.ids(epoch, rows, turns)
        captions = self.shortcuts.captions(texts, ids) if texts else []
        return captions, self.shortcuts.glyphs(epoch, rows, ids, turns)

    def from_position(self, position: Position) -> Iterator[Batch]:
        """All batches from a position on, without an end."""
        for index in range(position.index, self.batches_per_epoch):
            yield self.load(position.epoch, index)
        for epoch in count(position.epoch + 1):
            for index in range(self.batches_per_epoch):
                yield self.load(epoch, index)


def without_missing(batch: Batch, processes: Processes) -> Batch:
    """The batch without the items that are missing in any process, as many in each.

    Where one process misses an item, the others leave out their last, because all share the batch evenly.
    """
    inputs = batch.inputs
    if processes.count == 1 and len(inputs) == inputs.batch_size:
        return batch
    here = set(inputs.positions.tolist())
    size = inputs.batch_size // processes.count
    own = range(processes.rank * size, (processes.rank + 1) * size)
    missing = processes.any_rank(
        [position in own and position not in here for position in range(inputs.batch_size)]
    )
    if not any(missing):
        return batch
    present = [
        [position for position in range(rank * size, (rank + 1) * size) if not missing[position]]
        for rank in range(processes.count)
    ]
    common = min(map(len, present))
    columns = [position for share in present for position in share[:common]]
    kept = slice(common)
    return Batch(
        inputs.rows(kept),
        None if batch.items is None else batch.items[kept],
        None if batch.positive_mask is None else batch.positive_mask[kept][:, columns],
        {name: _rows(values, kept) for name, values in batch.extras.items()},
    )


@contextmanager
def prefetched(items: Iterator[Item]) -> Iterator[Iterator[Item]]:
    """The same items, each made in a thread while the one before is used."""
    with ThreadPoolExecutor(1, thread_name_prefix="prefetch") as pool:
        yield _ahead(items, pool)


def _ahead(items: Iterator[Item], pool: ThreadPoolExecutor) -> Iterator[Item]:
    following = pool.submit(next, items, None)
    while (item := following.result()) is not None:
        following = pool.submit(next, items, None)
        yield item


def page_locked(batches: Iterator[Item], device: torch.device) -> Iterator[Item]:
    """Batches for a GPU in page-locked memory, which it copies from while it computes; others as they are."""
    return map(_pinned, batches) if device.type == "cuda" else batches


def whole_text(text: Text) -> str:
    """A text, or the sentences of one joined by spaces."""
    return text if isinstance(text, str) else " ".join(text)


def _rows(batch: Any, rows: slice) -> Any:
    """The same rows of everything that a batch of tokens, features or spectrograms has of each item."""
    if isinstance(batch, Tensor):
        return batch[rows]
    values = {each.name: getattr(batch, each.name) for each in fields(batch)}
    by_item = {name: value for name, value in values.items() if isinstance(value, Tensor | tuple)}
    return replace(batch, **{name: value[rows] for name, value in by_item.items()})


def _pinned(part: Any) -> Any:
    """A batch, or a part of it, with all tensors of the CPU in page-locked memory."""
    if isinstance(part, Tensor):
        return part.pin_memory() if part.device.type == "cpu" else part
    if isinstance(part, Mapping):
        return {name: _pinned(value) for name, value in part.items()}
    if is_dataclass(part) and not isinstance(part, type):
        return replace(part, **{each.name: _pinned(getattr(part, each.name)) for each in fields(part)})
    return part


@dataclass(frozen=True)
class PixelPreparation:
    """Makes normalised pixels of the images of a batch, or of some of them.

    Attributes:
        image: How the model takes images.
        augmentation: Augmentation of training images.
        digits: Pastes the digits of shortcuts; None where there are none.
    """

    image: ImagePreprocessing
    augmentation: Augmentation
    digits: DigitOverlay | None = None

    def __call__(self, inputs: Inputs, step: int | None, *, view: int = 0) -> Tensor:
        """Pixels (b, 3, S, S), changed at random in the way of a step and a view; None: as they are.

        Features (b, W) of a locked tower that stand for the images are returned as they are.
        """
        if inputs.images.ndim == 2:
            return inputs.images
        pixels = self.image.to_unit(inputs.images)
        if step is not None:
            pixels = self.augmentation(pixels, step, inputs.positions, inputs.batch_size, view=view)
        if self.digits is not None and inputs.glyphs is not None:
            pixels = self.digits(pixels, inputs.glyphs)
        return self.image.normalise(pixels)

    def frames(self, inputs: Inputs, step: int | None, *, view: int = 0) -> Tensor:
        """Where points of these pixels come from (b, 2, 3), as in `ModalityFeatures`."""
        if step is None:
            return torch.eye(2, 3, device=inputs.images.device).repeat(len(inputs), 1, 1)
        return self.augmentation.frames(inputs.images, step, inputs.positions, inputs.batch_size, view=view)
