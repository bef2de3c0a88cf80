"""Bodies of several DICOM files, multipart/related, read as they come."""

from dataclasses import dataclass
from typing import Final

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from training.errors import RecoquestError

KIND: Final = "multipart/related"
# More parts than any study of films has; headers of a part are a few lines.
_MOST_HEADER_BYTES: Final = 8192


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
    """Takes a body piece by piece and gives its parts as each is whole.

    Args:
        boundary: Boundary of the body.
        max_bytes: Most bytes of a part; a larger one is passed over.

    Raises:
        MultipartError: The boundary is too long.
    """

    def __init__(self, boundary: bytes, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._found: list[Part] = []
        self._content = bytearray()
        self._too_large = False
        self._name, self._value = bytearray(), bytearray()
        self._media_type = ""
        self._ended = False
        try:
            self._parser = MultipartParser(
                boundary,
                {
                    "on_part_begin": self._begin,
                    "on_part_data": self._data,
                    "on_part_end": self._end_part,
                    "on_header_begin": self._begin_header,
                    "on_header_field": self._header_name,
                    "on_header_value": self._header_value,
                    "on_header_end": self._end_header,
                    "on_end": self._end,
                },
                max_header_size=_MOST_HEADER_BYTES,
            )
        except FormParserError as error:
            raise MultipartError(f"The boundary of the body cannot be used: {error}.") from None

    def feed(self, data: bytes) -> list[Part]:
        """Take the next piece of the body, and return the parts that end in it.

        Raises:
            MultipartError: The body is malformed.
        """
        try:
            self._parser.write(data)
        except FormParserError:
            raise MultipartError(f"The body is not well-formed {KIND}.") from None
        found, self._found = self._found, []
        return found

    def close(self) -> None:
        """End the body.

        Raises:
            MultipartError: Its last boundary did not come.
        """
        if not self._ended:
            raise MultipartError("The body ends before its last boundary.")

    def _begin(self) -> None:
        self._content, self._too_large, self._media_type = bytearray(), False, ""

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._too_large or len(self._content) + end - start > self._max_bytes:
            self._too_large = True
            self._content.clear()
        else:
            self._content += memoryview(data)[start:end]

    def _end_part(self) -> None:
        self._found.append(Part(self._media_type, None if self._too_large else bytes(self._content)))
        self._content = bytearray()

    def _begin_header(self) -> None:
        self._name, self._value = bytearray(), bytearray()

    def _header_name(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def _header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def _end_header(self) -> None:
        if bytes(self._name).lower() == b"content-type":
            self._media_type = parse_options_header(bytes(self._value))[0].decode("latin-1").lower()

    def _end(self) -> None:
        self._ended = True
