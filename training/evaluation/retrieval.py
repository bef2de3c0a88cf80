"""Metrics: recall with captions, precision by label, overlap with an exact search, area under the ROC curve.

Ties are broken pessimistically: a candidate that doesn't match is ranked before a match with the same score,
and NaN is the worst score. So metrics don't depend on the order of candidates, and an encoder that has
collapsed to one point scores zero. All shares are in percent.
"""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from training.common.record import Record
from training.evaluation.similarity import Vectors, similarity
from training.models.config import Modality

Matches = Sequence[Collection[int]]
_SCORES_PER_CHUNK = 8_000_000
_WORST = float(np.finfo(np.float32).min)


@dataclass(frozen=True, slots=True)
class CaptionRetrieval:
    """Recall between images and their captions.

    Attributes:
        image_recall: Percent of the texts with a matching image among the first k, by k.
        text_recall: Percent of the images with a matching text among the first k, by k.
        rsum: Sum of these percentages.
        image_median_rank: Median rank, from 1, of the best matching image of a text.
        text_median_rank: Median rank, from 1, of the best matching text of an image.
    """

    image_recall: Mapping[int, float]
    text_recall: Mapping[int, float]
    rsum: float
    image_median_rank: float
    text_median_rank: float
    texts: int
    images: int


@dataclass(frozen=True, slots=True)
class LabelledVectors:
    """Queries or candidates for label precision.

    Attributes:
        vectors: (N, D), L2-normalised.
        labels: Labels of each row; rows match if they share one.
        ids: Id of each row; a query excludes the candidate with its own id.
        groups: Patient of each row, or None; a query excludes candidates of its own patient.
    """

    vectors: Vectors
    labels: Sequence[Collection[str]]
    ids: Sequence[str] = ()
    groups: Sequence[str | None] = ()


def labelled_vectors(vectors: Vectors, records: Sequence[Record], rows: Sequence[int]) -> LabelledVectors:
    """The vectors (N, D) of records at some rows, with their labels, ids and patients."""
    chosen = [records[row] for row in rows]
    return LabelledVectors(
        vectors=vectors[rows],
        labels=[record.labels for record in chosen],
        ids=[record.id for record in chosen],
        groups=[record.group for record in chosen],
    )


@dataclass(frozen=True, slots=True)
class LabelPrecision:
    """Share of candidates with a matching label among the first k.

    Attributes:
        precision: Percent by k, mean over the queries with at least k candidates; None if there are none.
        by_label: Precision by k over the queries of each label.
        ceiling: Precision of a perfect ranking, since a label may have fewer than k candidates.
        chance: Precision of a random ranking.
        queries: Number of queries with a label and a candidate.
        short: By k, number of queries left out because they have fewer than k candidates.
    """

    precision: Mapping[int, float | None]
    by_label: Mapping[str, Mapping[int, float | None]]
    ceiling: Mapping[int, float | None]
    chance: float
    queries: int
    short: Mapping[int, int] = field(default_factory=dict)


def mean_of(values: Collection[float | None]) -> float | None:
    """Mean of the values that aren't None, if any."""
    present = [value for value in values if value is not None]
    return float(np.mean(present)) if present else None


def caption_retrieval(
    image_vectors: Vectors, text_vectors: Vectors, relevant: Matches, ks: Sequence[int] = (1, 5, 10)
) -> CaptionRetrieval:
    """Recall@k in both directions, with any number of captions per image (Karpathy and Fei-Fei, 2015).

    A query succeeds if any of its matches is among the first k. Rows without a match are candidates but not
    queries. Vectors (N, D) and (M, D) are L2-normalised; `relevant` has the rows of all images of each text.

    Raises:
        ValueError: The shapes differ, or nothing matches.
    """
    if len(relevant) != len(text_vectors):
        raise ValueError(f"{len(text_vectors)} texts, but matches for {len(relevant)}")
    return _recall_both_ways(*caption_ranks(image_vectors, text_vectors, relevant), ks)


