"""Draws sample scenes: a place, the things in it, and the light of the hour."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from training.samples.canvas import Array, Point, smooth_curve, smooth_noise
from training.samples.scenes.factors import SKY_THINGS, Scene, Thing, colour_value

Colour = tuple[int, int, int]
_TINTS: Final = {
    "morning": (1.02, 0.97, 0.90),
    "noon": (1.0, 1.0, 1.0),
    "sunset": (1.02, 0.84, 0.72),
    "night": (0.50, 0.54, 0.72),
}
_ROOM: Final = {"left of": (0.03, 0.47), "right of": (0.53, 0.97), "": (0.15, 0.85), "above": (0.08, 0.92)}
# Threads, ribs or rows of dots of a texture, over the width; and how much they darken, in grey levels.
_RIBS: Final = 36
_DEPTH: Final = 4.0
_OPPOSITE: Final = {"left of": "right of", "right of": "left of", "above": ""}
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
_DARK: Final[Colour] = (40, 38, 44)
_SKIN: Final[Colour] = (222, 176, 142)
_WOOD: Final[Colour] = (134, 92, 58)
_GLASS: Final[Colour] = (176, 208, 226)


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
    things = _spread(scene.main, _ROOM[scene.relation], rng)
    if scene.other is not None:
        things += _spread(scene.other, _ROOM[_OPPOSITE[scene.relation]], rng)
    things.sort(key=lambda placed: placed.y)
    image = _with_shadows(image, things)
    draw = ImageDraw.Draw(image)
    for placed in things:
        paint, _, _ = _THINGS[placed.thing.kind]
        foot = (placed.x * image.width, placed.y * image.width)
        paint(_Pen(draw, foot, placed.height * image.width, colour_value(placed.thing.colour)))
    return _lit(image.reduce(2), scene, rng)


def _spread(thing: Thing, room: tuple[float, float], rng: np.random.Generator) -> list[_Placed]:
    left, right = room
    share = (right - left) / thing.count
    _, usual, wide = _THINGS[thing.kind]
    height = min(usual * rng.uniform(0.85, 1.12), 0.94 * share / wide)
    slack = max(0.0, share - height * wide) / 2
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
            wide, high = placed.height * _THINGS[placed.thing.kind][2] * 0.5, 0.012 + 0.05 * placed.height
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
        match place:
            case "beach":
                self._beach()
            case "street":
                self._street()
            case "snow":
                self._snow()
            case "meadow":
                self._meadow()
            case "desert":
                self._desert()
            case "lake":
                self._lake()

    def _sky(self) -> None:
        top, bottom = (np.array(colour, dtype=np.float32) for colour in _SKIES[self._time])
        rows = np.linspace(0.0, 1.0 / (_HORIZON + 0.06), self._size)[:, None].clip(0, 1)
        gradient = (top + (bottom - top) * rows)[:, None, :].repeat(self._size, axis=1)
        self._image.paste(Image.fromarray(gradient.astype(np.uint8)))
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
                place = (x + 0.04 * (number - 2.5), y + self._rng.uniform(-0.012, 0.01))
                self._oval(place, wide, wide * 0.42, light)

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
        low, high = np.array(first, dtype=np.float32), np.array(last, dtype=np.float32)
        rows = (low + (high - low) * np.linspace(0.0, 1.0, end - start)[:, None])[:, None, :]
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
            self._draw.line(self._place(part), fill=green, width=width, joint="curve")

    def _grass(self) -> None:
        for _ in range(420):
            x, y = self._rng.random(), self._rng.uniform(0.63, 1.0)
            tall = 0.012 + 0.03 * (y - 0.6)
            green = _shade((92, 160, 58), self._rng.uniform(0.72, 1.18))
            lean = self._rng.uniform(-0.4, 0.4) * tall
            self._draw.line(self._place([(x, y), (x + lean, y - tall)]), fill=green, width=2)
        for _ in range(self._rng.integers(0, 30)):
            spot = (self._rng.random(), self._rng.uniform(0.66, 1.0))
            self._dot(spot, 0.0035, (244, 236, 140) if self._rng.random() < 0.5 else (244, 240, 244))

    def _wave(self, y: float, colour: Colour) -> None:
        x, wide = self._rng.random(), self._rng.uniform(0.02, 0.09)
        self._draw.line(self._place([(x, y), (x + wide / 2, y - 0.002), (x + wide, y)]), fill=colour, width=2)

    def _speckle(self, top: float, colour: Colour, count: int) -> None:
        for _ in range(count):
            spot = (self._rng.random(), self._rng.uniform(top, 1.0))
            self._oval(spot, self._rng.uniform(0.001, 0.005), 0.0016, colour)

    def _dot(self, centre: Point, radius: float, colour: Colour) -> None:
        self._oval(centre, radius, radius, colour)

    def _oval(self, centre: Point, wide: float, high: float, colour: Colour) -> None:
        x, y = centre
        self._draw.ellipse(self._place([(x - wide, y - high), (x + wide, y + high)]), fill=colour)

    def _box(self, left: float, top: float, right: float, bottom: float, colour: Colour) -> None:
        self._shape([(left, top), (right, top), (right, bottom), (left, bottom)], colour)

    def _shape(self, points: list[Point], colour: Colour) -> None:
        self._draw.polygon(self._place(points), fill=colour)

    def _place(self, points: list[Point]) -> list[Point]:
        return [(x * self._size, y * self._size) for x, y in points]


class _Pen:
    """Draws in a thing's own coordinates: x from its middle, y up from the ground, both in heights of it."""

    def __init__(self, draw: ImageDraw.ImageDraw, foot: Point, height: float, colour: Colour) -> None:
        self._draw = draw
        self._foot = foot
        self._height = height
        self.colour = colour

    def polygon(self, points: list[Point], fill: Colour) -> None:
        """A filled polygon."""
        self._draw.polygon([self._place(point) for point in points], fill=fill)

    def ellipse(self, centre: Point, radii: Point, fill: Colour) -> None:
        """A filled ellipse."""
        self._draw.ellipse(self._box(centre, radii), fill=fill)

    def pie(self, centre: Point, radii: Point, start: float, end: float, fill: Colour) -> None:
        """A slice of an ellipse; angles in degrees, clockwise from the right."""
        self._draw.pieslice(self._box(centre, radii), start, end, fill=fill)

    def ring(self, centre: Point, radius: float, width: float, fill: Colour) -> None:
        """A circle's outline."""
        self._draw.ellipse(self._box(centre, (radius, radius)), outline=fill, width=self._pixels(width))

    def line(self, points: list[Point], width: float, fill: Colour) -> None:
        """A line with round ends."""
        placed = [self._place(point) for point in points]
        self._draw.line(placed, fill=fill, width=self._pixels(width), joint="curve")
        for x, y in (placed[0], placed[-1]):
            radius = self._height * width / 2
            self._draw.ellipse([x - radius, y - radius, x + radius, y + radius], fill=fill)

    def _place(self, point: Point) -> Point:
        return self._foot[0] + point[0] * self._height, self._foot[1] - point[1] * self._height

    def _box(self, centre: Point, radii: Point) -> list[float]:
        x, y = self._place(centre)
        rx, ry = radii[0] * self._height, radii[1] * self._height
        return [x - rx, y - ry, x + rx, y + ry]

    def _pixels(self, width: float) -> int:
        return max(1, round(width * self._height))


