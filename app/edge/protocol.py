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

import httptools
import structlog
from starlette.types import Scope
from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, ASGISendEvent
from uvicorn._types import Scope as AsgiScope
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from app.edge.problems import Kind, problem_response, raw_answer
from app.edge.sharing import Count, Sharing

# More than the largest body that any setting allows is seldom sent; it is read only to be thrown away.
MAX_DISCARDED: Final = 32 << 20
# Each chunk costs a few calls. A sender may begin with small ones.
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


Reason = Literal["head-timeout", "body-timeout", "answer-unread", "replaced", "refused", "malformed"]

_SWEEP_S: Final = 0.25
# Above this share of the limit, connections without a request are ended ...
_FULL: Final = 0.75
# ... that had the time to send one.
_A_MOMENT_S: Final = 0.1
_LOG_EVERY_S: Final = 5.0
# Connections beyond the limit, for checks of health.
_RESERVE: Final = 32
# Connections that were sent their last response and may still read it.
_MAX_LEAVING: Final = 256

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds of connections, in seconds unless stated otherwise.

    Attributes:
        head_s: Seconds from the opening, or the first byte of a later request, to the end of the head.
        stall_s: Seconds without a byte of an unfinished body.
        body_s: From the end of a head to the end of a body, in addition to the time for its bytes.
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

    Above three quarters of the limit, connections that wait for a request are ended, those that have waited
    longest first: a client that sends nothing, or a byte at a time, blocks nobody.
    """

    def __init__(
        self, limits: ConnectionLimits, ended: Callable[[Reason], None], number: Count | None = None
    ) -> None:
        self.limits = limits
        # Connections of all processes.
        self._number = number or Sharing().count()
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
        """Whether the newest connection only gets answers to health checks."""
        return self._number.total > self.limits.connections

    def enter(self, connection: "BoundedProtocol", now: float) -> bool:
        """Count a connection; False if the limit is reached."""
        if self._number.total >= self.limits.connections:
            self._trim(now)
            if self._number.total >= self.limits.connections + _RESERVE:
                return False
        self._open[connection] = None
        self._number.own = len(self._open)
        self._sweep_later()
        return True

    def leave(self, connection: "BoundedProtocol") -> bool:
        """Stop counting a connection that is sent why it ends; False if too many are in that state."""
        self._open.pop(connection, None)
        self._number.own = len(self._open)
        if len(self._leaving) >= _MAX_LEAVING:
            return False
        self._leaving.add(connection)
        self._sweep_later()
        return True

    def gone(self, connection: "BoundedProtocol") -> None:
        """Forget a connection that is closed."""
        self._open.pop(connection, None)
        self._number.own = len(self._open)
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
        total = self._number.total
        # Where there are several processes, each ends its share.
        surplus = -(-(total - int(self.limits.connections * _FULL)) * len(self._open) // max(total, 1))
        waits = [(connection.spare_for(now), connection) for connection in self._open] if surplus > 0 else []
        spare = [
            (waited, connection)
            for waited, connection in waits
            if waited is not None and waited > _A_MOMENT_S
        ]
        for _, connection in sorted(spare, key=lambda pair: pair[0], reverse=True)[:surplus]:
            connection.replace()

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


class LingeringTransport:
    """The transport of a connection, whose `close` first asks whether it may.

    Small writes are joined until the event loop gets to its next callback: a system call for each would cost
    more than the bytes.
    """

    def __init__(self, transport: asyncio.Transport, may_close: Callable[[], bool]) -> None:
        self._transport = transport
        self._may_close = may_close
        self._pending = bytearray()
        self._ended = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def get_write_buffer_size(self) -> int:
        """Bytes that the system has not taken."""
        return len(self._pending) + self._transport.get_write_buffer_size()

    def is_closing(self) -> bool:
        """Whether nothing more may be sent."""
        return self._ended or self._transport.is_closing()

    def close(self) -> None:
        """Close when all is written."""
        if self._may_close():
            self._flush()
            self._transport.close()

    def write(self, data: bytes) -> None:
        """Send bytes, small ones together with those that follow at once; none after the end."""
        if self._ended:
            return
        if len(self._pending) + len(data) > _MAX_BUFFERED:
            self._flush()
            self._transport.write(data)
            return
        if data and not self._pending:
            asyncio.get_running_loop().call_soon(self._flush)
        self._pending += data

    def write_eof(self) -> None:
        """Say that nothing more is sent."""
        self._flush()
        self._ended = True
        self._transport.write_eof()

    def _flush(self) -> None:
        if self._pending and not self._transport.is_closing():
            pending, self._pending = self._pending, bytearray()
            self._transport.write(pending)


_SLOW: Final = Kind("request-timeout", "The request came too slowly", HTTPStatus.REQUEST_TIMEOUT)
_CROWDED: Final = Kind(
    "too-many-connections", "Too many connections are open", HTTPStatus.SERVICE_UNAVAILABLE, retry_after_s=1
)
_NO_HTTP: Final = Kind("bad-request", "The request is no valid HTTP", HTTPStatus.BAD_REQUEST)
_LONG_URL: Final = Kind("uri-too-long", "The URL is too long", HTTPStatus.REQUEST_URI_TOO_LONG)
_LARGE_HEAD: Final = Kind(
    "head-too-large", "The head is too large", HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
)
# Bytes that are parsed at once outside of bodies of known length.
_PIECE: Final = 8 << 10
_VERSIONS: Final = ("1.0", "1.1")
# An idle connection is ended before any that has begun a request.
_IDLE_FIRST: Final = 1e6
# A body that arrives at this rate, in bytes a second, keeps its connection; the rate is measured over this
# time.
_MOVING: Final = 1024.0
_MOVING_S: Final = 1.0
_CHECK_OF_HEALTH: Final = re.compile(rb"(?:GET|HEAD) /(?:livez|readyz|metrics) ")


class OverBoundError(Exception):
    """A request is over a bound."""

    def __init__(self, kind: Kind, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


class BoundedProtocol(HttpToolsProtocol):
    """One connection of the server.

    The parser calls `on_...` for what it finds. Bytes outside of bodies are counted as they come, a piece at
    a time, so that a name, a value or a length without an end is bounded as well.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        connections: Connections,
        shed: "Shed | None",
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._shed = shed
        self._limits = connections.limits
        self._all = connections
        # The request that is answered; `cycle` is the one that arrives.
        self._answering: RequestResponseCycle | None = None
        self._rest = b""
        self._last_words: tuple[Kind, str] | None = None
        # State of the request that arrives.
        self._in_head = self._telling = self._chunked = False
        self._head_since: float | None = None
        self._body_since: float | None = None
        self._outside = self._fields = 0
        self._chunks = self._body_bytes = self._declared = self._discarded = 0

        self._last_byte = self._measured_at = self.loop.time()
        self._bytes_since = 0
        self._rate = 0.0
        self._health_only = False
        self._unread_since: float | None = None
        self._leave_by: float | None = None

    @property
    def _at_work(self) -> bool:
        return self._answering is not None and not self._answering.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept the connection, or refuse it."""
        super().connection_made(cast(asyncio.Transport, LingeringTransport(transport, self._close_gently)))
        now = self.loop.time()
        self._head_since = self._last_byte = now
        if self._all.enter(self, now):
            self._health_only = self._all.crowded
        else:
            self._refuse()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop counting the connection."""
        self._all.gone(self)
        self._unset_keepalive_if_required()
        self.pipeline.clear()
        self._rest = b""
        if self._answering is not None:
            self._disconnect(self._answering)
        # Nothing more is sent to a disconnected caller.
        self._body_since = None
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what has come, a piece at a time where requests may follow each other."""
        self._last_byte = self.loop.time()
        self._bytes_since += len(data)
        self._unset_keepalive_if_required()
        leaving = self._leave_by is not None
        if self._health_only and not leaving and not (self._in_head or _CHECK_OF_HEALTH.match(data)):
            self._refuse()
        if leaving or self._last_words is not None:
            self._discarded += len(data)
            if self._discarded > MAX_DISCARDED:
                self.transport.abort()
        elif self._rest:
            self._rest += data
            self.flow.pause_reading()
        else:
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        """Parse bytes until requests wait for the answer to the one before them."""
        if not self._in_head and self._body_since is None and self._head_since is None:
            self._head_since = self._last_byte
        while data and self._leave_by is None and self._last_words is None and not self.pipeline:
            size = max(_PIECE, self._declared - self._body_bytes)
            self._parse_piece(data[:size])
            data = data[size:]
        self._rest = data

    def _parse_piece(self, piece: bytes) -> None:
        self._outside += len(piece)
        try:
            self.parser.feed_data(piece)
            if self._body_since is None and self._outside > self._limits.head.size:
                raise _too_large(f"The head of the request has over {self._limits.head.size:,} bytes.")
            if self._body_since is not None and self._outside > _MAX_BETWEEN_CHUNKS:
                raise _too_large(f"The trailers of the request have over {_MAX_BETWEEN_CHUNKS:,} bytes.")
        except httptools.HttpParserUpgrade as upgrade:
            # No other protocol is spoken here. The parser takes a following body for the next request,
            # unless it is prevented.
            if self._body_since is not None:
                self._telling = True
                length = (
                    b"transfer-encoding: chunked" if self._chunked else b"content-length: %d" % self._declared
                )
                self.parser.feed_data(b"POST / HTTP/1.1\r\n" + length + b"\r\n\r\n")
                self._telling = False
            self._parse_piece(piece[upgrade.args[0] :])
        except (OverBoundError, httptools.HttpParserError) as error:
            self._all.count("malformed")
            cause = error if isinstance(error, OverBoundError) else error.__context__
            if isinstance(cause, OverBoundError):
                self._end(cause.kind, str(cause))
            else:
                self._end(_NO_HTTP, "The request is no valid HTTP/1.1; send it by an HTTP client.")

    def on_message_begin(self) -> None:
        """A request begins."""
        if self._telling:
            return
        # The head may have come with the end of the request before it.
        self._unset_keepalive_if_required()
        super().on_message_begin()
        self._in_head = True
        if self._head_since is None:
            self._head_since = self._last_byte
        self._outside = self._fields = 0
        self._chunks = self._body_bytes = self._declared = self._discarded = 0

    def on_url(self, url: bytes) -> None:
        """A part of the URL."""
        if self._telling:
            return
        super().on_url(url)
        if len(self.url) > self._limits.head.target:
            detail = f"The URL has over {self._limits.head.target:,} bytes; send a shorter one, and a search"
            raise OverBoundError(_LONG_URL, f"{detail} as a body.")

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header field, or a trailer, which is ignored."""
        if self._telling:
            return
        self._fields += 1
        if self._fields > self._limits.head.fields:
            kind = "header fields" if self._in_head else "trailers"
            raise _too_large(f"The request has over {self._limits.head.fields} {kind}.")
        if self._in_head:
            # Blanks behind a value are no part of it (RFC 9112, section 5.1).
            super().on_header(name, value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
        """The head is complete: the work begins, or waits for its turn."""
        if self._telling:
            return
        limits, names = self._limits.head, [name for name, _ in self.headers]
        if len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers) > limits.size:
            raise _too_large(f"The head of the request has over {limits.size:,} bytes.")
        version, hosts = self.parser.get_http_version(), names.count(b"host")
        if version not in _VERSIONS or hosts > 1 or (not hosts and version != "1.0"):
            raise httptools.HttpParserError
        codings = [value.lower() for name, value in self.headers if name == b"transfer-encoding"]
        if codings not in ([], [b"chunked"]):
            raise httptools.HttpParserError
        self._take_target()
        self._in_head, self._head_since, self._body_since = False, None, self._last_byte
        self._outside = self._fields = 0
        # The parser has checked that it is a number.
        self._declared = next((int(value) for name, value in self.headers if name == b"content-length"), 0)
        self._chunked = bool(codings)
        super().on_headers_complete()

    def _take_target(self) -> None:
        """Take a whole address, whose site counts instead of that of the header, and that of all paths."""
        if self.url == b"*" and self.parser.get_method() == b"OPTIONS":
            self.url = b"/"
        if self.url.startswith(b"/"):
            return
        site, slash, path = self.url.removeprefix(b"http://").removeprefix(b"https://").partition(b"/")
        if not self.url.startswith((b"http://", b"https://")) or not slash:
            raise httptools.HttpParserError
        self.url = b"/" + path
        self.headers[:] = [(name, site if name == b"host" else value) for name, value in self.headers]

    def on_chunk_header(self) -> None:
        """A chunk begins."""
        self._chunks += 1
        # A chunk that has just begun does not count as small.
        if self._chunks > _FREE_CHUNKS and self._body_bytes < (self._chunks - 1) * _MIN_MEAN_CHUNK:
            detail = f"The body comes in chunks of fewer than {_MIN_MEAN_CHUNK} bytes: send larger ones."
            raise OverBoundError(_NO_HTTP, detail)

    def on_body(self, body: bytes) -> None:
        """A part of a body."""
        self._outside = 0
        self._body_bytes += len(body)
        if self.cycle.response_complete:
            self._discarded += len(body)
            if self._discarded > MAX_DISCARDED:
                raise OverBoundError(_NO_HTTP, "The body continues long after the answer.")
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete."""
        if self.parser.should_upgrade() and (self._chunked or self._declared):
            return
        self._body_since = None
        self._outside = self._declared = self._body_bytes = 0
        super().on_message_complete()
        if self.cycle.response_complete and not self.pipeline:
            # The answer came before the end of the body: idle time counts from here.
            self._unset_keepalive_if_required()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answering = cycle
        shed = self._shed and self._shed(cast(Scope, cycle.scope), not cycle.keep_alive)
        if not shed:
            framed = cycle.scope["http_version"] != "1.0"
            super()._start_asgi_task(cycle, app if framed else _ended_by_closing(app, cycle))
            return
        cycle.response_started = True
        self.transport.write(shed)
        # Requests behind it begin one after another, as behind any other answer.
        self._all.take_turns(partial(self._shed_done, cycle))

    def _shed_done(self, cycle: RequestResponseCycle) -> None:
        if cycle.disconnected:
            return
        cycle.response_complete = True
        if not cycle.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def on_response_complete(self) -> None:
        """Count idle time from the end of the answer; requests that came behind it wait for their turn."""
        self._last_byte = self.loop.time()
        if self._head_since is not None:
            self._head_since = self._last_byte
        if self.pipeline or self._rest:
            # Take turns: requests sent in one go would all be answered before the next caller's.
            self._all.take_turns(self._go_on)
        else:
            self._go_on()

    def _go_on(self) -> None:
        if self.transport.is_closing():
            return
        if self._last_words is not None and not self.pipeline:
            self._end(*self._last_words)
            return
        super().on_response_complete()
        if not self.pipeline:
            self._parse(self._rest)
        if self.pipeline or self._rest:
            self.flow.pause_reading()

    def eof_received(self) -> None:
        """Close; a caller that was sent the last response has read it."""
        if self._leave_by is not None:
            self.transport.abort()

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
        elif self._head_since is not None and not self._at_work and now - self._head_since > limits.head_s:
            self._time_out("head-timeout", f"The head of the request took over {limits.head_s:g} s.")
        elif self._body_since is not None and not self.flow.read_paused:
            if now - self._last_byte > limits.stall_s:
                self._time_out("body-timeout", f"Nothing of the body came for {limits.stall_s:g} s.")
                return
            size = max(self._declared, self._body_bytes)
            if now - self._body_since > limits.body_s + size / limits.body_rate:
                detail = f"The body came at less than {limits.body_rate / 1024:g} KiB/s."
                self._time_out("body-timeout", detail)

    def spare_for(self, now: float) -> float | None:
        """For how long nobody has needed the connection; None while somebody does."""
        if self._body_since is not None and not self.flow.read_paused:
            waited = now - self._body_since
            return waited if waited > _MOVING_S and self._rate < _MOVING else None
        if self._at_work:
            return None
        if self._head_since is not None:
            return now - self._head_since
        # An answer in transit, or just sent, hasn't been read yet.
        return None if self.transport.get_write_buffer_size() else now - self._last_byte + _IDLE_FIRST

    def replace(self) -> None:
        """End, because another connection needs the capacity."""
        self._time_out("replaced", "Another caller needed the connection before the request was complete.")

    def _refuse(self) -> None:
        self._all.count("refused")
        detail = f"The service has {self._limits.connections:,} connections open; try again in a moment."
        self._end(_CROWDED, detail)

    def _time_out(self, reason: Reason, detail: str) -> None:
        begun = self._body_since is not None or self._in_head
        if self._last_words is not None:
            return
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
        """Tell of a problem with the request that arrives, once those before it are answered, and close."""
        self._unset_keepalive_if_required()
        broken = self.cycle if self._body_since is not None else None
        if self._at_work and broken is not self._answering:
            if broken is not None and self._last_words is None:
                self.pipeline.popleft()
            self._last_words = kind, detail
            return
        if broken is not None:
            if broken.response_started:
                self._all.gone(self)
                self.transport.abort()
                return
            self._disconnect(broken)
        scope = {"root_path": getattr(self.config.app, "root_path", "")}
        problem = problem_response(kind, detail, scope=scope, headers={"Connection": "close"})
        self.transport.write(raw_answer(problem))
        self._leave()

    def _disconnect(self, cycle: RequestResponseCycle) -> None:
        if not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()

    def _close_gently(self) -> bool:
        """Whether the transport may close at once: unread bytes would take the answer from the caller."""
        if self._leave_by is not None or self._body_since is None:
            return True
        self._leave()
        return False

    def _leave(self) -> None:
        """Say that nothing more is sent, and throw away what comes until the caller goes."""
        self._leave_by = self.loop.time() + self._limits.leave_s
        if not self._all.leave(self):
            # Nobody looks at it any more: it may not wait for a caller that does not read.
            large = self.transport.get_write_buffer_size() > _PIECE
            (self.transport.abort if large else self.transport.close)()
            self.loop.call_later(self._limits.leave_s, self.transport.abort)
            return
        self.flow.resume_reading()
        if self.transport.can_write_eof():
            self.transport.write_eof()


def _ended_by_closing(app: ASGI3Application, cycle: RequestResponseCycle) -> ASGI3Application:
    """The application for a caller of HTTP/1.0, which knows no chunks: answers end with the connection."""

    async def answer(scope: AsgiScope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        async def send_plain(message: ASGISendEvent) -> None:
            if message["type"] == "http.response.body":
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        cycle.chunked_encoding = False
        await app(scope, receive, send_plain)

    return answer


def _too_large(message: str) -> OverBoundError:
    return OverBoundError(_LARGE_HEAD, f"{message} Send fewer.")


Shed = Callable[[Scope, bool], bytes | None]


def bounded(connections: Connections, shed: "Shed | None" = None) -> type[asyncio.Protocol]:
    """The protocol of one server's connections, as uvicorn takes it.

    `shed` returns the answer to a request that is refused before any work, by its scope and whether the
    connection ends with it.
    """
    # Uvicorn only calls it.
    return cast(type[asyncio.Protocol], partial(BoundedProtocol, connections=connections, shed=shed))
