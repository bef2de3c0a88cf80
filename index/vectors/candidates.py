"""What the exact ranking of candidates tells: the hits, and whether more of them are to be expected."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from index.planner import Usual
from index.vectors.positions import Rows
from index.vectors.protocol import Vectors
from index.vectors.ranking import kept
from index.vectors.stored import StoredRows

# A query whose hits lie so is searched as if so many times as many hits were needed.
SURER: Final = 4


def best_of_candidates(
    query: Vectors, rank: int, rows: StoredRows, named: Rows, more: Rows | None, enough: int, usual: Usual
) -> Rows | None:
    """Return those of the candidates that may be hits of a query (D,) down to a rank.

    Args:
        query: What is searched for.
        rank: How many hits are needed.
        rows: The vectors.
        named: Candidates, likeliest first.
        more: Further ones, of which nothing is known.
        enough: How many candidates were wanted; somewhat fewer may be named.
        usual: Where the hits usually lie among as many.

    Returns:
        None where they lie so far back that more of them must be expected behind.
    """
    candidates = named if more is None else np.concatenate((named, more))
    products, places = rows.best_of(query, kept(rank), candidates)
    hits = places[:rank]
    last = products[len(hits) - 1]
    if more is not None:
        hits = hits[hits < len(named)]
    late = np.count_nonzero(hits >= enough // 2)
    if late > usual.most_late or hits.sum() > usual.farthest * rank * enough:
        return None
    # What lies clearly below the last hit cannot be one.
    likely: Rows = candidates[places[products >= last - 2 * rows.error]]
    return likely


def best_of_each(
    queries: Vectors,
    rank: int,
    rows: StoredRows,
    named: Sequence[Rows],
    more: Rows | None,
    enough: int,
    usual: Usual,
) -> Rows:
    """Return `best_of_candidates` of each of many queries (Q, D), as rows (Q, `kept`); -1 for none.

    Args:
        queries: What is searched for.
        rank: How many hits are needed.
        rows: The vectors.
        named: Candidates of each, likeliest first, at least `rank`.
        more: Further ones of all, of which nothing is known.
        enough: How many candidates were wanted of each; somewhat fewer may be named.
        usual: Where the hits usually lie among as many.
    """
    count = kept(rank)
    products = np.full((len(queries), count), -np.inf, dtype=np.float32)
    places = np.zeros((len(queries), count), dtype=np.int64)
    best = np.full((len(queries), count), -1, dtype=np.int64)
    for at, own in enumerate(named):
        candidates = own if more is None else np.concatenate((own, more))
        found, its = rows.best_of(queries[at], count, candidates)
        products[at, : len(its)], places[at, : len(its)] = found, its
        best[at, : len(its)] = candidates[its]
    hits = places[:, :rank]
    if more is not None:
        hits = np.where(hits < np.array([len(own) for own in named])[:, None], hits, 0)
    late = np.count_nonzero(hits >= enough // 2, axis=1)
    hard = (late > usual.most_late) | (hits.sum(axis=1) > usual.farthest * rank * enough)
    unlikely = products < products[:, rank - 1 : rank] - 2 * rows.error
    best[hard[:, None] | unlikely] = -1
    return best
