"""Colours of an 8-bit image of any mode as sRGB, by the profile that its file carries."""

import io
from typing import Final

from PIL import Image, ImageCms

# Profiles of printing presses have up to 3 MB.
MOST_PROFILE_BYTES: Final = 4 << 20
_SPACES: Final = {"RGB": "RGB ", "L": "GRAY", "CMYK": "CMYK", "LAB": "Lab "}
# Of 255. A transform that moves no colour further is left out; sRGB itself has many spellings.
_UNSEEN: Final = 2
_PATCHES: Final = 9
_BAND_PIXELS: Final = 1 << 20


def to_srgb(image: Image.Image, profile: bytes | None) -> Image.Image:
    """Return the image as L, LA, RGB or RGBA in sRGB.

    A profile that is damaged, too large or for another kind of image is ignored; CMYK without one is taken
    for plain inks.

    Args:
        image: Pixels of 8 bits.
        profile: ICC profile; None: there is none.
    """
    image = _plain_mode(image)
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


def _plain_mode(image: Image.Image) -> Image.Image:
    if image.mode in ("L", "LA", "RGB", "RGBA", "CMYK", "LAB") and "transparency" not in image.info:
        return image
    if image.has_transparency_data:
        return image.convert("RGBA")
    return image.convert("L" if image.mode == "1" else "RGB")


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
    levels = [255 * number // (_PATCHES - 1) for number in range(_PATCHES)]
    if mode == "L":
        patches = Image.frombytes("L", (256, 1), bytes(range(256)))
    else:
        colours = bytes(
            value for red in levels for green in levels for blue in levels for value in (red, green, blue)
        )
        patches = Image.frombytes("RGB", (_PATCHES, _PATCHES**2), colours)
    before, after = patches.convert("RGB").tobytes(), transform.apply(patches).tobytes()
    return any(abs(one - other) > _UNSEEN for one, other in zip(before, after, strict=True))
