import gzip
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from training.shortcuts.glyphs import GLYPH_SIZE, draw_glyphs

DATA = os.environ.get("RECOQUEST_TEST_DATA")
_TRAINING, _HELD_OUT = 60, 15


@pytest.fixture(scope="module")
def glyphs() -> NDArray[np.uint8]:
    return draw_glyphs(seed=0, variants=_TRAINING)


class DigitReader:
    """Ridge regression of the ten classes on pixels."""

    def __init__(self, images: NDArray[np.uint8], digits: NDArray[np.int64]) -> None:
        pixels = self._pixels(images)
        gram = pixels.T @ pixels + 20.0 * np.eye(pixels.shape[1])
        self._weights = np.linalg.solve(gram, pixels.T @ np.eye(10)[digits])

    def accuracy(self, images: NDArray[np.uint8], digits: NDArray[np.int64]) -> float:
        return float(((self._pixels(images) @ self._weights).argmax(axis=1) == digits).mean())

    @staticmethod
    def _pixels(images: NDArray[np.uint8]) -> NDArray[np.float64]:
        flat = images.reshape(-1, GLYPH_SIZE**2) / 255.0
        return np.concatenate([flat, np.ones((len(flat), 1))], axis=1)


def digits_of(variants: int) -> NDArray[np.int64]:
    return np.repeat(np.arange(10), variants)


def test_ten_digits_that_fill_their_square(glyphs: NDArray[np.uint8]) -> None:
    assert glyphs.shape == (10, _TRAINING, 28, 28)
    assert glyphs.dtype == np.uint8
    assert (glyphs.max(axis=(2, 3)) > 200).all()
    assert (glyphs.min(axis=(2, 3)) == 0).all()
    inked = glyphs > 127
    high = inked.any(axis=3).sum(axis=2)
    wide = inked.any(axis=2).sum(axis=2)
    largest = np.maximum(high, wide)
    assert largest.min() >= 19
    assert largest.max() <= 25
    # Nothing is cut off at the edge.
    edge = np.concatenate([glyphs[..., 0, :], glyphs[..., -1, :], glyphs[..., 0], glyphs[..., -1]], axis=-1)
    assert (edge > 127).sum() == 0


def test_no_two_are_alike_and_the_seed_decides(glyphs: NDArray[np.uint8]) -> None:
    assert len({glyph.tobytes() for glyph in glyphs.reshape(-1, 28, 28)}) == 10 * _TRAINING
    np.testing.assert_array_equal(draw_glyphs(seed=0, variants=3), glyphs[:, :3])
    assert (draw_glyphs(seed=1, variants=3) != glyphs[:, :3]).any(axis=(2, 3)).all()


def test_a_simple_classifier_reads_handwritings_that_it_has_not_seen(glyphs: NDArray[np.uint8]) -> None:
    reader = DigitReader(glyphs, digits_of(_TRAINING))
    assert reader.accuracy(draw_glyphs(seed=1, variants=_HELD_OUT), digits_of(_HELD_OUT)) > 0.95


@pytest.mark.real_data
@pytest.mark.skipif(not DATA, reason="RECOQUEST_TEST_DATA is not set")
def test_they_are_somewhat_like_those_of_mnist(
    glyphs: NDArray[np.uint8], record_property: Callable[[str, object], None]
) -> None:
    folder = Path(str(DATA)) / "digits"
    pixels = gzip.decompress((folder / "t10k-images-idx3-ubyte.gz").read_bytes())
    labels = gzip.decompress((folder / "t10k-labels-idx1-ubyte.gz").read_bytes())
    images = np.frombuffer(pixels, np.uint8, offset=16).reshape(-1, 28, 28)
    digits = np.frombuffer(labels, np.uint8, offset=8).astype(np.int64)
    known, unseen = slice(0, 5_000), slice(5_000, None)
    ours = DigitReader(glyphs, digits_of(_TRAINING))
    theirs = DigitReader(images[known], digits[known])
    figures = {
        "MNIST read after our glyphs": ours.accuracy(images[unseen], digits[unseen]),
        "our glyphs read after MNIST": theirs.accuracy(glyphs, digits_of(_TRAINING)),
        "MNIST read after MNIST": theirs.accuracy(images[unseen], digits[unseen]),
    }
    for name, value in figures.items():
        record_property(name, value)
        # Chance is 0.1; how far above it they are is for the reader of the figures.
        assert value > 0.2, (name, value)
