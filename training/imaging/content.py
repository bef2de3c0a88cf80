"""The bytes of an image file."""

import stat
from pathlib import Path

from training.common.errors import ImageError, ImageTooLargeError
from training.imaging.dicom.file import is_dicom


def read_content(source: bytes | Path, max_bytes: int, max_dicom_bytes: int = 0) -> bytes:
    """Return the bytes of an image file.

    Args:
        source: The bytes, or the path of the file.
        max_bytes: Limit of a file.
        max_dicom_bytes: Limit of a DICOM file, if it is larger.

    Raises:
        ImageTooLargeError: The file has more bytes than the limit.
        ImageError: It cannot be read, or is empty.
    """
    most = max(max_bytes, max_dicom_bytes)
    if isinstance(source, Path):
        source = _read_file(source, most)
    _check_bytes(len(source), most if is_dicom(source) else max_bytes)
    if not source:
        raise ImageError("The image file is empty.")
    return source


def _read_file(path: Path, max_bytes: int) -> bytes:
    try:
        about = path.stat()
        if not stat.S_ISREG(about.st_mode):
            raise ImageError(f"{path} is not a file.")
        _check_bytes(about.st_size, max_bytes)
        return path.read_bytes()
    except FileNotFoundError:
        raise ImageError(f"There is no image file {path}.") from None
    except OSError as error:
        raise ImageError(f"{path} cannot be read: {error.strerror or error}.") from error


def _check_bytes(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise ImageTooLargeError(
            f"The image file has {size / 1e6:,.1f} MB; the limit is {max_bytes / 1e6:,.1f} MB "
            "(RECOQUEST_MAX_IMAGE_BYTES)."
        )
