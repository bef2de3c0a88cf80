from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.training.models.tiny import SIZE, tiny_config, tiny_model, tiny_preprocessing
from training.imaging.resizing import Square, shown, to_square
from training.models.encoder import Encoder
from training.models.image_input import Box, RegionGrid, grid_of

_SIDE = 64


def _places(width: int, height: int) -> Image.Image:
    """A picture whose red tells the column and whose green tells the row."""
    pixels = np.full((height, width, 3), 255, np.uint8)
    pixels[..., 0] = np.round(254 * (np.arange(width) + 0.5) / width)[None]
    pixels[..., 1] = np.round(254 * (np.arange(height) + 0.5) / height)[:, None]
    return Image.fromarray(pixels)


@pytest.mark.parametrize("size", [(400, 300), (200, 301), (90, 90), (97, 640)])
@pytest.mark.parametrize(
    "square",
    [
        Square(_SIDE, "crop"),
        Square(_SIDE, "crop", resize_to=80),
        Square(_SIDE, "shortest_edge", resize_to=72),
        Square(_SIDE, "squash"),
        Square(_SIDE, "pad"),
    ],
)
def test_the_shown_part_is_where_the_pixels_come_from(size: tuple[int, int], square: Square) -> None:
    x, y, width, height = shown(size, square)
    pixels = np.asarray(to_square(_places(*size), square)).astype(float)
    rows, columns = np.nonzero(pixels[..., 2] > 250)
    assert len(rows) > 100
    expected_x = x + (columns + 0.5) / _SIDE * width
    expected_y = y + (rows + 0.5) / _SIDE * height
    # A pixel of the square, and the filter at the edges.
    assert np.abs(pixels[rows, columns, 0] / 254 - expected_x).max() < 1.5 * width / _SIDE
    assert np.abs(pixels[rows, columns, 1] / 254 - expected_y).max() < 1.5 * height / _SIDE


_WHOLE = Box(0, 0, 1, 1)


def _grid(area: Box = _WHOLE) -> RegionGrid:
    return RegionGrid(np.random.default_rng(0).normal(size=(16, 5)).astype(np.float32), area)


def test_regions_count_by_their_share_in_the_box() -> None:
    grid = _grid()
    shares = grid.shares(Box(0.25, 0.125, 0.5, 0.25))
    expected = np.zeros((4, 4))
    expected[0:2, 1:3] = 0.5
    np.testing.assert_allclose(shares, expected)
    pooled = grid.pool(Box(0.25, 0.125, 0.5, 0.25))
    assert pooled is not None
    mean = grid.regions.reshape(4, 4, 5)[0:2, 1:3].mean((0, 1))
    np.testing.assert_allclose(pooled, mean / np.linalg.norm(mean), atol=1e-6)


def test_a_grid_on_a_part_of_the_picture_moves_with_it() -> None:
    middle, box = _grid(Box(0.25, 0, 0.5, 1)), Box(0.5, 0, 0.125, 0.25)
    np.testing.assert_allclose(middle.shares(box), _grid().shares(Box(0.5, 0, 0.25, 0.25)))
    assert middle.pool(Box(0, 0, 0.25, 1)) is None
    padded = _grid(Box(0, -0.5, 1, 2))
    assert padded.shares(Box(0, 0, 1, 1)).sum() == pytest.approx(8)


def test_the_mean_of_a_map_is_the_cosine() -> None:
    grid, query = _grid(), np.random.default_rng(1).normal(size=5).astype(np.float32)
    query /= np.linalg.norm(query)
    whole = grid.pool(Box(0, 0, 1, 1))
    assert whole is not None
    actual = grid.similarities(query)
    assert actual.shape == (4, 4)
    assert actual.mean() == pytest.approx(float(whole @ query), abs=1e-6)
    assert np.argmax(actual) == np.argmax(grid.regions @ query)


_WITH: dict[str, dict[str, Any]] = {
    "resnet": {"image": "resnet"},
    "mobilenet": {"image": "mobilenet_v2"},
    "efficientnet": {"image": "efficientnet"},
    "mean of patches": {"image": "vit", "image_settings": {"pooling": "mean"}},
    "mean of a map": {"image": "convnext", "image_settings": {"pooling": "mean"}},
    "no head": {"image": "resnet", "image_settings": {"head": {"kind": "identity"}}, "dim": 16},
    "branches": {"image": "vit", "image_settings": {"pooling": "mean"}, "branches": {}},
}


@pytest.mark.parametrize("settings", _WITH.values(), ids=_WITH)
def test_the_vector_of_an_image_is_the_mean_of_its_regions(settings: dict[str, Any]) -> None:
    encoder = Encoder(tiny_model(tiny_config(**settings)).eval(), tiny_preprocessing())
    assert encoder.regions
    images = np.random.default_rng(0).integers(0, 256, (3, 3, SIZE, SIZE), np.uint8)
    regions, vectors = encoder.embed_regions(images), encoder.embed_images(images)
    for entries, vector in zip(regions, vectors, strict=True):
        pooled = grid_of(entries, (50, 50), encoder.image_config.square).pool(_WHOLE)
        assert pooled is not None
        np.testing.assert_allclose(pooled, vector, atol=1e-5)


_WITHOUT: dict[str, dict[str, Any]] = {
    "a norm behind the mean": {"image": "convnext"},
    "a class token": {"image": "vit"},
    "CLIP's": {"image": "clip_vision_model"},
    "attention of CLIP's ResNet": {"image": "clip_resnet"},
    "attention of SigLIP": {"image": "siglip_vision_model"},
    "attention": {"image_settings": {"pooling": "attention"}},
    "the largest": {"image_settings": {"pooling": "max"}},
    "two layers": {"image_settings": {"head": {"kind": "mlp"}}},
    "concepts": {"concepts": 4},
    "blades": {"blades": 2},
    "a unique branch": {"branches": {}, "retrieval": "unique"},
}


@pytest.mark.parametrize("settings", _WITHOUT.values(), ids=_WITHOUT)
def test_encoders_whose_vector_is_no_mean_have_no_regions(settings: dict[str, Any]) -> None:
    assert not tiny_config(**settings).regions
