"""The service in a process of its own: it starts, answers, survives odd connections and stops cleanly."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from sqlalchemy import select

from app.cli.errors import HANGING
from app.engine import open_engine
from index.catalogue.tables import AuditEventRow
from tests.access import ADMIN_KEY, AS_ADMIN
from tests.app.conftest import COLLECTION, Indexed

_START = """
import sys
from pathlib import Path
from app.cli.serve import bind, url_of
from app.cli.serve import serve_on
from app.settings import Settings
taken = bind("127.0.0.1", 0)
print(url_of(taken), flush=True)
access = {"open_reading": True, "admin_key": sys.argv[2]}
serve_on(taken, Settings(home=Path(sys.argv[1]), device="cpu", threads=1, **access))
"""


@pytest.fixture
def process(indexed: Indexed) -> Iterator[subprocess.Popen[str]]:
    started = subprocess.Popen(
        [sys.executable, "-c", _START, str(indexed.settings.home), ADMIN_KEY],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield started
    finally:
        started.kill()
        started.communicate()


@pytest.mark.slow
def test_addresses_that_a_caller_invents_stand_beside_its_own(
    process: subprocess.Popen[str], indexed: Indexed
) -> None:
    assert process.stdout is not None
    with httpx.Client(base_url=process.stdout.readline().strip(), timeout=10) as client:
        _wait_until_ready(client)
        for number in range(56):
            said = {"Authorization": f"Bearer wrong-{number}", "X-Forwarded-For": f"10.7.{number}.1"}
            status = client.get("/v1/jobs", headers=said).status_code
    assert status == 429
    process.send_signal(signal.SIGTERM)
    process.wait(30)
    with open_engine(indexed.settings).home.catalogue.read() as session:
        events = [json.loads(event) for event in session.scalars(select(AuditEventRow.event))]
    addresses = {event["address"] for event in events if event["action"] == "sign-in"}
    assert "127.0.0.1 for 10.7.0.1" in addresses
    assert "10.7.0.1 for 10.7.0.1" not in addresses


def test_a_process_serves_and_stops_cleanly(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    with httpx.Client(base_url=address, timeout=10) as client:
        _wait_until_ready(client)
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
        _leave_in_the_middle(address)
        assert [_delete_nothing(address, version) for version in ("1.0", "1.1")] == [401, 401]
        key = f"Authorization: {AS_ADMIN['Authorization']}\r\n"
        assert [_delete_nothing(address, version, key) for version in ("1.0", "1.1")] == [404, 404]
        assert client.get("/readyz").status_code == 200
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=15)
    assert process.returncode in (0, -signal.SIGTERM)
    lines = [json.loads(line) for line in log.splitlines()]
    assert {"answered", "encoder loaded"} <= {line["event"] for line in lines}
    assert not [line for line in lines if line["level"] in ("error", "critical")]


def _wait_until_ready(client: httpx.Client) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            if client.get("/readyz").status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise AssertionError("the service did not become ready")


def _delete_nothing(address: str, http_version: str, key: str = "") -> int:
    """Change something by a version of HTTP, as a proxy that says no more of itself; gives the status."""
    url = httpx.URL(address)
    with socket.create_connection((url.host, url.port or 80), timeout=10) as connection:
        path = f"/v1/collections/{COLLECTION}/images/nobody"
        connection.sendall(
            f"DELETE {path} HTTP/{http_version}\r\nHost: {url.netloc.decode()}\r\n{key}\r\n".encode()
        )
        return int(connection.recv(100).split()[1])


def _leave_in_the_middle(address: str) -> None:
    """Send half a request and go."""
    url = httpx.URL(address)
    path = f"/v1/collections/{COLLECTION}/search"
    with socket.create_connection((url.host, url.port or 80)) as connection:
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: x\r\n".encode())
        connection.sendall(b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{")


PATIENCE = 120.0

_HANGING_START = """
import sys, threading
from pathlib import Path
from app.cli.serve import bind, url_of
from app.cli.serve import serve_on
from app.encoding import queue
from app.settings import Settings
from training.models.onnx.encoder import OnnxEncoder

embed = OnnxEncoder.embed_texts

def embed_texts(self, texts):
    if "hang" in texts:
        threading.Event().wait()
    return embed(self, texts)

OnnxEncoder.embed_texts = embed_texts
queue._SHORTEST_PASS_LIMIT_S = 0.5
taken = bind("127.0.0.1", 0)
print(url_of(taken), flush=True)
access = {"open_reading": True, "admin_key": sys.argv[2]}
settings = Settings(home=Path(sys.argv[1]), device="cpu", threads=1, encode_deadline_s=0.5, **access)
serve_on(taken, settings)
"""


@pytest.mark.slow
def test_a_process_whose_encoder_hangs_for_good_ends_with_a_reason(indexed: Indexed) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _HANGING_START, str(indexed.settings.home), ADMIN_KEY],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        statuses = _search_until_it_ends(process, process.stdout.readline().strip())
        _, log = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == HANGING
    assert 504 in statuses
    *lines, last = log.splitlines()
    assert last == "recoquest: The encoder hangs: start the process again."
    assert "critical" in [json.loads(line)["level"] for line in lines]


def _search_until_it_ends(process: "subprocess.Popen[str]", address: str) -> list[int]:
    statuses: list[int] = []
    end = time.monotonic() + PATIENCE
    with httpx.Client(base_url=address, timeout=PATIENCE) as client:
        while process.poll() is None and time.monotonic() < end:
            try:
                answer = client.post(f"/v1/collections/{COLLECTION}/search", json={"text": "hang"})
                statuses.append(answer.status_code)
            except httpx.TransportError:
                time.sleep(0.1)
    return statuses


def test_serving_lets_waiting_threads_sleep(tmp_path: Path) -> None:
    # The libraries are loaded, and tell their settings, before the catalogue is found to be unusable.
    (tmp_path / "catalogue.sqlite3").mkdir()
    hidden = {"OMP_WAIT_POLICY", "OPENBLAS_NUM_THREADS"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    ended = subprocess.run(
        [sys.executable, "-c", "from app.cli.main import run; run()", "serve", "--port", "0"],
        env={
            **environment,
            "OMP_DISPLAY_ENV": "VERBOSE",
            "RECOQUEST_HOME": str(tmp_path),
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ended.returncode == 1, ended.stderr[-500:]
    # Of FAISS; torch, which has another, is not loaded.
    assert (
        ended.stderr.count("GOMP_SPINCOUNT = '0'")
        == ended.stderr.count("OPENMP DISPLAY ENVIRONMENT BEGIN")
        == 1
    )
