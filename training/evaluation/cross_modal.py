"""Recall@k from any modality to any other."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from training.evaluation.retrieval import Matches, best_ranks, recall_at
from training.evaluation.similarity import Vectors
from training.models.config import Modality


@dataclass(frozen=True, slots=True)
class Items:
    """Vectors of one modality, and the records that they describe.

    Attributes:
        modality: Modality of the vectors.
        vectors: (N, D) of length one, or (N, k, D / k) of a k-blade model, or (N, 1, D) of one without signs.
        owners: For each row, the records that it belongs to: a sentence or a sound may be several records'.
    """

    modality: Modality
    vectors: Vectors
    owners: Sequence[Collection[int]]


@dataclass(frozen=True, slots=True)
class CrossRetrieval:
    """Recall of one search.

    Attributes:
        query: Modality that is searched with.
        candidate: Modality that is searched for.
        recall: Percent of the queries with a matching candidate among the first k, by k.
        median_rank: Median rank, from 1, of the best matching candidate.
        queries: Number of queries.
        candidates: Number of candidates.
    """

    query: Modality
    candidate: Modality
    recall: Mapping[int, float]
    median_rank: float
    queries: int
    candidates: int

    @property
    def name(self) -> str:
        """The search in words."""
        return f"{self.query} to {self.candidate}"


def recall_between(
    first: Items, second: Items, ks: Sequence[int] = (1, 5, 10)
) -> tuple[CrossRetrieval, CrossRetrieval] | None:
    """Recall@k from the first modality to the second and back; None when no record has both.

    Two rows match when they belong to one record. What belongs to no record of the other modality takes no
    part: what would match it is unknown, not absent.
    """
    matches = _matches(first, second)
    kept = [row for row, found in enumerate(matches) if found]
    if not kept:
        return None
    columns = sorted({column for found in matches for column in found})
    place = {column: number for number, column in enumerate(columns)}
    forward = [[place[column] for column in matches[row]] for row in kept]
    backward: list[list[int]] = [[] for _ in columns]
    for number, found in enumerate(forward):
        for column in found:
            backward[column].append(number)
    a = Items(first.modality, first.vectors[kept], ())
    b = Items(second.modality, second.vectors[columns], ())
    return _search(a, b, forward, ks), _search(b, a, backward, ks)


def _matches(first: Items, second: Items) -> list[list[int]]:
    """For each row of the first, the rows of the second that share a record with it."""
    rows_of: dict[int, list[int]] = {}
    for row, owners in enumerate(second.owners):
        for owner in owners:
            rows_of.setdefault(owner, []).append(row)
    return [sorted({row for owner in owners for row in rows_of.get(owner, ())}) for owners in first.owners]


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
