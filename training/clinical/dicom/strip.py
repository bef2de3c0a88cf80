"""A DICOM image as it may be stored: one frame without names, ids and descriptions."""

import hashlib
import io
import re
from typing import Final

import pydicom

from training.clinical.dicom.attributes import read_attributes
from training.clinical.dicom.films import LOOKED_AT, write_film
from training.common.errors import ImageError
from training.imaging.dicom.picture import DicomImage, open_dicom
from training.imaging.structure import check_structure

# Limits of what is looked into here: twice those of an image, unless settings raise them.
_MOST_INFLATED: Final = 200_000_000
_MOST_PIXELS: Final = 100_000_000
_SECONDARY_CAPTURE: Final = "1.2.840.10008.5.1.4.1.1.7"
_HASH: Final = re.compile("[0-9a-f]{16}")


def strip_dicom(content: bytes) -> bytes:
    """Return a DICOM image of one frame that says nothing; one that an import has written is itself.

    Raises:
        ImageTooLargeError: The image is larger than any that is stored.
        ImageError: It is no image that can be read, or its attributes or pixels are damaged.
    """
    check_structure(content, "DICOM")
    image = open_dicom(content, max(len(content), _MOST_INFLATED), _MOST_PIXELS)
    try:
        if _is_film(content, image):
            return content
        unnamed = write_film(image, 0, {"sop": "2.25.0"}, _SECONDARY_CAPTURE)
        # Equal pixels get the same UID.
        number = int.from_bytes(hashlib.sha256(unnamed).digest()[:16])
        return write_film(image, 0, {"sop": f"2.25.{number}"}, _SECONDARY_CAPTURE)
    except (ImageError, MemoryError):
        raise
    except Exception as error:
        raise ImageError(
            "The DICOM image cannot be stored: its attributes or pixels are damaged, so that its metadata "
            "cannot be removed; save it anew."
        ) from error


def _is_film(content: bytes, image: DicomImage) -> bool:
    """Tell whether a file that is written anew, from what it may say, has the same bytes."""
    if image.attributes.frames > 1:
        return False
    dataset = pydicom.dcmread(io.BytesIO(content), stop_before_pixels=True, force=True)
    metadata = read_attributes(dataset, key=b"", keep_dates=True)
    for name, keyword in (("patient", "PatientID"), ("accession", "AccessionNumber")):
        if name in metadata:
            metadata[name] = str(dataset.get(keyword))
            if not _HASH.fullmatch(str(metadata[name])):
                return False
    if "sop" not in metadata:
        return False
    looked_at = LOOKED_AT in str(dataset.get("DeidentificationMethod"))
    film = write_film(image, 0, metadata, str(dataset.SOPClassUID), looked_at=looked_at)
    return film == content
