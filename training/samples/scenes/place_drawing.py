"""Draws the places of sample scenes: sky, horizon and ground."""

import math
from collections.abc import Callable
from typing import Final

import numpy as np
from PIL import Image, ImageDraw

from training.samples.canvas import Point, smooth_curve
from training.samples.scenes.thing_drawing import Colour, shade

HORIZON: Final = 0.54
_SKIES: Final[dict[str, tuple[Colour, Colour]]] = {
    "morning": ((132, 178, 226), (252, 224, 186)),
    "noon": ((70, 138, 214), (192, 222, 242)),
    "sunset": ((96, 74, 140), (252, 158, 86)),
    "night": ((10, 16, 44), (44, 58, 104)),
}


class PlacePainter:
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
        painters: dict[str, Callable[[], None]] = {
            "beach": self._beach,
            "street": self._street,
            "snow": self._snow,
            "meadow": self._meadow,
            "desert": self._desert,
            "lake": self._lake,
        }
        painters[place]()

    def _sky(self) -> None:
        top, bottom = (np.array(colour, dtype=np.float32) for colour in _SKIES[self._time])
        rows = np.linspace(0.0, 1.0 / (HORIZON + 0.06), self._size)[:, None].clip(0, 1)
        gradient = (top + (bottom - top) * rows)[:, None, :].repeat(self._size, axis=1)
        self._image.paste(Image.fromarray(gradient.astype(np.uint8)))
        x = float(self._rng.uniform(0.12, 0.88))
        if self._time == "night":
            for _ in range(70):
                self._dot(
                    (float(self._rng.random()), float(self._rng.uniform(0, HORIZON))), 0.002, (230, 230, 245)
                )
            self._dot((x, 0.12), 0.045, (240, 238, 220))
            self._dot((x + 0.018, 0.112), 0.04, (22, 28, 58))
        else:
            height = {"morning": 0.34, "noon": 0.1, "sunset": 0.44}[self._time]
            self._dot((x, height), 0.05, {"noon": (255, 250, 226)}.get(self._time, (255, 226, 150)))
            self._clouds()

    def _clouds(self) -> None:
        light = {"morning": (250, 240, 228), "noon": (250, 251, 253), "sunset": (236, 168, 148)}[self._time]
        for _ in range(int(self._rng.integers(1, 5))):
            x, y = float(self._rng.uniform(0, 1)), float(self._rng.uniform(0.06, 0.34))
            for number in range(6):
                wide = float(self._rng.uniform(0.035, 0.075))
                self._oval(
                    (x + 0.04 * (number - 2.5), y + float(self._rng.uniform(-0.012, 0.01))),
                    wide,
                    wide * 0.42,
                    light,
                )

    def _beach(self) -> None:
        self._band(HORIZON, 0.70, (46, 126, 164), (112, 190, 200))
        for _ in range(46):
            self._wave(float(self._rng.uniform(HORIZON + 0.01, 0.69)), (190, 224, 228))
        self._band(0.69, 1.0, (226, 202, 152), (240, 220, 176))
        self._hill(0.695, 0.006, 5, (244, 246, 240), depth=0.018)
        self._speckle(0.74, (204, 178, 128), 220)

    def _lake(self) -> None:
        self._peaks(0.30, (120, 136, 162), (230, 234, 240))
        self._hill(HORIZON - 0.03, 0.03, 7, (52, 92, 66), depth=0.1)
        for _ in range(34):
            self._pine(
                float(self._rng.random()), HORIZON + 0.01, float(self._rng.uniform(0.05, 0.10)), (34, 74, 52)
            )
        self._band(HORIZON, 0.72, (66, 112, 138), (134, 170, 180))
        for _ in range(34):
            self._wave(float(self._rng.uniform(HORIZON + 0.02, 0.71)), (166, 196, 204))
        self._band(0.72, 1.0, (128, 134, 92), (108, 120, 74))
        self._hill(0.715, 0.008, 6, (170, 164, 136), depth=0.03)
        self._speckle(0.75, (150, 148, 128), 160)

    def _snow(self) -> None:
        self._peaks(0.20, (134, 150, 180), (246, 248, 252))
        self._hill(HORIZON, 0.03, 5, (226, 232, 242), depth=0.6)
        for _ in range(15):
            foot = float(self._rng.uniform(HORIZON, HORIZON + 0.08))
            self._pine(
                float(self._rng.random()),
                foot,
                float(self._rng.uniform(0.10, 0.22)),
                (46, 84, 70),
                snowy=True,
            )
        self._band(0.66, 1.0, (232, 238, 246), (246, 248, 252))
        self._hill(0.655, 0.012, 4, (232, 238, 246), depth=0.05)
        self._speckle(0.70, (214, 224, 238), 120)

    def _meadow(self) -> None:
        self._hill(HORIZON - 0.06, 0.05, 4, (116, 156, 108), depth=0.5)
        self._hill(HORIZON - 0.01, 0.03, 5, (94, 148, 78), depth=0.5)
        for _ in range(8):
            self._tree(float(self._rng.random()), float(self._rng.uniform(HORIZON, HORIZON + 0.05)))
        self._band(0.62, 1.0, (96, 158, 66), (74, 136, 50))
        self._grass()

    def _desert(self) -> None:
        self._hill(HORIZON - 0.07, 0.06, 3, (206, 160, 104), depth=0.5)
        self._hill(HORIZON, 0.04, 4, (218, 174, 112), depth=0.5)
        self._band(0.64, 1.0, (226, 184, 120), (236, 198, 136))
        self._hill(0.64, 0.02, 3, (226, 184, 120), depth=0.06)
        for _ in range(3):
            self._cactus(float(self._rng.random()), float(self._rng.uniform(0.58, 0.68)))
        for _ in range(26):
            self._wave(float(self._rng.uniform(0.68, 0.99)), (210, 166, 104))

    def _street(self) -> None:
        x = -0.03
        while x < 1.0:
            wide = float(self._rng.uniform(0.12, 0.22))
            self._building(x, x + wide, float(self._rng.uniform(0.10, 0.36)))
            x += wide
        self._band(0.66, 0.72, (178, 174, 166), (166, 162, 156))
        self._band(0.72, 1.0, (92, 94, 100), (74, 76, 82))
        for number in range(6):
            left = 0.2 * number - 0.06
            self._shape(
                [(left, 0.845), (left + 0.1, 0.845), (left + 0.09, 0.86), (left - 0.01, 0.86)],
                (222, 220, 210),
            )

    def _building(self, left: float, right: float, top: float) -> None:
        wall: Colour = ((168, 112, 92), (190, 176, 152), (138, 146, 158), (202, 190, 172), (126, 96, 88))[
            int(self._rng.integers(5))
        ]
        self._shape([(left, top), (right, top), (right, 0.68), (left, 0.68)], wall)
        self._shape(
            [(right - 0.012, top), (right, top), (right, 0.68), (right - 0.012, 0.68)], shade(wall, 0.8)
        )
        lit = 0.55 if self._time == "night" else 0.06
        for row in range(int((0.60 - top) / 0.062)):
            for column in range(int((right - left - 0.03) / 0.042)):
                x, y = left + 0.02 + 0.042 * column, top + 0.025 + 0.062 * row
                glass = (255, 226, 140) if self._rng.random() < lit else (92, 112, 134)
                self._shape([(x, y), (x + 0.024, y), (x + 0.024, y + 0.038), (x, y + 0.038)], glass)

    def _band(self, top: float, bottom: float, first: Colour, last: Colour) -> None:
        start, end = round(top * self._size), round(bottom * self._size)
        low, high = np.array(first, dtype=np.float32), np.array(last, dtype=np.float32)
        rows = (low + (high - low) * np.linspace(0.0, 1.0, end - start)[:, None])[:, None, :]
        strip = rows.repeat(self._size, axis=1).astype(np.uint8)
        self._image.paste(Image.fromarray(strip), (0, start))

    def _hill(self, height: float, rise: float, bumps: int, colour: Colour, *, depth: float) -> None:
        ridge = [
            (number / bumps, height + float(self._rng.uniform(-rise, rise)))
            for number in range(-1, bumps + 2)
        ]
        self._shape(
            [*smooth_curve(ridge, closed=False), (1.3, height + depth), (-0.3, height + depth)], colour
        )

    def _peaks(self, height: float, rock: Colour, cap: Colour) -> None:
        for number in range(4):
            x = 0.33 * number + float(self._rng.uniform(-0.1, 0.1))
            top = height + float(self._rng.uniform(-0.06, 0.12))
            wide = float(self._rng.uniform(0.22, 0.34))
            fall = (HORIZON - top) / wide
            self._shape([(x - wide, HORIZON + 0.02), (x, top), (x + wide, HORIZON + 0.02)], rock)
            self._shape(
                [(x, top), (x + wide, HORIZON + 0.02), (x + 0.1 * wide, HORIZON + 0.02)], shade(rock, 0.86)
            )
            snow = 0.3 * wide
            edge = [
                (x + snow, top + snow * fall),
                (x + 0.4 * snow, top + 0.75 * snow * fall),
                (x, top + snow * fall),
            ]
            edge += [(x - 0.4 * snow, top + 0.7 * snow * fall), (x - snow, top + snow * fall)]
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
        height = float(self._rng.uniform(0.10, 0.17))
        self._shape(
            [
                (x - 0.008, foot),
                (x + 0.008, foot),
                (x + 0.006, foot - height * 0.5),
                (x - 0.006, foot - height * 0.5),
            ],
            (96, 68, 46),
        )
        green: Colour = (52, int(self._rng.integers(98, 126)), 48)
        for number in range(5):
            angle = number * 2 * math.pi / 5
            centre = (x + 0.3 * height * math.cos(angle), foot - height * (0.7 + 0.16 * math.sin(angle)))
            self._oval(centre, height * 0.3, height * 0.26, shade(green, 1.0 - 0.08 * (number % 3)))

    def _cactus(self, x: float, foot: float) -> None:
        green, height = (70, 118, 74), float(self._rng.uniform(0.09, 0.15))
        parts: list[list[Point]] = [
            [(x, foot), (x, foot - height)],
            [
                (x - 0.3 * height, foot - 0.75 * height),
                (x - 0.3 * height, foot - 0.45 * height),
                (x, foot - 0.4 * height),
            ],
            [
                (x + 0.3 * height, foot - 0.85 * height),
                (x + 0.3 * height, foot - 0.6 * height),
                (x, foot - 0.55 * height),
            ],
        ]
        for part in parts:
            self._draw.line(
                self._place(part), fill=green, width=round(0.16 * height * self._size), joint="curve"
            )

    def _grass(self) -> None:
        for _ in range(420):
            x, y = float(self._rng.random()), float(self._rng.uniform(0.63, 1.0))
            tall = 0.012 + 0.03 * (y - 0.6)
            green = shade((92, 160, 58), float(self._rng.uniform(0.72, 1.18)))
            lean = float(self._rng.uniform(-0.4, 0.4)) * tall
            self._draw.line(self._place([(x, y), (x + lean, y - tall)]), fill=green, width=2)
        for _ in range(int(self._rng.integers(0, 30))):
            spot = (float(self._rng.random()), float(self._rng.uniform(0.66, 1.0)))
            self._dot(spot, 0.0035, (244, 236, 140) if self._rng.random() < 0.5 else (244, 240, 244))

    def _wave(self, y: float, colour: Colour) -> None:
        x, wide = float(self._rng.random()), float(self._rng.uniform(0.02, 0.09))
        self._draw.line(self._place([(x, y), (x + wide / 2, y - 0.002), (x + wide, y)]), fill=colour, width=2)

    def _speckle(self, top: float, colour: Colour, count: int) -> None:
        for _ in range(count):
            spot = (float(self._rng.random()), float(self._rng.uniform(top, 1.0)))
            self._oval(spot, float(self._rng.uniform(0.001, 0.005)), 0.0016, colour)

    def _dot(self, centre: Point, radius: float, colour: Colour) -> None:
        self._oval(centre, radius, radius, colour)

    def _oval(self, centre: Point, wide: float, high: float, colour: Colour) -> None:
        (x, y), size = centre, self._size
        self._draw.ellipse(
            [(x - wide) * size, (y - high) * size, (x + wide) * size, (y + high) * size], fill=colour
        )

    def _shape(self, points: list[Point], colour: Colour) -> None:
        self._draw.polygon(self._place(points), fill=colour)

    def _place(self, points: list[Point]) -> list[Point]:
        return [(x * self._size, y * self._size) for x, y in points]
