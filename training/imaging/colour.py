"""Colours of an 8-bit image of any mode as RGB: by the profile of its file, on a ground, in a window."""

import io
from typing import Final

import numpy as np
from PIL import Image, ImageCms

from training.imaging.depth import band_rows
from training.imaging.window import Window

# Profiles of printing presses have up to 3 MB.
MOST_PROFILE_BYTES: Final = 4 << 20
_SPACES: Final = {"RGB": "RGB ", "L": "GRAY", "CMYK": "CMYK", "LAB": "Lab "}
# Levels of 255. A transform that moves no colour further is left out; sRGB itself has many spellings.
_UNSEEN: Final = 2
_PATCHES: Final = 9
_BAND_PIXELS: Final = 1 << 20
_PLAIN_MODES: Final = frozenset({"L", "LA", "RGB", "RGBA", "CMYK", "LAB"})
# Differences that lossy compression may make within one colour, and rows by which most images are known.
_BLANK: Final = 3
_FIRST_ROWS: Final = 64
# A drawing whose visible pixels are all this bright would not be seen on white.
_BRIGHT: Final = 224
_VISIBLE: Final = 16


def to_srgb(image: Image.Image, profile: bytes | None) -> Image.Image:
    """Return an image of 8 bits as L, LA, RGB or RGBA in sRGB.

    An ICC profile that is damaged, too large or for another kind of image is ignored; CMYK without one is
    taken for plain inks.
    """
    if image.mode not in _PLAIN_MODES or "transparency" in image.info:
        clear = "RGBA" if image.has_transparency_data else "RGB"
        image = image.convert("L" if image.mode == "1" and clear == "RGB" else clear)
    base = image.mode.removesuffix("A")
    transform = _transform(profile, base) if profile else None
    if image.mode == "LAB" and transform is None:
        transform = ImageCms.buildTransform(
            ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB"), "LAB", "RGB"
        )
    if transform is None:
        return image.convert("RGB") if image.mode == "CMYK" else image
    converted = Image.new("RGB" if image.mode == base else "RGBA", image.size)
    rows = max(1, _BAND_PIXELS // image.width)
    for top in range(0, image.height, rows):
        band = image.crop((0, top, image.width, min(top + rows, image.height)))
        colours = transform.apply(band if image.mode == base else band.convert(base))
        if image.mode != base:
            colours.putalpha(band.getchannel("A"))
        converted.paste(colours, (0, top))
    return converted


def _transform(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """Return the transform to sRGB; None where there is none, or it would change nothing."""
    if len(profile) > MOST_PROFILE_BYTES:
        return None
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        if source.profile.xcolor_space != _SPACES.get(mode):
            return None
        transform = ImageCms.buildTransform(source, ImageCms.createProfile("sRGB"), mode, "RGB")
    except (ImageCms.PyCMSError, OSError, ValueError):
        return None
    return transform if _changes(transform, mode) else None


def _changes(transform: ImageCms.ImageCmsTransform, mode: str) -> bool:
    """Whether some colour of a grid is moved."""
    if mode not in ("L", "RGB"):
        return True
    if mode == "L":
        patches = Image.fromarray(np.arange(256, dtype=np.uint8)[None])
    else:
        grid = np.indices((_PATCHES,) * 3).reshape(3, _PATCHES, -1).transpose(1, 2, 0)
        patches = Image.fromarray((255 * grid // (_PATCHES - 1)).astype(np.uint8))
    before, after = (np.asarray(seen, int) for seen in (patches.convert("RGB"), transform.apply(patches)))
    return bool(np.abs(before - after).max() > _UNSEEN)


def lay_on_ground(image: Image.Image) -> Image.Image:
    """Return an L, LA, RGB or RGBA image as RGB.

    Transparent pixels are laid on white, or on black where all that can be seen is nearly white.
    """
    if image.mode not in ("LA", "RGBA"):
        return image.convert("RGB")
    ground = "black" if _is_white_on_clear(image) else "white"
    rgb = Image.new("RGB", image.size)
    for top, bottom in band_rows(*image.size):
        band = image.crop((0, top, image.width, bottom)).convert("RGBA")
        page = Image.new("RGBA", band.size, ground)
        page.alpha_composite(band)
        rgb.paste(page.convert("RGB"), (0, top))
    return rgb


def _is_white_on_clear(image: Image.Image) -> bool:
    is_seen, is_clear = False, False
    for top, bottom in band_rows(*image.size):
        pixels = np.asarray(image.crop((0, top, image.width, bottom)))
        visible = pixels[..., -1] >= _VISIBLE
        if visible.any():
            is_seen = True
            if pixels[..., :-1][visible].min() < _BRIGHT:
                return False
        is_clear = is_clear or not visible.all()
    return is_clear and is_seen


def spread(image: Image.Image, window: Window) -> Image.Image:
    """Return an L, LA, RGB or RGBA image with the values of a window spread over all levels."""
    levels = (np.arange(256) - window.low) * (255.0 / window.width)
    table = np.rint(levels.clip(0, 255)).astype(int).tolist()
    bands = [list(range(256)) if band == "A" else table for band in image.getbands()]
    return image.point([level for band in bands for level in band])


def is_blank(image: Image.Image) -> bool:
    """Tell whether an RGB image has one colour, but for what lossy compression makes of it."""
    for part in (image.crop((0, 0, image.width, min(image.height, _FIRST_ROWS))), image):
        # NumPy's extrema over pixels of three samples take many times as long.
        low, high = np.array(part.getextrema()).T
        if (high - low).max() > _BLANK:
            return False
    return True
