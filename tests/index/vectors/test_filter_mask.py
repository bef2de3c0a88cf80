"""Masks of rows: right for keys of every kind, and kept for as many filters as a user has."""

import numpy as np
import pytest

from index.vectors.protocol import Keys
from index.vectors.rows import IdMap, filter_mask
from index.vectors.view import CosineView

_COUNT = 5_000


@pytest.mark.parametrize("step", [1, 7], ids=["dense", "sparse"])
@pytest.mark.parametrize("asked", [50, 3_000], ids=["few", "many"])
def test_a_mask_has_the_living_rows_of_its_keys(step: int, asked: int) -> None:
    random = np.random.default_rng(asked)
    ids = IdMap(step * random.permutation(_COUNT) + 1_000)
    ids.drop(ids.keys[::11])
    wider = np.arange(0, step * _COUNT + 3_000)
    allowed: Keys = np.sort(random.choice(wider, asked, replace=False))
    made = filter_mask(allowed, ids)
    expected = np.isin(ids.keys, allowed) & ids.alive
    assert np.array_equal(made.mask, expected)
    assert made.count == np.count_nonzero(expected)
    assert np.array_equal(made.rows, np.flatnonzero(expected))


def test_masks_of_fifty_filters_of_half_of_all_are_kept() -> None:
    count = 400_000
    view, keys = CosineView(2), np.arange(count)
    view.add(keys, np.zeros((count, 2), dtype=np.float32))
    filters = [keys[start : start + count // 2] for start in range(50)]
    made = [view._passing(allowed) for allowed in filters]
    assert all(view._passing(allowed) is mask for allowed, mask in zip(filters, made, strict=True))
