"""The bytes of an image file, of which none are looked at."""

import stat
from pathlib import Path

from training.errors import ImageError, ImageTooLargeError


def read_content(source: bytes | Path, max_bytes: int) -> bytes:
    """Return the bytes of an image file.

    Raises:
        ImageTooLargeError: The file has more bytes than the limit.
        ImageError: It cannot be read, or is empty.
    """
    if isinstance(source, Path):
        source = _read_file(source, max_bytes)
    _check_bytes(len(source), max_bytes)
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
            f"The image file has {size / 1e6:,.1f} MB; the limit is {max_bytes / 1e6:,.1f} MB."
        )
