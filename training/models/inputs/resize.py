"""A decoded image as the square of an encoder's input; needs Pillow alone."""

from typing import Literal

from PIL import Image

Resize = Literal["crop", "squash", "pad"]


def to_square(image: Image.Image, size: int, resize: Resize, resize_to: int | None = None) -> Image.Image:
    """Resize an image to `size` x `size` pixels of RGB with an antialiased bicubic filter.

    Args:
        image: Of any size and mode.
        size: Side of the result.
        resize: Crop the centre, stretch, or pad with black.
        resize_to: Of a crop: pixels of the short side, of which `size` are kept; None: `size`.
    """
    rgb = image if image.mode == "RGB" else image.convert("RGB")
    if resize == "crop":
        return _crop(rgb, size, resize_to or size)
    return _squash(rgb, size) if resize == "squash" else _pad(rgb, size)


def _crop(image: Image.Image, size: int, resize_to: int) -> Image.Image:
    side = min(image.size) * size / resize_to
    left, top = (image.width - side) / 2, (image.height - side) / 2
    return image.resize((size, size), Image.Resampling.BICUBIC, box=(left, top, left + side, top + side))


def _squash(image: Image.Image, size: int) -> Image.Image:
    return image.resize((size, size), Image.Resampling.BICUBIC)


def _pad(image: Image.Image, size: int) -> Image.Image:
    scale = size / max(image.size)
    width, height = max(1, round(image.width * scale)), max(1, round(image.height * scale))
    square = Image.new("RGB", (size, size))
    resized = image.resize((width, height), Image.Resampling.BICUBIC)
    square.paste(resized, ((size - width) // 2, (size - height) // 2))
    return square
