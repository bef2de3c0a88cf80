"""Which pictures are the same one."""

from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image, ImageEnhance

from tests.index.pictures import smooth_picture
from training.imaging.perceptual import Picture, read_picture, same_picture


def _small(image: Image.Image, folder: Path, quality: int = 90) -> Picture:
    path = folder / "picture.jpg"
    image.save(path, quality=quality)
    return read_picture(path)


COPIES: dict[str, Callable[[Image.Image], Image.Image]] = {
    "smaller": lambda image: image.resize((90, 70)),
    "squashed": lambda image: image.resize((200, 100)),
    "darker": lambda image: ImageEnhance.Brightness(image).enhance(0.6),
    "flatter": lambda image: ImageEnhance.Contrast(image).enhance(0.6),
    "grey": lambda image: image.convert("L"),
    "cropped": lambda image: image.crop((12, 0, 190, 148)),
    "cropped and darker": lambda image: ImageEnhance.Brightness(image.crop((0, 10, 200, 160))).enhance(0.7),
}


@pytest.mark.parametrize("change", COPIES)
def test_a_copy_is_the_same_picture_either_way(change: str, tmp_path: Path) -> None:
    for seed in range(3):
        original = smooth_picture(seed)
        whole, copy = _small(original, tmp_path), _small(COPIES[change](original), tmp_path, quality=50)
        assert same_picture(whole, copy)
        assert same_picture(copy, whole)


def test_other_pictures_are_not_the_same(tmp_path: Path) -> None:
    small = [_small(smooth_picture(seed), tmp_path) for seed in range(8)]
    assert not any(same_picture(small[one], small[other]) for one in range(8) for other in range(one))


def test_a_blank_picture_is_no_other(tmp_path: Path) -> None:
    blank = _small(Image.new("RGB", (64, 64), "grey"), tmp_path)
    assert not same_picture(blank, _small(smooth_picture(0), tmp_path))
    assert not same_picture(blank, blank)


def test_a_mirrored_picture_is_another(tmp_path: Path) -> None:
    """Left and right matter, in radiographs above all."""
    original = smooth_picture(0)
    mirrored = original.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    assert not same_picture(_small(original, tmp_path), _small(mirrored, tmp_path))


def test_what_is_no_picture_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "no.jpg").write_bytes(b"no picture")
    with pytest.raises(OSError, match="cannot identify"):
        read_picture(tmp_path / "no.jpg")
