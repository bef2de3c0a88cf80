"""Which view a collection gets, and how each query goes through it: by codes or by an exact scan."""

import math
from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

ViewName = Literal["exact", "ivf", "hnsw", "mapped", "gpu"]
VIEW_NAMES: Final[tuple[ViewName, ...]] = ("exact", "ivf", "hnsw", "mapped", "gpu")
# Links of a row in a graph; in its lowest layer there are twice as many.
GRAPH_LINKS: Final = 32

# Scanning fewer float16 numbers exactly takes about two milliseconds a core: nothing is gained by codes.
_SCANNED_AT_ONCE: Final = 50_000 * 512
# To pick candidates that pass and to rank them once more takes this share of the quickest search of the codes
# (measured): the time of a copy has this in it, that of codes has not.
_FINISHED: Final = 0.9
# Hits that the codes tell apart lie among the first candidates; those that they do not lie anywhere, and also
# behind the candidates. So many times as many late hits as usual are too many, and so much is too far back.
_TOO_LATE: Final = 2.0
_TOO_FAR: Final = 1.2
# What a row takes beside its vector: its key, its place, and whether it is alive.
_PLACE_BYTES: Final = 25
# What a view may take of the memory that is free: other work needs some, and it will grow.
_SHARE: Final = 0.75
# What scans take of a GPU beside the vectors: a block that is widened, and products.
_GPU_WORK: Final = 512 * 1024**2
_GIB: Final = 1024**3


@dataclass(frozen=True, slots=True)
class Usual:
    """Where the hits of queries usually lie among their candidates, the likeliest of which come first.

    Attributes:
        late: How many are among the last half of the candidates, on the mean.
        place: Their mean place as a share of all; nine of ten queries have no more.
    """

    late: float
    place: float

    @property
    def most_late(self) -> float:
        """How many late hits a query may have that is not hard."""
        return _TOO_LATE * self.late

    @property
    def farthest(self) -> float:
        """The mean place of the hits, as a share, that a query may have that is not hard."""
        return _TOO_FAR * self.place


@dataclass(frozen=True, slots=True)
class Probe:
    """How to search the codes so that the nearest `depth` vectors are among the candidates.

    Attributes:
        depth: How many of the nearest are found with the recall that the build measured.
        lists: Lists of the inverted file to scan.
        candidates: Candidates to take from them.
        recall: The share of the nearest `depth` that are among the candidates, measured.
        cost: Nanoseconds that it takes to name the candidates, measured.
        usual: Where the nearest `depth` lie among the candidates.
    """

    depth: int
    lists: int
    candidates: int
    recall: float
    cost: float
    usual: Usual


@dataclass(frozen=True)
class Planner:
    """Chooses between codes and an exact scan by what each was measured to cost.

    Attributes:
        probes: By depth, rising.
        row_cost: Nanoseconds to compare a query exactly with one row that passes a filter.
        pass_cost: Nanoseconds to step over one row that does not.
        candidate_cost: Nanoseconds to compare a query with one row that is copied out.
    """

    probes: tuple[Probe, ...]
    row_cost: float
    pass_cost: float
    candidate_cost: float

    @cached_property
    def _depths(self) -> list[int]:
        return [probe.depth for probe in self.probes]

    @cached_property
    def least(self) -> float:
        """Nanoseconds of the quickest search of the codes."""
        return min((probe.cost for probe in self.probes), default=math.inf)

    def first(
        self,
        rank: int,
        passing: int,
        total: int,
        met: float = 1.0,
        *,
        found: float = 1.0,
        copied: float | None = None,
    ) -> Probe | None:
        """Return how to search the codes for hits down to a rank, or None to scan exactly.

        Args:
            rank: How many hits are needed, those of pages before included.
            passing: How many rows may be found.
            total: How many rows there are.
            met: The share that passed near the queries before; to look there costs little, and tells how
                deep the hits of this one lie.
            found: The share of the queries before that found their hits by the codes; others scanned as well.
            copied: Nanoseconds to scan the rows that pass if they lie side by side, else None.
        """
        if passing <= rank:
            return None
        if passing == total:
            return self._worthwhile(rank, rank, passing, total, found=found)
        near = self._worthwhile(_spread(rank, met), rank, passing, total, found=found, copied=copied)
        if copied is not None:
            # To search in vain costs little beside a scan of everything, but not beside one of a copy.
            return near
        usual = self._worthwhile(_spread(rank, passing / total), rank, passing, total, found=found)
        return usual and (near or usual)

    def deeper(
        self, tried: Probe, share: float, rank: int, passing: int, total: int, *, copied: float | None = None
    ) -> Probe | None:
        """Return how to go on after a search that met too few that pass, or None to scan exactly.

        Args:
            tried: How it went before.
            share: The share of its candidates that passed.
            rank: How many hits are needed, those of pages before included.
            passing: How many rows may be found.
            total: How many rows there are.
            copied: Nanoseconds to scan the rows that pass if they lie side by side, else None.
        """
        depth = max(tried.depth + 1, _spread(rank, share))
        return self._worthwhile(depth, rank, passing, total, copied=copied)

    def candidates(self, rank: int) -> int:
        """Return how many of the likeliest candidates that pass hold the hits down to a rank."""
        return self.reaching(rank).candidates

    def reaching(self, rank: float) -> Probe:
        """Return the least search that was measured to find the hits down to a rank."""
        return self.probes[bisect_left(self._depths, rank)]

    def _worthwhile(
        self,
        depth: float,
        rank: int,
        passing: int,
        total: int,
        *,
        found: float = 1.0,
        copied: float | None = None,
    ) -> Probe | None:
        """Return the least search that reaches a depth, unless a scan costs less."""
        if not self.probes or depth > self.probes[-1].depth:
            return None
        probe = self.reaching(depth)
        ranked = min(probe.candidates * passing / total, self.candidates(rank))
        if copied is not None:
            exact = copied - _FINISHED * self.least
        else:
            scanned = passing * self.row_cost + (total - passing) * self.pass_cost
            exact = min(scanned, passing * self.candidate_cost)
        return probe if probe.cost + ranked * self.candidate_cost < found * exact else None


