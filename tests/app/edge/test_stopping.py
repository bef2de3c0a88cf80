"""The end of the service: in time and without an error in the log, whatever streams and threads do."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from index.catalogue.jobs import add_job
from tests.access import ADMIN_KEY, AS_ADMIN
from tests.app.conftest import COLLECTION, Indexed
from tests.training.imaging.processes.decoding import wait_until

# What an orchestrator gives, and a machine that is busy.
_PROMISED_S = 10.0
_PATIENCE = 30.0

# A search for "stuck" waits in its thread for ever, and a write too.
_START = """
import os, sys, threading
from pathlib import Path
from app.cli.serve import bind, url_of
from app.cli.serve import serve_on
from app.settings import Settings
from index.engine import SearchEngine
taken = bind("127.0.0.1", 0)
print(url_of(taken), flush=True)
search = SearchEngine.search
def stuck(engine, active, vector, asked, *rest):
    if asked.k == 77:
        os.write(1, b"stuck" + bytes([10]))
        threading.Event().wait()
    return search(engine, active, vector, asked, *rest)
SearchEngine.search = stuck
settings = Settings(
    home=Path(sys.argv[1]),
    device="cpu",
    encode_deadline_s=float(sys.argv[2]),
    threads=int(sys.argv[3]),
    open_reading=True,
    admin_key=sys.argv[4],
)
serve_on(taken, settings)
"""


class Service:
    """The service in a process of its own."""

    def __init__(
        self, indexed: Indexed, deadline_s: float = 60.0, threads: int = 1, before: str = ""
    ) -> None:
        given = (str(indexed.settings.home), str(deadline_s), str(threads), ADMIN_KEY)
        self.process = subprocess.Popen(
            [sys.executable, "-c", before + _START, *given],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.url = httpx.URL(self.line())
        self.host, self.port = self.url.host, self.url.port or 80

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def wait_until_ready(self) -> None:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                if httpx.get(self.url.join("/readyz"), timeout=_PATIENCE).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        raise AssertionError("the service did not become ready")

    def send(self, content: bytes) -> socket.socket:
        connection = socket.create_connection((self.host, self.port), timeout=_PATIENCE)
        connection.sendall(content)
        return connection

    def post(self, body: bytes, length: int | None = None) -> socket.socket:
        """Begin a search, with a body of which not all has to be sent."""
        head = f"POST /v1/collections/{COLLECTION}/search HTTP/1.1\r\nHost: localhost\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {length or len(body)}\r\n\r\n"
        return self.send(head.encode() + body)

    def stop(self) -> tuple[float, list[dict[str, Any]]]:
        """Order the end; return the seconds that it took, and the lines of the log."""
        started = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        _, log = self.process.communicate(timeout=60)
        assert self.process.returncode in (0, -signal.SIGTERM)
        return time.monotonic() - started, [json.loads(line) for line in log.splitlines()]


@contextmanager
def running(
    indexed: Indexed, deadline_s: float = 60.0, threads: int = 1, before: str = ""
) -> Iterator[Service]:
    """A service that is ready; lines of Python may come before its start."""
    service = Service(indexed, deadline_s, threads, before)
    try:
        service.wait_until_ready()
        yield service
    finally:
        service.process.kill()
        service.process.communicate()


def descendants(pid: int) -> list[int]:
    found = [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    return found + [further for child in found for further in descendants(child)]


def errors(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [line for line in lines if line["level"] in ("error", "critical")]


@pytest.mark.slow
def test_a_stream_of_a_job_ends_with_the_service(own: Indexed) -> None:
    with own.write() as session:
        job = add_job(session, "duplicates", [COLLECTION])
    with running(own) as service, ExitStack() as opened:
        head = f"GET /v1/jobs/{job.id}/events HTTP/1.1\r\nHost: localhost\r\n"
        request = f"{head}Authorization: {AS_ADMIN['Authorization']}\r\n\r\n".encode()
        streams = [opened.enter_context(service.send(request)) for _ in range(3)]
        assert all(b"200 OK" in stream.recv(64) for stream in streams)
        seconds, lines = service.stop()
        for stream in streams:
            rest = b""
            while part := stream.recv(65_536):
                rest += part
            # The last chunk of an answer that is whole.
            assert rest.endswith(b"0\r\n\r\n")
    assert errors(lines) == []
    assert "requests were given up at the stop" not in {line["event"] for line in lines}
    assert seconds < _PROMISED_S


@pytest.mark.slow
def test_stalled_uploads_silent_connections_and_stuck_threads_delay_no_end(own: Indexed) -> None:
    with running(own) as service, ExitStack() as opened:
        for _ in range(5):
            opened.enter_context(service.post(b'{"text": ', length=1000))
            opened.enter_context(service.send(b"GET /livez HTTP/1.1\r\nX: "))
            opened.enter_context(service.send(b""))
        searches = [opened.enter_context(service.post(b'{"text": "x", "limit": 77}')) for _ in range(3)]
        assert [service.line() for _ in searches] == ["stuck"] * 3
        seconds, lines = service.stop()
        for search in searches:
            assert search.recv(4096).startswith(b"HTTP/1.1 503 ")
    assert errors(lines) == []
    given_up = [line for line in lines if line["event"] == "requests were given up at the stop"]
    assert [line["requests"] for line in given_up] == [8]
    # Under ten seconds on its own; a busy machine may need more for anything.
    assert seconds < _PROMISED_S + 5


@pytest.mark.slow
def test_a_search_that_is_stuck_in_a_thread_is_told_of_its_deadline(own: Indexed) -> None:
    with running(own, deadline_s=1.0) as service, service.post(b'{"text": "x", "limit": 77}') as search:
        assert search.recv(4096).startswith(b"HTTP/1.1 504 ")


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_an_idle_service_ends_at_once(own: Indexed, number: signal.Signals) -> None:
    with running(own) as service:
        started = time.monotonic()
        service.process.send_signal(number)
        service.process.communicate(timeout=60)
        assert time.monotonic() - started < _PROMISED_S / 2


@pytest.mark.slow
def test_a_log_that_nobody_reads_delays_no_end(own: Indexed) -> None:
    with running(own) as service, httpx.Client(base_url=service.url, timeout=2.0) as client:
        # A pipe holds 64 KiB; every answer has a line.
        with pytest.raises(httpx.TimeoutException):
            for _ in range(5_000):
                client.get("/v1/nothing")
        service.process.send_signal(signal.SIGTERM)
        service.process.wait(_PROMISED_S + 10)


@pytest.mark.slow
def test_processes_that_hang_delay_no_end(own: Indexed) -> None:
    with running(own, threads=2) as service:
        children = descendants(service.process.pid)
        for child in children:
            os.kill(child, signal.SIGSTOP)
        with ExitStack() as open_ones:
            for number in range(6):
                open_ones.enter_context(service.post(b'{"text": "dog %d"}' % number))
            time.sleep(0.5)
            seconds, lines = service.stop()
    assert seconds < _PROMISED_S
    # A stopped process may be replaced before the end, and a request that waited for it gets an error.
    assert {line["event"] for line in errors(lines)} <= {
        "an encoder's process is replaced",
        "encoder-replaced",
    }
    assert len(children) > 2
    wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in children))
