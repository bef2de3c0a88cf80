"""The other side of `DecodingProcess`: it takes tasks from a socket and answers each, within limits.

The process that has started it sets the threads of the libraries in its environment.
"""

import math
import resource
import signal
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from training.common.errors import ImageError, ImageTooLargeError
from training.common.host import end_with_parent, return_freed_memory
from training.imaging.processes.messages import BrokenMessageError, receive, send

# Header, with the outcome, and body of an answer.
TaskAnswer = tuple[dict[str, Any], bytes]
# Does a task, of its header and the content of a file.
DoTask = Callable[[Mapping[str, Any], bytearray], TaskAnswer]

_MAX_BYTES: Final = 1 << 40


def serve(tasks: Mapping[str, DoTask], arguments: Sequence[str]) -> None:
    """Answer tasks until the other side closes the socket.

    Args:
        tasks: Names of tasks, and what does them; it may raise ImageError and MemoryError.
        arguments: As `DecodingProcess` gives them: number of the process that has started this one, file
            descriptor of the socket, address space in bytes that it may have beyond what it has now, and CPU
            seconds of a task.
    """
    parent, descriptor, memory_bytes, cpu_s = map(int, arguments)
    end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    space = _allowed(resource.RLIMIT_AS, _address_space() + memory_bytes)
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    with socket.socket(fileno=descriptor) as connection:
        send(connection, {"outcome": "ready"})
        while True:
            try:
                header, content = receive(connection, _MAX_BYTES)
            except BrokenMessageError:
                return
            except MemoryError:
                send(connection, {"outcome": "memory"})
                return
            allow_cpu(cpu_s)
            outcome, body = _answer(tasks, header, content)
            del content
            send(connection, outcome, body)
            if outcome["outcome"] == "memory":
                # Libraries seldom test how they go on after a failed allocation.
                return
            del body
            return_freed_memory()


def _address_space() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
    return int(pages) * resource.getpagesize()


def allow_cpu(cpu_s: int) -> None:
    """Give this process so many seconds of CPU time from now on."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    soft = math.ceil(used.ru_utime + used.ru_stime) + cpu_s
    # Later tasks may have more.
    resource.setrlimit(resource.RLIMIT_CPU, (_allowed(resource.RLIMIT_CPU, soft), _hard(resource.RLIMIT_CPU)))


def _allowed(kind: int, wanted: int) -> int:
    """Return a limit of this process that is not above the one that its user has set."""
    hard = _hard(kind)
    return wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)


def _hard(kind: int) -> int:
    return resource.getrlimit(kind)[1]


def _answer(tasks: Mapping[str, DoTask], header: Mapping[str, Any], content: bytearray) -> TaskAnswer:
    try:
        return tasks[header["task"]](header, content)
    except ImageTooLargeError as error:
        return {"outcome": "too-large", "reason": str(error)}, b""
    except ImageError as error:
        return {"outcome": "refused", "reason": str(error)}, b""
    except MemoryError:
        return {"outcome": "memory"}, b""
