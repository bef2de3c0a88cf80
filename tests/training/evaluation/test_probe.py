import numpy as np
import pytest
from numpy.typing import NDArray

from training.evaluation.factors import LinearProbe
from training.evaluation.similarity import similarity

Codes = NDArray[np.int64]


def separable(
    items: int, classes: int, *, strength: float, seed: int = 0
) -> tuple[NDArray[np.float64], Codes]:
    """Random vectors of length one with a direction added for each class."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(classes, size=items)
    vectors = rng.normal(size=(items, 24)) + strength * np.eye(classes, 24)[codes]
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), codes


def accuracy(vectors: NDArray[np.float64], codes: Codes, classes: int) -> float:
    found = LinearProbe(vectors @ vectors.T, [None] * len(codes)).balanced_accuracy(codes, classes)
    assert found is not None
    return found


@pytest.mark.parametrize("classes", [2, 4, 8])
def test_what_is_in_the_vectors_is_read(classes: int) -> None:
    vectors, codes = separable(240, classes, strength=12.0)
    assert accuracy(vectors, codes, classes) > 0.95


@pytest.mark.slow
@pytest.mark.parametrize("classes", [2, 4])
def test_what_is_not_there_is_read_at_chance(classes: int) -> None:
    found = [
        accuracy(*separable(240, classes, strength=0.0, seed=seed), classes=classes) for seed in range(8)
    ]
    assert np.mean(found) == pytest.approx(1 / classes, abs=0.04)


@pytest.mark.slow
def test_more_of_it_is_read_better() -> None:
    found = [accuracy(*separable(200, 3, strength=strength), classes=3) for strength in (0.0, 1.5, 3.0, 9.0)]
    assert found == sorted(found)
    assert found[-1] > found[0] + 0.4


def test_a_small_share_of_the_variance_is_enough() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(2, size=200)
    vectors = np.concatenate([rng.normal(size=(200, 6)), 0.05 * (2.0 * codes[:, None] - 1)], axis=1)
    assert accuracy(vectors, codes, 2) > 0.95


@pytest.mark.slow
def test_a_rare_class_counts_as_much_as_a_common_one() -> None:
    rng = np.random.default_rng(0)
    codes = (np.arange(400) % 10 == 0).astype(np.int64)
    nothing = rng.normal(size=(400, 8))
    # Always answering with the common class would be right in nine of ten.
    assert accuracy(nothing, codes, 2) == pytest.approx(0.5, abs=0.1)
    assert accuracy(nothing + 6.0 * codes[:, None], codes, 2) > 0.95


def test_scale_and_place_of_the_vectors_do_not_matter() -> None:
    vectors, codes = separable(120, 3, strength=2.0)
    expected = accuracy(vectors, codes, 3)
    assert accuracy(100.0 * vectors, codes, 3) == expected
    assert accuracy(vectors + 3.0, codes, 3) == pytest.approx(expected, abs=0.02)


def test_the_order_of_the_classes_does_not_matter() -> None:
    vectors, codes = separable(150, 3, strength=2.0)
    assert accuracy(vectors, 2 - codes, 3) == pytest.approx(accuracy(vectors, codes, 3), abs=1e-12)


def test_no_group_is_both_fitted_to_and_held_out() -> None:
    # Each group of three has its own direction and one class: only memory of the group could tell it.
    rng = np.random.default_rng(0)
    vectors = np.repeat(np.eye(60), 3, axis=0) + 0.01 * rng.normal(size=(180, 60))
    codes = np.repeat(rng.integers(2, size=60), 3)
    kernel = vectors @ vectors.T
    grouped = LinearProbe(kernel, [f"g{row // 3}" for row in range(180)]).balanced_accuracy(codes, 2)
    alone = LinearProbe(kernel, [None] * 180).balanced_accuracy(codes, 2)
    assert alone is not None
    assert grouped is not None
    assert alone > 0.85
    assert grouped < 0.65


def test_unknown_items_change_little() -> None:
    vectors, codes = separable(300, 3, strength=6.0)
    codes[::3] = -1
    assert accuracy(vectors, codes, 3) > 0.9


def test_blades_are_read_by_their_own_similarity() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(3, size=150)
    planes = np.stack([np.eye(3, 8)[codes], np.eye(3, 8, k=4)[codes]], axis=1)
    columns, triangle = np.linalg.qr((planes + 0.15 * rng.normal(size=planes.shape)).transpose(0, 2, 1))
    columns[..., 0] *= np.sign(np.linalg.det(triangle))[:, None]
    bases = columns.transpose(0, 2, 1).astype(np.float32)
    kernel = similarity(bases, bases).astype(np.float64)
    found = LinearProbe(kernel, [None] * 150).balanced_accuracy(codes, 3)
    assert found is not None
    assert found > 0.95


@pytest.mark.parametrize("items", [1, 2, 3])
def test_too_few_items_are_no_measurement(items: int) -> None:
    probe = LinearProbe(np.eye(items), [None] * items)
    assert probe.balanced_accuracy(np.arange(items) % 2, 2) is None


def test_a_class_of_one_group_is_no_measurement() -> None:
    vectors, _ = separable(20, 2, strength=1.0)
    codes = (np.arange(20) < 4).astype(np.int64)
    groups = ["one" if code else None for code in codes]
    assert LinearProbe(vectors @ vectors.T, groups).balanced_accuracy(codes, 2) is None
    assert LinearProbe(vectors @ vectors.T, ["one"] * 20).balanced_accuracy(codes, 2) is None
    assert LinearProbe(np.zeros((0, 0)), []).balanced_accuracy(codes[:0], 2) is None


def test_vectors_that_are_all_the_same_are_read_at_chance() -> None:
    codes = np.arange(60) % 3
    assert accuracy(np.ones((60, 4)), codes, 3) == pytest.approx(1 / 3, abs=0.15)
