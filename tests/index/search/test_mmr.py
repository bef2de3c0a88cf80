"""Maximal marginal relevance beside a slow reference."""

import numpy as np
import pytest
from numpy.typing import NDArray

from index.search.orders import diversify
from index.vectors.protocol import Keys, Vectors
from tests.index.samples import unit_vectors

DIM = 8


def _reference(
    keys: Keys, scores: NDArray[np.float32], vectors: Vectors, diversity: float, count: int
) -> list[int]:
    """The definition, candidate by candidate."""
    chosen: list[int] = []
    while len(chosen) < min(count, len(keys)):
        worth = []
        for place in range(len(keys)):
            if place in chosen:
                continue
            alike = max((float(vectors[place] @ vectors[other]) for other in chosen), default=0.0)
            gain = scores[place] if not chosen else (1 - diversity) * scores[place] - diversity * alike
            worth.append((-float(gain), int(keys[place]), place))
        chosen.append(min(worth)[2])
    return chosen


def _candidates(count: int, seed: int) -> tuple[Keys, NDArray[np.float32], Vectors]:
    vectors = unit_vectors(count, DIM, seed)
    keys = np.random.default_rng(seed).permutation(10 * count)[:count].astype(np.int64)
    return keys, (vectors @ unit_vectors(1, DIM, seed + 1)[0]).astype(np.float32), vectors


@pytest.mark.parametrize("diversity", [0.0, 0.2, 0.7, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_choice_equals_the_reference(diversity: float, seed: int) -> None:
    keys, scores, vectors = _candidates(40, seed)
    found = diversify(keys, scores, vectors, diversity=diversity, count=25)
    assert found.tolist() == _reference(keys, scores, vectors, diversity, 25)


def test_a_copy_of_the_best_waits_behind_what_is_different() -> None:
    vectors = np.eye(3, dtype=np.float32)[[0, 0, 1]]
    scores = np.array([0.9, 0.9, 0.5], dtype=np.float32)
    keys = np.array([5, 4, 6], dtype=np.int64)
    assert diversify(keys, scores, vectors, diversity=0.5, count=3).tolist() == [1, 2, 0]


def test_more_than_there_is_gives_all_and_nothing_gives_nothing() -> None:
    keys, scores, vectors = _candidates(5, 1)
    assert sorted(diversify(keys, scores, vectors, diversity=0.3, count=9).tolist()) == list(range(5))
    assert len(diversify(keys[:0], scores[:0], vectors[:0], diversity=0.3, count=9)) == 0
