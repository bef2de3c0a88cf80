import numpy as np
import pytest
import torch
from torch import Tensor

from training.common.errors import DataError
from training.shortcuts.glyphs import draw_glyphs
from training.shortcuts.overlay import DigitOverlay

SEED, VARIANTS = 4, 3


@pytest.fixture(scope="module")
def overlay() -> DigitOverlay:
    return DigitOverlay(SEED, VARIANTS)


def pasted_one_by_one(images: Tensor, glyphs: Tensor) -> Tensor:
    """What the overlay should give for images of at least 168 pixels: a loop over images and places."""
    bank = torch.from_numpy(draw_glyphs(SEED, VARIANTS).reshape(-1, 28, 28))
    expected = images.clone()
    stride = images.shape[-1] // 6
    for row in range(len(images)):
        for place in range(6):
            glyph = bank[int(glyphs[row, place])]
            for channel in range(3):
                square = expected[row, channel, :28, place * stride : place * stride + 28]
                square.copy_(glyph / 255.0 if images.is_floating_point() else glyph)
    return expected


@pytest.mark.parametrize("size", [168, 200, 224])
@pytest.mark.parametrize("unit", [False, True])
def test_against_a_loop(overlay: DigitOverlay, size: int, unit: bool) -> None:
    generator = torch.Generator().manual_seed(size)
    images = torch.randint(0, 256, (4, 3, size, size), dtype=torch.uint8, generator=generator)
    glyphs = torch.randint(0, 10 * VARIANTS, (4, 6), generator=generator)
    given = images / 255.0 if unit else images
    before = given.clone()
    stamped = overlay(given, glyphs)
    assert stamped.dtype == given.dtype
    assert torch.equal(given, before)
    torch.testing.assert_close(stamped, pasted_one_by_one(given, glyphs))
    assert torch.equal(stamped[:, :, 28:], given[:, :, 28:])


def test_uint8_and_unit_range_agree(overlay: DigitOverlay) -> None:
    images = torch.randint(0, 256, (2, 3, 96, 96), dtype=torch.uint8, generator=torch.Generator())
    glyphs = torch.arange(12).view(2, 6)
    from_bytes = overlay(images, glyphs).float() / 255.0
    torch.testing.assert_close(overlay(images / 255.0, glyphs), from_bytes, atol=0.5 / 255 + 1e-6, rtol=0)


@pytest.mark.parametrize(("size", "side"), [(167, 27), (64, 10), (32, 5), (7, 1), (6, 1)])
def test_small_images_get_small_digits(overlay: DigitOverlay, size: int, side: int) -> None:
    images = torch.full((1, 3, size, size), 0.25)
    stamped = overlay(images, torch.arange(6)[None])
    stride = size // 6
    changed = (stamped != images).any(dim=1)[0]
    assert not changed[side:].any()
    assert not changed[:, 6 * stride :].any()
    for place in range(6):
        assert changed[:side, place * stride : place * stride + side].any()
    assert 0 <= float(stamped.min()) <= float(stamped.max()) <= 1


def test_a_smaller_digit_keeps_its_ink(overlay: DigitOverlay) -> None:
    black = torch.zeros(1, 3, 224, 224)
    glyphs = torch.tensor([[24, 0, 3, 6, 9, 12]])
    large = overlay(black, glyphs)[0, 0, :28, :28].mean()
    small = overlay(black[..., :84, :84], glyphs)[0, 0, :14, :14].mean()
    torch.testing.assert_close(small, large, rtol=0.03, atol=0)


def test_each_row_gets_its_own(overlay: DigitOverlay) -> None:
    images = torch.zeros(3, 3, 60, 60)
    glyphs = torch.tensor(np.random.default_rng(0).integers(0, 30, (3, 6)))
    order = torch.tensor([2, 0, 1])
    together = overlay(images, glyphs)
    assert torch.equal(overlay(images[order], glyphs[order]), together[order])
    for row in range(3):
        assert torch.equal(overlay(images[row : row + 1], glyphs[row : row + 1])[0], together[row])


def test_no_image_and_too_small_an_image(overlay: DigitOverlay) -> None:
    empty = overlay(torch.zeros(0, 3, 32, 32), torch.zeros(0, 6, dtype=torch.int64))
    assert empty.shape == (0, 3, 32, 32)
    with pytest.raises(DataError, match="Images of 5 pixels have no room for 6 digits"):
        overlay(torch.zeros(1, 3, 5, 5), torch.zeros(1, 6, dtype=torch.int64))
