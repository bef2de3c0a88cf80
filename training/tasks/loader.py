"""Batches of numbered items from any position of a run."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Generic, TypeVar

import numpy as np

from training.data.pairs import Position

Drawn = TypeVar("Drawn")


class ItemLoader(ABC, Generic[Drawn]):
    """Batches of items; the last one of an epoch holds what is left.

    Args:
        items: Number of items.
        batch_size: Items of a batch.
        seed: Seed of the order, which differs in every epoch.
    """

    def __init__(self, items: int, batch_size: int, seed: int = 0) -> None:
        self.batches_per_epoch = -(-items // batch_size)
        self._items = items
        self._batch_size = batch_size
        self._seed = seed

    def __len__(self) -> int:
        """Number of items."""
        return self._items

    @abstractmethod
    def batch(self, places: Sequence[int]) -> Drawn:
        """The batch of the items at these places."""

    def from_position(self, position: Position) -> Iterator[Drawn]:
        """All batches from a position on in random order, without an end."""
        for epoch in count(position.epoch):
            order = np.random.default_rng((self._seed, epoch)).permutation(self._items)
            first = position.index if epoch == position.epoch else 0
            for index in range(first, self.batches_per_epoch):
                yield self.batch(order[index * self._batch_size : (index + 1) * self._batch_size].tolist())

    def in_order(self) -> Iterator[Drawn]:
        """Every item once."""
        for start in range(0, self._items, self._batch_size):
            yield self.batch(range(start, min(start + self._batch_size, self._items)))
