"""Measures after a build how deep codes must be searched for the promised recall, and what that costs."""

import time
from typing import Final

import numpy as np

from index.planner import Planner, Probe
from index.vectors.codec import unit
from index.vectors.codes import Codes
from index.vectors.half import Guard, HalfRows
from index.vectors.positions import Mask, Rows
from index.vectors.protocol import Vectors

# What is promised is 0.99; queries of another kind than those that are tried here are a little harder.
_RECALL: Final = 0.995
# A query encoder does not say quite what the other encoder says.
_NOISE: Final = 0.45
# How many queries are tried for each depth.
_DEPTHS: Final = ((10, 200), (30, 100), (100, 100), (300, 50), (1000, 50), (3000, 20), (10_000, 20))
_FACTORS: Final = (2, 3, 5, 10, 20, 40)
_TIMED: Final = 5
_SEED: Final = 0


def calibrate(codes: Codes, rows: HalfRows, alive: Mask, guard: Guard) -> Planner:
    """Find the cheapest search for each depth, and measure what an exact scan costs.

    Args:
        codes: Codes of all rows.
        rows: The vectors.
        alive: Which rows (N,) may be found.
        guard: Held whenever rows are read, and let go in between.
    """
    living = np.flatnonzero(alive)
    probes = []
    with guard():
        queries, own = _queries(rows, living, min(_DEPTHS[0][1], len(living)))
    for depth, tried in _DEPTHS:
        if 4 * depth > len(living):
            break
        truth = rows.nearest_many(queries[:tried], depth + 1, alive, guard)
        with guard():
            probe = _cheapest(codes, rows, queries[:tried], own[:tried], truth)
        if probe is not None:
            probes.append(probe)
    with guard():
        row_cost, pass_cost = _scan_costs(rows, queries)
    return Planner(tuple(probes), row_cost, pass_cost)


def _queries(rows: HalfRows, living: Rows, count: int) -> tuple[Vectors, Rows]:
    """Return queries (Q, D) near stored vectors, and the rows of these, which are not to be counted."""
    random = np.random.default_rng(_SEED)
    own, first, second = (random.choice(living, count) for _ in range(3))
    noise = unit(rows.get(first) - rows.get(second))
    return unit(rows.get(own) + np.float32(_NOISE) * noise), own


def _cheapest(codes: Codes, rows: HalfRows, queries: Vectors, own: Rows, truth: Rows) -> Probe | None:
    depth = truth.shape[1] - 1
    best: Probe | None = None
    lists = 4
    while lists <= codes.lists:
        most = min(len(codes), _FACTORS[-1] * depth)
        found = codes.search(queries, lists, most)
        for candidates in [factor * depth for factor in _FACTORS if factor * depth <= most] or [most]:
            recall = _recall(found[:, :candidates], truth, own)
            if recall >= _RECALL:
                cost = _cost(codes, rows, queries, lists, candidates)
                if best is None or cost < best.cost:
                    best = Probe(depth, lists, candidates, recall, cost)
                break
        # More lists cost more: once one more step was worse, so is every further one.
        if best is not None and best.lists < lists:
            break
        lists *= 2
    return best


def _recall(found: Rows, truth: Rows, own: Rows) -> float:
    shares = [
        np.isin(nearest[nearest != row], candidates).mean()
        for candidates, nearest, row in zip(found, truth, own, strict=True)
    ]
    return float(np.mean(shares))


def _cost(codes: Codes, rows: HalfRows, queries: Vectors, lists: int, candidates: int) -> float:
    """Return the nanoseconds of the fastest of a few searches with exact ranking."""
    spent = []
    for query in queries[:_TIMED]:
        started = time.perf_counter_ns()
        found = codes.search(query[None], lists, candidates)[0]
        rows.rough(found[found >= 0]) @ query
        spent.append(time.perf_counter_ns() - started)
    return float(min(spent))


def _scan_costs(rows: HalfRows, queries: Vectors) -> tuple[float, float]:
    """Return the nanoseconds of a row that is compared and of one that is passed over."""
    everything, nothing = [], []
    none = np.zeros(len(rows), dtype=bool)
    none[:1] = True
    for query in queries[:_TIMED]:
        started = time.perf_counter_ns()
        rows.nearest(query, 10, None)
        everything.append(time.perf_counter_ns() - started)
        started = time.perf_counter_ns()
        rows.nearest(query, 1, none)
        nothing.append(time.perf_counter_ns() - started)
    return min(everything) / len(rows), min(nothing) / len(rows)
