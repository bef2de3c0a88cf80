"""What all contestants are given: vectors, two numbers beside each, queries, filters and the true answers."""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.search.brute_force import Keys, nearest
from tests.benchmarks.search.made_vectors import Vectors, make_vectors, perturb
from training.atomic import atomic_folder

K: Final = 10
SHARES: Final = (0.5, 0.1, 0.01, 0.001)
QUERIES: Final = 500
_FILTERED_QUERIES: Final = 100
_SEED: Final = 0
# Changes whenever files of another version would not fit.
_FORMAT: Final = 1

Field = Literal["number", "place"]


@dataclass(frozen=True, slots=True)
class Condition:
    """Lets vectors pass whose `field` is below `limit`; that is this share of all."""

    field: Field
    limit: int
    share: float


@dataclass(frozen=True, slots=True)
class FilteredQueries:
    """Queries with a filter: any queries, those near what passes, or those far from it."""

    kind: Literal["any", "near", "far"]
    condition: Condition
    queries: Vectors
    truth: Keys

    @property
    def name(self) -> str:
        """What a report calls it."""
        return f"{100 * self.condition.share:g} %, {self.kind}"


class Workload:
    """A prepared folder, opened; vectors are mapped from disk.

    `number` is random. `place` counts vectors by their distance from one of them, so that what passes a
    filter on it lies together: that filter agrees with queries near it and disagrees with those far away.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.vectors: Vectors = np.load(folder / "vectors.npy", mmap_mode="r")
        self.queries: Vectors = np.load(folder / "queries.npy")
        self.truth: Keys = np.load(folder / "truth.npy")

    @property
    def dim(self) -> int:
        """Length of a vector."""
        return int(self.vectors.shape[1])

    def field(self, name: Field) -> NDArray[np.int64]:
        """Return the number (N,) that each vector has in a field."""
        values: NDArray[np.int64] = np.load(self.folder / f"{name}.npy")
        return values

    def passing(self, condition: Condition) -> Keys:
        """Return the keys that pass, rising."""
        return np.flatnonzero(self.field(condition.field) < condition.limit)

    def filtered(self) -> list[FilteredQueries]:
        """Return all queries with a filter."""
        cases = json.loads((self.folder / "filtered.json").read_text())
        return [
            FilteredQueries(
                case["kind"],
                Condition(**case["condition"]),
                self.queries[np.array(case["queries"])],
                np.array(case["truth"], dtype=np.int64),
            )
            for case in cases
        ]


def prepare(cache: Path, count: int, dim: int, vectors: Path | None) -> Workload:
    """Open the workload of this size, or of a file of real vectors, and make it if it is not there."""
    folder = cache / _name(count, dim, vectors)
    if not folder.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with atomic_folder(folder) as made:
            _write(made, count, dim, vectors)
    return Workload(folder)


def _name(count: int, dim: int, vectors: Path | None) -> str:
    if vectors is None:
        return f"made-{count}-{dim}-{_FORMAT}"
    with vectors.open("rb") as file:
        return f"real-{hashlib.file_digest(file, 'sha256').hexdigest()[:16]}-{_FORMAT}"


def _write(folder: Path, count: int, dim: int, file: Path | None) -> None:
    if file is None:
        made = make_vectors(count, QUERIES, dim, _SEED)
        vectors, queries = made.vectors, made.queries
    else:
        vectors, queries = _real(file)
    random = np.random.default_rng(_SEED)
    fields = {"number": random.permutation(len(vectors)), "place": _places(vectors, random)}
    np.save(folder / "vectors.npy", vectors)
    np.save(folder / "queries.npy", queries)
    np.save(folder / "truth.npy", nearest(vectors, queries, K).keys)
    for name, values in fields.items():
        np.save(folder / f"{name}.npy", values.astype(np.int64))
    pivot = vectors[np.argmin(fields["place"])]
    (folder / "filtered.json").write_text(json.dumps(_cases(vectors, queries, fields, pivot)))


def _real(file: Path) -> tuple[Vectors, Vectors]:
    """Read vectors (N, D), hold some out, and perturb those into queries by differences of others."""
    read = np.load(file, allow_pickle=False)
    if read.ndim != 2 or len(read) < 20 * QUERIES:
        raise SystemExit(f"{file} must hold at least {20 * QUERIES:,} vectors, one a row.")
    random = np.random.default_rng(_SEED)
    vectors = read[random.permutation(len(read))].astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    held_out, kept = vectors[:QUERIES], vectors[QUERIES:]
    noise = kept[:QUERIES] - kept[QUERIES : 2 * QUERIES]
    noise /= np.linalg.norm(noise, axis=1).mean()
    return kept, perturb(held_out.copy(), noise)


def _places(vectors: Vectors, random: np.random.Generator) -> NDArray[np.int64]:
    pivot = vectors[random.integers(len(vectors))]
    places = np.empty(len(vectors), dtype=np.int64)
    places[np.argsort(-(vectors @ pivot), kind="stable")] = np.arange(len(vectors))
    return places


def _cases(
    vectors: Vectors, queries: Vectors, fields: dict[str, NDArray[np.int64]], pivot: Vectors
) -> list[dict[str, object]]:
    by_nearness = np.argsort(-(queries @ pivot), kind="stable")
    chosen: dict[str, tuple[Field, NDArray[np.int64]]] = {
        "any": ("number", np.arange(_FILTERED_QUERIES)),
        "near": ("place", by_nearness[:_FILTERED_QUERIES]),
        "far": ("place", by_nearness[-_FILTERED_QUERIES:]),
    }
    cases: list[dict[str, object]] = []
    for share in SHARES:
        for kind, (field, places) in chosen.items():
            condition = Condition(field, max(K, round(share * len(vectors))), share)
            among = np.flatnonzero(fields[field] < condition.limit)
            truth = nearest(vectors, queries[places], K, among=among).keys
            cases.append(
                {
                    "kind": kind,
                    "condition": asdict(condition),
                    "queries": places.tolist(),
                    "truth": truth.tolist(),
                }
            )
    return cases
