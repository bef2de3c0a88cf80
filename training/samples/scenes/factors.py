"""Factors of a sample scene: visible in the image, stated in the captions, or both."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from training.samples.canvas import pick

COLOURS: Final[dict[str, tuple[int, int, int]]] = {
    "red": (204, 44, 40), "blue": (38, 84, 188), "green": (40, 140, 62), "yellow": (240, 202, 48),
    "white": (240, 240, 236), "black": (38, 36, 42), "orange": (240, 130, 36), "purple": (122, 60, 160),
}  # fmt: skip
GROUND_THINGS: Final[dict[str, tuple[str, ...]]] = {
    "beach": ("person", "dog", "ball", "umbrella", "sailboat"),
    "street": ("person", "dog", "car", "bicycle", "bench"),
    "snow": ("person", "dog", "sled", "house", "car"),
    "meadow": ("person", "dog", "ball", "bicycle", "house", "bench"),
    "desert": ("person", "car", "tent", "ball"),
    "lake": ("sailboat", "person", "tent", "dog", "bench"),
}
SKY_THINGS: Final = ("balloon", "kite", "bird")
PLACES: Final = tuple(GROUND_THINGS)
_OCCASIONS: Final = (
    *("on a Sunday", "during the holidays", "for a postcard", "on a family trip", "after a long drive"),
    "before lunch",
)
# Surface that the picture is printed on.
TEXTURES: Final = ("smooth", "canvas", "ribbed", "dotted")
# Birds and dogs come in natural colours.
_COLOURS_OF: Final = {"dog": ("white", "black", "brown"), "bird": ("white", "black")}
NATURAL_COLOURS: Final = {"brown": (128, 82, 46)}


@dataclass(frozen=True)
class Thing:
    """A kind of object in one colour, once or several times."""

    kind: str
    colour: str
    count: int = 1


@dataclass(frozen=True)
class Scene:
    """The factors of one scene.

    Attributes:
        place: Shared: the image shows it and the captions state it.
        main, other: Shared: what stands on the ground.
        relation: Shared: where `main` is as seen from `other`; "above" when `main` is in the sky, empty
            without another thing.
        time, blur, texture: Of the image only.
        occasion, author: Of the text only.
    """

    place: str
    main: Thing
    other: Thing | None
    relation: str
    time: str
    blur: float
    texture: str
    occasion: str
    author: str


def draw_scene_factors(rng: np.random.Generator, style: np.random.Generator) -> Scene:
    """Make the factors of one scene up.

    Args:
        rng: Decides what there is.
        style: Decides texture and author, which nothing else depends on.
    """
    place = pick(rng, PLACES)
    kinds = [str(kind) for kind in rng.permutation(GROUND_THINGS[place])]
    relation = str(rng.choice(("left of", "right of", "above", ""), p=(0.27, 0.27, 0.26, 0.2)))
    main_kind = pick(rng, SKY_THINGS) if relation == "above" else kinds[0]
    other = _draw_thing(rng, kinds[1], 1) if relation else None
    counts = (1, 1, 2, 3) if relation in ("above", "") else (1, 1, 2)
    return Scene(
        place=place,
        main=_draw_thing(rng, main_kind, int(rng.choice(counts))),
        other=other,
        relation=relation,
        time=str(rng.choice(("morning", "noon", "sunset", "night"), p=(0.25, 0.35, 0.25, 0.15))),
        blur=float(rng.choice((0.0, 0.0, 0.0, 0.7, 1.2))),
        occasion=pick(rng, _OCCASIONS),
        texture=pick(style, TEXTURES),
        author=str(style.choice(("reporter", "admirer", "dreamer", "poet"), p=(0.4, 0.2, 0.2, 0.2))),
    )


def colour_value(name: str) -> tuple[int, int, int]:
    """Red, green and blue of a colour's name."""
    return NATURAL_COLOURS[name] if name in NATURAL_COLOURS else COLOURS[name]


def _draw_thing(rng: np.random.Generator, kind: str, count: int) -> Thing:
    return Thing(kind, pick(rng, _COLOURS_OF.get(kind, tuple(COLOURS))), count)
