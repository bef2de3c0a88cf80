"""The HTTP/1.1 protocol of the server: uvicorn's, with bounds of size and time on requests."""

import asyncio
import re
import select
from functools import partial
from http import HTTPStatus
from typing import Any, Final, cast

from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from app.edge.http.problem_kinds import Kind
from app.edge.http.problems import problem_response
from app.edge.server.admission import raw_answer
from app.edge.server.connections import Connections, Reason
from app.edge.server.heads import MAX_DISCARDED, BoundedConnection, OverBoundError
from app.edge.server.shedding import Shedding
from app.edge.server.transport import LingeringTransport

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
