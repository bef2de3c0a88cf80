"""Measures after a build how many lists and candidates find the ten nearest of every calibration query."""

from dataclasses import replace
from typing import Final

import numpy as np

from index.vectors.ann.ivf_pq import IvfPq
from index.vectors.ann.search import MEASURED_RANK, AnnSearch, OperatingPoint
from index.vectors.codec import unit
from index.vectors.filter_mask import FilterMask
from index.vectors.id_map import Mask, Rows
from index.vectors.protocol import Vectors
from index.vectors.ranking import cosines
from index.vectors.storage.vector_store import Guard, VectorStore

# Required of calibration queries of each kind: mean recall@10, and the recall@10 of each single one.
_RECALL: Final = 0.995
_LOWEST: Final = 0.9
# Lists and candidates to try.
_LISTS: Final = (48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096, 8192)
_CANDIDATES: Final = (128, 512, 2048)
_QUERIES: Final = 300
# Noise of synthetic image queries.
_IMAGE_NOISE: Final = 0.45
# Signal, noise and modality gap of synthetic text queries.
_TEXT_SIGNAL: Final = 0.45
_TEXT_NOISE: Final = 0.4
_TEXT_GAP: Final = 0.8
# Scores this close are equal.
_TIE: Final = 1e-6
_SEED: Final = 0


def calibrate(
    codes: IvfPq, store: VectorStore, alive: Mask, guard: Guard, stored_queries: Vectors | None = None
) -> OperatingPoint:
    """Return the smallest operating point that finds the hits of all kinds of queries among live rows.

    `stored_queries` (Q, D) are embedded texts where images are searched, or the other way.
    """
    passing = FilterMask(alive, int(np.count_nonzero(alive)), filtered=False)
    with guard():
        kinds = _made_queries(store, passing.rows)
    if stored_queries is not None and len(stored_queries):
        kinds.append(stored_queries[:_QUERIES])
    queries = np.concatenate(kinds)
    nearest = store.nearest_many(queries, MEASURED_RANK, alive, guard)
    with guard():
        vectors = store.get(nearest.ravel()).reshape(*nearest.shape, -1)
    # The scan ranked by rounded lengths: its last one need not be the last by cosine.
    last = cosines(queries[:, None], vectors).min(axis=1)
    scanned = OperatingPoint(0, 0, 1.0, 1.0, len(queries), len(codes))
    levels = [lists for lists in _LISTS if lists < codes.lists] + [codes.lists]
    for candidates in _CANDIDATES:
        for lists in levels:
            tried = replace(scanned, lists=lists, candidates=candidates)
            recalls = _recalls(AnnSearch(codes, tried, store), queries, last, passing, guard)
            split = np.cumsum([len(kind) for kind in kinds])[:-1]
            if min(float(own.mean()) for own in np.split(recalls, split)) < _RECALL:
                continue
            if recalls.min() >= _LOWEST:
                return replace(tried, recall=float(recalls.mean()), lowest=float(recalls.min()))
    return scanned


def _recalls(
    search: AnnSearch, queries: Vectors, last: Vectors, passing: FilterMask, guard: Guard
) -> Vectors:
    """Return the recall@10 (Q,) of each query, whose tenth hit scores `last`; a scan finds everything."""
    recalls = np.ones(len(queries), dtype=np.float32)
    for place, query in enumerate(queries):
        with guard():
            rows = search.shortlist(query, MEASURED_RANK, passing)
            vectors = None if rows is None else search.store.get(rows)
        if vectors is not None:
            found = np.count_nonzero(cosines(query, vectors) >= last[place] - _TIE)
            recalls[place] = min(1.0, found / MEASURED_RANK)
    return recalls


def _made_queries(store: VectorStore, living: Rows) -> list[Vectors]:
    """Return queries near stored vectors: like other images, and like texts, which lie apart from images."""
    random = np.random.default_rng(_SEED)
    count = min(_QUERIES, len(living))
    chosen, first, second = (random.choice(living, count) for _ in range(3))
    own = store.get(chosen)
    images = unit(own + np.float32(_IMAGE_NOISE) * unit(store.get(first) - store.get(second)))
    gap, *noise = unit(random.standard_normal((count + 1, store.dim)).astype(np.float32))
    texts = _TEXT_SIGNAL * unit(own - own.mean(axis=0)) + _TEXT_GAP * gap + _TEXT_NOISE * np.stack(noise)
    return [images, unit(texts.astype(np.float32))]