def _person(pen: _Pen) -> None:
    trousers = (58, 62, 84)
    for side in (-1, 1):
        pen.line([(side * 0.05, 0.45), (side * 0.085, 0.04)], 0.095, trousers)
        pen.ellipse((side * 0.105, 0.02), (0.06, 0.025), _DARK)
        pen.line([(side * 0.12, 0.75), (side * 0.20, 0.46)], 0.07, _shade(pen.colour, 0.85))
        pen.ellipse((side * 0.205, 0.44), (0.035, 0.035), _SKIN)
    pen.polygon([(-0.145, 0.80), (0.145, 0.80), (0.115, 0.42), (-0.115, 0.42)], pen.colour)
    pen.polygon([(0.03, 0.80), (0.145, 0.80), (0.115, 0.42), (0.05, 0.42)], _shade(pen.colour, 0.88))
    pen.line([(0.0, 0.80), (0.0, 0.84)], 0.06, _SKIN)
    pen.ellipse((0.0, 0.90), (0.08, 0.095), _SKIN)
    pen.pie((0.0, 0.915), (0.085, 0.09), 180, 360, (72, 48, 34))


def _dog(pen: _Pen) -> None:
    back = _shade(pen.colour, 0.8)
    for x in (-0.42, 0.30):
        pen.line([(x + 0.08, 0.4), (x + 0.08, 0.04)], 0.12, back)
    pen.line([(-0.52, 0.6), (-0.70, 0.85)], 0.09, pen.colour)
    pen.ellipse((-0.05, 0.52), (0.55, 0.22), pen.colour)
    for x in (-0.42, 0.30):
        pen.line([(x, 0.4), (x, 0.04)], 0.13, pen.colour)
    pen.line([(0.42, 0.6), (0.56, 0.82)], 0.22, pen.colour)
    pen.ellipse((0.60, 0.84), (0.19, 0.16), pen.colour)
    pen.ellipse((0.76, 0.78), (0.14, 0.085), _shade(pen.colour, 1.1))
    pen.ellipse((0.88, 0.80), (0.04, 0.04), _DARK)
    pen.ellipse((0.65, 0.88), (0.028, 0.028), _DARK)
    pen.polygon([(0.44, 0.98), (0.58, 0.96), (0.47, 0.68)], back)


