"""The HTTP/1.1 protocol of the server: uvicorn's, with bounds of size and time on requests.

Heads, trailers and chunks are bounded while they arrive, connections by their number and the time that each
may take, and answers are sent together and read before a connection closes.
"""

import asyncio
import re
import select
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Literal, cast

import h11
import structlog
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from app.edge.admission import Shedding, raw_answer
from app.edge.problems import Kind, problem_response

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
        except h11.RemoteProtocolError as error:
            self.refused = error
            raise
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


Reason = Literal["head-timeout", "body-timeout", "answer-unread", "replaced", "refused", "malformed"]

_SWEEP_S: Final = 0.25
# Beyond this share of the places, connections without a request are ended ...
_FULL: Final = 0.75
# ... that had the time to send one.
_A_MOMENT_S: Final = 0.1
_LOG_EVERY_S: Final = 5.0
# Connections beyond the limit, for checks of health.
_RESERVE: Final = 32
# Connections that were told of their end and may still read it.
_MAX_LEAVING: Final = 256

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds of connections, in seconds where nothing else is said.

    Attributes:
        connections: Maximum number of open connections.
        head_s: Seconds from the opening, or the first byte of a later request, to the end of the head.
        stall_s: Seconds without a byte of an unfinished body.
        body_s: From the end of a head to the end of a body, beside the time for its bytes.
        body_rate: Least bytes a second of a body in the mean.
        answer_s: Without the caller reading on in its answer.
        leave_s: For a caller to read why its connection ends.
    """

    connections: int = 1024
    head_s: float = 10.0
    stall_s: float = 10.0
    body_s: float = 30.0
    body_rate: float = 32 * 1024
    answer_s: float = 30.0
    leave_s: float = 2.0
    head: HeadLimits = field(default_factory=HeadLimits)


class Connections:
    """Counts connections, looks at each a few times a second, and sums up in the log which it has ended.

    Beyond three quarters of the places, connections that wait for a request are ended, those that have waited
    longest first: who sends nothing, or a byte at a time, keeps nobody out.
    """

    def __init__(self, limits: ConnectionLimits, ended: Callable[[Reason], None]) -> None:
        self.limits = limits
        self._ended = ended
        self._open: dict[BoundedProtocol, None] = {}
        self._leaving: set[BoundedProtocol] = set()
        self._unlogged: Counter[Reason] = Counter()
        self._turns: deque[Callable[[], object]] = deque()
        self._logged_at = float("-inf")
        self._sweeping: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._open)

    @property
    def crowded(self) -> bool:
        """Whether only checks of health are answered on the connection that came last."""
        return len(self._open) > self.limits.connections

    def enter(self, connection: "BoundedProtocol", now: float) -> bool:
        """Take a place for a connection; False: there is none."""
        if len(self._open) >= self.limits.connections:
            self._trim(now)
            if len(self._open) >= self.limits.connections + _RESERVE:
                return False
        self._open[connection] = None
        self._sweep_later()
        return True

    def leave(self, connection: "BoundedProtocol") -> bool:
        """Free the place of a connection that is told why it ends; False: too many are at that."""
        self._open.pop(connection, None)
        if len(self._leaving) >= _MAX_LEAVING:
            return False
        self._leaving.add(connection)
        self._sweep_later()
        return True

    def gone(self, connection: "BoundedProtocol") -> None:
        """Forget a connection that is closed."""
        self._open.pop(connection, None)
        self._leaving.discard(connection)

    def take_turns(self, go_on: Callable[[], object]) -> None:
        """Call one of these, in their order, in each turn of the event loop."""
        if not self._turns:
            asyncio.get_running_loop().call_soon(self._next_turn)
        self._turns.append(go_on)

    def _next_turn(self) -> None:
        go_on = self._turns.popleft()
        if self._turns:
            asyncio.get_running_loop().call_soon(self._next_turn)
        go_on()

    def count(self, reason: Reason) -> None:
        """Count a connection that the service ends."""
        self._ended(reason)
        self._unlogged[reason] += 1
        self._sweep_later()

    def _trim(self, now: float) -> None:
        """End those that have waited longest for a request, as many as are too many."""
        surplus = len(self._open) - int(self.limits.connections * _FULL)
        waits = [(place.spare_for(now), place) for place in self._open] if surplus > 0 else []
        spare = [(waited, place) for waited, place in waits if waited is not None and waited > _A_MOMENT_S]
        for _, place in sorted(spare, key=lambda pair: pair[0], reverse=True)[:surplus]:
            place.replace()

    def _sweep_later(self) -> None:
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        now = asyncio.get_running_loop().time()
        for connection in (*self._open, *self._leaving):
            connection.look(now)
        self._trim(now)
        if self._unlogged and now - self._logged_at >= _LOG_EVERY_S:
            figures = {reason.replace("-", "_"): number for reason, number in self._unlogged.items()}
            _log.warning("connections were ended", open=len(self._open), **figures)
            self._unlogged.clear()
            self._logged_at = now
        if self._open or self._leaving or self._unlogged:
            self._sweep_later()


# More is sent without a copy.
_MAX_BUFFERED: Final = 64 << 10


class LingeringTransport(asyncio.Transport):
    """Hands everything on; `close` first asks whether it may.

    Small writes are joined until the event loop gets to its next callback: a system call for each would cost
    more than the bytes.
    """

    def __init__(self, transport: asyncio.Transport, may_close: Callable[[], bool]) -> None:
        super().__init__()
        self._transport = transport
        self._may_close = may_close
        self._loop = asyncio.get_running_loop()
        self._held = bytearray()
        self._ended = False

    @property
    def is_sending(self) -> bool:
        """Whether bytes are left that the system has not taken."""
        return bool(self._held) or self._transport.get_write_buffer_size() > 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Properties of the connection, such as its addresses."""
        return self._transport.get_extra_info(name, default)

    def is_closing(self) -> bool:
        """Whether it is closed, or will be once all is written."""
        return self._transport.is_closing()

    def close(self) -> None:
        """Close when all is written."""
        if self._may_close():
            self._flush()
            self._transport.close()

    def close_at_once(self) -> None:
        """Close; what the system does not take now is lost."""
        self._flush()
        if self._transport.get_write_buffer_size():
            self._transport.abort()
        else:
            self._transport.close()

    def abort(self) -> None:
        """Close now; what is not written is lost."""
        self._held.clear()
        self._transport.abort()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes, small ones together with those that follow at once; none after the end."""
        if self._ended:
            return
        if len(self._held) + len(data) > _MAX_BUFFERED:
            self._flush()
            self._transport.write(data)
            return
        if data and not self._held:
            self._loop.call_soon(self._flush)
        self._held += data

    def write_eof(self) -> None:
        """Say that nothing more is sent."""
        self._flush()
        self._ended = True
        self._transport.write_eof()

    def can_write_eof(self) -> bool:
        """Whether that can be said."""
        return self._transport.can_write_eof()

    def pause_reading(self) -> None:
        """Take no bytes."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take bytes again."""
        self._transport.resume_reading()

    def _flush(self) -> None:
        if self._held and not self._transport.is_closing():
            held, self._held = self._held, bytearray()
            self._transport.write(held)


