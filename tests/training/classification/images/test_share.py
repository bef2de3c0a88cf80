"""The share of training images: each label has its part of it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from training.classification.images.training_images import stratified_share


def drawn_labels(count: int, rates: tuple[float, ...], seed: int = 0) -> NDArray[np.bool_]:
    generator = np.random.default_rng(seed)
    found: NDArray[np.bool_] = generator.random((count, len(rates))) < np.array(rates)
    return found


@pytest.mark.parametrize("share", [0.1, 0.5])
@pytest.mark.parametrize("seed", [0, 1])
def test_each_label_has_its_share(share: float, seed: int) -> None:
    positive = drawn_labels(2000, (0.5, 0.2, 0.05, 0.01))
    rows = stratified_share(positive, share, seed)
    assert rows == sorted(set(rows))
    assert len(rows) == pytest.approx(share * 2000, abs=2)
    for label, wanted in enumerate(share * positive.sum(axis=0)):
        assert positive[rows, label].sum() == pytest.approx(wanted, abs=1.01)


def test_a_draw_at_random_misses_more() -> None:
    positive = drawn_labels(2000, (0.02, 0.03))
    off = [
        np.abs(positive[stratified_share(positive, 0.1, seed)].sum(axis=0) - 0.1 * positive.sum(axis=0))
        for seed in range(5)
    ]
    at_random = [
        np.abs(
            positive[np.random.default_rng(seed).permutation(2000)[:200]].sum(axis=0)
            - 0.1 * positive.sum(axis=0)
        )
        for seed in range(5)
    ]
    assert np.mean(off) < 0.5 * np.mean(at_random)


def test_a_draw_belongs_to_its_seed() -> None:
    positive = drawn_labels(100, (0.5, 0.1))
    first = stratified_share(positive, 0.2, 0)
    assert first == stratified_share(positive, 0.2, 0)
    assert first != stratified_share(positive, 0.2, 1)
    assert stratified_share(positive, 1.0, 0) == list(range(100))


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 12), st.integers(0, 3), st.floats(0.001, 1.0), st.integers(0, 3))
def test_there_is_always_an_image(count: int, labels: int, share: float, seed: int) -> None:
    rows = stratified_share(drawn_labels(count, (0.4,) * labels, seed), share, seed)
    assert rows
    assert set(rows) <= set(range(count))
