import math
from collections.abc import Hashable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.evaluation import retrieval
from training.evaluation.retrieval import (
    Items,
    LabelledVectors,
    area_under_roc,
    caption_retrieval,
    label_precision,
    mean_ranks,
    overlap,
    pair_retrieval,
    recall_between,
)
from training.evaluation.similarity import Vectors, as_blades, inner_products, similarity


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


@pytest.mark.parametrize("value", [0.5, math.nan])
def test_a_collapsed_or_broken_encoder_finds_nothing(value: float) -> None:
    same = np.full((20, 4), value, dtype=np.float32)
    measured = caption_retrieval(same, same, [[row] for row in range(20)])
    assert (measured.rsum, measured.image_median_rank) == (0, 20)
    labelled = LabelledVectors(same, [("even" if row % 2 else "odd",) for row in range(20)])
    assert label_precision(labelled, labelled, ks=(5,)).precision == {5: 0}


@pytest.mark.parametrize(
    ("relevant", "message"), [([[0]], "2 texts, but matches for 1"), ([[], []], "no text belongs")]
)
def test_captions_that_do_not_fit_are_refused(relevant: list[list[int]], message: str) -> None:
    vectors = unit([[1, 0], [0, 1]])
    with pytest.raises(ValueError, match=message):
        caption_retrieval(vectors, vectors, relevant)
    with pytest.raises(ValueError, match=message):
        pair_retrieval(vectors, relevant)


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


def test_a_label_with_few_images_has_a_low_ceiling() -> None:
    vectors = unit([[1, 0]] + [[0, 1]] * 9)
    candidates = LabelledVectors(vectors, [("rare",)] + [("common",)] * 9)
    query = LabelledVectors(unit([[1, 0]]), [("rare",)])
    measured = label_precision(query, candidates, ks=(5, 50))
    assert measured.precision == {5: 20, 50: None}
    assert measured.ceiling == {5: 20, 50: None}
    assert measured.chance == 10
    assert measured.short == {5: 0, 50: 1}


@pytest.mark.parametrize(
    ("actual", "exact", "share"),
    [
        ([[1, 2, 3]], [[3, 2, 1]], 1.0),
        ([[1, 2, -1]], [[1, 2, 3]], 2 / 3),
        ([[1, 1, 1]], [[1, 2, 3]], 1 / 3),
        ([[1], []], [[1], []], 1.0),
        ([["a"], ["b"]], [["a"], ["c"]], 0.5),
    ],
)
def test_overlap(actual: list[list[Hashable]], exact: list[list[Hashable]], share: float) -> None:
    assert overlap(actual, exact) == pytest.approx(share)
    for one, other in ((actual, [*exact, exact[0]]), ([], [])):
        with pytest.raises(ValueError, match="both need one for each query"):
            overlap(one, other)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.lists(st.sets(st.integers(0, 4), max_size=3), min_size=1, max_size=6),
    st.lists(st.sets(st.integers(0, 4), max_size=3), min_size=1, max_size=6),
)
def test_equals_a_slow_count(seed: int, first: list[set[int]], second: list[set[int]]) -> None:
    rng = np.random.default_rng(seed)
    a, b = (unit(rng.normal(size=(len(owners), 3)).tolist()) for owners in (first, second))
    actual = recall_between(Items("image", a, first), Items("audio", b, second), ks=(1, 2))
    rows = [row for row, owners in enumerate(first) if any(owners & other for other in second)]
    columns = [column for column, owners in enumerate(second) if any(owners & other for other in first)]
    if not rows:
        assert actual is None
        return
    assert actual is not None
    counts = [(search.queries, search.candidates) for search in actual]
    assert counts == [(len(rows), len(columns)), (len(columns), len(rows))]
    ranks = []
    for row in rows:
        ranked = sorted(columns, key=lambda column: -float(a[row] @ b[column]))
        ranks.append(1 + [bool(first[row] & second[column]) for column in ranked].index(True))
    for k in (1, 2):
        assert actual[0].recall[k] == pytest.approx(100 * np.mean([rank <= k for rank in ranks]))
    assert actual[0].median_rank == np.median(ranks)
    assert [search.name for search in actual] == ["image to audio", "audio to image"]


def unit_vectors(rows: int, seed: int) -> Vectors:
    vectors = np.random.default_rng(seed).normal(size=(rows, 6)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def test_vectors_without_a_sign_are_compared_by_the_absolute_cosine() -> None:
    images, texts = unit_vectors(5, 0), unit_vectors(7, 1)
    signed = similarity(as_blades(images, 1), as_blades(texts, 1))
    unsigned = similarity(as_blades(images, 1, unsigned=True), as_blades(texts, 1, unsigned=True))
    assert signed.min() < 0
    np.testing.assert_array_equal(unsigned, np.abs(signed))
    np.testing.assert_array_equal(signed, images @ texts.T)


def test_what_a_probe_reads_is_an_inner_product() -> None:
    vectors = unit_vectors(40, 2)
    lines = as_blades(vectors, 1, unsigned=True)
    flat = np.einsum("ni,nj->nij", vectors, vectors).reshape(40, -1)
    np.testing.assert_allclose(inner_products(lines, lines), flat @ flat.T, atol=1e-6)
    # |cosine| itself is none.
    assert np.linalg.eigvalsh(similarity(lines, lines)).min() < -0.1
    np.testing.assert_array_equal(
        inner_products(vectors, vectors), similarity(vectors, vectors).astype(np.float64)
    )


@pytest.mark.parametrize(
    ("blades", "unsigned", "shape"),
    [(1, False, (6,)), (2, False, (2, 3)), (3, False, (3, 2)), (1, True, (1, 6))],
)
@pytest.mark.parametrize("rows", [0, 4])
def test_the_shape_tells_the_kind_even_of_no_vectors(
    blades: int, unsigned: bool, shape: tuple[int, ...], rows: int
) -> None:
    shaped = as_blades(unit_vectors(rows, 0), blades, unsigned=unsigned)
    assert shaped.shape == (rows, *shape)
    assert similarity(shaped, shaped).shape == (rows, rows)


def by_pairs(scores: list[float], positive: list[bool]) -> float | None:
    """How often a positive is above a negative, pair by pair."""
    hits = [score for score, is_hit in zip(scores, positive, strict=True) if is_hit]
    misses = [score for score, is_hit in zip(scores, positive, strict=True) if not is_hit]
    wins = [float(hit > miss) + 0.5 * (hit == miss) for hit in hits for miss in misses]
    return sum(wins) / len(wins) if wins else None


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=20))
def test_equals_the_count_of_all_pairs(items: list[tuple[int, bool]]) -> None:
    scores, positive = [float(score) for score, _ in items], [is_hit for _, is_hit in items]
    actual = area_under_roc(np.array(scores, dtype=np.float32), np.array(positive, dtype=np.bool_))
    expected = by_pairs(scores, positive)
    assert (actual is None) == (expected is None)
    if expected is not None:
        assert actual == pytest.approx(expected, abs=1e-12)


def test_equal_values_share_the_mean_of_their_ranks() -> None:
    assert mean_ranks(np.array([3.0, 1.0, 3.0, 2.0, 3.0])).tolist() == [4.0, 1.0, 4.0, 2.0, 4.0]
