"""The service in a process of its own: its limits, its start, its answers, and its end in time."""

import json
import os
import shlex
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
from sqlalchemy import select

from app.cli.errors import HANGING
from app.edge.server import LimitsError, require_limits
from app.engine import open_engine
from index.catalogue.jobs import add_job
from index.catalogue.tables import AuditEventRow
from tests.access import ADMIN_KEY, AS_ADMIN
from tests.app.conftest import COLLECTION, Indexed
from tests.e2e.work import COMMAND
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
def stuck(engine, active, vector, request, *rest):
    if request.k == 77:
        os.write(1, b"stuck" + bytes([10]))
        threading.Event().wait()
    return search(engine, active, vector, request, *rest)
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
        arguments = (str(indexed.settings.home), str(deadline_s), str(threads), ADMIN_KEY)
        self.process = subprocess.Popen(
            [sys.executable, "-c", before + _START, *arguments],
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
def running(indexed: Indexed, **options: Any) -> Iterator[Service]:
    """A service that is ready; lines of Python may come before its start."""
    service = Service(indexed, **options)
    try:
        service.wait_until_ready()
        yield service
    finally:
        service.process.kill()
        service.process.communicate()


def descendants(pid: int) -> list[int]:
    text = [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    return text + [further for child in text for further in descendants(child)]


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
    assert "requests were cancelled at the stop" not in {line["event"] for line in lines}
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
    given_up = [line for line in lines if line["event"] == "requests were cancelled at the stop"]
    assert [line["requests"] for line in given_up] == [8]
    # Under ten seconds on its own; a busy machine may need more for anything.
    assert seconds < _PROMISED_S + 5


@pytest.mark.slow
def test_a_search_that_is_stuck_in_a_thread_is_told_of_its_deadline(own: Indexed) -> None:
    with running(own, deadline_s=1.0) as service, service.post(b'{"text": "x", "limit": 77}') as search:
        assert search.recv(4096).startswith(b"HTTP/1.1 504 ")


@pytest.mark.slow
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
    replaced = {"an encoder's process is replaced", "encoder-replaced"}
    assert {line["event"] for line in errors(lines)} <= replaced
    assert len(children) > 2
    wait_until(lambda: not any(Path(f"/proc/{child}").exists() for child in children))


@pytest.mark.slow
def test_addresses_that_a_caller_invents_stand_beside_its_own(indexed: Indexed) -> None:
    with running(indexed) as service, httpx.Client(base_url=service.url, timeout=10) as client:
        for number in range(56):
            messages = {"Authorization": f"Bearer wrong-{number}", "X-Forwarded-For": f"10.7.{number}.1"}
            status = client.get("/v1/jobs", headers=messages).status_code
        assert status == 429
        service.stop()
    with open_engine(indexed.settings).home.catalogue.read() as session:
        events = [json.loads(event) for event in session.scalars(select(AuditEventRow.event))]
    addresses = {event["address"] for event in events if event["action"] == "sign-in"}
    assert "127.0.0.1 for 10.7.0.1" in addresses
    assert "10.7.0.1 for 10.7.0.1" not in addresses


@pytest.mark.slow
def test_a_process_serves_and_stops_cleanly(indexed: Indexed) -> None:
    with running(indexed) as service, httpx.Client(base_url=service.url, timeout=10) as client:
        answer = client.post(f"/v1/collections/{COLLECTION}/search", json={"text": "two dogs"})
        assert answer.status_code == 200
        assert "server" not in answer.headers
        large = client.post(
            f"/v1/collections/{COLLECTION}/search",
            content=(b" " * 2**16 for _ in range(40)),
            headers={"content-type": "application/json"},
        )
        assert large.status_code == 413
        assert large.headers["content-type"] == "application/problem+json"
        service.post(b"{", length=100).close()
        assert [_delete_nothing(service, version) for version in ("1.0", "1.1")] == [401, 401]
        key = f"Authorization: {AS_ADMIN['Authorization']}\r\n"
        assert [_delete_nothing(service, version, key) for version in ("1.0", "1.1")] == [404, 404]
        assert client.get("/readyz").status_code == 200
        _, lines = service.stop()
    assert {"answered", "encoder loaded"} <= {line["event"] for line in lines}
    assert errors(lines) == []


def _delete_nothing(service: Service, http_version: str, key: str = "") -> int:
    """Change something by a version of HTTP, as a proxy that says no more of itself; gives the status."""
    head = f"DELETE /v1/collections/{COLLECTION}/images/nobody HTTP/{http_version}\r\n"
    with service.send(f"{head}Host: {service.url.netloc.decode()}\r\n{key}\r\n".encode()) as connection:
        return int(connection.recv(100).split()[1])


_LONG_PATIENCE = 120.0

# A search for "hang" never comes back from the encoder.
_HANGS = """
import threading
from app.encoding import queue
from training.models.onnx import OnnxEncoder

embed = OnnxEncoder.embed_texts

def embed_texts(self, texts):
    if "hang" in texts:
        threading.Event().wait()
    return embed(self, texts)

OnnxEncoder.embed_texts = embed_texts
queue._SHORTEST_PASS_LIMIT_S = 0.5
"""


@pytest.mark.slow
def test_a_process_whose_encoder_hangs_for_good_ends_with_a_reason(indexed: Indexed) -> None:
    with running(indexed, deadline_s=0.5, before=_HANGS) as service:
        statuses = _search_until_it_ends(service)
        _, log = service.process.communicate(timeout=_LONG_PATIENCE)
        assert service.process.returncode == HANGING
    assert 504 in statuses
    *lines, last = log.splitlines()
    assert last == "recoquest: The encoder hangs: start the process again."
    assert "critical" in [json.loads(line)["level"] for line in lines]


def _search_until_it_ends(service: Service) -> list[int]:
    statuses: list[int] = []
    end = time.monotonic() + _LONG_PATIENCE
    with httpx.Client(base_url=service.url, timeout=_LONG_PATIENCE) as client:
        while service.process.poll() is None and time.monotonic() < end:
            try:
                answer = client.post(f"/v1/collections/{COLLECTION}/search", json={"text": "hang"})
                statuses.append(answer.status_code)
            except httpx.TransportError:
                time.sleep(0.1)
    return statuses


@pytest.mark.slow
def test_serving_lets_waiting_threads_sleep(tmp_path: Path) -> None:
    # The libraries are loaded, and tell their settings, before the catalogue is found to be unusable.
    (tmp_path / "catalogue.sqlite3").mkdir()
    hidden = {"OMP_WAIT_POLICY", "OPENBLAS_NUM_THREADS"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    ended = subprocess.run(
        [sys.executable, "-c", "from app.cli.main import run; run()", "serve", "--port", "0"],
        env={**environment, "OMP_DISPLAY_ENV": "VERBOSE", "RECOQUEST_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=_LONG_PATIENCE,
        check=False,
    )
    assert ended.returncode == 1, ended.stderr[-500:]
    # Of FAISS; torch, which has another, is not loaded.
    for message in ("GOMP_SPINCOUNT = '0'", "OPENMP DISPLAY ENVIRONMENT BEGIN"):
        assert ended.stderr.count(message) == 1


@pytest.mark.parametrize(
    ("hard", "allowed", "connections"), [(8192, 1000 + 768, 1000), (512, 512, 512 - 192)]
)
def test_the_process_may_open_as_many_files_as_its_connections_need(
    hard: int, allowed: int, connections: int
) -> None:
    script = (
        "import resource; from app.edge.server import allow_descriptors; "
        f"resource.setrlimit(resource.RLIMIT_NOFILE, (256, {hard})); print(allow_descriptors(1000)); "
        "print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines()[-2:] == [str(connections), str(allowed)]
    assert ("too few files" in ended.stdout + ended.stderr) is (allowed < 1768)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["serve", "worker"])
@pytest.mark.parametrize(
    ("limit", "sentence"),
    [
        ("-n 64", "recoquest: This process may open 64 files and needs at least 256: raise the limit"),
        ("-n 255", "recoquest: This process may open 255 files and needs at least 256: raise the limit"),
        ("-v 1500000", "recoquest: This process may use 1.4 GiB of memory addresses and needs at least 4"),
        ("-d 1000000", "recoquest: This process may use 1.0 GiB of memory addresses and needs at least 2"),
    ],
)
def test_limits_that_are_too_low_are_told_at_the_start(
    command: str, limit: str, sentence: str, tmp_path: Path
) -> None:
    start = shlex.join([*COMMAND, command, "--home", str(tmp_path / "home")])
    ended = subprocess.run(
        ["bash", "-c", f"ulimit {limit} && exec {start}"], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 1
    assert ended.stderr.replace("\n", " ").startswith(sentence)
    assert not (tmp_path / "home").exists()


def test_too_little_free_memory_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.edge.server.free_memory", lambda: 400 * 2**20)
    with pytest.raises(LimitsError, match=r"^0\.39 GiB of memory are free, and 0\.75 GiB are needed"):
        require_limits()
    monkeypatch.setattr("app.edge.server.free_memory", lambda: 2**30)
    require_limits()
