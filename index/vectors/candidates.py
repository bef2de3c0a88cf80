"""What the exact ranking of candidates tells: the hits, and whether more of them are to be expected."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from index.vectors.planner import Usual
from index.vectors.positions import Rows
from index.vectors.protocol import Vectors
from index.vectors.ranking import kept
from index.vectors.stored import StoredRows

# A query whose hits lie so is searched as if so many times as many hits were needed.
SURER: Final = 4


class Yardstick(NamedTuple):
    """By what the hits of a query are judged.

    Attributes:
        depth: How many of the nearest are looked at, also where fewer are wanted: few tell little.
        enough: How many candidates are wanted; somewhat fewer may be named.
        usual: Where as many of the nearest usually lie among as many candidates.
    """

    depth: int
    enough: int
    usual: Usual


def best_of_candidates(
    query: Vectors, rank: int, rows: StoredRows, named: Rows, more: Rows | None, yardstick: Yardstick
) -> Rows | None:
    """Return those of the candidates that may be hits of a query (D,) down to a rank, likeliest first.

    Args:
        query: What is searched for.
        rank: How many hits are needed.
        rows: The vectors.
        named: Candidates, likeliest first.
        more: Further ones, of which nothing is known.
        yardstick: By what the hits are judged.

    Returns:
        None where they lie so far back that more of them must be expected behind.
    """
    depth, enough, usual = yardstick
    candidates = named if more is None else np.concatenate((named, more))
    products, places = rows.best_of(query, kept(max(rank, depth)), candidates)
    hits = places[: max(rank, depth)]
    most = usual.farthest * len(hits) * enough
    if more is not None:
        hits = hits[hits < len(named)]
    late = np.count_nonzero(hits >= enough // 2)
    if late > usual.most_late or hits.sum() > most:
        return None
    # What lies clearly below the last hit cannot be one.
    least = products[min(rank, len(products)) - 1] - 2 * rows.error
    while products[-1] >= least and len(products) < len(candidates):
        products, places = rows.best_of(query, 2 * len(products), candidates)
    likely: Rows = candidates[places[products >= least]]
    return likely


def best_of_each(
    queries: Vectors,
    rank: int,
    rows: StoredRows,
    named: Sequence[Rows],
    more: Rows | None,
    yardstick: Yardstick,
) -> Rows:
    """Return `best_of_candidates` of each of many queries (Q, D), as rows (Q, R); -1 for none.

    Args:
        queries: What is searched for.
        rank: How many hits are needed.
        rows: The vectors.
        named: Candidates of each, likeliest first, at least `rank`.
        more: Further ones of all, of which nothing is known.
        yardstick: By what the hits are judged.
    """
    depth, enough, usual = yardstick
    judged = max(rank, depth)
    count = kept(judged)
    products = np.full((len(queries), count), -np.inf, dtype=np.float32)
    places = np.zeros((len(queries), count), dtype=np.int64)
    best = np.full((len(queries), count), -1, dtype=np.int64)
    all_named = [own if more is None else np.concatenate((own, more)) for own in named]
    for at, candidates in enumerate(all_named):
        found, its = rows.best_of(queries[at], count, candidates)
        products[at, : len(its)], places[at, : len(its)] = found, its
        best[at, : len(its)] = candidates[its]
    lengths = np.array([len(candidates) for candidates in all_named])
    hits = places[:, :judged]
    if more is not None:
        hits = np.where(hits < lengths[:, None] - len(more), hits, 0)
    late = np.count_nonzero(hits >= enough // 2, axis=1)
    most = usual.farthest * np.minimum(lengths, judged) * enough
    hard = (late > usual.most_late) | (hits.sum(axis=1) > most)
    least = products[:, rank - 1 : rank] - 2 * rows.error
    best[hard[:, None] | (products < least)] = -1
    for at in np.flatnonzero(~hard & (products[:, -1] >= least[:, 0]) & (lengths > count)).tolist():
        likely = best_of_candidates(queries[at], rank, rows, named[at], more, yardstick)
        if likely is not None:
            best = widened_to(best, len(likely))
            best[at, : len(likely)] = likely
    longest = int(np.count_nonzero(best >= 0, axis=1).max(initial=1))
    return best[:, :longest]


def widened_to(rows: Rows, width: int) -> Rows:
    """Return rows (Q, R) with at least so many columns, the others of -1."""
    return np.pad(rows, ((0, 0), (0, max(0, width - rows.shape[1]))), constant_values=-1)
