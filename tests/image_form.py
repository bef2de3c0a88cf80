"""One row of the matrix of image files."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.image_quadrants import (
    Quadrants,
)


@dataclass(frozen=True, slots=True)
class ImageForm:
    """One form of image file.

    Attributes:
        name: Of the row.
        make: Returns the bytes of the file.
        quadrants: Colours of the four quadrants, as they are seen.
        tolerance: Most that a channel may differ.
        flags: Fields that the picture has.
    """

    name: str
    make: Callable[[], bytes]
    quadrants: Quadrants
    tolerance: int = 1
    flags: tuple[str, ...] = ()
