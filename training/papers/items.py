"""Training examples of a task: those that choose its checkpoint, and batches from any position of a run."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from itertools import count
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from training.classification.data import whole_groups
from training.common.errors import DataError
from training.data.pairs import Position
from training.recipes.tasks import ChoosingDataConfig, TaskDataConfig
from training.trainer.run_state.processes import Processes

Item = TypeVar("Item")
Drawn = TypeVar("Drawn")
Indices = NDArray[np.int64]


def kept_share(items: Sequence[Item], config: TaskDataConfig) -> tuple[Item, ...]:
    """The share of items that a run trains on, in their order; at least one."""
    if config.share == 1:
        return tuple(items)
    number = max(1, math.floor(config.share * len(items)))
    chosen = np.random.default_rng(config.share_seed).permutation(len(items))[:number]
    return tuple(items[index] for index in sorted(chosen.tolist()))


def train_and_validation(
    items: Sequence[Item], group_of: Callable[[Item], Hashable], config: ChoosingDataConfig
) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
    """The items that a run trains on, and those that choose its checkpoint, in their order.

    Args:
        items: The train split.
        group_of: What items share that must not be on both sides.
        config: The share that chooses, and the share of the rest that is trained on.

    Raises:
        DataError: Either would be empty.
    """
    number = math.floor(config.validation_share * len(items))
    indices = whole_groups([group_of(item) for item in items], number, config.share_seed)
    chosen = set(indices)
    rest = [item for index, item in enumerate(items) if index not in chosen]
    if not indices or not rest:
        raise DataError(
            f"Of {len(items):,} training examples none can be held out to choose the best checkpoint: give "
            "more, or set data.validation_share to another share."
        )
    return kept_share(rest, config), tuple(items[index] for index in indices)


@dataclass
class ItemLoader(ABC, Generic[Item, Drawn]):
    """Batches of items; the last one of an epoch holds what is left.

    Attributes:
        items: Items to draw from.
        batch_size: Items of a batch, over all processes together.
        seed: Seed of the order, which differs in every epoch.
        processes: Whose share of each batch is drawn.
    """

    items: Sequence[Item]
    batch_size: int
    seed: int = 0
    processes: Processes = field(default_factory=Processes)

    @property
    def batches_per_epoch(self) -> int:
        """Number of batches in which every item is drawn once."""
        return -(-len(self.items) // self.batch_size)

    def __len__(self) -> int:
        """Number of items."""
        return len(self.items)

    @abstractmethod
    def batch(self, indices: Sequence[int]) -> Drawn:
        """Return the batch of the items at these indices."""

    @abstractmethod
    def length(self, index: int) -> int:
        """How long the text of the item at an index is, in a unit that is the same for all."""

    def largest(self) -> Drawn:
        """The longest items, as many as a process ever has of a batch: no batch is larger.

        The first ones are at least as long as the mean, and what follows them is no longer than they are on
        average: from a few first ones, what all take can be told without saying too little.
        """
        return self.batch(self._longest())

    def _longest(self) -> list[int]:
        whole, processes = min(len(self), self.batch_size), self.processes.count
        share = whole if whole < processes else -(-whole // processes)
        lengths = {index: self.length(index) for index in range(len(self))}
        longest = nlargest(share, lengths, key=lengths.__getitem__)
        mean = sum(lengths[index] for index in longest) / share
        above = [index for index in longest if lengths[index] >= mean]
        return [*reversed(above), *longest[len(above) :]]

    def from_position(self, position: Position) -> Iterator[Drawn]:
        """All batches from a position on in random order, without an end."""
        for epoch in count(position.epoch):
            order = np.random.default_rng((self.seed, epoch)).permutation(len(self))
            first = position.index if epoch == position.epoch else 0
            for index in range(first, self.batches_per_epoch):
                whole = order[index * self.batch_size : (index + 1) * self.batch_size]
                yield self.batch(_share(whole, self.processes).tolist())

    @property
    def smallest_share(self) -> int:
        """Fewest items that a process has of a batch."""
        last = len(self) % self.batch_size or self.batch_size
        return min(size // self.processes.count or size for size in (last, self.batch_size))

    def in_order(self) -> Iterator[Drawn]:
        """Every item once, all in each process."""
        for start in range(0, len(self), self.batch_size):
            yield self.batch(range(start, min(start + self.batch_size, len(self))))


def _share(indices: Indices, processes: Processes) -> Indices:
    """Neighbouring items, one more or less than other processes have; all, of fewer items than processes."""
    if len(indices) < processes.count:
        return indices
    return np.array_split(indices, processes.count)[processes.rank]
