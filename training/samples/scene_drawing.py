"""Draws sample scenes: a place, the things in it, and the light of the hour."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from training.samples.canvas import Array, Point, smooth_curve, smooth_noise
from training.samples.scenes import COLOURS, SKY_THINGS, Scene, Thing

Colour = tuple[int, int, int]
_TINTS: Final = {
    "morning": (1.02, 0.97, 0.90),
    "noon": (1.0, 1.0, 1.0),
    "sunset": (1.02, 0.84, 0.72),
    "night": (0.50, 0.54, 0.72),
}
# Left and right end of the space for a thing, by its relation, and where the other thing is.
_SPACE: Final = {"left of": (0.03, 0.47), "right of": (0.53, 0.97), "": (0.15, 0.85), "above": (0.08, 0.92)}
_OPPOSITE: Final = {"left of": "right of", "right of": "left of", "above": ""}
# Threads, ribs or rows of dots of a texture, over the width; and how much they darken, in grey levels.
_RIBS: Final = 36
_DEPTH: Final = 4.0
_HORIZON: Final = 0.54
_SKIES: Final[dict[str, tuple[Colour, Colour]]] = {
    "morning": ((132, 178, 226), (252, 224, 186)),
    "noon": ((70, 138, 214), (192, 222, 242)),
    "sunset": ((96, 74, 140), (252, 158, 86)),
    "night": ((10, 16, 44), (44, 58, 104)),
}
_WALLS: Final[tuple[Colour, ...]] = (
    (168, 112, 92), (190, 176, 152), (138, 146, 158), (202, 190, 172), (126, 96, 88),
)  # fmt: skip
# A thing: its name, its usual height as a share of the image, and its width in heights. Its shapes follow,
# from the back to the front: kind, fill and points. x counts from the middle of the thing, y up from the
# ground, both in heights. A fill is a shade of the thing's own colour, or a colour. The second point of an
# ellipse (`oval`, `pie` from an angle to another, `ring` and `spokes` of a width) is its two radii.
_THINGS: Final = """
person .34 .5
  line:.095 #3a3e54 -.05,.45 -.085,.04
  oval #28262c -.105,.02 .06,.025
  line:.07 .85 -.12,.75 -.2,.46
  oval #deb08e -.205,.44 .035,.035
  line:.095 #3a3e54 .05,.45 .085,.04
  oval #28262c .105,.02 .06,.025
  line:.07 .85 .12,.75 .2,.46
  oval #deb08e .205,.44 .035,.035
  poly 1 -.145,.8 .145,.8 .115,.42 -.115,.42
  poly .88 .03,.8 .145,.8 .115,.42 .05,.42
  line:.06 #deb08e 0,.8 0,.84
  oval #deb08e 0,.9 .08,.095
  pie:180:360 #483022 0,.915 .085,.09
dog .19 1.6
  line:.12 .8 -.34,.4 -.34,.04
  line:.12 .8 .38,.4 .38,.04
  line:.09 1 -.52,.6 -.7,.85
  oval 1 -.05,.52 .55,.22
  line:.13 1 -.42,.4 -.42,.04
  line:.13 1 .3,.4 .3,.04
  line:.22 1 .42,.6 .56,.82
  oval 1 .6,.84 .19,.16
  oval 1.1 .76,.78 .14,.085
  oval #28262c .88,.8 .04,.04
  oval #28262c .65,.88 .028,.028
  poly .8 .44,.98 .58,.96 .47,.68
ball .13 1
  oval .78 0,.5 .5,.5
  oval 1 -.04,.54 .45,.45
  pie:20:58 .62 -.04,.54 .45,.45
  pie:140:178 .62 -.04,.54 .45,.45
  pie:260:298 .62 -.04,.54 .45,.45
  oval 1.5 -.18,.72 .12,.09
umbrella .36 1.1
  line:.03 #865c3a 0,0 .04,.95
  pie:180:211 .72 .04,.66 .52,.34
  pie:210:241 1 .04,.66 .52,.34
  pie:240:271 .72 .04,.66 .52,.34
  pie:270:301 1 .04,.66 .52,.34
  pie:300:331 .72 .04,.66 .52,.34
  pie:330:361 1 .04,.66 .52,.34