def _ball(pen: _Pen) -> None:
    pen.ellipse((0.0, 0.5), (0.5, 0.5), _shade(pen.colour, 0.78))
    pen.ellipse((-0.04, 0.54), (0.45, 0.45), pen.colour)
    for start in (20, 140, 260):
        pen.pie((-0.04, 0.54), (0.45, 0.45), start, start + 38, _shade(pen.colour, 0.62))
    pen.ellipse((-0.18, 0.72), (0.12, 0.09), _shade(pen.colour, 1.5))


def _umbrella(pen: _Pen) -> None:
    pen.line([(0.0, 0.0), (0.04, 0.95)], 0.03, _WOOD)
    for number in range(6):
        light = pen.colour if number % 2 else _shade(pen.colour, 0.72)
        pen.pie((0.04, 0.66), (0.52, 0.34), 180 + 30 * number, 210 + 30 * number + 1, light)


def _sailboat(pen: _Pen) -> None:
    pen.line([(0.0, 0.12), (0.0, 1.0)], 0.025, _WOOD)
    pen.polygon([(0.03, 0.97), (0.03, 0.24), (0.40, 0.24)], pen.colour)
    pen.polygon([(-0.03, 0.90), (-0.03, 0.24), (-0.30, 0.24)], _shade(pen.colour, 0.82))
    pen.polygon([(-0.45, 0.18), (0.48, 0.18), (0.34, 0.0), (-0.32, 0.0)], (150, 104, 66))
    pen.polygon([(-0.45, 0.18), (0.48, 0.18), (0.45, 0.13), (-0.42, 0.13)], (236, 232, 222))


