"""A search for one query: by codes or a graph, by what was copied for its filter, or by a scan."""

from index.vectors.certain import search_exactly
from index.vectors.passing import Passing
from index.vectors.planned import PlannedSearch
from index.vectors.protocol import After, Keys, Neighbours, Vectors
from index.vectors.ranking import behind, ranked, tied
from index.vectors.stored import StoredRows


def search_one(
    query: Vectors,
    k: int,
    passing: Passing,
    after: After | None,
    keys: Keys,
    rows: StoredRows,
    planned: PlannedSearch | None,
) -> Neighbours:
    """Find the `k` nearest vectors to a query (D,) of length one in the way that costs least.

    Args:
        query: What to search for.
        k: How many hits.
        passing: Which rows may be found.
        after: The hit behind which the page begins, if it is not the first.
        keys: The keys (N,) of all rows.
        rows: The vectors.
        planned: Codes or a graph of them, if there are any.
    """
    rank = k if after is None else k + after.rank
    near = None if planned is None else planned.near(query, rank, passing)
    if near is not None:
        found, scores = ranked(query, keys, near, rows.get)
        first = behind(found, scores, after)
        # Else candidates are too few to promise the hits.
        if first + k <= len(found) and not tied(scores, rank):
            return Neighbours(found[first : first + k], scores[first : first + k], exact=False)
    copied = None if passing.copied is None else passing.copied.search(query, k, after)
    return search_exactly(query, k, passing, after, keys, rows) if copied is None else copied
