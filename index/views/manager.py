"""The views of this process: each contains one generation and catches up with the catalogue when needed."""

import logging
import math
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from index.catalogue import Reading
from index.catalogue.collections import EMBEDDINGS, Generation, Target, count_embeddings
from index.catalogue.tables import CollectionRow, RemovalRow
from index.errors import CatalogueError, ViewError
from index.scoring import KeptBackground
from index.vectors.ann import OperatingPoint
from index.vectors.gpu import SCRATCH_BYTES, Gpu, GpuScan
from index.vectors.protocol import VIEW_NAMES, Vectors, ViewName, decode_vectors, rounded_vectors
from index.vectors.store import lower_priority
from index.vectors.view import CosineView, MovedError, VectorView, new_view
from index.views.snapshots import (
    Manifest,
    read_snapshot,
    remove_snapshot,
    stored_operating_point,
    stored_snapshot,
    write_snapshot,
)
from training.common.memory import free_memory

# A scan of so many float16 numbers makes a search over HTTP take a fifth more processor time than codes do
# (measured: 0.26 ms for 10,000 vectors of 512, 0.71 for 20,000, 1.9 for 50,000; by codes 0.15 to 0.18). The
# figure is the same on all machines: processes that share a home have to choose alike.
_SCANNED: Final = 15_000 * 512
# Bytes a row in addition to its vector: key, row, whether it is alive, and the table of rows by key.
_ROW_BYTES: Final = 29
# The share of free memory that a view may take: other work needs some, and the view will grow.
_SHARE: Final = 0.75
# The reason that is reported when no GPU is configured.
NO_GPU: Final = "no GPU was looked for"
_GIB: Final = 1024**3
# Keys that are looked up; some are of other collections, or gone.
_LOOKED_UP: Final = 2000
_SEED: Final = 0
_ROWS_AT_ONCE: Final = 4096
# Writing a snapshot costs about as much as reading so many vectors from the catalogue.
_WORTH_A_SNAPSHOT: Final = 1000
# A snapshot that lacks up to this share of the changes stays: a start reads them from the catalogue. One that
# is written for every few images would be gigabytes each time.
_LACKING: Final = 0.05
# Above this share of vectors that only this process has, the leader writes a snapshot for all.
_UNSHARED: Final = 0.25
# Requests that began before a new generation became active still search the old one.
_IDLE_SECONDS: Final = 60.0
# Seconds before a failed build of a view or snapshot, or a failed GPU, is retried.
_RETRY_SECONDS: Final = 600.0
_ONLY_SCANNED: Final = "blades and vectors without a sign are always scanned by the CPU"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Choice:
    """A view that a collection could have: its size, and why it is or is not the one."""

    name: ViewName
    bytes: int
    chosen: bool
    reason: str


