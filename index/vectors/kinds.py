"""The view that fits a model's vectors."""

from index.vectors.blade import BladeView
from index.vectors.cosine import CosineView
from index.vectors.exact import ExactView
from index.vectors.unsigned import UnsignedView

# What a generation's vectors lie in; all can be written and read.
StoredView = CosineView | ExactView


def new_view(dim: int, blades: int = 1, *, unsigned: bool = False) -> StoredView:
    """Return an empty view for vectors of `dim` numbers.

    Args:
        dim: Length of a vector.
        blades: How many vectors of `dim / k` numbers make up one: k of a k-blade model, else 1.
        unsigned: Whether a vector and its opposite are the same.
    """
    if unsigned:
        return UnsignedView(dim)
    return CosineView(dim) if blades == 1 else BladeView(dim, blades)
