"""Draws the things of a sample scene, each standing on a point with a given height."""

import math
from collections.abc import Callable
from typing import Final

from PIL import ImageDraw

Colour = tuple[int, int, int]
Point = tuple[float, float]
_DARK: Final[Colour] = (40, 38, 44)
_SKIN: Final[Colour] = (222, 176, 142)
_WOOD: Final[Colour] = (134, 92, 58)
_GLASS: Final[Colour] = (176, 208, 226)


def shade(colour: Colour, factor: float) -> Colour:
    """A darker (below 1) or lighter (above 1) shade of a colour."""
    red, green, blue = (max(0, min(255, round(part * factor))) for part in colour)
    return red, green, blue


class Pen:
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


def _person(pen: Pen) -> None:
    trousers = (58, 62, 84)
    for side in (-1, 1):
        pen.line([(side * 0.05, 0.45), (side * 0.085, 0.04)], 0.095, trousers)
        pen.ellipse((side * 0.105, 0.02), (0.06, 0.025), _DARK)
        pen.line([(side * 0.12, 0.75), (side * 0.20, 0.46)], 0.07, shade(pen.colour, 0.85))
        pen.ellipse((side * 0.205, 0.44), (0.035, 0.035), _SKIN)
    pen.polygon([(-0.145, 0.80), (0.145, 0.80), (0.115, 0.42), (-0.115, 0.42)], pen.colour)
    pen.polygon([(0.03, 0.80), (0.145, 0.80), (0.115, 0.42), (0.05, 0.42)], shade(pen.colour, 0.88))
    pen.line([(0.0, 0.80), (0.0, 0.84)], 0.06, _SKIN)
    pen.ellipse((0.0, 0.90), (0.08, 0.095), _SKIN)
    pen.pie((0.0, 0.915), (0.085, 0.09), 180, 360, (72, 48, 34))


def _dog(pen: Pen) -> None:
    back = shade(pen.colour, 0.8)
    for x in (-0.42, 0.30):
        pen.line([(x + 0.08, 0.4), (x + 0.08, 0.04)], 0.12, back)
    pen.line([(-0.52, 0.6), (-0.70, 0.85)], 0.09, pen.colour)
    pen.ellipse((-0.05, 0.52), (0.55, 0.22), pen.colour)
    for x in (-0.42, 0.30):
        pen.line([(x, 0.4), (x, 0.04)], 0.13, pen.colour)
    pen.line([(0.42, 0.6), (0.56, 0.82)], 0.22, pen.colour)
    pen.ellipse((0.60, 0.84), (0.19, 0.16), pen.colour)
    pen.ellipse((0.76, 0.78), (0.14, 0.085), shade(pen.colour, 1.1))
    pen.ellipse((0.88, 0.80), (0.04, 0.04), _DARK)
    pen.ellipse((0.65, 0.88), (0.028, 0.028), _DARK)
    pen.polygon([(0.44, 0.98), (0.58, 0.96), (0.47, 0.68)], back)


def _ball(pen: Pen) -> None:
    pen.ellipse((0.0, 0.5), (0.5, 0.5), shade(pen.colour, 0.78))
    pen.ellipse((-0.04, 0.54), (0.45, 0.45), pen.colour)
    for start in (20, 140, 260):
        pen.pie((-0.04, 0.54), (0.45, 0.45), start, start + 38, shade(pen.colour, 0.62))
    pen.ellipse((-0.18, 0.72), (0.12, 0.09), shade(pen.colour, 1.5))


def _umbrella(pen: Pen) -> None:
    pen.line([(0.0, 0.0), (0.04, 0.95)], 0.03, _WOOD)
    for number in range(6):
        light = pen.colour if number % 2 else shade(pen.colour, 0.72)
        pen.pie((0.04, 0.66), (0.52, 0.34), 180 + 30 * number, 210 + 30 * number + 1, light)