def _car(pen: _Pen) -> None:
    dark = _shade(pen.colour, 0.72)
    pen.polygon([(-0.62, 0.55), (-0.36, 0.95), (0.36, 0.95), (0.66, 0.55)], pen.colour)
    pen.polygon([(-0.50, 0.57), (-0.31, 0.87), (-0.04, 0.87), (-0.04, 0.57)], _GLASS)
    pen.polygon([(0.04, 0.57), (0.04, 0.87), (0.31, 0.87), (0.52, 0.57)], _shade(_GLASS, 0.85))
    pen.polygon(
        [(-1.08, 0.20), (-1.08, 0.48), (-0.92, 0.58), (0.95, 0.58), (1.10, 0.44), (1.10, 0.20)], pen.colour
    )
    pen.polygon([(-1.08, 0.20), (-1.08, 0.30), (1.10, 0.30), (1.10, 0.20)], dark)
    pen.ellipse((1.03, 0.44), (0.06, 0.06), (250, 240, 190))
    pen.ellipse((-1.03, 0.44), (0.05, 0.05), (190, 40, 40))
    for x in (-0.62, 0.62):
        pen.ellipse((x, 0.2), (0.22, 0.22), (30, 30, 34))
        pen.ellipse((x, 0.2), (0.11, 0.11), (176, 178, 184))


def _bicycle(pen: _Pen) -> None:
    for x in (-0.52, 0.52):
        pen.ring((x, 0.34), 0.34, 0.05, (34, 34, 38))
        for angle in range(0, 180, 45):
            dx, dy = 0.3 * math.cos(math.radians(angle)), 0.3 * math.sin(math.radians(angle))
            pen.line([(x - dx, 0.34 - dy), (x + dx, 0.34 + dy)], 0.012, (130, 130, 134))
    frame: list[list[Point]] = [
        [(-0.52, 0.34), (-0.18, 0.80), (0.36, 0.80), (-0.02, 0.32), (-0.52, 0.34)],
        [(-0.22, 0.90), (-0.02, 0.32)],
        [(0.52, 0.34), (0.34, 0.96)],
    ]
    for part in frame:
        pen.line(part, 0.075, pen.colour)
    pen.line([(-0.34, 0.92), (-0.12, 0.92)], 0.07, _DARK)
    pen.line([(0.34, 0.96), (0.50, 1.0)], 0.05, _DARK)


def _bench(pen: _Pen) -> None:
    for x in (-0.75, 0.75):
        pen.line([(x, 0.02), (x, 0.5)], 0.09, (72, 72, 78))
        pen.line([(x - 0.05, 0.5), (x - 0.1, 1.0)], 0.07, (72, 72, 78))
    for y, light in ((0.50, 1.0), (0.72, 0.92), (0.92, 0.84)):
        pen.polygon([(-1.0, y), (1.0, y), (1.0, y + 0.13), (-1.0, y + 0.13)], _shade(pen.colour, light))


def _sled(pen: _Pen) -> None:
    pen.line([(-0.9, 0.06), (0.75, 0.06), (1.0, 0.35), (0.92, 0.6)], 0.08, (110, 112, 120))
    for x in (-0.6, 0.1, 0.6):
        pen.line([(x, 0.08), (x, 0.55)], 0.08, (110, 112, 120))
    pen.polygon([(-0.95, 0.55), (0.85, 0.55), (0.85, 0.80), (-0.95, 0.80)], pen.colour)
    pen.polygon([(-0.95, 0.55), (0.85, 0.55), (0.85, 0.63), (-0.95, 0.63)], _shade(pen.colour, 0.7))


def _house(pen: _Pen) -> None:
    pen.polygon([(-0.55, 0.0), (0.55, 0.0), (0.55, 0.58), (-0.55, 0.58)], pen.colour)
    pen.polygon([(0.2, 0.0), (0.55, 0.0), (0.55, 0.58), (0.2, 0.58)], _shade(pen.colour, 0.86))
    pen.polygon([(0.28, 0.72), (0.40, 0.72), (0.40, 1.0), (0.28, 1.0)], (126, 82, 72))
    pen.polygon([(-0.68, 0.56), (0.68, 0.56), (0.0, 0.98)], (110, 58, 48))
    pen.polygon([(-0.10, 0.0), (0.12, 0.0), (0.12, 0.34), (-0.10, 0.34)], _WOOD)
    for x in (-0.42, 0.26):
        pen.polygon([(x, 0.22), (x + 0.2, 0.22), (x + 0.2, 0.44), (x, 0.44)], _GLASS)
        pen.line([(x + 0.1, 0.22), (x + 0.1, 0.44)], 0.02, (250, 250, 248))


