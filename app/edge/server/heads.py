"""An HTTP/1.1 parser that bounds the head, the trailers and the chunks of a request while they arrive."""

import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import h11

_END_OF_HEAD: Final = re.compile(rb"\n\r?\n")
# Method, version and spaces of a request line.
_BESIDE_TARGET: Final = 64
# More than the largest body that any setting allows is seldom sent; it is read only to be thrown away.
MAX_DISCARDED: Final = 32 << 20
# Parsing a chunk costs as much as parsing kilobytes. A sender may begin with small ones.
_FREE_CHUNKS: Final = 1000
_MIN_MEAN_CHUNK: Final = 64
# The length of a chunk, or trailers.
_MAX_BETWEEN_CHUNKS: Final = 8 << 10


@dataclass(frozen=True, slots=True)
class HeadLimits:
    """Bounds of a request's head.

    Attributes:
        size: Bytes, the request line included.
        fields: Header fields; as many trailers.
        target: Bytes of the URL.
    """

    size: int = 64 << 10
    fields: int = 100
    target: int = 8 << 10


class OverBoundError(h11.RemoteProtocolError):
    """A request is over a bound; status 400, 414 or 431 is in `error_status_hint`."""


class BoundedConnection(h11.Connection):
    """The server's side of one connection.

    Attributes:
        refused: The error that ended the parsing, once there is one.
    """

    def __init__(self, limits: HeadLimits) -> None:
        super().__init__(h11.SERVER, limits.size)
        self.refused: h11.RemoteProtocolError | None = None
        self._limits = limits
        self._scanned = 0
        self._lines = 0
        self._chunks = 0
        self._body_bytes = 0
        self._declared = 0
        self._discarded = 0
        self._chunked = False

    @property
    def waits_for_head(self) -> bool:
        """Whether no whole head has come since the last request."""
        return self.their_state is h11.IDLE

    @property
    def waits_for_body(self) -> bool:
        """Whether a body has begun and not ended."""
        return self.their_state is h11.SEND_BODY

    @property
    def body_bytes(self) -> int:
        """Bytes of the body: as many as its head has declared, or as have come."""
        return max(self._declared, self._body_bytes)

    @property
    def is_cheap(self) -> bool:
        """Whether any number of bytes is parsed at once for little: inside a body of known length."""
        return self.waits_for_body and not self._chunked

    @property
    def may_answer(self) -> bool:
        """Whether an answer can begin."""
        return self.our_state in (h11.IDLE, h11.SEND_RESPONSE)

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """Parse the next event within the bounds.

        Raises:
            OverBoundError: The request is over a bound.
            h11.RemoteProtocolError: The bytes are no HTTP.
        """
        try:
            return self._next_event()
        except h11.RemoteProtocolError as error:
            self.refused = error
            raise

    def _next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        if self.waits_for_head:
            self._check_head(self.trailing_data[0])
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._begin(event)
        elif isinstance(event, h11.Data):
            self._count(event)
        elif isinstance(event, h11.EndOfMessage) and len(event.headers) > self._limits.fields:
            raise _too_large(f"The request has over {self._limits.fields} trailers.")
        elif event is h11.NEED_DATA and self.waits_for_body:
            self._check_between_chunks(self.trailing_data[0])
        return event

    def _check_head(self, head: bytes) -> None:
        end = _END_OF_HEAD.search(head, max(0, self._scanned - 2))
        size = len(head) if end is None else end.end()
        self._lines += head.count(b"\n", self._scanned, size)
        line = head.find(b"\n", 0, self._limits.target + _BESIDE_TARGET)
        self._scanned = size
        if line < 0 and size > self._limits.target + _BESIDE_TARGET:
            raise _too_long(self._limits.target)
        if size > self._limits.size:
            raise _too_large(f"The head of the request has over {self._limits.size:,} bytes.")
        # The request line, and the empty line at the end.
        if self._lines > self._limits.fields + 2:
            raise _too_large(f"The request has over {self._limits.fields} header fields.")

    def _begin(self, request: h11.Request) -> None:
        self._scanned = self._lines = self._chunks = self._body_bytes = self._discarded = 0
        self._chunked = any(name == b"transfer-encoding" for name, _ in request.headers)
        # The parser has checked that it is a number.
        lengths = (int(value) for name, value in request.headers if name == b"content-length")
        self._declared = next(lengths, 0)
        if len(request.target) > self._limits.target:
            raise _too_long(self._limits.target)

    def _count(self, data: h11.Data) -> None:
        size = len(data.data)
        self._body_bytes += size
        if self.our_state is h11.DONE:
            self._discarded += size
            if self._discarded > MAX_DISCARDED:
                raise OverBoundError("The body goes on long after the answer.")
        if self._chunked and data.chunk_start:
            self._chunks += 1
            # A chunk that has just begun does not count as small.
            small = self._body_bytes - size < (self._chunks - 1) * _MIN_MEAN_CHUNK
            if self._chunks > _FREE_CHUNKS and small:
                raise OverBoundError(
                    f"The body comes in chunks of fewer than {_MIN_MEAN_CHUNK} bytes: send larger ones."
                )

    def _check_between_chunks(self, received: bytes) -> None:
        if len(received) > _MAX_BETWEEN_CHUNKS or received.count(b"\n") > self._limits.fields + 1:
            raise _too_large(
                f"The trailers of the request have over {_MAX_BETWEEN_CHUNKS:,} bytes or "
                f"{self._limits.fields} fields."
            )


def _too_large(message: str) -> OverBoundError:
    return OverBoundError(
        f"{message} Send fewer.", error_status_hint=HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    )


def _too_long(limit: int) -> OverBoundError:
    return OverBoundError(
        f"The URL has over {limit:,} bytes; send a shorter one, and a search as a body.",
        error_status_hint=HTTPStatus.REQUEST_URI_TOO_LONG,
    )
