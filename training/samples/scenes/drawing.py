"""Draws sample scenes: a place, the things in it, and the light of the hour."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from training.samples.canvas import Array, smooth_noise
from training.samples.scenes.factors import SKY_THINGS, Scene, Thing, colour_value
from training.samples.scenes.place_drawing import PlacePainter
from training.samples.scenes.thing_drawing import HEIGHTS, PAINTERS, WIDTHS, Pen

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


@dataclass(frozen=True)
class Placed:
    """One thing of a scene and where it is: foot and height as shares of the image."""

    thing: Thing
    x: float
    y: float
    height: float

    @property
    def in_the_sky(self) -> bool:
        """Whether it casts no shadow on the ground."""
        return self.thing.kind in SKY_THINGS


def draw_scene(scene: Scene, rng: np.random.Generator, size: int) -> Image.Image:
    """Draw one scene in RGB, `size` pixels wide and high."""
    image = Image.new("RGB", (2 * size, 2 * size))
    PlacePainter(image, rng, scene.time).paint(scene.place)
    things = sorted(arrange(scene, rng), key=lambda placed: placed.y)
    image = _with_shadows(image, things)
    draw = ImageDraw.Draw(image)
    for placed in things:
        foot = (placed.x * image.width, placed.y * image.width)
        PAINTERS[placed.thing.kind](
            Pen(draw, foot, placed.height * image.width, colour_value(placed.thing.colour))
        )
    return _lit(image.reduce(2), scene, rng)


def arrange(scene: Scene, rng: np.random.Generator) -> list[Placed]:
    """Give every thing of a scene its place, so that the relation between them holds."""
    placed = _spread(scene.main, _ROOM[scene.relation], rng)
    if scene.other is not None:
        placed += _spread(scene.other, _ROOM[_OPPOSITE[scene.relation]], rng)
    return placed


def _spread(thing: Thing, room: tuple[float, float], rng: np.random.Generator) -> list[Placed]:
    left, right = room
    share = (right - left) / thing.count
    height = HEIGHTS[thing.kind] * float(rng.uniform(0.85, 1.12))
    height = min(height, 0.94 * share / WIDTHS[thing.kind])
    slack = max(0.0, share - height * WIDTHS[thing.kind]) / 2
    return [
        Placed(
            thing,
            left + share * (number + 0.5) + float(rng.uniform(-0.7, 0.7)) * slack,
            _foot(thing.kind, height, rng),
            height,
        )
        for number in range(thing.count)
    ]


def _foot(kind: str, height: float, rng: np.random.Generator) -> float:
    if kind in SKY_THINGS:
        return float(rng.uniform(0.05, 0.12)) + height
    if kind == "sailboat":
        return float(rng.uniform(0.62, 0.68))
    if kind in ("house", "tent"):
        return float(rng.uniform(0.74, 0.80))
    return float(rng.uniform(0.80, 0.94))


def _with_shadows(image: Image.Image, things: list[Placed]) -> Image.Image:
    mask = Image.new("L", image.size)
    draw = ImageDraw.Draw(mask)
    for placed in things:
        if not placed.in_the_sky:
            wide, high = placed.height * WIDTHS[placed.thing.kind] * 0.5, 0.012 + 0.05 * placed.height
            left, right = placed.x - wide * 0.9, placed.x + wide * 1.15
            draw.ellipse(
                [left * image.width, (placed.y - high) * image.width, right * image.width,
                 (placed.y + high * 0.7) * image.width],
                fill=110,
            )  # fmt: skip
    return Image.composite(
        Image.new("RGB", image.size, (24, 26, 40)),
        image,
        mask.filter(ImageFilter.BoxBlur(image.width // 100)),
    )


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
