import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from training.evaluation.retrieval import Items, recall_between

Vectors = NDArray[np.float32]


def unit(rows: list[list[float]]) -> Vectors:
    vectors = np.array(rows, dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def test_a_small_case_by_hand() -> None:
    images = Items("image", unit([[1, 0], [0, 1], [1, 1]]), [[0], [1], [2]])
    # The first sound and the third image are nearest to each other; they do not belong together.
    sounds = Items("audio", unit([[1, 0.9], [0, 1], [1, 1.2]]), [[0], [1], [2]])
    found = recall_between(images, sounds, ks=(1, 2, 3))
    assert found is not None
    to_audio, to_image = found
    assert (to_audio.query, to_audio.candidate, to_audio.name) == ("image", "audio", "image to audio")
    # Image 0: sounds by cosine 0, 2, 1. Image 1: 1, 2, 0. Image 2: 0 (.9986), 2 (.9959), 1.
    assert to_audio.recall == pytest.approx({1: 200 / 3, 2: 100, 3: 100})
    # Sound 0: images 2, 0, 1. Sound 1: 1, 2, 0. Sound 2: 2, 1, 0.
    assert to_image.recall == pytest.approx({1: 200 / 3, 2: 100, 3: 100})
    assert (to_image.queries, to_image.candidates, to_image.median_rank) == (3, 3, 1)


def test_a_sound_of_two_images_finds_either_and_both_find_it() -> None:
    images = Items("image", unit([[1, 0], [0, 1], [-1, 0]]), [[0], [1], [2]])
    sounds = Items("audio", unit([[0.1, 1], [-1, 0.2]]), [[0, 1], [2]])
    found = recall_between(images, sounds, ks=(1,))
    assert found is not None
    assert found[0].recall == {1: 100}
    assert found[1].recall == {1: 100}


def test_rows_without_a_match_take_no_part() -> None:
    images = Items("image", unit([[1, 0], [0.9, 0.1]]), [[0], [1]])
    sounds = Items("audio", unit([[1, 0]]), [[1]])
    found = recall_between(images, sounds, ks=(1,))
    assert found is not None
    assert [(search.queries, search.candidates, search.recall) for search in found] == [(1, 1, {1: 100})] * 2
    assert recall_between(images, Items("audio", unit([[1, 0]]), [[7]])) is None


def test_a_collapsed_encoder_finds_nothing() -> None:
    same = unit([[1, 0]] * 5)
    owners = [[row] for row in range(5)]
    found = recall_between(Items("text", same, owners), Items("audio", same, owners), ks=(1, 4, 5))
    assert found is not None
    assert found[0].recall == {1: 0, 4: 0, 5: 100}


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.sets(st.integers(0, 4), max_size=3), min_size=1, max_size=6),
    st.lists(st.sets(st.integers(0, 4), max_size=3), min_size=1, max_size=6),
)
def test_equals_a_slow_count(seed: int, first: list[set[int]], second: list[set[int]]) -> None:
    rng = np.random.default_rng(seed)
    a, b = (unit(rng.normal(size=(len(owners), 3)).tolist()) for owners in (first, second))
    found = recall_between(Items("image", a, first), Items("audio", b, second), ks=(1, 2))
    rows = [row for row, owners in enumerate(first) if any(owners & other for other in second)]
    columns = [column for column, owners in enumerate(second) if any(owners & other for other in first)]
    if not rows:
        assert found is None
        return
    assert found is not None
    for k in (1, 2):
        hits = []
        for row in rows:
            ranked = sorted(columns, key=lambda column: -float(a[row] @ b[column]))
            hits.append(any(first[row] & second[column] for column in ranked[:k]))
        assert found[0].recall[k] == pytest.approx(100 * np.mean(hits))
