"""Searches for many queries at once."""

from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Final

from index.vectors.certain import SPARE, is_certain, search_exactly
from index.vectors.finder import Finder
from index.vectors.passing import Passing
from index.vectors.planned import PlannedSearch
from index.vectors.planner import Probe
from index.vectors.positions import Rows
from index.vectors.protocol import Keys, Neighbours, Vectors
from index.vectors.ranking import ranked_many, tied
from index.vectors.stored import StoredRows
from index.vectors.threads import cores

# Queries whose candidates are named together, while those of the queries before these are compared.
_AT_ONCE: Final = 32


def search_all(
    queries: Vectors, k: int, passing: Passing, keys: Keys, rows: StoredRows, planned: PlannedSearch | None
) -> list[Neighbours]:
    """Find the `k` nearest vectors to each query (Q, D) of length one in the way that costs least.

    Args:
        queries: What to search for.
        k: How many hits for each.
        passing: Which rows may be found.
        keys: The keys (N,) of all rows.
        rows: The vectors.
        planned: Codes or a graph of them, if there are any.
    """
    found = None if planned is None else search_each(queries, k, passing, keys, planned)
    return scan_each(queries, k, passing, keys, rows) if found is None else found


def scan_each(queries: Vectors, k: int, passing: Passing, keys: Keys, rows: StoredRows) -> list[Neighbours]:
    """Find the `k` nearest vectors to each query (Q, D) of length one by a scan; see `VectorView`.

    Args:
        queries: What to search for.
        k: How many hits for each.
        passing: Which rows may be found.
        keys: The keys (N,) of all rows.
        rows: The vectors.
    """
    near = rows.nearest_many(queries, min(k + SPARE, passing.count), passing.mask)
    found = []
    for query, one in zip(queries, ranked_many(queries, keys, near, rows.get), strict=True):
        if is_certain(one, k, passing, rows):
            found.append(Neighbours(one.keys[:k], one.scores[:k], exact=True))
        else:
            found.append(search_exactly(query, k, passing, None, keys, rows))
    return found


def search_each(
    queries: Vectors, k: int, passing: Passing, keys: Keys, planned: PlannedSearch
) -> list[Neighbours] | None:
    """Find the `k` nearest vectors to each query (Q, D) of length one by codes or a graph; see `VectorView`.

    Args:
        queries: What to search for.
        k: How many hits for each.
        passing: Which rows may be found.
        keys: The keys (N,) of all rows.
        planned: The vectors, and what finds them.

    Returns:
        None where a scan costs less.
    """
    probe = planned.first(k, passing)
    if probe is None:
        return None
    found: list[Neighbours] = []
    scanned: list[int] = []
    # Candidates are compared by this thread, as several would wait for each other longer (measured).
    with ThreadPoolExecutor(1) as ahead:
        for part, named in _named(queries, probe, planned.finder, ahead):
            near = planned.near_each(part, k, passing, probe, named)
            for one in ranked_many(part, keys, near, planned.rows.get):
                if len(one.keys) < min(k, passing.count) or tied(one.scores, k):
                    scanned.append(len(found))
                found.append(Neighbours(one.keys[:k], one.scores[:k], exact=False))
    if scanned:
        exact = scan_each(queries[scanned], k, passing, keys, planned.rows)
        for place, one in zip(scanned, exact, strict=True):
            found[place] = one
    return found


def _named(queries: Vectors, probe: Probe, finder: Finder, ahead: Executor) -> Iterator[tuple[Vectors, Rows]]:
    """Give some of the queries (P, D) at a time and what a finder finds for them (P, C).

    The next are searched for while the caller is at these.
    """
    if len(queries) <= _AT_ONCE:
        yield queries, finder.search(queries, probe)
        return
    search = partial(finder.search, probe=probe, threads=max(1, cores() - 1))
    parts = [queries[at : at + _AT_ONCE] for at in range(0, len(queries), _AT_ONCE)]
    following = ahead.submit(search, parts[0])
    for part, after in pairwise(parts):
        named, following = following.result(), ahead.submit(search, after)
        yield part, named
    yield parts[-1], following.result()
