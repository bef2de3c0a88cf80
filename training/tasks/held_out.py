"""The share of the training examples that a run uses, and a part that only chooses its best checkpoint."""

import math
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import numpy as np

from training.common.errors import DataError
from training.recipes.tasks import ChoosingDataConfig, TaskDataConfig

Item = TypeVar("Item")


def kept_share(items: Sequence[Item], config: TaskDataConfig) -> tuple[Item, ...]:
    """The share of items that a run trains on, in their order; at least one."""
    if config.share == 1:
        return tuple(items)
    number = max(1, math.floor(config.share * len(items)))
    chosen = np.random.default_rng(config.share_seed).permutation(len(items))[:number]
    return tuple(items[place] for place in sorted(chosen.tolist()))


def whole_groups(groups: Sequence[Hashable], number: int, seed: int) -> list[int]:
    """Places of random whole groups, at most `number` of them, rising."""
    places: dict[Hashable, list[int]] = {}
    for place, group in enumerate(groups):
        places.setdefault(group, []).append(place)
    members = list(places.values())
    chosen: list[int] = []
    for index in np.random.default_rng(seed).permutation(len(members)):
        if len(chosen) + len(members[index]) <= number:
            chosen += members[index]
    return sorted(chosen)


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
    places = whole_groups([group_of(item) for item in items], number, config.share_seed)
    chosen = set(places)
    rest = [item for place, item in enumerate(items) if place not in chosen]
    if not places or not rest:
        raise DataError(
            f"Of {len(items):,} training examples none can be held out to choose the best checkpoint: give "
            "more, or set data.validation_share to another share."
        )
    return kept_share(rest, config), tuple(items[place] for place in places)
