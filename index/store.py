"""The store of image files: each lies once, under the SHA-256 of its bytes."""

import hashlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from PIL import Image

from index.errors import StoreError
from training.atomic import atomic_file
from training.data.images import ImageLimits, decode_image
from training.errors import ImageError

THUMBNAIL_SIDE: Final = 256
THUMBNAIL_MEDIA_TYPE: Final = "image/webp"


class ImageStore:
    """Content-addressed files in `folder/originals`, and thumbnails made on demand in `folder/thumbnails`.

    Files appear whole or not at all, and never change, so any number of processes may share a store.
    """

    def __init__(self, folder: Path) -> None:
        self._originals = folder / "originals"
        self._thumbnails = folder / "thumbnails"

    def put(self, content: bytes) -> str:
        """Keep an image file and return its SHA-256 in hexadecimal; a whole one that is there is left alone.

        Raises:
            StoreError: The disk does not take it.
        """
        digest = hashlib.sha256(content).hexdigest()
        path = self._original(digest)
        if not _holds(path, content):
            _write(path, content)
        return digest

    def unfinished(self) -> Iterator[Path]:
        """Walk over the files that are being written, or were by a process that was killed."""
        for folder in (self._originals, self._thumbnails):
            yield from folder.glob("*/.*.part")

    def path(self, sha256: str) -> Path:
        """Return where the file with this digest lies.

        Raises:
            StoreError: It is missing.
        """
        path = self._original(sha256)
        if not path.is_file():
            raise StoreError(
                f"The stored image {sha256} is missing from {self._originals}: "
                "index its data again to bring it back."
            )
        return path

    def thumbnail(self, sha256: str) -> Path:
        """Return where the WebP thumbnail of a stored image lies, at most 256 pixels a side, made if needed.

        Raises:
            StoreError: The original is missing or damaged, or the disk does not take the thumbnail.
        """
        path = self._thumbnails / sha256[:2] / f"{sha256}.webp"
        if not path.is_file():
            original = self.path(sha256)
            try:
                _write(path, _thumbnail(original))
            except ImageError as error:
                raise StoreError(f"The stored image {sha256} is damaged: {error}") from error
        return path

    def _original(self, sha256: str) -> Path:
        return self._originals / sha256[:2] / sha256


def _holds(path: Path, content: bytes) -> bool:
    """Tell whether the file is there and whole: disks fail, and indexing again is to bring it back."""
    try:
        return path.stat().st_size == len(content) and path.read_bytes() == content
    except OSError:
        return False


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as file:
            file.write(content)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror or error}.") from error


def _thumbnail(original: Path) -> bytes:
    # What was let in once stays readable, whatever limits intake has by now.
    limits = ImageLimits(max_bytes=1 << 40, max_pixels=1 << 40, max_frames=1 << 40)
    image = decode_image(original, limits, min_side=THUMBNAIL_SIDE)
    image.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE), Image.Resampling.LANCZOS)
    content = io.BytesIO()
    image.save(content, "WEBP", quality=80)
    return content.getvalue()
