import http.server
import os
import runpy
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from tests.docker.dockerfile import ROOT

SCRIPT = str(ROOT / "docker" / "healthcheck.py")
fault = runpy.run_path(SCRIPT)["fault"]


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