sailboat .34 .95
  line:.025 #865c3a 0,.12 0,1
  poly 1 .03,.97 .03,.24 .4,.24
  poly .82 -.03,.9 -.03,.24 -.3,.24
  poly #966842 -.45,.18 .48,.18 .34,0 -.32,0
  poly #ece8de -.45,.18 .48,.18 .45,.13 -.42,.13
car .17 2.2
  poly 1 -.62,.55 -.36,.95 .36,.95 .66,.55
  poly #b0d0e2 -.5,.57 -.31,.87 -.04,.87 -.04,.57
  poly #96b1c0 .04,.57 .04,.87 .31,.87 .52,.57
  poly 1 -1.08,.2 -1.08,.48 -.92,.58 .95,.58 1.1,.44 1.1,.2
  poly .72 -1.08,.2 -1.08,.3 1.1,.3 1.1,.2
  oval #faf0be 1.03,.44 .06,.06
  oval #be2828 -1.03,.44 .05,.05
  oval #1e1e22 -.62,.2 .22,.22
  oval #b0b2b8 -.62,.2 .11,.11
  oval #1e1e22 .62,.2 .22,.22
  oval #b0b2b8 .62,.2 .11,.11
bicycle .21 1.75
  ring:.05 #222226 -.52,.34 .34,.34
  spokes:.012 #828286 -.52,.34 .3,.3
  ring:.05 #222226 .52,.34 .34,.34
  spokes:.012 #828286 .52,.34 .3,.3
  line:.075 1 -.52,.34 -.18,.8 .36,.8 -.02,.32 -.52,.34
  line:.075 1 -.22,.9 -.02,.32
  line:.075 1 .52,.34 .34,.96
  line:.07 #28262c -.34,.92 -.12,.92
  line:.05 #28262c .34,.96 .5,1
bench .15 2
  line:.09 #48484e -.75,.02 -.75,.5
  line:.07 #48484e -.8,.5 -.85,1
  line:.09 #48484e .75,.02 .75,.5
  line:.07 #48484e .7,.5 .65,1
  poly 1 -1,.5 1,.5 1,.63 -1,.63
  poly .92 -1,.72 1,.72 1,.85 -1,.85
  poly .84 -1,.92 1,.92 1,1.05 -1,1.05
sled .12 2
  line:.08 #6e7078 -.9,.06 .75,.06 1,.35 .92,.6
  line:.08 #6e7078 -.6,.08 -.6,.55
  line:.08 #6e7078 .1,.08 .1,.55
  line:.08 #6e7078 .6,.08 .6,.55
  poly 1 -.95,.55 .85,.55 .85,.8 -.95,.8
  poly .7 -.95,.55 .85,.55 .85,.63 -.95,.63
house .36 1.4
  poly 1 -.55,0 .55,0 .55,.58 -.55,.58
  poly .86 .2,0 .55,0 .55,.58 .2,.58
  poly #7e5248 .28,.72 .4,.72 .4,1 .28,1
  poly #6e3a30 -.68,.56 .68,.56 0,.98
  poly #865c3a -.1,0 .12,0 .12,.34 -.1,.34
  poly #b0d0e2 -.42,.22 -.22,.22 -.22,.44 -.42,.44
  line:.02 #fafaf8 -.32,.22 -.32,.44
  poly #b0d0e2 .26,.22 .46,.22 .46,.44 .26,.44
  line:.02 #fafaf8 .36,.22 .36,.44
tent .25 2.1
  poly 1 -.9,0 .1,1 .75,0
  poly .7 .1,1 .75,0 1.15,.12
  poly .35 -.28,0 0,.62 .16,0
