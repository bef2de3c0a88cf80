"""A transport that joins small writes, and does not close while its caller still sends."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

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