def caption_ranks(
    image_vectors: Vectors, text_vectors: Vectors, relevant: Matches
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """`best_ranks` of images for text queries, and of texts for image queries."""
    image_ranks = best_ranks(text_vectors, image_vectors, relevant)
    return image_ranks, best_ranks(image_vectors, text_vectors, _transposed(relevant, len(image_vectors)))


def pair_retrieval(scores: Vectors, relevant: Matches, ks: Sequence[int] = (1, 5, 10)) -> CaptionRetrieval:
    """`caption_retrieval` from scores (N, M) of image i and text j instead of vectors.

    Raises:
        ValueError: The shapes differ, or nothing matches.
    """
    images, texts = scores.shape
    if len(relevant) != texts:
        raise ValueError(f"{texts} texts, but matches for {len(relevant)}")
    image_ranks = _ranks(lambda rows: scores.T[rows], images, relevant)
    text_ranks = _ranks(lambda rows: scores[rows], texts, _transposed(relevant, images))
    return _recall_both_ways(image_ranks, text_ranks, ks)


def _recall_both_ways(
    image_ranks: NDArray[np.int64], text_ranks: NDArray[np.int64], ks: Sequence[int]
) -> CaptionRetrieval:
    if not image_ranks.size:
        raise ValueError("no text belongs to any image")
    image_recall, text_recall = recall_at(image_ranks, ks), recall_at(text_ranks, ks)
    return CaptionRetrieval(
        image_recall=image_recall,
        text_recall=text_recall,
        rsum=sum(image_recall.values()) + sum(text_recall.values()),
        image_median_rank=float(np.median(image_ranks)) + 1,
        text_median_rank=float(np.median(text_ranks)) + 1,
        texts=len(image_ranks),
        images=len(text_ranks),
    )


def best_ranks(queries: Vectors, candidates: Vectors, relevant: Matches) -> NDArray[np.int64]:
    """Rank, from 0, of each query's best match: how many non-matches score at least as high."""
    return _ranks(lambda rows: similarity(queries[rows], candidates), len(candidates), relevant)


def _ranks(
    scores_of: Callable[[list[int]], Vectors], candidates: int, relevant: Matches
) -> NDArray[np.int64]:
    """`best_ranks` with a function that scores given query rows against all candidates."""
    with_match = [row for row, matches in enumerate(relevant) if len(matches)]
    ranks = np.empty(len(with_match), dtype=np.int64)
    for start, stop in row_chunks(len(with_match), candidates):
        rows = with_match[start:stop]
        scores = scores_of(rows)
        matching = np.zeros(scores.shape, dtype=bool)
        for position, row in enumerate(rows):
            matching[position, list(relevant[row])] = True
        best = np.where(matching, scores, -np.inf).max(axis=1, keepdims=True)
        ranks[start:stop] = np.count_nonzero(~matching & ~(scores < best), axis=1)
    return ranks


def label_precision(
    queries: LabelledVectors, candidates: LabelledVectors, ks: Sequence[int] = (5, 10, 50)
) -> LabelPrecision:
    """Precision@k by label, as in ConVIRT's CheXpert 8x200 (Zhang et al., 2022, section 4.1).

    A candidate matches if it shares a label with the query. The query itself and images of the same patient
    aren't candidates. Queries without a label are left out; a query with fewer than k candidates is left out
    for that k and counted in `short`. Candidates without a label never match.

    Raises:
        ValueError: No query has both a label and a candidate.
    """
    counts, totals, matching = label_hits(queries, candidates, ks)
    names = sorted({label for labels in queries.labels for label in labels})
    usable = totals > 0
    if not usable.any():
        raise ValueError("no query has both a label and a candidate")
    column = {k: number for number, k in enumerate(ks)}
    having = {name: np.array([name in labels for labels in queries.labels], dtype=bool) for name in names}

    def percent(hits: NDArray[np.int64], k: int, chosen: NDArray[np.bool_] | bool = True) -> float | None:
        measured = hits[(totals >= k) & chosen] / k
        return 100 * float(measured.mean()) if measured.size else None

    return LabelPrecision(
        precision={k: percent(counts[:, column[k]], k) for k in ks},
        by_label={name: {k: percent(counts[:, column[k]], k, having[name]) for k in ks} for name in names},
        ceiling={k: percent(np.minimum(matching, k), k) for k in ks},
        chance=100 * float(np.mean(matching[usable] / totals[usable])),
        queries=int(np.count_nonzero(usable)),
        short={k: int(np.count_nonzero(usable & (totals < k))) for k in ks},
    )


def overlap(approximate: Sequence[Sequence[Hashable]], exact: Sequence[Sequence[Hashable]]) -> float:
    """Recall (0 to 1) of an approximate search: the share of the exact answers that it found.

    Each row has one query's ids; order and padding such as -1 don't matter. A query without an exact answer
    counts as 1.

    Raises:
        ValueError: The numbers of queries differ, or are 0.
    """
    if len(approximate) != len(exact) or not approximate:
        raise ValueError(
            f"{len(approximate)} rows are approximate, {len(exact)} exact: both need one for each query"
        )
    shares = [
        len(set(right) & set(got)) / len(set(right)) if right else 1.0
        for got, right in zip(approximate, exact, strict=True)
    ]
    return float(np.mean(shares))


def recall_at(ranks: NDArray[np.int64], ks: Sequence[int]) -> dict[int, float]:
    """Percent of the queries whose best match has a rank (from 0) below k."""
    return {k: 100 * float(np.mean(ranks < k)) for k in ks}


def _transposed(relevant: Matches, count: int) -> list[list[int]]:
    """For each of `count` images, the rows of its texts."""
    texts: list[list[int]] = [[] for _ in range(count)]
    for text, images in enumerate(relevant):
        for image in set(images):
            texts[image].append(text)
    return texts


def row_chunks(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    """Ranges of rows whose scores against `columns` candidates fit into little memory."""
    step = max(1, _SCORES_PER_CHUNK // max(1, columns))
    for start in range(0, rows, step):
        yield start, min(rows, start + step)


def label_hits(
    queries: LabelledVectors, candidates: LabelledVectors, ks: Sequence[int]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Matches in the first k (Q, len(ks)), candidates (Q,) and matching candidates (Q,) of each query."""
    counts = np.zeros((len(queries.labels), len(ks)), dtype=np.int64)
    totals, matching = np.zeros(len(counts), dtype=np.int64), np.zeros(len(counts), dtype=np.int64)
    query_labels, candidate_labels = _label_matrices(queries.labels, candidates.labels)
    query_codes, candidate_codes = _identity_codes(queries, candidates)
    for start, stop in row_chunks(len(counts), len(candidates.labels)):
        rows = slice(start, stop)
        labelled = np.array([len(labels) > 0 for labels in queries.labels[rows]], dtype=bool)
        allowed = np.repeat(labelled[:, None], len(candidates.labels), axis=1)
        for query_code, candidate_code in zip(query_codes, candidate_codes, strict=True):
            allowed &= query_code[rows, None] != candidate_code[None, :]
        scores = np.nan_to_num(similarity(queries.vectors[rows], candidates.vectors), nan=_WORST)
        scores = np.where(allowed, scores, -np.inf)
        hits = allowed & ((query_labels[rows] @ candidate_labels.T) > 0)
        totals[rows], matching[rows] = allowed.sum(axis=1), hits.sum(axis=1)
        for column, k in enumerate(ks):
            counts[rows, column] = _hits_at(scores, hits, k)
    return counts, totals, matching


def _hits_at(scores: Vectors, hits: NDArray[np.bool_], k: int) -> NDArray[np.int64]:
    """Matches among the first k of each row; non-matches come first among equal scores."""
    if k > scores.shape[1]:
        return np.zeros(len(scores), dtype=np.int64)
    last = np.partition(scores, scores.shape[1] - k, axis=1)[:, -k, None]
    above, tied = scores > last, scores == last
    left = k - above.sum(axis=1) - (tied & ~hits).sum(axis=1)
    counts: NDArray[np.int64] = (above & hits).sum(axis=1) + np.maximum(0, left)
    return counts


def _label_matrices(
    queries: Sequence[Collection[str]], candidates: Sequence[Collection[str]]
) -> tuple[Vectors, Vectors]:
    """0/1 matrices (Q, L) and (C, L) over the queries' labels."""
    column = {name: number for number, name in enumerate(sorted({name for row in queries for name in row}))}

    def matrix(rows: Sequence[Collection[str]]) -> Vectors:
        ones = np.zeros((len(rows), len(column)), dtype=np.float32)
        for number, row in enumerate(rows):
            ones[number, [column[name] for name in row if name in column]] = 1
        return ones

    return matrix(queries), matrix(candidates)


def _identity_codes(
    queries: LabelledVectors, candidates: LabelledVectors
) -> tuple[list[NDArray[np.int64]], list[NDArray[np.int64]]]:
    """Ids and groups as numbers that can be compared between both sides; None differs from everything."""
    left: list[NDArray[np.int64]] = []
    right: list[NDArray[np.int64]] = []
    for ours, theirs in ((queries.ids, candidates.ids), (queries.groups, candidates.groups)):
        if ours and theirs:
            code = {name: number for number, name in enumerate(dict.fromkeys(ours)) if name is not None}
            left.append(np.array([-1 if name is None else code[name] for name in ours], dtype=np.int64))
            right.append(
                np.array([-2 if name is None else code.get(name, -2) for name in theirs], dtype=np.int64)
            )
    return left, right


@dataclass(frozen=True, slots=True)
class Items:
    """Vectors of one modality, shaped for `similarity`, and their records.

    `owners` has the records of each row; a sentence or sound may belong to several.
    """

    modality: Modality
    vectors: Vectors
    owners: Sequence[Collection[int]]


@dataclass(frozen=True, slots=True)
class CrossRetrieval:
    """Recall of a search from one modality to another, with the numbers of queries and candidates.

    Attributes:
        recall: Percent of the queries with a matching candidate among the first k, by k.
        median_rank: Median rank, from 1, of the best matching candidate.
    """

    query: Modality
    candidate: Modality
    recall: Mapping[int, float]
    median_rank: float
    queries: int
    candidates: int

    @property
    def name(self) -> str:
        """Name of the search, such as "image to audio"."""
        return f"{self.query} to {self.candidate}"


def recall_between(
    first: Items, second: Items, ks: Sequence[int] = (1, 5, 10)
) -> tuple[CrossRetrieval, CrossRetrieval] | None:
    """Recall@k from the first modality to the second and back; None if no record has both.

    Rows match if they belong to the same record. Rows without a record in the other modality are left out,
    since their matches are unknown.
    """
    rows_of: dict[int, list[int]] = {}
    for row, owners in enumerate(second.owners):
        for owner in owners:
            rows_of.setdefault(owner, []).append(row)
    matches = [sorted({row for owner in owners for row in rows_of.get(owner, ())}) for owners in first.owners]
    kept = [row for row, columns in enumerate(matches) if columns]
    if not kept:
        return None
    columns = sorted({column for row in kept for column in matches[row]})
    position = {column: number for number, column in enumerate(columns)}
    forward = [[position[column] for column in matches[row]] for row in kept]
    a = Items(first.modality, first.vectors[kept], ())
    b = Items(second.modality, second.vectors[columns], ())
    return _search(a, b, forward, ks), _search(b, a, _transposed(forward, len(columns)), ks)


def _search(queries: Items, candidates: Items, relevant: Matches, ks: Sequence[int]) -> CrossRetrieval:
    ranks = best_ranks(queries.vectors, candidates.vectors, relevant)
    return CrossRetrieval(
        query=queries.modality,
        candidate=candidates.modality,
        recall=recall_at(ranks, ks),
        median_rank=float(np.median(ranks)) + 1,
        queries=len(ranks),
        candidates=len(candidates.vectors),
    )


def mean_ranks(values: NDArray[Any]) -> NDArray[np.float64]:
    """Ranks (N,) from 1, lowest first; equal values share the mean of their ranks."""
    _, index, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    means: NDArray[np.float64] = ends - (counts - 1) / 2
    return means[index]


def area_under_roc(scores: NDArray[Any], positive: NDArray[np.bool_]) -> float | None:
    """Area under the ROC curve: how often a positive has the higher score (N,), where ties count half.

    From 0 to 1, chance is .5; None without a positive or without a negative.
    """
    hits = int(positive.sum())
    misses = len(positive) - hits
    if not hits or not misses:
        return None
    # The statistic of Mann and Whitney.
    above = float(mean_ranks(scores)[positive].sum()) - hits * (hits + 1) / 2
    return above / (hits * misses)
