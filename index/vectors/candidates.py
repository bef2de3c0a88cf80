"""What the exact ranking of candidates tells: the hits, and whether more of them are to be expected."""

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
