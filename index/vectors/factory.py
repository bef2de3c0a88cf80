"""The view that fits a model's vectors."""

from pathlib import Path

from index.vectors.flat_view import FlatView
from index.vectors.vector_view import VectorView
from index.vectors.view import CosineView


def new_view(dim: int, blades: int = 1, *, unsigned: bool = False, spill: Path | None = None) -> VectorView:
    """Return an empty view for vectors of `dim` numbers; arguments as of `FlatView` and `CosineView`."""
    if unsigned:
        return FlatView(dim, unsigned=True)
    return CosineView(dim, spill) if blades == 1 else FlatView(dim, blades)
