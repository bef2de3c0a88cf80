"""Places of the findings on a sample film, as boxes in fractions of its width and height."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from PIL import Image

from training.samples.canvas import Array
from training.samples.radiographs.drawing import draw_layers
from training.samples.radiographs.factors import Film

# Attenuation that an eye can tell from the texture of the film.
_VISIBLE: Final = 0.06


@dataclass(frozen=True, slots=True)
class Place:
    """A box in fractions of width and height, from the left and the top."""

    x: float
    y: float
    width: float
    height: float


def find_places(film: Film, rng: np.random.Generator, size: int) -> Mapping[str, Place]:
    """Boxes of the findings by name; none of a finding that the whole anatomy shows, such as a large heart.

    Args:
        film: Factors of the film.
        rng: In the same state as for the drawing of the film.
        size: Width and height of the film in pixels.
    """
    added = draw_layers(film, rng, size).findings
    places = {name: _place(tissue, film.tilt) for name, tissue in added.items()}
    return {name: place for name, place in places.items() if place is not None}


def _place(tissue: Array, tilt: float) -> Place | None:
    """The box of all visible tissue of a film that is turned by `tilt` degrees."""
    visible = Image.fromarray((255 * (np.abs(tissue) > _VISIBLE)).astype(np.uint8))
    box = visible.rotate(tilt).getbbox()
    if box is None:
        return None
    left, top, right, bottom = (edge / len(tissue) for edge in box)
    return Place(left, top, right - left, bottom - top)
