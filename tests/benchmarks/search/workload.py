"""The workload of all contestants: vectors with fields, queries, filters and the true answers."""

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.search.brute_force import Keys, nearest
from tests.benchmarks.search.made_vectors import MadeVectors, Vectors, make_clusters, make_vectors, perturb
from training.common.atomic import atomic_folder

K: Final = 10
SHARES: Final = (0.5, 0.1, 0.01, 0.001)
# Queries of each kind whose true neighbours are known.
JUDGED: Final = 1000
# Further queries, so that a timed search is never one that was made before.
FRESH: Final = 12_000
# Filters of a case; its queries take them in turn.
FILTERS: Final = 50
_SEED: Final = 0
# Changes whenever files of another version would not fit.
_FORMAT: Final = 2

Field = Literal["number", "other", "place"]
FIELDS: Final[tuple[Field, ...]] = ("number", "other", "place")
Made = Literal["tree", "clusters"]
Source = Literal["text", "image"]
# How filters relate to queries: one field or two that have nothing to do with them; near or far from them.
Kind = Literal["any", "both", "near", "far"]


@dataclass(frozen=True, slots=True)
class Range:
    """Holds where `low` <= field < `high`."""

    field: Field
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Condition:
    """Lets vectors pass for which every range holds."""

    ranges: tuple[Range, ...]

    @property
    def as_filter(self) -> dict[str, Any]:
        """The condition in recoquest's filter grammar."""
        parts = [{"field": part.field, "gte": part.low, "lt": part.high} for part in self.ranges]
        return parts[0] if len(parts) == 1 else {"and": parts}


@dataclass(frozen=True, slots=True)
class Case:
    """Queries of one source, with filters of one kind and share or with none.

    Attributes:
        source: Whether the queries stand for texts or images.
        kind: None without filters.
        share: Of the vectors that pass.
        conditions: Query i takes condition i modulo their number; empty without filters.
        queries: (Q, D).
        truth: Keys of their nearest vectors that pass (Q, K).
    """

    source: Source
    kind: Kind | None
    share: float
    conditions: tuple[Condition, ...]
    queries: Vectors
    truth: Keys

    @property
    def name(self) -> str:
        """What a report calls it."""
        filters = "all" if self.kind is None else f"{100 * self.share:g} %, {self.kind}"
        return filters if self.source == "text" else f"{filters}, images"


