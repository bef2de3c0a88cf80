"""A graph by itself: built beside writes, written and read."""

import gc
import weakref
from pathlib import Path

import numpy as np
import pytest

from index.vectors import cosine
from index.vectors.cosine import CosineView
from index.vectors.graph import Graph
from index.vectors.half import HalfRows
from index.vectors.planner import Probe, Usual
from index.vectors.positions import Rows
from index.vectors.protocol import Vectors
from index.vectors.stored import Halves
from tests.index.samples import unit_vectors


def test_it_is_built_from_a_copy_as_the_rows_may_move(monkeypatch: pytest.MonkeyPatch) -> None:
    view, vectors = CosineView(32), unit_vectors(300, 32)
    view.add(np.arange(300), np.concatenate((vectors[:150], vectors[:150])))
    learn, take, learning = Graph.learn, HalfRows.take, False
    taken: list[bool] = []

    def watched(graph: Graph, batch: Vectors) -> None:
        nonlocal learning
        learning = True
        learn(graph, batch)
        learning = False

    def watched_take(rows: HalfRows, which: Rows, out: Halves) -> None:
        taken.append(learning)
        take(rows, which, out)

    monkeypatch.setattr(cosine, "_BLOCK", 100)
    monkeypatch.setattr(Graph, "learn", watched)
    monkeypatch.setattr(HalfRows, "take", watched_take)
    assert view.build("hnsw")
    assert taken
    assert not any(taken)


def test_the_copy_goes_when_it_is_built() -> None:
    rows, vectors = HalfRows(16), unit_vectors(200, 16)
    rows.add(vectors)
    graph = Graph.empty(rows)
    graph.learn(rows.rough(np.arange(200)))
    copy = weakref.ref(graph._stored)
    graph.settle(np.empty((0, 16), dtype=np.float32))
    gc.collect()
    assert copy() is None


def test_what_is_the_same_is_read_among_much_that_is_nearly_so(tmp_path: Path) -> None:
    vectors = unit_vectors(300, 64)
    near = np.repeat(vectors[:1], 20, axis=0)
    near += np.linspace(1e-4, 1e-3, 20, dtype=np.float32)[:, None] * unit_vectors(20, 64, seed=1)
    # Nearly the same but longer, they come before the one that is the same.
    stored = np.concatenate((vectors, vectors[:1], 1.002 * near)).astype("<f2")
    rows = HalfRows(64)
    rows.append(stored)
    graph = Graph.empty(rows)
    for start in range(0, len(stored), 50):
        graph.learn(rows.rough(np.arange(start, min(start + 50, len(stored)))))
    graph.settle(np.empty((0, 64), dtype=np.float32))
    read = Graph.read(graph.write(tmp_path, "graph"), rows)
    assert len(read) == len(stored)
    for found in (graph, read):
        assert {0, 300} <= set(found.search(vectors[:1], _probe(30))[0].tolist())


def _probe(candidates: int) -> Probe:
    return Probe(candidates, 0, candidates, 1, 0, Usual(0, 0))
