"""Exact search: as many rows are ranked as it takes for no other to be among the hits."""

from typing import Final

import numpy as np

from index.vectors.passing import Passing
from index.vectors.protocol import After, Keys, Neighbours, Vectors
from index.vectors.ranking import behind, ranked
from index.vectors.stored import StoredRows

# Candidates beyond those asked for that are ranked exactly: rounding may have put them in another order.
SPARE: Final = 8


def search_exactly(
    query: Vectors, k: int, passing: Passing, after: After | None, keys: Keys, rows: StoredRows
) -> Neighbours:
    """Find the `k` nearest vectors to a query (D,) of length one by a scan; see `VectorView`.

    Args:
        query: What to search for.
        k: How many hits.
        passing: Which rows may be found.
        after: The hit behind which the page begins, if it is not the first.
        keys: The keys (N,) of all rows.
        rows: The vectors.
    """
    wanted = SPARE + (k if after is None else k + after.rank)
    while True:
        likely = passing.rows if wanted >= passing.count else rows.nearest(query, wanted, passing)
        found = Neighbours(*ranked(query, keys, likely, rows.get), exact=True)
        first = behind(found.keys, found.scores, after)
        if is_certain(found, first + k, passing, rows):
            page = slice(first, first + k)
            return Neighbours(found.keys[page], found.scores[page], exact=True)
        wanted *= 2


def is_certain(found: Neighbours, last: int, passing: Passing, rows: StoredRows) -> bool:
    """Say whether nothing that was not found can rank before the `last` of what was."""
    if len(found.keys) >= passing.count:
        return True
    # What was left out scored no better by FAISS than the worst that came in.
    margin = np.float32(2 * rows.error)
    return last < len(found.keys) and bool(found.scores[last - 1] > found.scores[-1] + margin)