balloon .3 .8
  poly #966a42 -.11,.16 .11,.16 .085,0 -.085,0
  line:.012 #28262c -.1,.16 -.2,.38
  line:.012 #28262c .1,.16 .2,.38
  poly .8 -.34,.5 .34,.5 .13,.26 -.13,.26
  oval .8 0,.64 .38,.36
  oval 1 0,.64 .26,.36
  oval 1.25 0,.64 .11,.36
kite .24 .75
  line:.02 #46464c 0,.3 -.12,.12 .08,-.05 -.1,-.3
  poly 1 0,1 .36,.68 0,.28 -.36,.68
  poly 1.25 0,1 .36,.68 0,.68
  poly .75 0,.68 -.36,.68 0,.28
bird .12 1.9
  poly .85 -.05,.5 -.75,.95 -.95,.78 -.5,.62 .05,.36
  poly 1 0,.5 .55,1 .85,.92 .45,.62 .1,.36
  oval 1 .05,.42 .34,.15
  poly #eca032 .36,.47 .56,.42 .36,.38
  poly .85 -.24,.44 -.56,.36 -.24,.34
"""


class _Kind(NamedTuple):
    """A kind of thing: usual height as a share of the image, width in heights, and words of its shapes."""

    height: float
    width: float
    shapes: list[list[str]]


@cache
def _kinds() -> dict[str, _Kind]:
    kinds = {}
    for block in re.split(r"\n(?=\w)", _THINGS.strip()):
        (name, height, width), *shapes = map(str.split, block.splitlines())
        kinds[name] = _Kind(float(height), float(width), shapes)
    return kinds


@dataclass(frozen=True)
class _Placed:
    """One thing of a scene and where it is: foot and height as shares of the image."""

    thing: Thing
    x: float
    y: float
    height: float


def draw_scene(scene: Scene, rng: np.random.Generator, size: int) -> Image.Image:
    """Draw one scene in RGB, `size` pixels wide and high."""
    image = Image.new("RGB", (2 * size, 2 * size))
    _PlacePainter(image, rng, scene.time).paint(scene.place)
    things = _spread(scene.main, _SPACE[scene.relation], rng)
    if scene.other is not None:
        things += _spread(scene.other, _SPACE[_OPPOSITE[scene.relation]], rng)
    things.sort(key=lambda placed: placed.y)
    image = _with_shadows(image, things)
    draw = ImageDraw.Draw(image)
    for placed in things:
        _draw_thing(draw, placed, image.width)
    return _lit(image.reduce(2), scene, rng)


def _spread(thing: Thing, space: tuple[float, float], rng: np.random.Generator) -> list[_Placed]:
    left, right = space
    share, kind = (right - left) / thing.count, _kinds()[thing.kind]
    height = min(kind.height * rng.uniform(0.85, 1.12), 0.94 * share / kind.width)
    slack = max(0.0, share - height * kind.width) / 2
    placed = []
    for number in range(thing.count):
        x = left + share * (number + 0.5) + rng.uniform(-0.7, 0.7) * slack
        placed.append(_Placed(thing, x, _foot(thing.kind, height, rng), height))
    return placed


def _foot(kind: str, height: float, rng: np.random.Generator) -> float:
    if kind in SKY_THINGS:
        return rng.uniform(0.05, 0.12) + height
    if kind == "sailboat":
        return rng.uniform(0.62, 0.68)
    if kind in ("house", "tent"):
        return rng.uniform(0.74, 0.80)
    return rng.uniform(0.80, 0.94)


def _with_shadows(image: Image.Image, things: list[_Placed]) -> Image.Image:
    mask = Image.new("L", image.size)
    draw = ImageDraw.Draw(mask)
    for placed in things:
        if placed.thing.kind not in SKY_THINGS:
            wide, high = placed.height * _kinds()[placed.thing.kind].width * 0.5, 0.012 + 0.05 * placed.height
            left, right = placed.x - wide * 0.9, placed.x + wide * 1.15
            box = (left, placed.y - high, right, placed.y + high * 0.7)
            draw.ellipse([edge * image.width for edge in box], fill=110)
    dark = Image.new("RGB", image.size, (24, 26, 40))
    return Image.composite(dark, image, mask.filter(ImageFilter.BoxBlur(image.width // 100)))


def _lit(image: Image.Image, scene: Scene, rng: np.random.Generator) -> Image.Image:
    if scene.blur:
        image = image.filter(ImageFilter.GaussianBlur(scene.blur * image.width / 256))
    pixels = np.asarray(image, dtype=np.float32) * np.array(_TINTS[scene.time], dtype=np.float32)
    uneven = 1.0 + 0.035 * smooth_noise(rng, image.width, 5) + 0.03 * smooth_noise(rng, image.width, 48)
    grain = rng.normal(0.0, 3.5, pixels.shape[:2]).astype(np.float32)
    lit = pixels * uneven[..., None] + (grain - _DEPTH * _relief(scene.texture, image.width))[..., None]
    return Image.fromarray(np.clip(lit, 0, 255).astype(np.uint8))


def _relief(texture: str, size: int) -> Array:
    """The shadows of a texture, of shape (S, S), from 0 to 1."""
    wave = 0.5 - 0.5 * np.cos(2 * np.pi * _RIBS * (np.arange(size, dtype=np.float32) + 0.5) / size)
    across, down = wave[None, :], wave[:, None]
    shadows: dict[str, Array] = {
        "smooth": np.zeros((1, 1), dtype=np.float32),
        "canvas": (across + down) / 2,
        "ribbed": down,
        "dotted": across * down,
    }
    return np.broadcast_to(shadows[texture], (size, size))


def _shade(colour: Colour, factor: float) -> Colour:
    """A darker (below 1) or lighter (above 1) shade of a colour."""
    red, green, blue = (max(0, min(255, round(part * factor))) for part in colour)
    return red, green, blue


def _draw_thing(draw: ImageDraw.ImageDraw, placed: _Placed, size: int) -> None:
    height, colour = placed.height * size, COLOURS[placed.thing.colour]

    def in_pixels(points: Sequence[Point]) -> list[Point]:
        return [(placed.x * size + x * height, placed.y * size - y * height) for x, y in points]

    def line(points: Sequence[Point], width: float, fill: Colour | str) -> None:
        ends, radius = in_pixels(points), height * width / 2
        draw.line(ends, fill=fill, width=max(1, round(width * height)), joint="curve")
        for x, y in (ends[0], ends[-1]):
            draw.ellipse([x - radius, y - radius, x + radius, y + radius], fill=fill)

    for shape, paint, *pairs in _kinds()[placed.thing.kind].shapes:
        fill = paint if paint.startswith("#") else _shade(colour, float(paint))
        kind, *numbers = shape.split(":")
        points = [(float(x), float(y)) for x, y in (pair.split(",") for pair in pairs)]
        (x, y), (wide, high) = in_pixels(points)[0], (radius * height for radius in points[1])
        box = [x - wide, y - high, x + wide, y + high]
        match kind:
            case "poly":
                draw.polygon(in_pixels(points), fill=fill)
            case "oval":
                draw.ellipse(box, fill=fill)
            case "pie":
                draw.pieslice(box, float(numbers[0]), float(numbers[1]), fill=fill)
            case "ring":
                draw.ellipse(box, outline=fill, width=max(1, round(float(numbers[0]) * height)))
            case "line":
                line(points, float(numbers[0]), fill)
            case "spokes":
                (x, y), (radius, _) = points
                for angle in (math.radians(degrees) for degrees in range(0, 180, 45)):
                    across, up = radius * math.cos(angle), radius * math.sin(angle)
                    line([(x - across, y - up), (x + across, y + up)], float(numbers[0]), fill)


class _PlacePainter:
    """Draws one place onto a square image."""

    def __init__(self, image: Image.Image, rng: np.random.Generator, time: str) -> None:
        self._draw = ImageDraw.Draw(image)
        self._image = image
        self._size = image.width
        self._rng = rng
        self._time = time

    def paint(self, place: str) -> None:
        """Fill the whole image."""
        self._sky()
        painters = {
            "beach": self._beach,
            "street": self._street,
            "snow": self._snow,
            "meadow": self._meadow,
            "desert": self._desert,
            "lake": self._lake,
        }
        painters[place]()

    def _sky(self) -> None:
        rows = np.linspace(0.0, 1.0 / (_HORIZON + 0.06), self._size).clip(0, 1)
        self._gradient(0, *_SKIES[self._time], rows)
        x = self._rng.uniform(0.12, 0.88)
        if self._time == "night":
            for _ in range(70):
                self._dot((self._rng.random(), self._rng.uniform(0, _HORIZON)), 0.002, (230, 230, 245))
            self._dot((x, 0.12), 0.045, (240, 238, 220))
            self._dot((x + 0.018, 0.112), 0.04, (22, 28, 58))
        else:
            height = {"morning": 0.34, "noon": 0.1, "sunset": 0.44}[self._time]
            self._dot((x, height), 0.05, {"noon": (255, 250, 226)}.get(self._time, (255, 226, 150)))
            self._clouds()

    def _clouds(self) -> None:
        light = {"morning": (250, 240, 228), "noon": (250, 251, 253), "sunset": (236, 168, 148)}[self._time]
        for _ in range(self._rng.integers(1, 5)):
            x, y = self._rng.uniform(0, 1), self._rng.uniform(0.06, 0.34)
            for number in range(6):
                wide = self._rng.uniform(0.035, 0.075)
                centre = (x + 0.04 * (number - 2.5), y + self._rng.uniform(-0.012, 0.01))
                self._oval(centre, wide, wide * 0.42, light)

    def _beach(self) -> None:
        self._band(_HORIZON, 0.70, (46, 126, 164), (112, 190, 200))
        for _ in range(46):
            self._wave(self._rng.uniform(_HORIZON + 0.01, 0.69), (190, 224, 228))
        self._band(0.69, 1.0, (226, 202, 152), (240, 220, 176))
        self._hill(0.695, 0.006, 5, (244, 246, 240), depth=0.018)
        self._speckle(0.74, (204, 178, 128), 220)

    def _lake(self) -> None:
        self._peaks(0.30, (120, 136, 162), (230, 234, 240))
        self._hill(_HORIZON - 0.03, 0.03, 7, (52, 92, 66), depth=0.1)
        for _ in range(34):
            self._pine(self._rng.random(), _HORIZON + 0.01, self._rng.uniform(0.05, 0.10), (34, 74, 52))
        self._band(_HORIZON, 0.72, (66, 112, 138), (134, 170, 180))
        for _ in range(34):
            self._wave(self._rng.uniform(_HORIZON + 0.02, 0.71), (166, 196, 204))
        self._band(0.72, 1.0, (128, 134, 92), (108, 120, 74))
        self._hill(0.715, 0.008, 6, (170, 164, 136), depth=0.03)
        self._speckle(0.75, (150, 148, 128), 160)

    def _snow(self) -> None:
        self._peaks(0.20, (134, 150, 180), (246, 248, 252))
        self._hill(_HORIZON, 0.03, 5, (226, 232, 242), depth=0.6)
        for _ in range(15):
            foot = self._rng.uniform(_HORIZON, _HORIZON + 0.08)
            self._pine(self._rng.random(), foot, self._rng.uniform(0.10, 0.22), (46, 84, 70), snowy=True)
        self._band(0.66, 1.0, (232, 238, 246), (246, 248, 252))
        self._hill(0.655, 0.012, 4, (232, 238, 246), depth=0.05)
        self._speckle(0.70, (214, 224, 238), 120)

    def _meadow(self) -> None:
        self._hill(_HORIZON - 0.06, 0.05, 4, (116, 156, 108), depth=0.5)
        self._hill(_HORIZON - 0.01, 0.03, 5, (94, 148, 78), depth=0.5)
        for _ in range(8):
            self._tree(self._rng.random(), self._rng.uniform(_HORIZON, _HORIZON + 0.05))
        self._band(0.62, 1.0, (96, 158, 66), (74, 136, 50))
        self._grass()

    def _desert(self) -> None:
        self._hill(_HORIZON - 0.07, 0.06, 3, (206, 160, 104), depth=0.5)
        self._hill(_HORIZON, 0.04, 4, (218, 174, 112), depth=0.5)
        self._band(0.64, 1.0, (226, 184, 120), (236, 198, 136))
        self._hill(0.64, 0.02, 3, (226, 184, 120), depth=0.06)
        for _ in range(3):
            self._cactus(self._rng.random(), self._rng.uniform(0.58, 0.68))
        for _ in range(26):
            self._wave(self._rng.uniform(0.68, 0.99), (210, 166, 104))

    def _street(self) -> None:
        x = -0.03
        while x < 1.0:
            wide = self._rng.uniform(0.12, 0.22)
            self._building(x, x + wide, self._rng.uniform(0.10, 0.36))
            x += wide
        self._band(0.66, 0.72, (178, 174, 166), (166, 162, 156))
        self._band(0.72, 1.0, (92, 94, 100), (74, 76, 82))
        for number in range(6):
            left = 0.2 * number - 0.06
            stripe = [(left, 0.845), (left + 0.1, 0.845), (left + 0.09, 0.86), (left - 0.01, 0.86)]
            self._shape(stripe, (222, 220, 210))

    def _building(self, left: float, right: float, top: float) -> None:
        wall = _WALLS[self._rng.integers(len(_WALLS))]
        self._box(left, top, right, 0.68, wall)
        self._box(right - 0.012, top, right, 0.68, _shade(wall, 0.8))
        lit = 0.55 if self._time == "night" else 0.06
        for row in range(int((0.60 - top) / 0.062)):
            for column in range(int((right - left - 0.03) / 0.042)):
                x, y = left + 0.02 + 0.042 * column, top + 0.025 + 0.062 * row
                glass = (255, 226, 140) if self._rng.random() < lit else (92, 112, 134)
                self._box(x, y, x + 0.024, y + 0.038, glass)

    def _band(self, top: float, bottom: float, first: Colour, last: Colour) -> None:
        start, end = round(top * self._size), round(bottom * self._size)
        self._gradient(start, first, last, np.linspace(0.0, 1.0, end - start))

    def _gradient(self, start: int, first: Colour, last: Colour, shares: Array) -> None:
        low, high = np.array(first, dtype=np.float32), np.array(last, dtype=np.float32)
        rows = (low + (high - low) * shares[:, None])[:, None, :]
        strip = rows.repeat(self._size, axis=1).astype(np.uint8)
        self._image.paste(Image.fromarray(strip), (0, start))

    def _hill(self, height: float, rise: float, bumps: int, colour: Colour, *, depth: float) -> None:
        ridge = [(number / bumps, height + self._rng.uniform(-rise, rise)) for number in range(-1, bumps + 2)]
        self._shape(
            [*smooth_curve(ridge, closed=False), (1.3, height + depth), (-0.3, height + depth)], colour
        )

    def _peaks(self, height: float, rock: Colour, cap: Colour) -> None:
        for number in range(4):
            x = 0.33 * number + self._rng.uniform(-0.1, 0.1)
            top = height + self._rng.uniform(-0.06, 0.12)
            wide = self._rng.uniform(0.22, 0.34)
            fall = (_HORIZON - top) / wide
            self._shape([(x - wide, _HORIZON + 0.02), (x, top), (x + wide, _HORIZON + 0.02)], rock)
            dark = [(x, top), (x + wide, _HORIZON + 0.02), (x + 0.1 * wide, _HORIZON + 0.02)]
            self._shape(dark, _shade(rock, 0.86))
            snow = 0.3 * wide
            edge = [(x + snow, top + snow * fall), (x + 0.4 * snow, top + 0.75 * snow * fall)]
            edge += [(x, top + snow * fall), (x - 0.4 * snow, top + 0.7 * snow * fall)]
            edge += [(x - snow, top + snow * fall)]
            self._shape([(x, top), *edge], cap)

    def _pine(self, x: float, foot: float, height: float, green: Colour, *, snowy: bool = False) -> None:
        for number in range(3):
            top, wide = foot - height * (1.0 - 0.26 * number), height * (0.16 + 0.07 * number)
            bottom = top + height * 0.46
            self._shape([(x - wide, bottom), (x, top), (x + wide, bottom)], green)
            if snowy:
                self._shape(
                    [(x - wide * 0.55, top + height * 0.25), (x, top), (x + wide * 0.35, top + height * 0.2)],
                    (238, 242, 248),
                )

    def _tree(self, x: float, foot: float) -> None:
        height = self._rng.uniform(0.10, 0.17)
        middle = foot - height * 0.5
        trunk = [(x - 0.008, foot), (x + 0.008, foot), (x + 0.006, middle), (x - 0.006, middle)]
        self._shape(trunk, (96, 68, 46))
        green: Colour = (52, int(self._rng.integers(98, 126)), 48)
        for number in range(5):
            angle = number * 2 * math.pi / 5
            centre = (x + 0.3 * height * math.cos(angle), foot - height * (0.7 + 0.16 * math.sin(angle)))
            self._oval(centre, height * 0.3, height * 0.26, _shade(green, 1.0 - 0.08 * (number % 3)))

    def _cactus(self, x: float, foot: float) -> None:
        green, height = (70, 118, 74), self._rng.uniform(0.09, 0.15)
        left, right = x - 0.3 * height, x + 0.3 * height
        trunk = [(x, foot), (x, foot - height)]
        arms = [[(left, foot - 0.75 * height), (left, foot - 0.45 * height), (x, foot - 0.4 * height)]]
        arms += [[(right, foot - 0.85 * height), (right, foot - 0.6 * height), (x, foot - 0.55 * height)]]
        width = round(0.16 * height * self._size)
        for part in (trunk, *arms):
            self._draw.line(self._in_pixels(part), fill=green, width=width, joint="curve")

    def _grass(self) -> None:
        for _ in range(420):
            x, y = self._rng.random(), self._rng.uniform(0.63, 1.0)
            tall = 0.012 + 0.03 * (y - 0.6)
            green = _shade((92, 160, 58), self._rng.uniform(0.72, 1.18))
            lean = self._rng.uniform(-0.4, 0.4) * tall
            self._draw.line(self._in_pixels([(x, y), (x + lean, y - tall)]), fill=green, width=2)
        for _ in range(self._rng.integers(0, 30)):
            spot = (self._rng.random(), self._rng.uniform(0.66, 1.0))
            self._dot(spot, 0.0035, (244, 236, 140) if self._rng.random() < 0.5 else (244, 240, 244))

    def _wave(self, y: float, colour: Colour) -> None:
        x, wide = self._rng.random(), self._rng.uniform(0.02, 0.09)
        self._draw.line(
            self._in_pixels([(x, y), (x + wide / 2, y - 0.002), (x + wide, y)]), fill=colour, width=2
        )

    def _speckle(self, top: float, colour: Colour, count: int) -> None:
        for _ in range(count):
            spot = (self._rng.random(), self._rng.uniform(top, 1.0))
            self._oval(spot, self._rng.uniform(0.001, 0.005), 0.0016, colour)

    def _dot(self, centre: Point, radius: float, colour: Colour) -> None:
        self._oval(centre, radius, radius, colour)

    def _oval(self, centre: Point, wide: float, high: float, colour: Colour) -> None:
        x, y = centre
        self._draw.ellipse(self._in_pixels([(x - wide, y - high), (x + wide, y + high)]), fill=colour)

    def _box(self, left: float, top: float, right: float, bottom: float, colour: Colour) -> None:
        self._shape([(left, top), (right, top), (right, bottom), (left, bottom)], colour)

    def _shape(self, points: list[Point], colour: Colour) -> None:
        self._draw.polygon(self._in_pixels(points), fill=colour)

    def _in_pixels(self, points: list[Point]) -> list[Point]:
        return [(x * self._size, y * self._size) for x, y in points]