def _sailboat(pen: Pen) -> None:
    pen.line([(0.0, 0.12), (0.0, 1.0)], 0.025, _WOOD)
    pen.polygon([(0.03, 0.97), (0.03, 0.24), (0.40, 0.24)], pen.colour)
    pen.polygon([(-0.03, 0.90), (-0.03, 0.24), (-0.30, 0.24)], shade(pen.colour, 0.82))
    pen.polygon([(-0.45, 0.18), (0.48, 0.18), (0.34, 0.0), (-0.32, 0.0)], (150, 104, 66))
    pen.polygon([(-0.45, 0.18), (0.48, 0.18), (0.45, 0.13), (-0.42, 0.13)], (236, 232, 222))


def _car(pen: Pen) -> None:
    dark = shade(pen.colour, 0.72)
    pen.polygon([(-0.62, 0.55), (-0.36, 0.95), (0.36, 0.95), (0.66, 0.55)], pen.colour)
    pen.polygon([(-0.50, 0.57), (-0.31, 0.87), (-0.04, 0.87), (-0.04, 0.57)], _GLASS)
    pen.polygon([(0.04, 0.57), (0.04, 0.87), (0.31, 0.87), (0.52, 0.57)], shade(_GLASS, 0.85))
    pen.polygon(
        [(-1.08, 0.20), (-1.08, 0.48), (-0.92, 0.58), (0.95, 0.58), (1.10, 0.44), (1.10, 0.20)], pen.colour
    )
    pen.polygon([(-1.08, 0.20), (-1.08, 0.30), (1.10, 0.30), (1.10, 0.20)], dark)
    pen.ellipse((1.03, 0.44), (0.06, 0.06), (250, 240, 190))
    pen.ellipse((-1.03, 0.44), (0.05, 0.05), (190, 40, 40))
    for x in (-0.62, 0.62):
        pen.ellipse((x, 0.2), (0.22, 0.22), (30, 30, 34))
        pen.ellipse((x, 0.2), (0.11, 0.11), (176, 178, 184))


def _bicycle(pen: Pen) -> None:
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


def _bench(pen: Pen) -> None:
    for x in (-0.75, 0.75):
        pen.line([(x, 0.02), (x, 0.5)], 0.09, (72, 72, 78))
        pen.line([(x - 0.05, 0.5), (x - 0.1, 1.0)], 0.07, (72, 72, 78))
    for y, light in ((0.50, 1.0), (0.72, 0.92), (0.92, 0.84)):
        pen.polygon([(-1.0, y), (1.0, y), (1.0, y + 0.13), (-1.0, y + 0.13)], shade(pen.colour, light))


def _sled(pen: Pen) -> None:
    pen.line([(-0.9, 0.06), (0.75, 0.06), (1.0, 0.35), (0.92, 0.6)], 0.08, (110, 112, 120))
    for x in (-0.6, 0.1, 0.6):
        pen.line([(x, 0.08), (x, 0.55)], 0.08, (110, 112, 120))
    pen.polygon([(-0.95, 0.55), (0.85, 0.55), (0.85, 0.80), (-0.95, 0.80)], pen.colour)
    pen.polygon([(-0.95, 0.55), (0.85, 0.55), (0.85, 0.63), (-0.95, 0.63)], shade(pen.colour, 0.7))


def _house(pen: Pen) -> None:
    pen.polygon([(-0.55, 0.0), (0.55, 0.0), (0.55, 0.58), (-0.55, 0.58)], pen.colour)
    pen.polygon([(0.2, 0.0), (0.55, 0.0), (0.55, 0.58), (0.2, 0.58)], shade(pen.colour, 0.86))
    pen.polygon([(0.28, 0.72), (0.40, 0.72), (0.40, 1.0), (0.28, 1.0)], (126, 82, 72))
    pen.polygon([(-0.68, 0.56), (0.68, 0.56), (0.0, 0.98)], (110, 58, 48))
    pen.polygon([(-0.10, 0.0), (0.12, 0.0), (0.12, 0.34), (-0.10, 0.34)], _WOOD)
    for x in (-0.42, 0.26):
        pen.polygon([(x, 0.22), (x + 0.2, 0.22), (x + 0.2, 0.44), (x, 0.44)], _GLASS)
        pen.line([(x + 0.1, 0.22), (x + 0.1, 0.44)], 0.02, (250, 250, 248))


