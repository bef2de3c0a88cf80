"""Digits fill their square, differ, and can be read."""

import numpy as np
import pytest
from numpy.typing import NDArray

from training.shortcuts.glyphs import GLYPH_SIZE, draw_glyphs

_TRAINING, _HELD_OUT = 60, 15


@pytest.fixture(scope="module")
def glyphs() -> NDArray[np.uint8]:
    return draw_glyphs(seed=0, variants=_TRAINING)


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
    """Ridge regression of the ten classes on pixels."""

    def pixels(images: NDArray[np.uint8]) -> NDArray[np.float64]:
        flat = images.reshape(-1, GLYPH_SIZE**2) / 255.0
        return np.concatenate([flat, np.ones((len(flat), 1))], axis=1)

    known, unseen = pixels(glyphs), pixels(draw_glyphs(seed=1, variants=_HELD_OUT))
    gram = known.T @ known + 20.0 * np.eye(known.shape[1])
    weights = np.linalg.solve(gram, known.T @ np.repeat(np.eye(10), _TRAINING, axis=0))
    read = (unseen @ weights).argmax(axis=1)
    assert (read == np.repeat(np.arange(10), _HELD_OUT)).mean() > 0.95
