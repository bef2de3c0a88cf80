"""The service in a process of its own: it starts, answers, survives odd connections, and ends."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from sqlalchemy import select

from app.cli.errors import HANGING
from app.engine import open_engine
from index.catalogue.tables import AuditEventRow
from tests.access import AS_ADMIN
from tests.app.conftest import COLLECTION, Indexed
from tests.app.edge.test_server import Service, errors, running


@pytest.mark.slow
def test_addresses_that_a_caller_invents_stand_beside_its_own(indexed: Indexed) -> None:
    with running(indexed) as service, httpx.Client(base_url=service.url, timeout=10) as client:
        for number in range(56):
            said = {"Authorization": f"Bearer wrong-{number}", "X-Forwarded-For": f"10.7.{number}.1"}
            status = client.get("/v1/jobs", headers=said).status_code
        assert status == 429
        service.stop()
    with open_engine(indexed.settings).home.catalogue.read() as session:
        events = [json.loads(event) for event in session.scalars(select(AuditEventRow.event))]
    addresses = {event["address"] for event in events if event["action"] == "sign-in"}
    assert "127.0.0.1 for 10.7.0.1" in addresses
    assert "10.7.0.1 for 10.7.0.1" not in addresses


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


PATIENCE = 120.0

# A search for "hang" never comes back from the encoder.
_HANGS = """
import threading
from app.encoding import queue
from training.models.onnx.encoder import OnnxEncoder

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
        _, log = service.process.communicate(timeout=PATIENCE)
        assert service.process.returncode == HANGING
    assert 504 in statuses
    *lines, last = log.splitlines()
    assert last == "recoquest: The encoder hangs: start the process again."
    assert "critical" in [json.loads(line)["level"] for line in lines]


def _search_until_it_ends(service: Service) -> list[int]:
    statuses: list[int] = []
    end = time.monotonic() + PATIENCE
    with httpx.Client(base_url=service.url, timeout=PATIENCE) as client:
        while service.process.poll() is None and time.monotonic() < end:
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
