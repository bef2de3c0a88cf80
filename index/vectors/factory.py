"""The view that fits a model's vectors."""

from pathlib import Path

from index.vectors.flat_view import FlatView
from index.vectors.vector_view import VectorView
from index.vectors.view import CosineView


def new_view(dim: int, blades: int = 1, *, unsigned: bool = False, spill: Path | None = None) -> VectorView:
    """Return an empty view for vectors of `dim` numbers.

    Args:
        dim: Length of a vector.
        blades: Basis vectors (`dim / k` numbers each) of an embedding: k of a k-blade model, else 1.
        unsigned: Whether a vector and its opposite are the same.
        spill: Folder on whose disk vectors lie that are compared by cosine; None for memory.
    """
    if unsigned:
        return FlatView(dim, unsigned=True)
    return CosineView(dim, spill) if blades == 1 else FlatView(dim, blades)