_SLOW: Final = Kind("request-timeout", "The request came too slowly", HTTPStatus.REQUEST_TIMEOUT)
_CROWDED: Final = Kind(
    "too-many-connections",
    "Too many connections are open",
    HTTPStatus.SERVICE_UNAVAILABLE,
    retry_after_s=1,
)
_NO_HTTP: Final = Kind("bad-request", "The request is no valid HTTP", HTTPStatus.BAD_REQUEST)
_OVER_BOUND: Final = {
    int(kind.status): kind
    for kind in (
        Kind("uri-too-long", "The URL is too long", HTTPStatus.REQUEST_URI_TOO_LONG),
        Kind("head-too-large", "The head is too large", HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE),
        _NO_HTTP,
    )
}
# Bytes that are parsed at once outside of bodies of known length.
_PIECE: Final = 8 << 10
# An idle connection gives its place before any that has begun a request.
_IDLE_FIRST: Final = 1e6
# A body that comes at this rate, in bytes a second, keeps its place; the rate is measured over this time.
_MOVING: Final = 1024.0
_MOVING_S: Final = 1.0
_CHECK_OF_HEALTH: Final = re.compile(rb"(?:GET|HEAD) /(?:livez|readyz|metrics) ")


class BoundedProtocol(H11Protocol):
    """One connection of the server."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        connections: Connections,
        shedding: Shedding | None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limits = connections.limits
        self._all = connections
        self._shedding = shedding
        self.conn = self._bounded = BoundedConnection(self._limits.head)
        self._head_since: float | None = None
        self._body_since: float | None = None
        self._body_of: object = None
        self._last_byte = self._measured_at = self.loop.time()
        self._bytes_since = 0
        self._rate = 0.0
        self._health_only = False
        self._unread_since: float | None = None
        self._leave_by: float | None = None
        self._discarded = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a place, or refuse the connection."""
        self._gentle = LingeringTransport(transport, self._close_gently)
        super().connection_made(self._gentle)
        now = self.loop.time()
        self._head_since = self._last_byte = now
        if self._all.enter(self, now):
            self._health_only = self._all.crowded
        else:
            self._refuse()

    def connection_lost(self, exc: Exception | None) -> None:
        """Give the place back."""
        self._all.gone(self)
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has come, a piece at a time where a piece may be costly."""
        self._last_byte = self.loop.time()
        self._bytes_since += len(data)
        if self._health_only and self._leave_by is None and not self._goes_on_with_a_check(data):
            self._refuse()
        if self._leave_by is not None:
            self._discarded += len(data)
            if self._discarded > MAX_DISCARDED:
                self.transport.abort()
        elif self._shed(data):
            return
        while data and self._leave_by is None:
            size = len(data) if self._bounded.is_cheap else _PIECE
            super().data_received(data[:size])
            data = data[size:]

    def _goes_on_with_a_check(self, data: bytes) -> bool:
        """Whether bytes begin a check of health, or are more of its head."""
        amid_head = self._bounded.waits_for_head and bool(self._bounded.trailing_data[0])
        return amid_head or _CHECK_OF_HEALTH.match(data) is not None

    def _shed(self, data: bytes) -> bool:
        """Refuse a search for which there is no place, before it is parsed."""
        if not self._bounded.waits_for_head or self._bounded.trailing_data[0]:
            return False
        refusal = None if self._shedding is None else self._shedding.refuse(data)
        if refusal is None:
            return False
        self.transport.write(refusal.answer)
        self._head_since = None
        self._unset_keepalive_if_required()
        if refusal.keep:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        else:
            self._leave()
        return True

    def eof_received(self) -> None:
        """Close; a caller that was told of the end has read it."""
        if self._leave_by is not None:
            self.transport.abort()

    def handle_events(self) -> None:
        """Answer complete requests, and note the part of the next one that is awaited: head or body."""
        super().handle_events()
        now = self.loop.time()
        if self._bounded.waits_for_head:
            if not self._bounded.trailing_data[0]:
                self._head_since = None
            elif self._head_since is None:
                self._head_since = now
        else:
            self._head_since = None
        if not self._bounded.waits_for_body:
            self._body_since = None
        elif self._body_since is None or self._body_of is not self.cycle:
            self._body_since, self._body_of = now, self.cycle

    def on_response_complete(self) -> None:
        """Count idle time from the end of the answer; requests that came behind it wait for their turn."""
        self._last_byte = self.loop.time()
        if self._bounded.trailing_data[0]:
            # Take turns: requests sent in one go would all be answered before the next caller's.
            self._all.take_turns(super().on_response_complete)
        else:
            super().on_response_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the parser knows more
        """Refuse a request that is no HTTP, or over a bound."""
        self._all.count("malformed")
        refused = self._bounded.refused
        if isinstance(refused, OverBoundError):
            self._end(_OVER_BOUND[refused.error_status_hint], str(refused))
        else:
            self._end(_NO_HTTP, "The request is no valid HTTP/1.1; send it by an HTTP client.")

    def pause_writing(self) -> None:
        """Note since when the caller does not read on."""
        self._unread_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        """The caller reads on."""
        self._unread_since = None
        super().resume_writing()

    def shutdown(self) -> None:
        """End when the request at work is answered, or now."""
        if self._leave_by is None:
            super().shutdown()

    def look(self, now: float) -> None:
        """End what takes too long."""
        limits = self._limits
        if now - self._measured_at >= _MOVING_S:
            self._rate = self._bytes_since / (now - self._measured_at)
            self._measured_at, self._bytes_since = now, 0
        if self._leave_by is not None:
            if now >= self._leave_by:
                self.transport.abort()
        elif self.transport.is_closing():
            self._leave_by = now + limits.answer_s
        elif self._unread_since is not None and now - self._unread_since > limits.answer_s:
            self._all.count("answer-unread")
            self.transport.abort()
        elif self._head_since is not None and now - self._head_since > limits.head_s:
            self._time_out("head-timeout", f"The head of the request took over {limits.head_s:g} s.")
        elif self._body_since is not None and not self.flow.read_paused:
            if now - self._last_byte > limits.stall_s:
                self._time_out("body-timeout", f"Nothing of the body came for {limits.stall_s:g} s.")
            elif now - self._body_since > limits.body_s + self._bounded.body_bytes / limits.body_rate:
                detail = f"The body came at less than {limits.body_rate / 1024:g} KiB/s."
                self._time_out("body-timeout", detail)

    def spare_for(self, now: float) -> float | None:
        """For how long nobody has needed the connection; None while somebody does."""
        if self._body_since is not None and not self.flow.read_paused:
            waited = now - self._body_since
            return waited if waited > _MOVING_S and self._rate < _MOVING else None
        if self.cycle is not None and not self.cycle.response_complete:
            return None
        if self._head_since is not None:
            return now - self._head_since
        # An answer that is under way, or has just gone, is not yet read.
        return None if self._gentle.is_sending else now - self._last_byte + _IDLE_FIRST

    def replace(self) -> None:
        """End, because another connection needs the place."""
        self._time_out("replaced", "Another caller needed the connection before the request was whole.")

    def _refuse(self) -> None:
        """End a connection for which there is no place."""
        self._all.count("refused")
        detail = f"The service has {self._limits.connections:,} connections open; try again in a moment."
        self._end(_CROWDED, detail)

    def _time_out(self, reason: Reason, detail: str) -> None:
        begun = self._body_since is not None or bool(self._bounded.trailing_data[0])
        if not begun and self._has_unread():
            # The service is late, not the caller.
            return
        self._all.count(reason)
        # A caller that has sent nothing waits for no answer, and may send its request as one arrives.
        if begun:
            self._end(_SLOW, f"{detail} Send it again.")
        else:
            self._all.gone(self)
            self.transport.abort()

    def _has_unread(self) -> bool:
        """Whether bytes have come that nobody has had the time to read."""
        waiting = select.poll()
        waiting.register(self.transport.get_extra_info("socket").fileno(), select.POLLIN)
        return bool(waiting.poll(0))

    def _end(self, kind: Kind, detail: str) -> None:
        """Answer with a problem if no answer has begun, and close."""
        self._unset_keepalive_if_required()
        may_answer = self._bounded.may_answer
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if not may_answer:
            self._all.gone(self)
            self.transport.abort()
            return
        scope = {"root_path": getattr(self.config.app, "root_path", "")}
        problem = problem_response(kind, detail, scope=scope, headers={"Connection": "close"})
        self.transport.write(raw_answer(problem))
        self._leave()

    def _close_gently(self) -> bool:
        """Whether the transport may close at once: unread bytes would take the answer from the caller."""
        if self._leave_by is not None or not self._bounded.waits_for_body:
            return True
        self._leave()
        return False

    def _leave(self) -> None:
        """Say that nothing more is sent, and throw away what comes until the caller goes."""
        self._leave_by = self.loop.time() + self._limits.leave_s
        if not self._all.leave(self):
            self._gentle.close_at_once()
            return
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()


def bounded(connections: Connections, shedding: Shedding | None = None) -> type[asyncio.Protocol]:
    """The protocol of one server's connections, as uvicorn takes it."""
    # Uvicorn only calls it.
    return cast(type[asyncio.Protocol], partial(BoundedProtocol, connections=connections, shedding=shedding))
