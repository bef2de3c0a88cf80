"""Near-duplicates: images of a collection that show the same picture, in files that may differ.

Two pictures are the same but for size, compression, brightness, contrast or a cropped edge.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image
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
from training.common.progress import progress_bar
from training.evaluation.similarity import as_blades, similarity

# (left, upper, right, lower), shares of width and height.
Window = tuple[float, float, float, float]
# A picture's gradients, of length one; zero where it is blank.
Gradients = NDArray[np.float32]

_WHOLE: Final[Window] = (0.0, 0.0, 1.0, 1.0)
# Pictures are held this wide and high, whatever their shape: a copy may be squashed.
_SIDE: Final = 96
_SKETCH: Final = 8
SKETCH_DIM: Final = _SKETCH * _SKETCH
_COARSE: Final = 16
_FINE: Final = 32
# Steps by which each edge of a window is moved while that makes pictures more alike.
_STEPS: Final = (0.04, 0.02, 0.01)
_ROUNDS: Final = 4
_SMALLEST: Final = 0.5
# Grey levels that a picture of one colour may span: the thumbnail is compressed with losses.
_BLANK_LEVELS: Final = 3
# Rounding errors of a blank window's gradients are shorter than this.
_BLANK: Final = 0.1
# Copies with up to 8 % cut off each edge reach this before edges are moved, and after the first moves
# (measured: at least 0.73 and 0.61); most pairs of different photographs do not, nor half of radiographs.
_HOPELESS: Final = 0.5
# Radiographs of different patients reach 0.86; copies with up to 8 % cut off each edge go beyond (measured).
_SAME: Final = 0.88
# Neighbours to compare for each image; the threshold lets as many pass by chance, whatever the model.
_NEAREST: Final = 5
_SAMPLE: Final = 2000
_ROWS: Final = 1024
_COLUMNS: Final = 8192
_CACHE_PICTURES: Final = 20_000

Pair = tuple[int, int]
_Alike = Callable[[Vectors, Vectors], Vectors]


@dataclass(frozen=True, slots=True, eq=False)
class Picture:
    """A picture as `same_picture` takes it.

    Attributes:
        pixels: Grey and small, uint8 (S, S).
        gradients: Gradients of the whole picture.
    """

    pixels: NDArray[np.uint8]
    gradients: Gradients

    @property
    def blank(self) -> bool:
        """Whether it has one colour."""
        return int(self.pixels.max()) - int(self.pixels.min()) <= _BLANK_LEVELS

    @property
    def sketch(self) -> NDArray[np.float32]:
        """Brightness pattern as a vector (SKETCH_DIM,) of length one; zero for a blank picture.

        A cropped edge changes it little.
        """
        if self.blank:
            return np.zeros(SKETCH_DIM, dtype=np.float32)
        part = _SIDE // _SKETCH
        means = self.pixels.reshape(_SKETCH, part, _SKETCH, part).mean((1, 3), dtype=np.float32).ravel()
        means -= means.mean()
        length = float(np.linalg.norm(means))
        sketch: NDArray[np.float32] = means / np.float32(length if length > _BLANK else np.inf)
        return sketch


def read_picture(path: Path) -> Picture:
    """Read a picture.

    Raises:
        OSError: The file cannot be read.
    """
    with Image.open(path) as image:
        small = image.convert("L").resize((_SIDE, _SIDE), Image.Resampling.BOX)
    pixels = np.asarray(small)
    return Picture(pixels, _gradients(pixels, [_WHOLE], _FINE)[0])


def same_picture(first: Picture, second: Picture) -> bool:
    """Tell whether one picture is the other, or a window of it, but for size, compression and tone.

    The gradients of one whole picture are correlated with those of windows of the other, whose edges are
    moved while that makes them more alike. Gradients do not see brightness, their correlation does not see
    contrast, and the windows find what a crop has kept.
    """
    if first.blank or second.blank:
        # Pictures of one colour have nothing in common but that.
        return False
    if float(first.gradients @ second.gradients) >= _SAME:
        return True
    return _is_window(first, second) or _is_window(second, first)


def _is_window(whole: Picture, larger: Picture) -> bool:
    coarse = _gradients(whole.pixels, [_WHOLE], _COARSE)[0]
    likely, window = _best(coarse, larger, _PLACES, _COARSE)
    if likely < _HOPELESS:
        return False
    value, window = _best(whole.gradients, larger, [window, _WHOLE], _FINE)
    for step in _STEPS:
        for _ in range(_ROUNDS):
            moved, place = _best(whole.gradients, larger, _near(window, step), _FINE)
            if moved <= value:
                break
            value, window = moved, place
            if value >= _SAME:
                return True
        if value < _HOPELESS:
            return False
    return False


def _near(window: Window, step: float) -> list[Window]:
    """Return the window with each one of its edges moved, and with it moved as a whole."""
    moves = [
        tuple(step * sign * (edge == place) for place in range(4)) for edge in range(4) for sign in (1, -1)
    ]
    moves += [(x, y, x, y) for x, y in ((step, 0.0), (-step, 0.0), (0.0, step), (0.0, -step))]
    near = []
    for move in moves:
        left, upper, right, lower = (
            round(min(max(edge + by, 0.0), 1.0), 4) for edge, by in zip(window, move, strict=True)
        )
        if right - left >= _SMALLEST and lower - upper >= _SMALLEST:
            near.append((left, upper, right, lower))
    return near


def _best(gradients: Gradients, image: Picture, windows: Sequence[Window], side: int) -> tuple[float, Window]:
    """Return the correlation with the likest of some windows of a picture, and that window."""
    values = _gradients(image.pixels, windows, side) @ gradients
    best = int(np.argmax(values))
    return float(values[best]), windows[best]


def _gradients(pixels: NDArray[np.uint8], windows: Sequence[Window], side: int) -> Gradients:
    """Return the gradients (W, G) of windows of a picture, each made `side` wide and high."""
    across = np.stack([_weights(left, right, side) for left, _, right, _ in windows])
    down = np.stack([_weights(upper, lower, side) for _, upper, _, lower in windows])
    small = down @ pixels.astype(np.float32) @ across.transpose(0, 2, 1)
    to_right = small[:, 1:, 1:] - small[:, 1:, :-1]
    to_bottom = small[:, 1:, 1:] - small[:, :-1, 1:]
    found = np.concatenate((to_right, to_bottom), axis=1).reshape(len(windows), -1)
    lengths = np.linalg.norm(found, axis=1, keepdims=True)
    gradients: Gradients = np.divide(found, lengths, out=np.zeros_like(found), where=lengths > _BLANK)
    return gradients


@lru_cache(maxsize=4096)
def _weights(start: float, end: float, side: int) -> NDArray[np.float32]:
    """Return how much each pixel (S) counts in the means of `side` equal parts of a stretch, (side, S)."""
    edges = np.linspace(start * _SIDE, end * _SIDE, side + 1)[:, None]
    pixels = np.arange(_SIDE)
    covered = np.minimum(edges[1:], pixels + 1) - np.maximum(edges[:-1], pixels)
    weights: NDArray[np.float32] = (covered.clip(0) / (edges[1:] - edges[:-1])).astype(np.float32)
    return weights


def _windows() -> tuple[Window, ...]:
    places = [_WHOLE]
    for share in (0.92, 0.84, 0.76):
        offsets = (0.0, (1 - share) / 2, 1 - share)
        places += [(x, y, x + share, y + share) for x in offsets for y in offsets]
    return tuple(places)


_PLACES: Final = _windows()


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
    decide; neither can tell a copy from another picture of the same thing.

    Raises:
        UnknownCollectionError: No collection has this name.
        NoActiveGenerationError: The collection has no active generation yet.
    """
    # Views of this call are closed: a build that they began has no other use.
    with closing(Views(home.snapshots_folder)) as views:
        return _find(home, views, collection, show_progress)


