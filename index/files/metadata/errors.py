"""The sentence about an image file whose metadata cannot be removed."""

from training.errors import ImageError


def metadata_error(format_name: str, reason: str) -> ImageError:
    """Return the error of a file whose parts cannot be followed.

    Args:
        format_name: JPEG, PNG, WebP, AVIF or HEIC, GIF, TIFF or DICOM.
        reason: A clause with the file as its subject.
    """
    return ImageError(
        f"The {format_name} image cannot be stored: {reason}, so that its metadata cannot be removed; "
        "save it anew."
    )
