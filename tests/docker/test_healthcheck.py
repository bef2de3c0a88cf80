import http.server
import os
import runpy
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.heartbeat import Heartbeat, count_workers
from app.settings import Settings
from tests.docker.dockerfile import ROOT

SCRIPT = str(ROOT / "docker" / "healthcheck.py")
_CHECKS = runpy.run_path(SCRIPT)
fault, fault_of_worker = _CHECKS["fault"], _CHECKS["fault_of_worker"]


class Service(http.server.ThreadingHTTPServer):
    """Answers every request with one status and remembers the paths."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.status = 200
        self.paths: list[str] = []


class Answer(http.server.BaseHTTPRequestHandler):
    server: Service

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        self.send_response(self.server.status)
        self.end_headers()
        self.wfile.write(b"the catalogue is locked")

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def service() -> Iterator[Service]:
    with Service() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("variable", ["http_proxy", "HTTP_PROXY", "all_proxy"])
def test_a_ready_service_is_healthy_whatever_proxy_is_set(
    service: Service, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:9")
    assert fault(service.server_port) is None
    assert service.paths == ["/readyz"]


def test_a_service_that_is_not_ready_is_unhealthy_and_says_why(service: Service) -> None:
    service.status = 503
    assert fault(service.server_port) == "/readyz answered 503: the catalogue is locked"


def test_no_answer_is_unhealthy(service: Service) -> None:
    port = service.server_port
    service.server_close()
    assert f"no answer from port {port}" in fault(port)


@pytest.mark.parametrize(("status", "code"), [(200, 0), (503, 1)])
def test_the_exit_status_is_what_the_engine_looks_at(service: Service, status: int, code: int) -> None:
    service.status = status
    environment = os.environ | {"RECOQUEST_PORT": str(service.server_port)}
    run = subprocess.run([sys.executable, SCRIPT], env=environment, capture_output=True, text=True)
    assert run.returncode == code
    assert ("503" in run.stderr) is (status == 503)


def test_a_worker_is_healthy_as_long_as_it_says_that_it_is_there(tmp_path: Path) -> None:
    heartbeat = Heartbeat(Settings(home=tmp_path))
    assert "no worker of this container" in fault_of_worker(tmp_path)
    heartbeat.beat()
    assert fault_of_worker(tmp_path) is None
    assert _exit_code(tmp_path) == 0
    (file,) = (tmp_path / "workers").iterdir()
    # Another container's worker on the same volume.
    file.with_name("elsewhere:7").touch()
    long_ago = time.time() - _CHECKS["SILENT_SECONDS"] - 1
    os.utime(file, (long_ago, long_ago))
    assert count_workers(Settings(home=tmp_path)) == 1
    assert "has not looked for jobs for 31 seconds" in fault_of_worker(tmp_path)
    assert _exit_code(tmp_path) == 1


def _exit_code(home: Path) -> int:
    environment = os.environ | {"RECOQUEST_HOME": str(home)}
    return subprocess.run([sys.executable, SCRIPT, "worker"], env=environment, capture_output=True).returncode
