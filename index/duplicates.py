"""Near-duplicates: images of a collection that show the same picture, in files that may differ.

Two pictures are the same but for size, compression, brightness, contrast or a cropped edge.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from sqlalchemy import select

from index.catalogue.collections import require_active
from index.catalogue.tables import ImageRow
from index.errors import StoreError
from index.files.image_store import ImageStore
from index.home import Home
from index.scoring import draw
from index.vectors.protocol import Keys, Vectors
from index.vectors.view import CosineView, VectorView
from index.views.manager import Views
from training.common.atomic import write_text
from training.common.progress import progress_bar
from training.evaluation.similarity import as_blades, similarity
from training.imaging.perceptual import SKETCH_DIM, Picture, read_picture, same_picture

# Neighbours to compare for each image; for any model, the threshold lets that many pass by chance.
_NEAREST: Final = 5
_SAMPLE: Final = 2000
_ROWS: Final = 1024
_COLUMNS: Final = 8192
_CACHE_PICTURES: Final = 20_000
# Together less than a job's result may have.
_GROUP_BYTES: Final = 48 << 10
_UNREAD_BYTES: Final = 8 << 10

Pair = tuple[int, int]
_Alike = Callable[[Vectors, Vectors], Vectors]


@dataclass(frozen=True, slots=True)
class DuplicateGroup:
    """Images that show the same picture, by id in the order they came in; `same_file` if byte for byte."""

    ids: tuple[str, ...]
    same_file: bool


@dataclass(frozen=True, slots=True)
class Duplicates:
    """The groups of a collection.

    Attributes:
        groups: Groups in the order of their first images.
        unread: Ids of images whose files could not be looked at.
        looked_at: Number of candidate pairs compared by pixels.
    """

    groups: tuple[DuplicateGroup, ...]
    unread: tuple[str, ...]
    looked_at: int


def find_duplicates(home: Home, collection: str, *, show_progress: bool = True) -> Duplicates:
    """Find the images of a collection that show the same picture.

    Equal files belong together. Beyond them, the model's vectors and small sketches of the pictures name
    pairs that are worth a look, at thresholds that follow from the collection itself, and the pictures
    decide; neither can distinguish a copy from another picture of the same subject.
    """
    # Views of this call are closed in the end: a build that they began has no other use.
    with closing(Views(home.snapshots_folder)) as views:
        with home.catalogue.reading() as reading:
            session = reading.session
            generation, sequence = require_active(session, collection)
            _, view = views.current(reading, generation, sequence)
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
        pictures = _Pictures(home.store, files)
        sketches = _sketches(pictures, different, show_progress)
        pairs = likely_pairs(
            view,
            different,
            blades=generation.blades,
            unsigned=generation.unsigned,
            show_progress=show_progress,
        )
        pairs |= likely_pairs(sketches, np.sort(sketches.keys()), show_progress=show_progress)
        with progress_bar("Looking at pairs", len(pairs), shown=show_progress) as bar:
            for pair in sorted(pairs):
                bar.advance()
                if sets.root(pair[0]) == sets.root(pair[1]):
                    continue
                one, other = map(pictures.get, pair)
                if one is not None and other is not None and same_picture(one, other):
                    sets.unite(*pair)
        groups = [
            DuplicateGroup(tuple(ids[key] for key in group), len({files[key] for key in group}) == 1)
            for group in sets.groups()
        ]
        return Duplicates(tuple(groups), tuple(ids[key] for key in sorted(pictures.unread)), len(pairs))


def likely_pairs(
    view: VectorView, keys: Keys, *, blades: int = 1, unsigned: bool = False, show_progress: bool = False
) -> set[Pair]:
    """Return the pairs of images (smaller key first) that are worth a look.

    An image is paired with its `_NEAREST` neighbours, as far as they are nearer than all but that many of so
    large a collection's random pairs.
    """

    def alike(first: Vectors, second: Vectors) -> Vectors:
        return similarity(
            as_blades(first, blades, unsigned=unsigned), as_blades(second, blades, unsigned=unsigned)
        )

    threshold = _threshold(view, keys, alike)
    pairs: set[Pair] = set()
    with progress_bar("Comparing vectors", len(keys), shown=show_progress) as bar:
        for rows in _blocks(keys, _ROWS):
            for key, near in _neighbours(view, rows, keys, alike, threshold):
                pairs.update((min(key, other), max(key, other)) for other in near)
            bar.advance(len(rows))
    return pairs


def _threshold(view: VectorView, keys: Keys, alike: _Alike) -> float:
    sample = draw(keys, _SAMPLE, 0)
    if len(keys) <= _NEAREST + 1:
        return -np.inf
    vectors = view.vectors(sample)
    scores = alike(vectors, vectors)[np.triu_indices(len(sample), 1)]
    return float(np.quantile(scores, 1 - _NEAREST / len(keys)))


def _neighbours(
    view: VectorView, rows: Keys, keys: Keys, alike: _Alike, threshold: float
) -> Iterator[tuple[int, list[int]]]:
    """Yield each of the rows with its nearest neighbours above the threshold."""
    own = view.vectors(rows)
    at: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
    others: list[Keys] = []
    scores: list[Vectors] = []
    for columns in _blocks(keys, _COLUMNS):
        similarities = alike(own, view.vectors(columns))
        row, column = np.nonzero((similarities >= threshold) & (rows[:, None] != columns))
        at.append(row)
        others.append(columns[column])
        scores.append(similarities[row, column])
    row, other, score = np.concatenate(at), np.concatenate(others), np.concatenate(scores)
    order = np.lexsort((other, -score, row))
    row, other = row[order], other[order]
    for index, key in enumerate(rows.tolist()):
        start, end = np.searchsorted(row, (index, index + 1)).tolist()
        yield key, other[start : min(end, start + _NEAREST)].tolist()


def _blocks(keys: Keys, size: int) -> Iterator[Keys]:
    for start in range(0, len(keys), size):
        yield keys[start : start + size]


class _Pictures:
    """The pictures of images; the latest are kept, and those that cannot be read are noted in `unread`."""

    def __init__(self, store: ImageStore, files: Mapping[int, str]) -> None:
        self._store = store
        self._files = files
        self.unread: set[int] = set()
        self.get = lru_cache(maxsize=_CACHE_PICTURES)(self._read)

    def _read(self, key: int) -> Picture | None:
        try:
            return read_picture(self._store.thumbnail(self._files[key]))
        except (StoreError, OSError):
            self.unread.add(key)
            return None


def _sketches(pictures: _Pictures, keys: Keys, show_progress: bool) -> CosineView:
    """Return a view of the sketches of those pictures that can be read and are not blank."""
    view = CosineView(SKETCH_DIM)
    with progress_bar("Reading pictures", len(keys), shown=show_progress) as bar:
        for block in _blocks(keys, _ROWS):
            read = {key: pictures.get(key) for key in block.tolist()}
            drawn = {key: one.sketch for key, one in read.items() if one is not None and one.sketch.any()}
            if drawn:
                view.add(np.array(list(drawn)), np.stack(list(drawn.values())))
            bar.advance(len(block))
    return view


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
        members: dict[int, list[int]] = {}
        for key in sorted(self._parent):
            members.setdefault(self.root(key), []).append(key)
        return [group for group in members.values() if len(group) > 1]


def as_json(duplicates: Duplicates) -> dict[str, list[Any]]:
    """The groups, and the ids of unreadable images."""
    groups = [{"ids": list(group.ids), "same_file": group.same_file} for group in duplicates.groups]
    return {"groups": groups, "unread": list(duplicates.unread)}


def write_groups(duplicates: Duplicates, folder: Path) -> None:
    """Write all into `groups.json` of a folder, and what a job shows of it into `result.json`."""
    everything = as_json(duplicates)
    rooms = {"groups": _GROUP_BYTES, "unread": _UNREAD_BYTES}
    shown = {name: _fitting(everything[name], room) for name, room in rooms.items()}
    left_out = {name: len(everything[name]) - len(entries) for name, entries in shown.items()}
    for name, content in (("groups.json", everything), ("result.json", {**shown, "left_out": left_out})):
        write_text(folder / name, json.dumps(content))


def _fitting(entries: Iterable[Any], room: int) -> list[Any]:
    """The entries but for those that there is no room for, however large a single one is."""
    kept = []
    for entry in entries:
        size = len(json.dumps(entry)) + len(", ")
        if size <= room:
            kept.append(entry)
            room -= size
    return kept