def _find(home: Home, views: Views, collection: str, show_progress: bool) -> Duplicates:
    with home.catalogue.reading() as reading:
        session = reading.session
        generation, sequence = require_active(session, collection)
        view = views.current(reading, generation, sequence)
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
    _unite_same_pictures(sets, sorted(pairs), pictures, show_progress)
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
        found = alike(own, view.vectors(columns))
        row, column = np.nonzero((found >= threshold) & (rows[:, None] != columns))
        at.append(row)
        others.append(columns[column])
        scores.append(found[row, column])
    row, other, score = np.concatenate(at), np.concatenate(others), np.concatenate(scores)
    order = np.lexsort((other, -score, row))
    row, other = row[order], other[order]
    for place, key in enumerate(rows.tolist()):
        start, end = np.searchsorted(row, (place, place + 1)).tolist()
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
        self.of = lru_cache(maxsize=_CACHE_PICTURES)(self._read)

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
            read = [(key, picture) for key in block.tolist() if (picture := pictures.of(key)) is not None]
            sketches = [(key, picture.sketch) for key, picture in read]
            drawn = [(key, sketch) for key, sketch in sketches if sketch.any()]
            if drawn:
                view.add(np.array([key for key, _ in drawn]), np.stack([sketch for _, sketch in drawn]))
            bar.advance(len(block))
    return view


def _unite_same_pictures(
    sets: "_Sets", pairs: Sequence[Pair], pictures: _Pictures, show_progress: bool
) -> None:
    """Look at the pairs, and unite those of one picture."""
    with progress_bar("Looking at pairs", len(pairs), shown=show_progress) as bar:
        for pair in pairs:
            bar.advance()
            if sets.root(pair[0]) == sets.root(pair[1]):
                continue
            one, other = map(pictures.of, pair)
            if one is not None and other is not None and same_picture(one, other):
                sets.unite(*pair)


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
