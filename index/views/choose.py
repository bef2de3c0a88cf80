"""The choice of a collection's view, by its size, free memory, and the operator's wish."""

from dataclasses import dataclass
from typing import Final

from index.vectors.gpu import SCRATCH_BYTES
from index.vectors.protocol import VIEW_NAMES, ViewName

# A scan of fewer float16 numbers takes a few milliseconds.
_SCANNED: Final = 50_000 * 512
# Bytes a row beside its vector: key, row, whether it is alive, and the table of rows by key.
_ROW_BYTES: Final = 29
# The share of free memory that a view may take: other work needs some, and it will grow.
_SHARE: Final = 0.75
# What a collection has that no GPU was given to.
NO_GPU: Final = "no GPU was looked for"
_GIB: Final = 1024**3


@dataclass(frozen=True, slots=True)
class Choice:
    """A view that a collection could have: its size, and why it is or is not the one."""

    name: ViewName
    bytes: int
    chosen: bool
    reason: str


def choose_view(
    count: int, dim: int, memory: int, wanted: ViewName | None = None, gpu: int | str = NO_GPU
) -> list[Choice]:
    """Weigh all views for `count` vectors of `dim` numbers against the bytes of memory that are free.

    Args:
        count: Number of vectors.
        dim: Length of a vector.
        memory: Bytes that the views may take.
        wanted: The operator's choice; None leaves it to size and memory, as does a GPU that can't be used.
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
    if wanted == "gpu" and not fits:
        wanted = None
    reasons: dict[ViewName, str]
    if wanted is not None:
        best, reasons = wanted, dict.fromkeys(VIEW_NAMES, f"{wanted} was chosen for this collection")
        reasons[wanted] = "chosen for this collection"
        if wanted == "gpu":
            reasons["gpu"] += f"; {on_gpu}"
    elif count * dim <= _SCANNED:
        best, few = "exact", "nothing is gained for so few"
        reasons = {"exact": "a scan takes a few milliseconds", "ivf": few, "mapped": few}
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
