"""The view that fits a model's vectors."""

from pathlib import Path

from index.vectors.flat.blade import BladeView
from index.vectors.flat.flat_view import FlatView
from index.vectors.flat.unsigned import UnsignedView
from index.vectors.storage.scratch import Scratch
from index.vectors.view import CosineView

# Views of a generation's vectors; all can be written and read.
StoredView = CosineView | FlatView


def new_view(
    dim: int,
    blades: int = 1,
    *,
    unsigned: bool = False,
    spill: Path | None = None,
    scratch: Scratch | None = None,
) -> StoredView:
    """Return an empty view for vectors of `dim` numbers.

    Args:
        dim: Length of a vector.
        blades: Basis vectors (`dim / k` numbers each) of an embedding: k of a k-blade model, else 1.
        unsigned: Whether a vector and its opposite are the same.
        spill: Folder on whose disk vectors lie that are compared by cosine; None for memory.
        scratch: Shared by all views of a process.
    """
    if unsigned:
        return UnsignedView(dim)
    return CosineView(dim, spill, scratch) if blades == 1 else BladeView(dim, blades)
