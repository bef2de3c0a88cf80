"""Measures against values worked out by hand and slow loops."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.classification.texts.tasks import GLUE, accuracy, f1, matthews, measure, pearson, spearman

PREDICTED = np.array([1, 1, 0, 1, 0, 0, 1, 0])
ACTUAL = np.array([1, 0, 0, 1, 1, 0, 1, 0])  # 3 hits, 1 false alarm, 1 miss, 3 right refusals

values = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=12)
binary = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=12)


def test_golden_values() -> None:
    assert accuracy(PREDICTED, ACTUAL) == 0.75
    assert f1(PREDICTED, ACTUAL) == pytest.approx(0.75)
    assert matthews(PREDICTED, ACTUAL) == pytest.approx((3 * 3 - 1 * 1) / math.sqrt(4 * 4 * 4 * 4))
    left, right = np.array([1.0, 2, 3, 4]), np.array([2.0, 1, 4, 3])
    assert pearson(left, right) == pytest.approx(0.6)
    assert spearman(left, right**3) == pytest.approx(0.6)
    assert spearman(np.array([1.0, 2, 2, 3]), np.array([1.0, 2, 3, 4])) == pytest.approx(0.9486832980505138)


@settings(deadline=None)
@given(binary)
def test_labels_against_counts(pairs: list[tuple[bool, bool]]) -> None:
    predicted, actual = (np.array(column).astype(np.int64) for column in zip(*pairs, strict=True))
    hits = sum(p and a for p, a in pairs)
    alarms = sum(p and not a for p, a in pairs)
    misses = sum(a and not p for p, a in pairs)
    rest = len(pairs) - hits - alarms - misses
    assert f1(predicted, actual) == pytest.approx(2 * hits / max(1, 2 * hits + alarms + misses))
    product = (hits + alarms) * (hits + misses) * (rest + alarms) * (rest + misses)
    expected = (hits * rest - alarms * misses) / math.sqrt(product) if product else 0.0
    assert matthews(predicted, actual) == pytest.approx(expected)


@settings(deadline=None)
@given(values)
def test_correlations_against_loops(pairs: list[tuple[int, int]]) -> None:
    left, right = (np.array(column, dtype=np.float64) for column in zip(*pairs, strict=True))

    def ranks(numbers: list[float]) -> list[float]:
        return [
            sum(other < number for other in numbers) + (sum(other == number for other in numbers) + 1) / 2
            for number in numbers
        ]

    def slow(a: list[float], b: list[float]) -> float:
        mean_a, mean_b = sum(a) / len(a), sum(b) / len(b)
        covariance = sum((x - mean_a) * (y - mean_b) for x, y in zip(a, b, strict=True))
        spread = math.sqrt(sum((x - mean_a) ** 2 for x in a) * sum((y - mean_b) ** 2 for y in b))
        return covariance / spread if spread > 1e-12 else 0.0

    assert pearson(left, right) == pytest.approx(slow(left.tolist(), right.tolist()), abs=1e-9)
    expected = slow(ranks(left.tolist()), ranks(right.tolist()))
    assert spearman(left, right) == pytest.approx(expected, abs=1e-9)


def test_nothing_that_varies_gives_zero_and_no_warning() -> None:
    same, other = np.ones(3), np.array([1.0, 2, 3])
    with np.errstate(all="raise"):
        assert pearson(same, other) == pearson(other, same) == spearman(same, same) == 0.0
        assert matthews(np.ones(3, dtype=np.int64), np.array([0, 1, 1])) == 0.0
        assert f1(np.zeros(3, dtype=np.int64), np.zeros(3, dtype=np.int64)) == 0.0


def test_correlation_of_tiny_and_huge_numbers() -> None:
    numbers = np.array([1.0, 2, 4])
    with np.errstate(all="raise", under="ignore"):
        assert pearson(numbers * 1e-180, numbers * 1e180) == pytest.approx(1.0)


def test_every_task_has_its_measures() -> None:
    logits = np.array([[2.0, 1.0], [0.0, 3.0]])
    assert measure(GLUE["mrpc"], logits, np.array([0.0, 1.0])) == {"f1": 1.0, "accuracy": 1.0}
    assert measure(GLUE["cola"], logits, np.array([1.0, 0.0])) == {
        "matthews": pytest.approx(-1),
        "accuracy": 0,
    }
    scores = np.array([[0.1], [0.4], [0.3]])
    found = measure(GLUE["sts-b"], scores, np.array([0.0, 5.0, 4.0]))
    assert found["spearman"] == pytest.approx(1.0)
    assert 0.9 < found["pearson"] < 1


def test_the_first_measure_chooses() -> None:
    assert GLUE["mrpc"].chosen_by == "f1"
    assert GLUE["mnli"].chosen_by == "accuracy"
