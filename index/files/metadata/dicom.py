"""DICOM images without what tells whose they are."""

from index.files.metadata.errors import metadata_error
from training.errors import ImageError


def strip_dicom(content: bytes) -> bytes:
    """Return a DICOM image with its pixels and allow-listed attributes only; see `strip_film`.

    Raises:
        ImageTooLargeError: The image has more parts, bytes or pixels than one may.
        ImageError: It has no pixels that can be read.
    """
    # pydicom takes longer to load than most commands do.
    from training.data.dicom.films import strip_film

    try:
        return strip_film(content)
    except (ImageError, MemoryError):
        raise
    except Exception as error:
        raise metadata_error("DICOM", "its attributes or pixels are damaged") from error