class Workload:
    """A prepared folder, opened; vectors are mapped from disk.

    `number` and `other` are random. `place` counts vectors by their distance from one of them, so that what
    passes a filter on it lies together: that filter agrees with queries near it and disagrees with those far
    away. Queries of texts lie apart from all vectors, as another encoder's do; those of images do not.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.vectors: Vectors = np.load(folder / "vectors.npy", mmap_mode="r")
        self.texts: Vectors = np.load(folder / "texts.npy", mmap_mode="r")
        self.queries: dict[Source, Vectors] = {
            "text": np.load(folder / "text-queries.npy", mmap_mode="r"),
            "image": np.load(folder / "image-queries.npy", mmap_mode="r"),
        }
        self._cases: list[dict[str, Any]] = json.loads((folder / "cases.json").read_text())
        self._truth: list[Keys] = list(np.load(folder / "truth.npz").values())

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return int(self.vectors.shape[1])

    @property
    def fresh(self) -> Vectors:
        """Queries of texts (Q, D) that are in no case."""
        return np.asarray(self.queries["text"][JUDGED:])

    def field(self, name: Field) -> NDArray[np.int64]:
        """Return the number (N,) that each vector has in a field."""
        values: NDArray[np.int64] = np.load(self.folder / f"{name}.npy")
        return values

    def fields(self) -> dict[Field, NDArray[np.int64]]:
        """Return all fields."""
        return {name: self.field(name) for name in FIELDS}

    def passing(self, condition: Condition) -> Keys:
        """Return the keys that pass, rising."""
        return passing(self.fields(), condition)

    def cases(self) -> list[Case]:
        """Return all queries with known neighbours: those of texts without a filter come first."""
        return [
            Case(
                case["source"],
                case["kind"],
                case["share"],
                tuple(Condition(tuple(Range(**part) for part in ranges)) for ranges in case["conditions"]),
                np.asarray(self.queries[case["source"]][case["rows"]]),
                truth,
            )
            for case, truth in zip(self._cases, self._truth, strict=True)
        ]


def passing(fields: dict[Field, NDArray[np.int64]], condition: Condition) -> Keys:
    """Return the keys that pass, rising."""
    holds = [(fields[part.field] >= part.low) & (fields[part.field] < part.high) for part in condition.ranges]
    keys: Keys = np.flatnonzero(np.logical_and.reduce(holds))
    return keys


def prepare(cache: Path, count: int, dim: int, vectors: Path | None = None, made: Made = "tree") -> Workload:
    """Open the workload of this size, or of a file of real vectors, and make it if it is not there."""
    folder = cache / _name(count, dim, vectors, made)
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with atomic_folder(folder) as part:
            _write(part, _real(vectors) if vectors else _made(count, dim, made))
    return Workload(folder)


def _name(count: int, dim: int, vectors: Path | None, made: Made) -> str:
    if vectors is None:
        return f"{made}-{count}-{dim}-{_FORMAT}"
    with vectors.open("rb") as file:
        return f"real-{hashlib.file_digest(file, 'sha256').hexdigest()[:16]}-{_FORMAT}"


def _made(count: int, dim: int, made: Made) -> MadeVectors:
    make = make_vectors if made == "tree" else make_clusters
    return make(count, JUDGED + FRESH, dim, _SEED)


def _real(file: Path) -> MadeVectors:
    """Read vectors (N, D), hold some out, and perturb those into texts by differences of others."""
    read = np.load(file, allow_pickle=False)
    queries = JUDGED + FRESH
    if read.ndim != 2 or len(read) < 3 * queries:
        raise SystemExit(f"{file} must hold at least {3 * queries:,} vectors, one a row.")
    random = np.random.default_rng(_SEED)
    vectors = read[random.permutation(len(read))].astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    held_out, kept = vectors[:queries], vectors[queries:]
    noise = kept[random.permutation(len(kept))] - kept
    noise /= np.linalg.norm(noise, axis=1).mean()
    texts = perturb(kept.copy(), noise)
    return MadeVectors(kept, held_out, perturb(held_out.copy(), noise[:queries]), texts)


_FILTERED: Final[tuple[tuple[Source, Kind], ...]] = (
    ("text", "any"),
    ("text", "both"),
    ("text", "near"),
    ("text", "far"),
    ("image", "any"),
)


def _write(folder: Path, made: MadeVectors) -> None:
    random = np.random.default_rng(_SEED)
    count = len(made.vectors)
    fields: dict[Field, NDArray[np.int64]] = {
        "number": random.permutation(count),
        "other": random.permutation(count),
        "place": _places(made.vectors, random),
    }
    queries: dict[Source, Vectors] = {"text": made.text_queries, "image": made.image_queries}
    for name, values in fields.items():
        np.save(folder / f"{name}.npy", values)
    for source, asked in queries.items():
        np.save(folder / f"{source}-queries.npy", asked)
    np.save(folder / "vectors.npy", made.vectors)
    np.save(folder / "texts.npy", made.texts)
    pivot = made.vectors[np.argmin(fields["place"])]
    judged = {source: asked[:JUDGED] for source, asked in queries.items()}
    plans = [_Plan(source, None, 1.0, (), np.arange(JUDGED)) for source in judged]
    for share in SHARES:
        for source, kind in _FILTERED:
            conditions = _conditions(kind, share, count, random)
            rows = _rows(kind, judged[source] @ pivot, random)
            plans.append(_Plan(source, kind, share, conditions, rows))
    (folder / "cases.json").write_text(json.dumps([plan.as_json() for plan in plans]))
    truth = [_truth(made.vectors, fields, plan, judged[plan.source][plan.rows]) for plan in plans]
    np.savez(folder / "truth.npz", *truth)


@dataclass(frozen=True, slots=True)
class _Plan:
    """A case before its true answers are known; `rows` are the places of its queries."""

    source: Source
    kind: Kind | None
    share: float
    conditions: tuple[Condition, ...]
    rows: Keys

    def as_json(self) -> dict[str, Any]:
        return {
            "source": self.source,
            "kind": self.kind,
            "share": self.share,
            "conditions": [[asdict(part) for part in condition.ranges] for condition in self.conditions],
            "rows": self.rows.tolist(),
        }


def _places(vectors: Vectors, random: np.random.Generator) -> NDArray[np.int64]:
    pivot = vectors[random.integers(len(vectors))]
    places = np.empty(len(vectors), dtype=np.int64)
    places[np.argsort(-(vectors @ pivot), kind="stable")] = np.arange(len(vectors))
    return places


def _rows(kind: Kind, nearness: Vectors, random: np.random.Generator) -> Keys:
    """Return the places of all queries in turn, or of the quarter nearest to the pivot, or farthest."""
    if kind in ("any", "both"):
        return np.arange(len(nearness))
    by_nearness = np.argsort(-nearness, kind="stable")
    quarter = len(nearness) // 4
    rows: Keys = random.permutation(by_nearness[:quarter] if kind == "near" else by_nearness[-quarter:])
    return rows


def _conditions(kind: Kind, share: float, count: int, random: np.random.Generator) -> tuple[Condition, ...]:
    """Make different filters that let this share of `count` vectors pass; two fields each do its root."""
    wide = max(K, round(share * count))
    if kind in ("near", "far"):
        return tuple(Condition((Range("place", 0, wide + place),)) for place in range(FILTERS))
    fields: tuple[Field, ...] = ("number",) if kind == "any" else ("number", "other")
    wide = wide if kind == "any" else min(count, round(math.sqrt(max(share * count, 4 * K) * count)))
    starts = np.linspace(0, count - wide, FILTERS).astype(int)
    lows = [random.permutation(starts).tolist() for _ in fields]
    return tuple(
        Condition(tuple(Range(field, low, low + wide) for field, low in zip(fields, own, strict=True)))
        for own in zip(*lows, strict=True)
    )


def _truth(vectors: Vectors, fields: dict[Field, NDArray[np.int64]], plan: _Plan, queries: Vectors) -> Keys:
    if not plan.conditions:
        return nearest(vectors, queries, K).keys
    truth = np.empty((len(queries), K), dtype=np.int64)
    for place, condition in enumerate(plan.conditions):
        own = slice(place, None, len(plan.conditions))
        truth[own] = nearest(vectors, queries[own], K, among=passing(fields, condition)).keys
    return truth
