"""The view that fits a model's vectors."""

from pathlib import Path

from index.vectors.blade import BladeView
from index.vectors.cosine import CosineView
from index.vectors.exact import ExactView
from index.vectors.unsigned import UnsignedView

# What a generation's vectors lie in; all can be written and read.
StoredView = CosineView | ExactView


def new_view(dim: int, blades: int = 1, *, unsigned: bool = False, spill: Path | None = None) -> StoredView:
    """Return an empty view for vectors of `dim` numbers.

    Args:
        dim: Length of a vector.
        blades: How many vectors of `dim / k` numbers make up one: k of a k-blade model, else 1.
        unsigned: Whether a vector and its opposite are the same.
        spill: Folder on whose disk vectors lie that are compared by cosine; None for memory.
    """
    if unsigned:
        return UnsignedView(dim)
    return CosineView(dim, spill) if blades == 1 else BladeView(dim, blades)