def _tent(pen: Pen) -> None:
    pen.polygon([(-0.9, 0.0), (0.1, 1.0), (0.75, 0.0)], pen.colour)
    pen.polygon([(0.1, 1.0), (0.75, 0.0), (1.15, 0.12)], shade(pen.colour, 0.7))
    pen.polygon([(-0.28, 0.0), (0.0, 0.62), (0.16, 0.0)], shade(pen.colour, 0.35))


def _balloon(pen: Pen) -> None:
    pen.polygon([(-0.11, 0.16), (0.11, 0.16), (0.085, 0.0), (-0.085, 0.0)], (150, 106, 66))
    for side in (-1, 1):
        pen.line([(side * 0.10, 0.16), (side * 0.2, 0.38)], 0.012, _DARK)
    pen.polygon([(-0.34, 0.5), (0.34, 0.5), (0.13, 0.26), (-0.13, 0.26)], shade(pen.colour, 0.8))
    pen.ellipse((0.0, 0.64), (0.38, 0.36), shade(pen.colour, 0.8))
    pen.ellipse((0.0, 0.64), (0.26, 0.36), pen.colour)
    pen.ellipse((0.0, 0.64), (0.11, 0.36), shade(pen.colour, 1.25))


def _kite(pen: Pen) -> None:
    pen.line([(0.0, 0.3), (-0.12, 0.12), (0.08, -0.05), (-0.1, -0.3)], 0.02, (70, 70, 76))
    pen.polygon([(0.0, 1.0), (0.36, 0.68), (0.0, 0.28), (-0.36, 0.68)], pen.colour)
    pen.polygon([(0.0, 1.0), (0.36, 0.68), (0.0, 0.68)], shade(pen.colour, 1.25))
    pen.polygon([(0.0, 0.68), (-0.36, 0.68), (0.0, 0.28)], shade(pen.colour, 0.75))


def _bird(pen: Pen) -> None:
    pen.polygon(
        [(-0.05, 0.5), (-0.75, 0.95), (-0.95, 0.78), (-0.5, 0.62), (0.05, 0.36)], shade(pen.colour, 0.85)
    )
    pen.polygon([(0.0, 0.5), (0.55, 1.0), (0.85, 0.92), (0.45, 0.62), (0.1, 0.36)], pen.colour)
    pen.ellipse((0.05, 0.42), (0.34, 0.15), pen.colour)
    pen.polygon([(0.36, 0.47), (0.56, 0.42), (0.36, 0.38)], (236, 160, 50))
    pen.polygon([(-0.24, 0.44), (-0.56, 0.36), (-0.24, 0.34)], shade(pen.colour, 0.85))


PAINTERS: Final[dict[str, Callable[[Pen], None]]] = {
    "person": _person,
    "dog": _dog,
    "ball": _ball,
    "umbrella": _umbrella,
    "sailboat": _sailboat,
    "car": _car,
    "bicycle": _bicycle,
    "bench": _bench,
    "sled": _sled,
    "house": _house,
    "tent": _tent,
    "balloon": _balloon,
    "kite": _kite,
    "bird": _bird,
}
# Height on the ground line as a share of the image, and width in heights.
HEIGHTS: Final = {
    "person": 0.34, "dog": 0.19, "ball": 0.13, "umbrella": 0.36, "sailboat": 0.34, "car": 0.17,
    "bicycle": 0.21, "bench": 0.15, "sled": 0.12, "house": 0.36, "tent": 0.25, "balloon": 0.30,
    "kite": 0.24, "bird": 0.12,
}  # fmt: skip
WIDTHS: Final = {
    "person": 0.5, "dog": 1.6, "ball": 1.0, "umbrella": 1.1, "sailboat": 0.95, "car": 2.2, "bicycle": 1.75,
    "bench": 2.0, "sled": 2.0, "house": 1.4, "tent": 2.1, "balloon": 0.8, "kite": 0.75, "bird": 1.9,
}  # fmt: skip
