"""Bodies of several DICOM files, multipart/related, read as they come."""

import re
from dataclasses import dataclass
from typing import Final, Literal

from python_multipart.multipart import parse_options_header

from training.common.errors import RecoquestError

KIND: Final = "multipart/related"
# Headers of a part are a few lines.
_MOST_HEADER_BYTES: Final = 8192
_LONGEST_BOUNDARY: Final = 256
_LINE: Final = b"\r\n"
# What follows a boundary: the last one, or spaces and the end of the line; and the beginning of either.
_END_OF_BOUNDARY: Final = re.compile(rb"--|[ \t]*\r\n")
_BEGUN_END: Final = re.compile(rb"-?|[ \t]*\r?")
_MOST_PADDING: Final = 256


class MultipartError(RecoquestError):
    """A body is not multipart/related, or ends before its last boundary."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a body.

    Attributes:
        media_type: Its media type, without parameters, in lower case; "" where it names none.
        content: Its bytes; None: they are too many.
    """

    media_type: str
    content: bytes | None


def boundary_of(content_type: str) -> bytes:
    """Return the boundary that a Content-Type header names.

    Raises:
        MultipartError: It is not multipart/related, or names none.
    """
    kind, parameters = parse_options_header(content_type)
    if kind.decode("latin-1").lower() != KIND:
        raise MultipartError(f"The body is not {KIND}.")
    boundary = parameters.get(b"boundary", b"")
    if not boundary:
        raise MultipartError(f"The Content-Type of {KIND} names no boundary.")
    return boundary


class PartReader:
    """Takes a body piece by piece and gives its parts as each is whole (RFC 2046, section 5.1).

    What comes before the first boundary and after the last one is ignored.

    Args:
        boundary: Boundary of the body.
        max_bytes: Most bytes of a part; a larger one is passed over.

    Raises:
        MultipartError: The boundary is too long.
    """

    def __init__(self, boundary: bytes, max_bytes: int) -> None:
        if len(boundary) > _LONGEST_BOUNDARY:
            raise MultipartError("The boundary of the body cannot be used: it is too long.")
        # The empty line before the content may be the beginning of a boundary, so it is counted with it.
        self._max_bytes = max_bytes + len(_LINE)
        self._delimiter = _LINE + b"--" + boundary
        # The first boundary may begin the body.
        self._buffer = bytearray(_LINE)
        self._state: Literal["preamble", "headers", "content", "end"] = "preamble"
        self._media_type = ""
        self._content: bytearray | None = None

    def feed(self, data: bytes) -> list[Part]:
        """Take the next piece of the body, and return the parts that end in it.

        Raises:
            MultipartError: The body is malformed.
        """
        found: list[Part] = []
        if self._state != "end":
            self._buffer += data
            while self._headers() if self._state == "headers" else self._boundary(found):
                pass
        return found

    def close(self) -> None:
        """End the body.

        Raises:
            MultipartError: Its last boundary did not come.
        """
        if self._state != "end":
            raise MultipartError("The body ends before its last boundary.")

    def _headers(self) -> bool:
        """Read the headers of a part, from the end of the line before; False: more is needed."""
        end = self._buffer.find(2 * _LINE, 0, _MOST_HEADER_BYTES)
        if end < 0 and len(self._buffer) < _MOST_HEADER_BYTES:
            return False
        # Lines that begin with a space continue the one before.
        lines = re.sub(rb"\r\n[ \t]+", b" ", self._buffer[:end]).split(_LINE)[1:]
        if end < 0 or not all(b":" in line for line in lines):
            raise MultipartError(f"The body is not well-formed {KIND}.")
        headers = {name.strip().lower(): value for name, _, value in (line.partition(b":") for line in lines)}
        kind, _ = parse_options_header(headers.get(b"content-type", b"").strip())
        self._media_type = kind.decode("latin-1").lower()
        del self._buffer[: end + len(_LINE)]
        self._content, self._state = bytearray(), "content"
        return True

    def _boundary(self, found: list[Part]) -> bool:
        """Take what comes before the next boundary, and its line; False: more is needed."""
        place = self._buffer.find(self._delimiter)
        if place < 0:
            self._take(len(self._buffer) - len(self._delimiter) + 1)
            return False
        after = place + len(self._delimiter)
        rest = bytes(self._buffer[after : after + _MOST_PADDING])
        line = _END_OF_BOUNDARY.match(rest)
        if line is None:
            waits = len(rest) < _MOST_PADDING and _BEGUN_END.fullmatch(rest) is not None
            # Unless more is to come, the boundary is the beginning of another line.
            self._take(place if waits else place + 1)
            return not waits
        self._take(place)
        if self._state == "content":
            content = None if self._content is None else bytes(memoryview(self._content)[len(_LINE) :])
            found.append(Part(self._media_type, content))
        self._state = "end" if line[0] == b"--" else "headers"
        # The end of the line stays: without headers it is the first half of the empty line.
        del self._buffer[: len(self._delimiter) + line.end() - len(_LINE)]
        return self._state == "headers"

    def _take(self, count: int) -> None:
        """Move bytes from the buffer to the part, unless these are too many."""
        if count <= 0:
            return
        if self._content is not None and len(self._content) + count <= self._max_bytes:
            self._content += memoryview(self._buffer)[:count]
        else:
            self._content = None
        del self._buffer[:count]
