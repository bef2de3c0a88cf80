"""Random fraction of the training examples that a run uses."""

import math
from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from training.recipes.tasks import TaskDataConfig

Item = TypeVar("Item")


def kept_share(items: Sequence[Item], config: TaskDataConfig) -> tuple[Item, ...]:
    """The share of items that a run trains on, in their order; at least one."""
    if config.share == 1:
        return tuple(items)
    number = max(1, math.floor(config.share * len(items)))
    chosen = np.random.default_rng(config.share_seed).permutation(len(items))[:number]
    return tuple(items[place] for place in sorted(chosen.tolist()))