def _tent(pen: _Pen) -> None:
    pen.polygon([(-0.9, 0.0), (0.1, 1.0), (0.75, 0.0)], pen.colour)
    pen.polygon([(0.1, 1.0), (0.75, 0.0), (1.15, 0.12)], _shade(pen.colour, 0.7))
    pen.polygon([(-0.28, 0.0), (0.0, 0.62), (0.16, 0.0)], _shade(pen.colour, 0.35))


def _balloon(pen: _Pen) -> None:
    pen.polygon([(-0.11, 0.16), (0.11, 0.16), (0.085, 0.0), (-0.085, 0.0)], (150, 106, 66))
    for side in (-1, 1):
        pen.line([(side * 0.10, 0.16), (side * 0.2, 0.38)], 0.012, _DARK)
    pen.polygon([(-0.34, 0.5), (0.34, 0.5), (0.13, 0.26), (-0.13, 0.26)], _shade(pen.colour, 0.8))
    pen.ellipse((0.0, 0.64), (0.38, 0.36), _shade(pen.colour, 0.8))
    pen.ellipse((0.0, 0.64), (0.26, 0.36), pen.colour)
    pen.ellipse((0.0, 0.64), (0.11, 0.36), _shade(pen.colour, 1.25))


def _kite(pen: _Pen) -> None:
    pen.line([(0.0, 0.3), (-0.12, 0.12), (0.08, -0.05), (-0.1, -0.3)], 0.02, (70, 70, 76))
    pen.polygon([(0.0, 1.0), (0.36, 0.68), (0.0, 0.28), (-0.36, 0.68)], pen.colour)
    pen.polygon([(0.0, 1.0), (0.36, 0.68), (0.0, 0.68)], _shade(pen.colour, 1.25))
    pen.polygon([(0.0, 0.68), (-0.36, 0.68), (0.0, 0.28)], _shade(pen.colour, 0.75))


def _bird(pen: _Pen) -> None:
    pen.polygon(
        [(-0.05, 0.5), (-0.75, 0.95), (-0.95, 0.78), (-0.5, 0.62), (0.05, 0.36)], _shade(pen.colour, 0.85)
    )
    pen.polygon([(0.0, 0.5), (0.55, 1.0), (0.85, 0.92), (0.45, 0.62), (0.1, 0.36)], pen.colour)
    pen.ellipse((0.05, 0.42), (0.34, 0.15), pen.colour)
    pen.polygon([(0.36, 0.47), (0.56, 0.42), (0.36, 0.38)], (236, 160, 50))
    pen.polygon([(-0.24, 0.44), (-0.56, 0.36), (-0.24, 0.34)], _shade(pen.colour, 0.85))


# Painter, height on the ground line as a share of the image, and width in heights.
_THINGS: Final[dict[str, tuple[Callable[[_Pen], None], float, float]]] = {
    "person": (_person, 0.34, 0.5),
    "dog": (_dog, 0.19, 1.6),
    "ball": (_ball, 0.13, 1.0),
    "umbrella": (_umbrella, 0.36, 1.1),
    "sailboat": (_sailboat, 0.34, 0.95),
    "car": (_car, 0.17, 2.2),
    "bicycle": (_bicycle, 0.21, 1.75),
    "bench": (_bench, 0.15, 2.0),
    "sled": (_sled, 0.12, 2.0),
    "house": (_house, 0.36, 1.4),
    "tent": (_tent, 0.25, 2.1),
    "balloon": (_balloon, 0.30, 0.8),
    "kite": (_kite, 0.24, 0.75),
    "bird": (_bird, 0.12, 1.9),
}
