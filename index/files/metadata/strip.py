"""Removal of metadata from an image file of any format."""

from collections.abc import Callable, Mapping
from typing import Final

from index.files.metadata.avif import strip_avif
from index.files.metadata.dicom import strip_dicom
from index.files.metadata.gif import strip_gif
from index.files.metadata.jpeg import strip_jpeg
from index.files.metadata.png import strip_png
from index.files.metadata.tiff import strip_tiff
from index.files.metadata.webp import strip_webp
from training.data.decoding.formats import sniff_format
from training.data.decoding.structure import check_structure

# A BMP file has none, apart from bytes that no program reads.
_STRIPPERS: Final[Mapping[str, Callable[[bytes], bytes]]] = {
    "JPEG": strip_jpeg,
    "PNG": strip_png,
    "WebP": strip_webp,
    "GIF": strip_gif,
    "TIFF": strip_tiff,
    "AVIF": strip_avif,
    # Boxes and items are those of AVIF.
    "HEIC": strip_avif,
    "BMP": bytes,
    "DICOM": strip_dicom,
}


def strip_metadata(content: bytes) -> bytes:
    """Return an image file without position, names, serial numbers, times, comments and thumbnails.

    Kept is all that the picture depends on: coded pixels bit by bit, orientation, colour profile, frames; of
    a DICOM image the first frame alone. A file without metadata is returned as it is.

    Raises:
        ImageTooLargeError: The file has more parts than any program writes.
        ImageError: It is no image that can be read, or its parts cannot be followed.
    """
    format_name = sniff_format(content)
    check_structure(content, format_name)
    return _STRIPPERS[format_name](content)
