"""The area under the ROC curve, beside a count of all pairs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.evaluation.auc import area_under_roc, mean_ranks


def by_pairs(scores: list[float], positive: list[bool]) -> float | None:
    """How often a positive is above a negative, pair by pair."""
    hits = [score for score, is_hit in zip(scores, positive, strict=True) if is_hit]
    misses = [score for score, is_hit in zip(scores, positive, strict=True) if not is_hit]
    wins = [float(hit > miss) + 0.5 * (hit == miss) for hit in hits for miss in misses]
    return sum(wins) / len(wins) if wins else None


def test_golden_values() -> None:
    scores = np.array([0.1, 0.4, 0.35, 0.8])
    assert area_under_roc(scores, np.array([False, False, True, True])) == 0.75
    assert area_under_roc(scores, np.array([False, True, False, True])) == 1.0
    assert area_under_roc(scores, np.array([True, False, True, False])) == 0.0
    assert area_under_roc(np.zeros(4), np.array([True, False, True, False])) == 0.5


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=20))
def test_equals_the_count_of_all_pairs(items: list[tuple[int, bool]]) -> None:
    scores, positive = [float(score) for score, _ in items], [is_hit for _, is_hit in items]
    found = area_under_roc(np.array(scores, dtype=np.float32), np.array(positive, dtype=np.bool_))
    expected = by_pairs(scores, positive)
    assert (found is None) == (expected is None)
    if expected is not None:
        assert found == pytest.approx(expected, abs=1e-12)


def test_only_the_order_of_scores_matters() -> None:
    generator = np.random.default_rng(0)
    scores, positive = generator.normal(size=50), generator.random(50) < 0.3
    area = area_under_roc(scores, positive)
    assert area is not None
    assert area_under_roc(np.exp(3 * scores), positive) == area
    assert area_under_roc(-scores, positive) == pytest.approx(1 - area)
    assert area_under_roc(scores, ~positive) == pytest.approx(1 - area)


def test_equal_values_share_the_mean_of_their_ranks() -> None:
    assert mean_ranks(np.array([3.0, 1.0, 3.0, 2.0, 3.0])).tolist() == [4.0, 1.0, 4.0, 2.0, 4.0]
