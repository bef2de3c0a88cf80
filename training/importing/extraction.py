"""Images that a data set holds inside of larger files: written out, one file each."""

import hashlib
import os
from pathlib import Path
from typing import Final

from training.common.errors import DataError, ImageError
from training.imaging.formats import sniff_format

FOLDER: Final = "images"
_SUFFIXES: Final = {
    "JPEG": ".jpg",
    "PNG": ".png",
    "WebP": ".webp",
    "AVIF": ".avif",
    "HEIC": ".heic",
    "GIF": ".gif",
    "BMP": ".bmp",
    "TIFF": ".tif",
    "DICOM": ".dcm",
}
_LONGEST_NAME: Final = 200


class Extraction:
    """Writes images into a folder, each whole or not at all; one that is there already stays as it is.

    Equal images are written once.

    Raises:
        DataError: The folder is a link: what it leads to belongs to another data set.
    """

    def __init__(self, folder: Path) -> None:
        if folder.is_symlink():
            raise DataError(f"{folder} leads to images elsewhere; give another folder, or remove the link.")
        self.folder = folder
        self._made: set[Path] = set()
        self._paths: dict[bytes, str] = {}
        self._written: set[str] = set()

    def write(self, folder: str, name: str, content: bytes) -> str:
        """Write an image and return its path with '/' inside the folder; the ending is that of its format.

        Args:
            folder: Path inside the folder, with '/'.
            name: Name of the file without an ending.
            content: The file.

        Raises:
            ImageError: It is none of the formats that can be read, has no name that a file may have, or has
                the name of another image.
            DataError: It cannot be written.
        """
        suffix = _SUFFIXES[sniff_format(content)]
        parts = [part for part in folder.split("/") if part]
        if not all(map(_usable, (*parts, name))):
            raise ImageError(
                f"the name {'/'.join((*parts, name))[:80]!r} is not one of a file inside the folder"
            )
        digest = hashlib.sha256(content).digest()
        if digest in self._paths:
            return self._paths[digest]
        inside = "/".join((*parts, name + suffix))
        if inside in self._written:
            raise ImageError(f"another image has the name {inside!r} already; rename one of them")
        path = self.folder / inside
        try:
            if not (path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content):
                if path.parent not in self._made:
                    path.parent.mkdir(parents=True, exist_ok=True)
                    self._made.add(path.parent)
                # The next run writes over what a killed one has left.
                part = path.with_name(f".{path.name}.part")
                part.write_bytes(content)
                part.replace(path)
        except OSError as error:
            raise DataError(f"{path} cannot be written: {error.strerror or error}.") from error
        self._written.add(inside)
        self._paths[digest] = inside
        return inside

    def finish(self) -> None:
        """Flush everything to the disk: before a manifest names the images, which one by one takes hours."""
        os.sync()


def _usable(name: str) -> bool:
    return (
        0 < len(name.encode(errors="replace")) <= _LONGEST_NAME
        and not name.startswith(".")
        and name.isprintable()
        and not any(mark in name for mark in "/\\:")
    )
