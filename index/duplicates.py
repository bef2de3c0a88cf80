"""Near-duplicates: images of a collection that show the same picture, in files that may differ."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from sqlalchemy import select

from index.background import draw
from index.catalogue.tables import ImageRow
from index.engine import SearchEngine
from index.errors import StoreError
from index.generations import Generation, require_active
from index.perceptual import Picture, read_picture, same_picture
from index.store import ImageStore
from index.vectors.protocol import Keys, Vectors, VectorView
from index.views import Views
from training.evaluation.similarity import as_blades, similarity
from training.progress import progress_bar

# So many of the nearest images are looked at, and so many pass by chance whatever the model.
_NEAREST: Final = 5
_SAMPLE: Final = 2000
_ROWS: Final = 1024
_COLUMNS: Final = 8192
_PICTURES_KEPT: Final = 20_000

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True)
class DuplicateGroup:
    """Images that show the same picture, by id in the order they came in; `same_file` if byte for byte."""

    ids: tuple[str, ...]
    same_file: bool


@dataclass(frozen=True, slots=True)
class Duplicates:
    """The groups of a collection, and the ids of images whose files could not be looked at."""

    groups: tuple[DuplicateGroup, ...]
    unread: tuple[str, ...]


def find_duplicates(engine: SearchEngine, collection: str, *, show_progress: bool = True) -> Duplicates:
    """Find the images of a collection that show the same picture.

    Equal files belong together. Beyond them, the vectors name pairs that are worth a look, at a threshold
    that follows from the collection itself, and the pictures decide; a vector alone cannot tell a copy from
    another picture of the same thing.

    Args:
        engine: Where the collection is.
        collection: Its name.
        show_progress: Show bars on standard error.

    Raises:
        UnknownCollectionError: There is no such collection.
        NoActiveGenerationError: It cannot be searched yet.
    """
    with engine.catalogue.read() as session:
        generation, sequence = require_active(session, collection)
        view = Views(engine.snapshots_folder).current(session, generation, sequence)
        query = select(ImageRow.id, ImageRow.external_id, ImageRow.sha256)
        rows = session.execute(
            query.where(ImageRow.collection_id == generation.collection_id).order_by(ImageRow.id)
        ).all()
    ids = {key: name for key, name, _ in rows}
    files = {key: sha256 for key, _, sha256 in rows}
    sets = _Sets()
    first: dict[str, int] = {}
    for key, sha256 in files.items():
        sets.unite(first.setdefault(sha256, key), key)
    different = np.intersect1d(np.array(list(first.values()), dtype=np.int64), view.keys())
    pairs = likely_pairs(view, different, generation, show_progress=show_progress)
    unread = _unite_same_pictures(sets, pairs, files, engine.store, show_progress)
    groups = [
        DuplicateGroup(tuple(ids[key] for key in group), len({files[key] for key in group}) == 1)
        for group in sets.groups()
    ]
    return Duplicates(tuple(groups), tuple(ids[key] for key in sorted(unread)))


def likely_pairs(
    view: VectorView, keys: Keys, generation: Generation, *, show_progress: bool = False
) -> list[Pair]:
    """Return the pairs of images (smaller key first, rising) that are worth a look.

    An image is paired with its `_NEAREST` neighbours, as far as they are nearer than all but that many of so
    large a collection's random pairs.

    Args:
        view: Their vectors.
        keys: Images that are all in the view, rising.
        generation: Of the view.
        show_progress: Show a bar on standard error.
    """
    threshold = _threshold(view, keys, generation)
    pairs: set[Pair] = set()
    with progress_bar("Comparing vectors", len(keys), shown=show_progress) as bar:
        for rows in _blocks(keys, _ROWS):
            for key, near in _neighbours(view, rows, keys, generation, threshold):
                pairs.update((min(key, other), max(key, other)) for other in near)
            bar.advance(len(rows))
    return sorted(pairs)


def _threshold(view: VectorView, keys: Keys, generation: Generation) -> float:
    sample = draw(keys, _SAMPLE, 0)
    if len(keys) <= _NEAREST + 1:
        return -np.inf
    vectors = view.vectors(sample)
    alike = _similarity(vectors, vectors, generation)[np.triu_indices(len(sample), 1)]
    return float(np.quantile(alike, 1 - _NEAREST / len(keys)))


def _neighbours(
    view: VectorView, rows: Keys, keys: Keys, generation: Generation, threshold: float
) -> Iterator[tuple[int, list[int]]]:
    """Yield each of the rows with its nearest neighbours above the threshold."""
    own = view.vectors(rows)
    at: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
    others: list[Keys] = []
    scores: list[Vectors] = []
    for columns in _blocks(keys, _COLUMNS):
        alike = _similarity(own, view.vectors(columns), generation)
        row, column = np.nonzero((alike >= threshold) & (rows[:, None] != columns))
        at.append(row)
        others.append(columns[column])
        scores.append(alike[row, column])
    row, other, score = np.concatenate(at), np.concatenate(others), np.concatenate(scores)
    order = np.lexsort((other, -score, row))
    row, other = row[order], other[order]
    for place, key in enumerate(rows.tolist()):
        start, end = np.searchsorted(row, (place, place + 1)).tolist()
        yield key, other[start : min(end, start + _NEAREST)].tolist()


def _similarity(first: Vectors, second: Vectors, generation: Generation) -> Vectors:
    blades, unsigned = generation.blades, generation.unsigned
    return similarity(
        as_blades(first, blades, unsigned=unsigned), as_blades(second, blades, unsigned=unsigned)
    )


def _blocks(keys: Keys, size: int) -> Iterator[Keys]:
    for start in range(0, len(keys), size):
        yield keys[start : start + size]


def _unite_same_pictures(
    sets: "_Sets", pairs: Sequence[Pair], files: dict[int, str], store: ImageStore, show_progress: bool
) -> set[int]:
    """Look at the pairs, unite those of one picture, and return the images that could not be read."""

    @lru_cache(maxsize=_PICTURES_KEPT)
    def picture(key: int) -> Picture | None:
        try:
            return read_picture(store.thumbnail(files[key]))
        except (StoreError, OSError):
            return None

    unread: set[int] = set()
    with progress_bar("Looking at pairs", len(pairs), shown=show_progress) as bar:
        for pair in pairs:
            bar.advance()
            if sets.root(pair[0]) == sets.root(pair[1]):
                continue
            one, other = map(picture, pair)
            if one is None or other is None:
                unread.update(key for key, image in zip(pair, (one, other), strict=True) if image is None)
            elif same_picture(one, other):
                sets.unite(*pair)
    return unread


class _Sets:
    """Disjoint sets of keys; the root of each is its smallest."""

    def __init__(self) -> None:
        self._parent: dict[int, int] = {}

    def root(self, key: int) -> int:
        above = self._parent.setdefault(key, key)
        while above != key:
            # Halving the path keeps all later walks short.
            self._parent[key] = self._parent[above]
            key, above = above, self._parent[above]
        return key

    def unite(self, first: int, second: int) -> None:
        one, other = sorted((self.root(first), self.root(second)))
        self._parent[other] = one

    def groups(self) -> list[list[int]]:
        """Return all sets of more than one key, and the keys in them, rising."""
        found: dict[int, list[int]] = {}
        for key in sorted(self._parent):
            found.setdefault(self.root(key), []).append(key)
        return [group for group in found.values() if len(group) > 1]