def _spread(rank: int, share: float) -> float:
    """Return how deep the hits down to a rank lie among all where a share passes.

    Where one of ten passes, they lie ten times as deep; and as much deeper that so many pass also where a
    standard deviation fewer do, of rows that pass independently.
    """
    if not share:
        return math.inf
    varied = share * (1 - share)
    # The root d of share * d**2 - sqrt(varied) * d = rank.
    return ((math.sqrt(varied) + math.sqrt(varied + 4 * share * rank)) / (2 * share)) ** 2


@dataclass(frozen=True, slots=True)
class Choice:
    """A view that a collection could have: what it takes, and why it is or is not the one."""

    name: ViewName
    bytes: int
    chosen: bool
    reason: str


def choose_view(
    count: int, dim: int, memory: int, wanted: ViewName | None = None, gpu: int | None = None
) -> list[Choice]:
    """Weigh all views for `count` vectors of `dim` numbers against the bytes of memory that are free.

    Args:
        count: Number of vectors.
        dim: Length of a vector.
        memory: Bytes that the views may take.
        wanted: What the operator has chosen; None leaves it to the size, as does a GPU that is not to be had.
        gpu: Bytes that the view may take on the GPU; None where there is none.
    """
    rows = count * (2 * dim + _PLACE_BYTES)
    # Another byte a number, for faster scans.
    exact = rows + count * dim
    # Half a byte for every two of a third of the numbers, and the row's number in the lists.
    codes = count * (dim // 12 + 8)
    ivf = rows + codes
    # A link is a number of 4 bytes; few rows are in more than the lowest layer. While it is built, vectors
    # are there twice.
    hnsw = rows + count * (8 * GRAPH_LINKS + 16)
    mapped = count * _PLACE_BYTES + codes
    small = count * dim < _SCANNED_AT_ONCE
    on_gpu = "only when it is asked for"
    if wanted == "gpu":
        on_gpu, fits = _on_gpu(2 * count * dim + _GPU_WORK, gpu)
        wanted = "gpu" if fits else None
    if wanted is not None:
        reasons = {name: "chosen for this collection" if name == wanted else "" for name in VIEW_NAMES}
        best = wanted
    elif small:
        best = "exact"
        few = "nothing is gained for so few"
        reasons = {"exact": "a scan takes a few milliseconds", "ivf": few, "hnsw": few, "mapped": few}
    elif ivf > _SHARE * memory:
        best = "mapped"
        free = f"{memory / _GIB:.1f} GiB of memory are free"
        reasons = {"exact": free, "ivf": free, "hnsw": free, "mapped": "vectors stay on the disk"}
    else:
        best = "ivf"
        reasons = {
            "exact": f"a scan reads {count * dim / _GIB:.2f} GiB a query",
            "ivf": "the fastest",
            "hnsw": "slower than ivf, and larger",
            "mapped": "slower than ivf, which fits in memory",
        }
    if best == "gpu" or wanted is None:
        reasons["gpu"] = on_gpu
    sizes: dict[ViewName, int] = {"exact": exact, "ivf": ivf, "hnsw": hnsw, "mapped": mapped, "gpu": rows}
    return [
        Choice(name, sizes[name], name == best, reasons[name] or f"{best} was chosen for this collection")
        for name in VIEW_NAMES
    ]


def _on_gpu(size: int, free: int | None) -> tuple[str, bool]:
    """Return why scans that take so many bytes are or are not done on the GPU, and whether they are."""
    if free is None:
        return "there is no GPU here", False
    takes = f"takes {size / _GIB:.2f} GiB of the GPU's memory"
    if size > _SHARE * free:
        return f"{takes}, of which {free / _GIB:.2f} GiB are free", False
    return f"chosen for this collection; {takes}", True
