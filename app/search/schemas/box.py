"""Boxes in searches: parts of pictures."""

from typing import Annotated, Final, Self

from pydantic import Field, model_validator

from app.edge.schemas import Request
from training.models.inputs.regions import Box

# Share of a side; a thinner box is a line, which no region shows.
MIN_BOX_SIDE: Final = 0.01
# Rounding error of a sum of decimal fractions.
_ROUNDING: Final = 1e-6

_Place = Annotated[float, Field(ge=0, le=1)]
_Length = Annotated[float, Field(ge=MIN_BOX_SIDE, le=1)]


class QueryBox(Request):
    """A part of a picture, in fractions of its width and height, as it stands upright."""

    x: _Place = Field(description="Left edge.", examples=[0.1])
    y: _Place = Field(description="Upper edge.", examples=[0.2])
    width: _Length = Field(description="Width.", examples=[0.3])
    height: _Length = Field(description="Height.", examples=[0.4])

    @model_validator(mode="after")
    def _lies_within(self) -> Self:
        if self.x + self.width > 1 + _ROUNDING or self.y + self.height > 1 + _ROUNDING:
            raise ValueError("The box reaches beyond the picture: x + width and y + height are at most 1.")
        return self

    @property
    def box(self) -> Box:
        """The box as the encoder takes it."""
        return Box(self.x, self.y, self.width, self.height)