def choose_view(
    count: int, dim: int, memory: int, preferred: ViewName | None = None, gpu: int | str = NO_GPU
) -> list[Choice]:
    """Weigh all views for `count` vectors of `dim` numbers against the bytes of memory that are free.

    Args:
        count: Number of vectors.
        dim: Length of a vector.
        memory: Bytes that the views may take.
        preferred: The operator's choice; None leaves it to size and memory, as does a GPU that can't be used.
        gpu: Bytes that the view may take on the GPU, or why there is none.
    """
    rows = count * (2 * dim + _ROW_BYTES)
    # Half a byte for every two of a third of the numbers, the row's number in its list, and its list.
    codes = count * (dim // 12 + 12)
    sizes: dict[ViewName, int] = {
        "exact": rows,
        "ivf": rows + codes,
        "mapped": count * _ROW_BYTES + codes,
        "gpu": rows,
    }
    on_gpu, fits = _on_gpu(2 * count * dim, gpu)
    if preferred == "gpu" and not fits:
        preferred = None
    reasons: dict[ViewName, str]
    if preferred is not None:
        best, reasons = preferred, dict.fromkeys(VIEW_NAMES, f"{preferred} was chosen for this collection")
        reasons[preferred] = "chosen for this collection"
        if preferred == "gpu":
            reasons["gpu"] += f"; {on_gpu}"
    elif count * dim <= _SCANNED:
        best, few = "exact", "nothing is gained for so few"
        reasons = {"exact": "a scan takes less than a millisecond", "ivf": few, "mapped": few}
        reasons["gpu"] = few if fits else on_gpu
    elif rows + codes > _SHARE * memory:
        best, free = "mapped", f"{memory / _GIB:.1f} GiB of memory are free"
        reasons = {"exact": free, "ivf": free, "mapped": "vectors stay on the disk"}
        reasons["gpu"] = free if fits else on_gpu
    else:
        scan, slower = f"a scan reads {2 * count * dim / _GIB:.2f} GiB a query", "slower than ivf, which fits"
        best = "gpu" if fits else "ivf"
        approximate = "approximate; a GPU is there" if fits else "the fastest"
        reasons = {"exact": scan, "ivf": approximate, "mapped": slower, "gpu": on_gpu}
    return [Choice(name, sizes[name], name == best, reasons[name]) for name in VIEW_NAMES]


def _on_gpu(size: int, free: int | str) -> tuple[str, bool]:
    """Return what vectors of a size take on the GPU, or why they can't be there; and whether they can."""
    if isinstance(free, str):
        return free, False
    # FAISS copies the vectors into a larger allocation whenever rows are added.
    needed = 2 * size + SCRATCH_BYTES
    takes = (
        f"takes {size / _GIB:.2f} GiB of the GPU's memory, and {needed / _GIB:.2f} GiB while rows are added"
    )
    if needed > _SHARE * free:
        return f"{takes}, of which {free / _GIB:.2f} GiB are free", False
    return takes, True


def stored_queries(session: Session, generation: Generation, target: Target) -> Vectors:
    """Sample queries (Q, D) from a generation: vectors of texts to search images, of images to search texts.

    An encoder's texts and images may be far apart, so that a query of one kind is farther from vectors of
    the other kind than any two of these are from each other.
    """
    other, key = EMBEDDINGS["texts" if target == "images" else "images"]
    here = other.generation_id == generation.id
    first, last = session.execute(select(func.min(key), func.max(key)).where(here)).one()
    if first is None:
        return np.empty((0, generation.dim), dtype=np.float32)
    keys = np.unique(np.random.default_rng(_SEED).integers(first, last, _LOOKED_UP, endpoint=True))
    query = select(other.vector).where(here, key.in_(keys.tolist()))
    return decode_vectors(session.execute(query).scalars().all(), generation.dim)


def sequence_of(session: Session, generation: Generation) -> tuple[int, int]:
    """Return the sequence number of a collection, and that up to which its removals are forgotten."""
    columns = select(CollectionRow.sequence, CollectionRow.trimmed)
    row = session.execute(columns.where(CollectionRow.id == generation.collection_id)).one_or_none()
    return (0, 0) if row is None else (row.sequence, row.trimmed)


def count_since(session: Session, generation: Generation, sequence: int, target: Target) -> int:
    """Return how many embeddings were written, and keys removed, after a sequence number."""
    table, _ = EMBEDDINGS[target]
    written = select(func.count()).where(table.generation_id == generation.id, table.sequence > sequence)
    removed = select(func.count()).select_from(_removed_since(generation, sequence, target).subquery())
    return session.execute(written).scalar_one() + session.execute(removed).scalar_one()


def follow(session: Session, generation: Generation, view: VectorView, sequence: int, target: Target) -> None:
    """Apply to the view what was written and removed after a sequence number."""
    add_since(session, generation, view, sequence, target)
    removed = session.execute(_removed_since(generation, sequence, target)).scalars()
    keys = np.fromiter(removed, dtype=np.int64)
    if len(keys):
        view.remove(keys)


def add_since(
    session: Session, generation: Generation, view: VectorView, sequence: int, target: Target
) -> None:
    """Add all embeddings that were written after a sequence number."""
    table, key = EMBEDDINGS[target]
    query = (
        select(key.label("key"), table.vector)
        .where(table.generation_id == generation.id, table.sequence > sequence)
        .order_by(table.sequence, key)
        .execution_options(yield_per=_ROWS_AT_ONCE)
    )
    # Views of float16 take the very numbers: made of length one, they would be rounded once more.
    read = rounded_vectors if isinstance(view, CosineView) else decode_vectors
    for rows in session.execute(query).partitions():
        keys = np.array([row.key for row in rows], dtype=np.int64)
        try:
            vectors = read([row.vector for row in rows], generation.dim)
        except ValueError as error:
            raise CatalogueError(
                f"The catalogue is damaged: in generation {generation.id}, {error}."
            ) from error
        view.add(keys, vectors)


def _removed_since(generation: Generation, sequence: int, target: Target) -> Select[int]:
    return select(RemovalRow.key).where(
        RemovalRow.collection_id == generation.collection_id,
        RemovalRow.target == target,
        RemovalRow.sequence > sequence,
    )


@dataclass(eq=False)
class ViewEntry:
    """A view that contains all embeddings of its generation up to `sequence`, and perhaps later ones.

    Its snapshot is in `folder`.

    No embedding in it has a higher sequence number than `newest`. `choose_again` is whether the view must
    be chosen again after the current build, and `on_gpu` whether the vectors were brought to a GPU. `failed`
    has the time of the last failed build of each view. Of several processes, `taken` is the manifest of the
    snapshot that the view was last read from or written to, `led` whether the process was the main one, and
    `write_at` the earliest time of the next snapshot.
    """

    target: Target
    folder: Path
    lock: threading.Lock = field(default_factory=threading.Lock)
    background: KeptBackground = field(default_factory=KeptBackground)
    view: VectorView | None = None
    sequence: int = 0
    newest: int = 0
    building: bool = False
    choose_again: bool = False
    on_gpu: bool = False
    failed: dict[ViewName, float] = field(default_factory=dict)
    taken: Manifest | None = None
    led: bool = False
    write_at: float = -math.inf
    used: float = field(default_factory=time.monotonic)

    def is_backing_off(self, name: ViewName) -> bool:
        """Return whether a view failed recently: each write would try it again."""
        return time.monotonic() - self.failed.get(name, -math.inf) < _RETRY_SECONDS


class Views:
    """Views by generation; threads may share it.

    Args:
        folder: Folder of the snapshots.
        gpu: Device that may hold vectors.
        is_main: Whether this is the process, of several with the same views, that learns codes and writes
            snapshots; the others take these. None: there is one process.
    """

    def __init__(
        self, folder: Path, gpu: Gpu | None = None, is_main: Callable[[], bool] | None = None
    ) -> None:
        self._folder = folder
        self._gpu = gpu
        self._shared = is_main is not None
        self._is_main = is_main or (lambda: True)
        self._lock = threading.Lock()
        self._entries: dict[tuple[int, Target], ViewEntry] = {}
        # One build at a time: it takes every core that searches leave.
        self._builder = ThreadPoolExecutor(1, thread_name_prefix="codes", initializer=lower_priority)

    def close(self) -> None:
        """Start no further build, and wait for a running one."""
        self._builder.shutdown(cancel_futures=True)

    def current(
        self, reading: Reading, generation: Generation, sequence: int, target: Target = "images"
    ) -> tuple[ViewEntry, VectorView]:
        """Return the entry of a generation's view, and that view with everything up to `sequence`."""
        entry = self.entry(generation, target)
        # In this order: a view that replaces another contains more than that one.
        reached, view, is_chosen = entry.sequence, entry.view, entry.building or not entry.choose_again
        if view is not None and reached >= sequence and is_chosen and not view.damaged:
            return entry, view
        with entry.lock:
            return entry, self._catch_up(reading.session, generation, entry, sequence)

    def save(self, session: Session, generation: Generation, sequence: int) -> None:
        """Write the snapshot of a generation, with codes if they pay, unless the one there will do.

        A full disk is only logged.
        """
        entry = self.entry(generation, "images")
        if self._snapshot_suffices(session, generation, sequence, entry.folder):
            return
        with entry.lock:
            view = self._catch_up(session, generation, entry, sequence, build=False)
            if isinstance(view, CosineView):
                # Another process may have them on the GPU, which then seems to have no room for them.
                taken = view.device_bytes or 2 * len(view) * view.dim
                best = _best_view(session, generation, view, self._gpu, taken)
                if best == "exact":
                    view.drop()
                # Snapshots contain nothing that is on a GPU.
                elif best != "gpu" and (view.name != best or view.has_pending):
                    queries = stored_queries(session, generation, "images")
                    _update_or_rebuild(view, best, entry.folder, queries)
            self._write(generation, view, entry, entry.sequence)

    def share(self, session: Session, generation: Generation, target: Target = "images") -> None:
        """Take the snapshot that another process has written; the leader writes one if few rows are shared.

        With one process it does nothing. Searches continue meanwhile.
        """
        entry = self.entry(generation, target)
        view = entry.view
        if not self._shared or entry.building or not isinstance(view, CosineView) or view.device_bytes:
            return
        if self._is_main() and not entry.led:
            # The former leader may not have finished this.
            entry.led = entry.choose_again = True
        stored = stored_snapshot(entry.folder, generation)
        if stored is not None and stored != entry.taken:
            self._take(session, generation, entry, stored)
        elif (
            entry.led
            and len(view) >= _WORTH_A_SNAPSHOT
            and view.unshared > _UNSHARED * len(view)
            and time.monotonic() >= entry.write_at
        ):
            entry.write_at = time.monotonic() + _RETRY_SECONDS
            self._write_concurrently(generation, view, entry)

    def explain(self, session: Session, generation: Generation) -> list[Choice]:
        """Return what views the images of a generation could have, and why one was chosen."""
        stored = stored_snapshot(self.entry(generation, "images").folder, generation)
        count, memory = count_embeddings(session, generation), free_memory()
        # Another process may hold the vectors, and compares the memory that is free in addition to them.
        if stored is None or stored.view != "mapped":
            memory += 2 * count * generation.dim
        return _weigh(session, generation, count, memory, self._gpu, 2 * count * generation.dim)

    def stored_operating_point(self, generation: Generation) -> OperatingPoint | None:
        """Return the operating point in the snapshot of a generation's images; None where it has no codes."""
        return stored_operating_point(self.entry(generation, "images").folder, generation)

    def keep(self, generations: Collection[int], in_use: Collection[int]) -> None:
        """Free the views of all other generations, and those of unused ones that were idle for a minute."""
        idle = time.monotonic() - _IDLE_SECONDS
        with self._lock:
            for key, entry in list(self._entries.items()):
                if key[0] not in generations or (key[0] not in in_use and entry.used < idle):
                    del self._entries[key]

    def operating_points(self) -> dict[tuple[int, Target], OperatingPoint]:
        """Return the operating point of each view that has codes, by generation and target."""
        with self._lock:
            entries = list(self._entries.items())
        points: dict[tuple[int, Target], OperatingPoint] = {}
        for key, entry in entries:
            if isinstance(entry.view, CosineView) and (point := entry.view.operating_point) is not None:
                points[key] = point
        return points

    def entry(self, generation: Generation, target: Target) -> ViewEntry:
        """Return the entry of a generation's view; see `current`."""
        with self._lock:
            key = (generation.id, target)
            entry = self._entries.get(key)
            if entry is None:
                folder = generation.uid if target == "images" else f"{generation.uid}-{target}"
                entry = ViewEntry(target, self._folder / folder)
                self._entries[key] = entry
        entry.used = time.monotonic()
        return entry

    def _snapshot_suffices(
        self, session: Session, generation: Generation, sequence: int, folder: Path
    ) -> bool:
        """Return whether the snapshot of a generation has nearly all of its images, and the right view."""
        stored = stored_snapshot(folder, generation)
        if stored is None or not sequence_of(session, generation)[1] <= stored.sequence <= sequence:
            return False
        count = count_embeddings(session, generation)
        if count_since(session, generation, stored.sequence, "images") > _LACKING * count:
            return False
        # Snapshots contain nothing that is on a GPU.
        return _chosen(self.explain(session, generation)) in (stored.view, "gpu")

    def _catch_up(
        self, session: Session, generation: Generation, entry: ViewEntry, sequence: int, *, build: bool = True
    ) -> VectorView:
        view = entry.view
        if view is None or view.damaged or entry.sequence < sequence:
            # The transaction's, which may be later than the one of the request.
            sequence, trimmed = sequence_of(session, generation)
            entry.newest = max(entry.newest, sequence)
            if view is None or view.damaged or entry.sequence < trimmed:
                view = entry.view = self._load(session, generation, sequence, entry)
            else:
                follow(session, generation, view, entry.sequence, entry.target)
            entry.sequence = sequence
        elif not entry.choose_again:
            return view
        if build:
            entry.choose_again = entry.building
        if build and not entry.building and isinstance(view, CosineView):
            if entry.on_gpu and view.name != "gpu":
                # Back off after a GPU has lost the vectors; otherwise they would be uploaded again and again.
                entry.on_gpu, entry.failed["gpu"] = False, time.monotonic()
            gpu = None if entry.is_backing_off("gpu") else self._gpu
            best = _best_view(session, generation, view, gpu, view.device_bytes)
            if best == "exact":
                view.drop()
            must_build = best != "exact" and (view.name != best or view.has_pending)
            if best != "gpu" and (view.name != best or view.outgrown):
                # Others wait for the leader's snapshot.
                must_build = must_build and self._is_main()
            entry.on_gpu = view.name == "gpu" and not must_build
            if must_build and not entry.is_backing_off(best):
                self._start_build(session, generation, entry, view, best)
        return view

    def _start_build(
        self, session: Session, generation: Generation, entry: ViewEntry, view: CosineView, best: ViewName
    ) -> None:
        queries = stored_queries(session, generation, entry.target)
        entry.building = True
        try:
            self._builder.submit(self._build, generation, entry, view, best, queries)
        except RuntimeError:
            # Closed views start no more builds.
            entry.building = False

    def _build(
        self, generation: Generation, entry: ViewEntry, view: CosineView, best: ViewName, queries: Vectors
    ) -> None:
        """Give a view its copy on the GPU, or codes and a snapshot, while it answers."""
        renewed = False
        try:
            if best == "gpu" and self._gpu is not None:
                self._gpu.check()
                entry.on_gpu = view.upload(GpuScan(view.dim, self._gpu))
            elif best != "gpu":
                renewed = _update_or_rebuild(view, best, entry.folder, queries)
        except Exception:  # noqa: BLE001 - nobody else would see it, and searches continue
            entry.failed[best] = time.monotonic()
            _log.exception(
                "the %s view of generation %d was not built: searches continue with %s",
                best,
                generation.id,
                view.name,
            )
        finally:
            entry.building = False
        if renewed:
            self._write_concurrently(generation, view, entry)

    def _write_concurrently(self, generation: Generation, view: CosineView, entry: ViewEntry) -> None:
        """Write the snapshot of a view while it is searched."""
        with ExitStack() as locked:
            locked.enter_context(entry.lock)
            # A replaced view is not written: the sequence number is of its successor.
            if entry.view is view:
                # A search after a write catches up while the vectors are copied.
                self._write(generation, view, entry, entry.sequence, on_copied=locked.close)

    def _load(self, session: Session, generation: Generation, sequence: int, entry: ViewEntry) -> VectorView:
        """Return a view of what a session sees, which is the state of a sequence number."""
        target, entry.taken = entry.target, None
        folder, count = entry.folder, count_embeddings(session, generation, target)
        mapped = _chosen(_weigh(session, generation, count, free_memory(), self._gpu)) == "mapped"
        stored = stored_snapshot(folder, generation) if self._shared else None
        snapshot = read_snapshot(folder, generation, mapped=mapped, shared=self._shared)
        if snapshot is not None:
            view, reached = snapshot
            if sequence_of(session, generation)[1] <= reached <= sequence:
                lacking = count_since(session, generation, reached, target)
                follow(session, generation, view, reached, target)
                if len(view) == count:
                    entry.taken = stored
                    if lacking > max(_WORTH_A_SNAPSHOT, _LACKING * count) and self._is_main():
                        self._write(generation, view, entry, sequence)
                    return view
            with Session(session.get_bind()) as later:
                latest, _ = sequence_of(later, generation)
            # A snapshot newer than this session stays: another process has written it since.
            if (reached <= sequence or reached > latest) and self._is_main():
                _log.warning("the snapshot of generation %d does not fit the catalogue", generation.id)
                remove_snapshot(folder)
        blades, unsigned = generation.blades, generation.unsigned
        spill = folder if mapped else None
        view = new_view(generation.dim, blades, unsigned=unsigned, spill=spill, shared=self._shared)
        add_since(session, generation, view, 0, target)
        if len(view) >= _WORTH_A_SNAPSHOT and self._is_main():
            self._write(generation, view, entry, sequence)
        return view

    def _take(self, session: Session, generation: Generation, entry: ViewEntry, stored: Manifest) -> None:
        """Search by a snapshot from now on, unless it does not fit what is there."""
        entry.taken, target = stored, entry.target
        snapshot = read_snapshot(entry.folder, generation, mapped=stored.view == "mapped", shared=True)
        if snapshot is None:
            return
        view, reached = snapshot
        # Most of the later rows are read without blocking searches.
        for guard in (nullcontext(), entry.lock):
            with guard, Session(session.get_bind()) as latest:
                sequence, trimmed = sequence_of(latest, generation)
                if entry.building or not trimmed <= reached <= sequence:
                    return
                follow(latest, generation, view, reached, target)
                reached = sequence
                if guard is entry.lock and len(view) == count_embeddings(latest, generation, target):
                    entry.view, entry.sequence = view, sequence
                    entry.newest = max(entry.newest, sequence)

    def _write(
        self,
        generation: Generation,
        view: VectorView,
        entry: ViewEntry,
        sequence: int,
        on_copied: Callable[[], None] | None = None,
    ) -> None:
        try:
            entry.taken = write_snapshot(entry.folder, view, generation, sequence, on_copied) or entry.taken
        except (OSError, RuntimeError, ViewError, MovedError) as error:
            _log.warning("the snapshot of generation %d was not written: %s", generation.id, error)
        except Exception:  # noqa: BLE001 - in the background nobody else would see it
            _log.exception("the snapshot of generation %d was not written", generation.id)


def _update_or_rebuild(view: CosineView, best: ViewName, spill: Path, queries: Vectors) -> bool:
    """Encode the rows added since, or build new codes; return whether there are new ones."""
    if view.name == best and view.encode_pending():
        return False
    return view.build(best, spill, queries)


def _best_view(
    session: Session, generation: Generation, view: CosineView, gpu: Gpu | None, taken: int
) -> ViewName:
    # Vectors that have moved to files return only if there is plenty of memory; otherwise they would move
    # back and forth.
    memory = free_memory() // 2 if view.mapped else free_memory() + view.memory_bytes
    return _chosen(_weigh(session, generation, len(view), memory, gpu, taken))


def _chosen(choices: list[Choice]) -> ViewName:
    return next(choice.name for choice in choices if choice.chosen)


def _weigh(
    session: Session, generation: Generation, count: int, memory: int, gpu: Gpu | None, taken: int = 0
) -> list[Choice]:
    """Weigh the views against free memory, and the GPU's memory plus what the view has taken of it."""
    if generation.blades != 1 or generation.unsigned:
        choices = choose_view(count, generation.dim, memory, "exact")
        return [replace(choice, reason=_ONLY_SCANNED) for choice in choices]
    row = select(CollectionRow.view).where(CollectionRow.id == generation.collection_id)
    chosen = session.execute(row).scalar_one_or_none()
    preferred = next((name for name in VIEW_NAMES if name == chosen), None)
    free = NO_GPU if gpu is None or preferred not in {None, "gpu"} else gpu.free()
    return choose_view(
        count, generation.dim, memory, preferred, free if isinstance(free, str) else free + taken
    )
