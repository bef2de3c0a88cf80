"""Several processes of `recoquest serve` on one address, which their parent starts, watches and replaces."""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, Final, NoReturn

import structlog

from app.cli.errors import DEFECT
from app.edge.sharing import Sharing
from app.settings import Settings
from training.common.host import cores, end_with_parent

# Seconds before a process is replaced: 1, 2, 4 ... of those that end soon after their start.
_FIRST_REST_S: Final = 1.0
_MAX_REST_S: Final = 30.0
_SOON_S: Final = 60.0
_LOOK_S: Final = 1.0
# A process ends by itself before, and orchestrators kill after.
_END_S: Final = 9.8
_ORDERS: Final = frozenset({signal.SIGTERM, signal.SIGINT})
_SIGNALS: Final = _ORDERS | {signal.SIGCHLD}

_log = structlog.stdlib.get_logger(__name__)


class _Slot:
    """A process, or the time of its next start."""

    def __init__(self) -> None:
        self.process: int | None = None
        self.start_at = self.started_at = 0.0
        self.failures = 0


def share_out(settings: Settings, processes: int) -> Settings:
    """Return the settings of each of so many processes: together they use what one would."""
    if processes == 1:
        return settings
    threads = settings.threads or cores()
    return settings.model_copy(
        update={
            "threads": max(1, threads // processes),
            "concurrent_decodes": max(1, settings.concurrent_decodes // processes),
        }
    )


def supervise(taken: socket.socket, sharing: Sharing, serve: Callable[[socket.socket], object]) -> NoReturn:
    """Have processes serve on an address that was taken, until a signal orders their end.

    Each listens by a socket of its own, and the system gives it its share of the connections: of processes
    that accept on one socket, the first to wake takes a whole burst (measured). They are forked from this
    process whenever one is missing, so it must have no thread of Python's.
    """
    family, address = taken.family, taken.getsockname()
    # No other service could take the address until here; from now on those of the same user that share it.
    taken.close()
    taken = _shared(family, address)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    slots = [_Slot() for _ in range(sharing.processes)]
    parent = os.getpid()
    has_served = False
    while True:
        now = time.monotonic()
        for number, slot in enumerate(slots):
            if slot.process is None and slot.start_at <= now:
                slot.process, slot.started_at = os.fork(), now
                if not slot.process:
                    end_with_parent(parent)
                    sharing.index = number
                    signal.pthread_sigmask(signal.SIG_SETMASK, before)
                    _run(lambda: serve(_shared(family, address)))
        received = signal.sigtimedwait(_SIGNALS, _LOOK_S)
        if received is not None and received.si_signo in _ORDERS:
            _end(taken, sharing, slots)
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            # Ends as one process would that has received it.
            signal.raise_signal(received.si_signo)
            raise SystemExit(0)
        has_served = has_served or sharing.serving.total > 0
        for number, slot in enumerate(slots):
            if slot.process is None or (code := _ended(slot.process)) is None:
                continue
            ended, slot.process = slot.process, None
            sharing.clear(number)
            if not has_served and code >= 0:
                # It has reported why, and another one would fail in the same way.
                _end(taken, sharing, slots)
                raise SystemExit(code)
            _rest(slot)
            rest_s = max(0.0, slot.start_at - time.monotonic())
            _log.error("a process ended and is replaced", process=ended, code=code, next_try_s=round(rest_s))


def _shared(family: int, address: Any) -> socket.socket:
    """Bind a socket to an address that it shares with others of this service; it does not listen yet."""
    shared = socket.socket(family, socket.SOCK_STREAM)
    shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    shared.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    shared.bind(address)
    return shared


def _run(serve: Callable[[], object]) -> NoReturn:
    """Serve in a forked process, which has lost threads of libraries that would be waited for at its end."""
    code = DEFECT
    try:
        serve()
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:  # noqa: BLE001 - nobody else would see it
        _log.exception("a process ended by a defect")
    finally:
        sys.stderr.flush()
        os._exit(code)


def _ended(process: int) -> int | None:
    """The exit code of a process, or its negative signal; None: it is running."""
    ended_process, status = os.waitpid(process, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended_process else None


def _rest(slot: _Slot) -> None:
    """Schedule the replacement of a process."""
    now = time.monotonic()
    slot.failures = 0 if now - slot.started_at > _SOON_S else slot.failures + 1
    rest_s = min(_FIRST_REST_S * 2 ** max(0, slot.failures - 1), _MAX_REST_S)
    slot.start_at = now + rest_s


def _end(taken: socket.socket, sharing: Sharing, slots: list[_Slot]) -> None:
    """Stop all processes: those that serve gracefully, others at once."""
    taken.close()
    remaining = {slot.process: number for number, slot in enumerate(slots) if slot.process is not None}
    for process, number in remaining.items():
        answers = sharing.serving.part(number)
        os.kill(process, signal.SIGTERM if answers else signal.SIGKILL)
    end = time.monotonic() + _END_S
    while remaining := {process: number for process, number in remaining.items() if _ended(process) is None}:
        if time.monotonic() > end:
            for process in remaining:
                os.kill(process, signal.SIGKILL)
        signal.sigtimedwait({signal.SIGCHLD}, 0.1)
