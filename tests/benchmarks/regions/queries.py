"""Queries by a whole film, by a crop of a box and by its regions."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from training.models.encoder import Encoder
from training.models.image_input import Box, RegionGrid, grid_of

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]

FIRST: Final = 10
_AROUND: Final = 0.25
_BATCH: Final = 32


@dataclass(frozen=True, slots=True)
class Part:
    """A box on a film whose vector (D,) and regions are known."""

    image: Image.Image
    vector: Floats
    grid: RegionGrid
    box: Box


def require_regions(encoder: Encoder) -> None:
    """End the program where an encoder has no regions."""
    if not encoder.regions:
        raise SystemExit("This encoder has no regions: choose pooling by a mean and a linear head.")


def embed(encoder: Encoder, images: Iterable[Image.Image]) -> Floats:
    """Unit vectors (N, D) of images, which are taken one batch after the other."""
    return np.concatenate(list(_batches(encoder, images)))


def _batches(encoder: Encoder, images: Iterable[Image.Image]) -> Iterator[Floats]:
    prepared = map(encoder.prepare_image, images)
    while batch := list(islice(prepared, _BATCH)):
        yield encoder.embed_images(np.stack(batch))


def find_grid(encoder: Encoder, image: Image.Image) -> RegionGrid:
    """The regions of an image."""
    regions = encoder.embed_regions(encoder.prepare_image(image)[None])[0]
    return grid_of(regions, image.size, encoder.image_config.square)


def query_vectors(encoder: Encoder, parts: Sequence[Part]) -> Mapping[str, Floats]:
    """Vectors (N, D) of parts, by the kind of query."""
    return {
        "whole film": np.stack([part.vector for part in parts]),
        "crop": embed(encoder, (crop(part.image, part.box) for part in parts)),
        "regions": np.stack([pool(part.grid, part.box) for part in parts]),
    }


def precision(vectors: Floats, query: Floats, candidates: Bools, right: Bools) -> float:
    """Share of right ones among the first ten candidates."""
    places = np.flatnonzero(candidates)
    nearest = np.argsort(-(vectors[places] @ query), kind="stable")[:FIRST]
    return float(right[places[nearest]].mean())


def pool(grid: RegionGrid, box: Box) -> Floats:
    """The vector (D,) of a box; the program ends where the grid shows nothing of it."""
    vector = grid.pool(box)
    if vector is None:
        raise SystemExit("The encoder sees nothing of a finding: let its square show the whole film.")
    return vector


def crop(image: Image.Image, box: Box) -> Image.Image:
    """The square around a box with a quarter of it on each side, within the film."""
    width, height = image.size
    side = min(width, height, max(box.width * width, box.height * height) * (1 + 2 * _AROUND))
    left = min(max((box.x + box.width / 2) * width - side / 2, 0.0), width - side)
    top = min(max((box.y + box.height / 2) * height - side / 2, 0.0), height - side)
    return image.crop((round(left), round(top), round(left + side), round(top + side)))
