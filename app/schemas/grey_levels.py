"""Schema of an image's stored values, for a control of its window."""

from pydantic import Field

from app.schemas.search.page import Answer
from training.data.decoding.depth import Levels
from training.data.decoding.window import Window


class GreyWindow(Answer):
    """A window, in stored values."""

    centre: float = Field(description="Value that becomes middle grey.")
    width: float = Field(description="Distance of the values that become black and white.")


class GreyLevels(Answer):
    """The stored values of an image and windows to see it through; null where a sample has up to 8 bits."""

    deep: bool = Field(description="Whether a sample has more than 8 bits.")
    smallest: float | None = Field(default=None, description="Smallest value found in the image.")
    largest: float | None = None
    automatic: GreyWindow | None = Field(
        default=None,
        description="The window of its renditions, thumbnail and vector; null for an image of one value.",
    )
    stated: GreyWindow | None = Field(
        default=None, description="The window that the file states; null without one."
    )


def grey_levels_from(levels: Levels | None) -> GreyLevels:
    """Describe the levels of an image; None is one of up to 8 bits."""
    if levels is None:
        return GreyLevels(deep=False)
    automatic = None
    if levels.high > levels.low:
        automatic = Window((levels.low + levels.high) / 2, levels.high - levels.low)
    return GreyLevels(
        deep=True,
        smallest=levels.smallest,
        largest=levels.largest,
        automatic=_window_from(automatic),
        stated=_window_from(levels.stated),
    )


def _window_from(window: Window | None) -> GreyWindow | None:
    return None if window is None else GreyWindow(centre=window.centre, width=window.width)
