"""The retrieval metrics against slow references that sort every list, and against cases counted by hand."""

from collections.abc import Hashable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from training.evaluation import retrieval
from training.evaluation.retrieval import (
    LabelledVectors,
    caption_retrieval,
    label_precision,
    overlap,
    pair_retrieval,
)

Vectors = NDArray[np.float32]


def unit(rows: Sequence[Sequence[float]]) -> Vectors:
    vectors: Vectors = np.array(rows, dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def slow_order(scores: Sequence[float], hits: Sequence[bool]) -> list[bool]:
    """Whether each place of the ranking is a hit; of equal scores those that are none come first."""
    return [hit for _, hit in sorted(zip(scores, hits, strict=True), key=lambda one: (-one[0], one[1]))]


@st.composite
def coarse_vectors(draw: st.DrawFn, rows: int, width: int = 3) -> Vectors:
    """Vectors of few small whole numbers, so that scores are exact and ties are common."""
    numbers = st.lists(st.integers(-2, 2), min_size=width, max_size=width)
    return np.array(draw(st.lists(numbers, min_size=rows, max_size=rows)), dtype=np.float32)


@st.composite
def caption_cases(draw: st.DrawFn) -> tuple[Vectors, Vectors, list[list[int]]]:
    images, texts = draw(st.integers(1, 7)), draw(st.integers(1, 12))
    matches = draw(
        st.lists(
            st.lists(st.integers(0, images - 1), max_size=3, unique=True), min_size=texts, max_size=texts
        ).filter(any)
    )
    return draw(coarse_vectors(images)), draw(coarse_vectors(texts)), matches


@settings(deadline=None, max_examples=150)
@given(case=caption_cases(), ks=st.sampled_from([(1,), (1, 5, 10), (2, 3)]))
def test_caption_recall_equals_the_sorted_lists(
    case: tuple[Vectors, Vectors, list[list[int]]], ks: tuple[int, ...]
) -> None:
    images, texts, matches = case
    scores = texts @ images.T
    by_text = [
        slow_order(list(scores[text]), [image in matches[text] for image in range(len(images))])
        for text in range(len(texts))
    ]
    by_image = [
        slow_order(list(scores[:, image]), [image in matches[text] for text in range(len(texts))])
        for image in range(len(images))
    ]
    measured = caption_retrieval(images, texts, matches, ks)
    rsum = 0.0
    for rankings, recall in ((by_text, measured.image_recall), (by_image, measured.text_recall)):
        with_match = [ranking for ranking in rankings if any(ranking)]
        for k in ks:
            expected = 100 * sum(any(ranking[:k]) for ranking in with_match) / len(with_match)
            assert recall[k] == pytest.approx(expected)
            rsum += expected
    assert measured.rsum == pytest.approx(rsum)
    assert pair_retrieval(scores.T, matches, ks) == measured


def test_small_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    images, texts = np.split(rng.normal(size=(84, 8)).astype(np.float32), [23])
    matches = [[int(image)] for image in rng.integers(0, 23, size=61)]
    labelled = LabelledVectors(
        texts, [(str(row[0] % 4),) for row in matches], ids=[str(i) for i in range(61)]
    )
    whole = caption_retrieval(images, texts, matches), label_precision(labelled, labelled)
    monkeypatch.setattr(retrieval, "_SCORES_PER_CHUNK", 50)
    assert (caption_retrieval(images, texts, matches), label_precision(labelled, labelled)) == whole


def test_captions_counted_by_hand() -> None:
    images = unit([[1, 0], [0, 1], [-1, 0]])
    texts = unit([[1, 0.1], [0.1, 1], [0, 1], [0.1, 1.2], [-1, 0.5], [1, 0.2]])
    # The second caption of image 0 is nearer to image 1, the second of image 2 nearer to image 0.
    matches = [[0], [0], [1], [1], [2], [2]]
    measured = caption_retrieval(images, texts, matches, ks=(1, 2, 3))
    assert measured.image_recall == pytest.approx({1: 400 / 6, 2: 500 / 6, 3: 100})
    assert measured.text_recall == pytest.approx({1: 100, 2: 100, 3: 100})
    assert measured.image_median_rank == 1
    assert (measured.texts, measured.images) == (6, 3)


def test_a_sentence_of_several_images_matches_each() -> None:
    images = unit([[1, 0], [0.9, 0.1], [0, 1]])
    texts = unit([[1, 0], [1, 0], [0, 1]])
    alone = caption_retrieval(images, texts, [[0], [1], [2]], ks=(1,))
    shared = caption_retrieval(images, texts, [[0, 1], [0, 1], [2]], ks=(1,))
    assert alone.image_recall[1] == pytest.approx(200 / 3)
    assert shared.image_recall[1] == shared.text_recall[1] == 100


def test_a_collapsed_encoder_finds_nothing() -> None:
    same = np.full((20, 4), 0.5, dtype=np.float32)
    measured = caption_retrieval(same, same, [[row] for row in range(20)])
    assert measured.rsum == 0
    assert measured.image_median_rank == 20
    labelled = LabelledVectors(same, [("even" if row % 2 else "odd",) for row in range(20)])
    assert label_precision(labelled, labelled, ks=(5,)).precision == {5: 0}


def test_vectors_that_are_no_numbers_find_nothing() -> None:
    broken = np.full((8, 4), np.nan, dtype=np.float32)
    assert caption_retrieval(broken, broken, [[row] for row in range(8)], ks=(1, 5)).rsum == 0
    labelled = LabelledVectors(broken, [("even" if row % 2 else "odd",) for row in range(8)])
    assert label_precision(labelled, labelled, ks=(3,)).precision == {3: 0}


def test_random_vectors_are_at_chance() -> None:
    rng = np.random.default_rng(1)
    images, texts = (
        rng.normal(size=(200, 16)).astype(np.float32),
        rng.normal(size=(1000, 16)).astype(np.float32),
    )
    measured = caption_retrieval(images, texts, [[row // 5] for row in range(1000)])
    assert measured.image_recall[10] == pytest.approx(5, abs=2.5)
    # At least one of five captions among ten of a thousand.
    assert measured.text_recall[10] == pytest.approx(4.9, abs=4)
    labels = [(str(row % 8),) for row in range(1000)]
    by_label = label_precision(LabelledVectors(texts, labels), LabelledVectors(texts[::-1], labels[::-1]))
    assert by_label.chance == pytest.approx(12.5)


def test_captions_that_do_not_fit_are_refused() -> None:
    vectors = unit([[1, 0], [0, 1]])
    with pytest.raises(ValueError, match="2 texts, but matches for 1"):
        caption_retrieval(vectors, vectors, [[0]])
    with pytest.raises(ValueError, match="no text belongs"):
        caption_retrieval(vectors, vectors, [[], []])
    with pytest.raises(ValueError, match="2 texts, but matches for 1"):
        pair_retrieval(vectors, [[0]])
    with pytest.raises(ValueError, match="no text belongs"):
        pair_retrieval(vectors, [[], []])


@st.composite
def label_cases(draw: st.DrawFn) -> tuple[LabelledVectors, LabelledVectors]:
    names = st.lists(st.sampled_from("abc"), max_size=2, unique=True)
    groups = st.sampled_from(["g", "h", None])

    def side(low: int) -> LabelledVectors:
        rows = draw(st.integers(low, 9))
        return LabelledVectors(
            vectors=draw(coarse_vectors(rows)),
            labels=draw(st.lists(names, min_size=rows, max_size=rows)),
            ids=[str(row) for row in draw(st.lists(st.integers(0, 12), min_size=rows, max_size=rows))],
            groups=draw(st.lists(groups, min_size=rows, max_size=rows)),
        )

    return side(1), side(1)


def slow_precision(
    queries: LabelledVectors, candidates: LabelledVectors, k: int
) -> tuple[list[float], int, list[float]]:
    """Precision of each query with k candidates, how many have fewer, and each query's share of matches."""
    measured, short, shares = [], 0, []
    for query, labels in enumerate(queries.labels):
        allowed = [
            row
            for row in range(len(candidates.labels))
            if queries.ids[query] != candidates.ids[row]
            and (queries.groups[query] is None or queries.groups[query] != candidates.groups[row])
        ]
        if not labels or not allowed:
            continue
        hits = [bool(set(labels) & set(candidates.labels[row])) for row in allowed]
        shares.append(sum(hits) / len(hits))
        if len(allowed) < k:
            short += 1
            continue
        scores = [float(queries.vectors[query] @ candidates.vectors[row]) for row in allowed]
        measured.append(sum(slow_order(scores, hits)[:k]) / k)
    return measured, short, shares


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(case=label_cases())
def test_label_precision_equals_the_sorted_lists(case: tuple[LabelledVectors, LabelledVectors]) -> None:
    queries, candidates = case
    expected = {k: slow_precision(queries, candidates, k) for k in (1, 3, 5)}
    if not expected[1][2]:
        with pytest.raises(ValueError, match="no query"):
            label_precision(queries, candidates, ks=(1, 3, 5))
        return
    measured = label_precision(queries, candidates, ks=(1, 3, 5))
    for k, (precisions, short, shares) in expected.items():
        assert measured.short[k] == short
        assert measured.queries == len(shares)
        assert measured.chance == pytest.approx(100 * np.mean(shares))
        if precisions:
            assert measured.precision[k] == pytest.approx(100 * np.mean(precisions))
            assert (measured.precision[k] or 0) <= (measured.ceiling[k] or 0) + 1e-9
        else:
            assert measured.precision[k] is measured.ceiling[k] is None


def test_labels_counted_by_hand() -> None:
    images = LabelledVectors(
        vectors=unit([[1, 0], [1, 0.1], [1, 0.2], [0, 1], [0.1, 1], [1, 0.04]]),
        labels=[("a",), ("a", "b"), ("a",), ("b",), ("b",), ("b",)],
        ids=list("uvwxyz"),
        groups=["p", None, "p", "q", "r", None],
    )
    measured = label_precision(images, images, ks=(1, 2))
    # Nearest two (u may not find w of its own patient): u z v, v z w, w v z, x y w, y x w, z u v.
    # v shares a label with everyone.
    assert measured.precision[1] == pytest.approx(100 * (0 + 1 + 1 + 1 + 1 + 0) / 6)
    assert measured.by_label["a"][1] == pytest.approx(100 * 2 / 3)
    assert measured.precision[2] == pytest.approx(100 * (0.5 + 1 + 0.5 + 0.5 + 0.5 + 0.5) / 6)
    assert measured.mean == pytest.approx(np.mean([measured.precision[1], measured.precision[2]]))


def test_a_label_with_few_images_has_a_low_ceiling() -> None:
    vectors = unit([[1, 0]] + [[0, 1]] * 9)
    candidates = LabelledVectors(vectors, [("rare",)] + [("common",)] * 9)
    query = LabelledVectors(unit([[1, 0]]), [("rare",)])
    measured = label_precision(query, candidates, ks=(5, 50))
    assert measured.precision == {5: 20, 50: None}
    assert measured.ceiling == {5: 20, 50: None}
    assert measured.chance == 10
    assert measured.short == {5: 0, 50: 1}
    assert measured.mean == 20


@pytest.mark.parametrize(
    ("found", "exact", "share"),
    [
        ([[1, 2, 3]], [[3, 2, 1]], 1.0),
        ([[1, 2, -1]], [[1, 2, 3]], 2 / 3),
        ([[1, 1, 1]], [[1, 2, 3]], 1 / 3),
        ([[1], []], [[1], []], 1.0),
        ([["a"], ["b"]], [["a"], ["c"]], 0.5),
    ],
)
def test_overlap(found: list[list[Hashable]], exact: list[list[Hashable]], share: float) -> None:
    assert overlap(found, exact) == pytest.approx(share)


def test_overlap_needs_one_row_a_query() -> None:
    with pytest.raises(ValueError, match="one row a query"):
        overlap([[1]], [[1], [2]])
    with pytest.raises(ValueError, match="one row a query"):
        overlap([], [])
