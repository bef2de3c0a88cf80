"""Renditions: pictures of stored images for browsers, as requested, and how they are made."""

from contextlib import suppress
from typing import Final

from app.edge.headers import preferred
from app.edge.problems import NOT_ACCEPTABLE, RequestError, invalid
from app.search.search import naming_failures
from app.services import Services
from index.catalogue.images import StoredImage
from index.files.renditions import LARGEST_SIDES, VERSION, Rendition, scaled_size
from training.imaging.depth import Levels
from training.imaging.window import Window

_MAX_NUMBER_CHARACTERS: Final = 64
# The formats whose samples may have more than 8 bits.
_DEEP_MEDIA_TYPES: Final = frozenset({"image/png", "image/tiff", "application/dicom"})


def parse_window(text: str) -> Window | None:
    """Read `auto` or `centre,width`; others are refused."""
    if text == "auto":
        return None
    parts = text.split(",")
    if len(parts) == 2 and len(text) <= _MAX_NUMBER_CHARACTERS:
        with suppress(ValueError):
            return Window(float(parts[0]), float(parts[1]))
    raise invalid(
        "window", "Give `auto`, or centre and width in stored values with a width over 0, such as 1024,2048."
    )


def chosen_rendition(image: StoredImage, accept: str, size: int | None, window: Window | None) -> Rendition:
    """Return what is made of an image for a caller.

    Raises:
        RequestError: The caller accepts no format that can be made, or none that can be so large.
    """
    longest = max(scaled_size(image.width, image.height, size))
    fitting = [media_type for media_type, largest in LARGEST_SIDES.items() if longest <= largest]
    media_type = preferred(accept, fitting)
    if media_type is None:
        if preferred(accept, list(LARGEST_SIDES)) is None:
            raise RequestError(NOT_ACCEPTABLE, f"Accept one of {', '.join(LARGEST_SIDES)}.")
        raise RequestError(
            NOT_ACCEPTABLE,
            f"The format cannot have a side of {longest:,} pixels: give a size, or accept image/png.",
        )
    # The same picture has the same name for every request.
    return Rendition(media_type, None if longest == max(image.width, image.height) else longest, window)


def rendition_etag(image: StoredImage, rendition: Rendition) -> str:
    """Return the strong ETag of a rendition, which is available before it is made."""
    kind = rendition.media_type.partition("/")[2]
    # Without a comma, by which lists of tags are split.
    window = "auto" if rendition.window is None else f"{rendition.window.centre!r}:{rendition.window.width!r}"
    return f'"{image.sha256}-{kind}-{rendition.size or "whole"}-{window}-{VERSION}"'


async def find_levels(services: Services, image: StoredImage) -> Levels | None:
    """Find the stored values of an image in a decoding process; None where its samples have 8 bits.

    Raises:
        RequestError: It takes more memory or work than a picture may.
        StoreError: The file is missing or damaged.
        RecoquestError: Too many pictures are waiting, it was not made in time, or no process can be started.
    """
    if image.media_type not in _DEEP_MEDIA_TYPES:
        return None
    path = await services.threads.read(services.engine.home.store.path, image.sha256)
    with naming_failures(image, "image_id", "The image takes more memory or work than one may."):
        return await services.images.levels(path)


async def make(services: Services, image: StoredImage, rendition: Rendition) -> bytes:
    """Make the picture in a decoding process; raises what `find_levels` does."""
    path = await services.threads.read(services.engine.home.store.path, image.sha256)
    width, height = scaled_size(image.width, image.height, rendition.size)
    detail = "The picture takes more memory or work than one may: give a smaller size."
    with naming_failures(image, "size", detail):
        return bytes(await services.images.rendition(path, rendition, width * height))
