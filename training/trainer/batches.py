"""Batches as the loop takes them: drawn, loaded and tokenised one ahead of the step that runs."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

import torch
from torch import Tensor

from training.data.image_source import ImageSource
from training.data.pairs import PairSampler, Position
from training.models.preprocessing import TextPreprocessing, TokenBatch

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Batch:
    """Aligned images uint8 (B, 3, S, S) and texts; the mask of matching pairs, or None for the diagonal."""

    images: Tensor
    tokens: TokenBatch
    positive_mask: Tensor | None

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device."""
        mask = self.positive_mask
        return Batch(
            self.images.to(device, non_blocking=True),
            self.tokens.to(device),
            None if mask is None else mask.to(device, non_blocking=True),
        )


class BatchLoader:
    """Makes the batch of any position of a run."""

    def __init__(self, sampler: PairSampler, images: ImageSource, text: TextPreprocessing) -> None:
        self.batches_per_epoch = sampler.batches_per_epoch
        self._sampler = sampler
        self._images = images
        self._text = text

    def load(self, epoch: int, index: int) -> Batch:
        """One batch; smaller where a streamed image turns out to be broken."""
        pairs = self._sampler.draw(epoch, index)
        images, kept = self._images.load(pairs.rows)
        texts = [pairs.texts[place] for place in kept]
        mask = pairs.positive_mask
        if mask is not None and len(kept) < len(pairs.texts):
            mask = mask[kept][:, kept]
        return Batch(images, self._text(texts), mask)

    def from_position(self, position: Position) -> Iterator[Batch]:
        """All batches from a position on, without an end."""
        for index in range(position.index, self.batches_per_epoch):
            yield self.load(position.epoch, index)
        for epoch in count(position.epoch + 1):
            for index in range(self.batches_per_epoch):
                yield self.load(epoch, index)


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
