"""A zip file that is sent while it is written: no more than one of its files is in memory."""

import io
import zipfile
from typing import Final

# No file tells when it was made.
_NO_TIME: Final = (1980, 1, 1, 0, 0, 0)


class StreamedZip:
    """A zip file whose bytes are taken as its files are added."""

    def __init__(self) -> None:
        self._window = _Window()
        self._zip = zipfile.ZipFile(self._window, "w", zipfile.ZIP_STORED)

    def add(self, name: str, content: bytes, *, compressed: bool = False) -> bytes:
        """Add a file, and return the bytes that can be sent."""
        info = zipfile.ZipInfo(name, _NO_TIME)
        info.compress_type = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
        self._zip.writestr(info, content)
        return self._window.take()

    def close(self) -> bytes:
        """Return the last bytes: the directory of all files."""
        self._zip.close()
        return self._window.take()


class _Window:
    """The end of a file, behind what was taken of it: within it a writer may seek, to complete headers."""

    def __init__(self) -> None:
        self._taken = 0
        self._bytes = io.BytesIO()

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._taken + self._bytes.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET or offset < self._taken:
            raise io.UnsupportedOperation("Only what was not taken yet can be written again.")
        self._bytes.seek(offset - self._taken)
        return offset

    def write(self, data: bytes, /) -> int:
        return self._bytes.write(data)

    def flush(self) -> None:
        """Do nothing: all bytes are in memory until they are taken."""

    def close(self) -> None:
        """Do nothing: the last bytes are taken after the end of the zip file."""

    def take(self) -> bytes:
        """Return all bytes, and keep none."""
        content = self._bytes.getvalue()
        self._taken += len(content)
        self._bytes = io.BytesIO()
        return content
