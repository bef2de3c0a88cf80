"""The part of the training images that is kept: by labels alike to the whole."""

import numpy as np
from numpy.typing import NDArray


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
