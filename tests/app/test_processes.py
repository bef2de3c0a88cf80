"""Several processes of one `recoquest serve`: each answers, none is missed, and all keep the same limits."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.access import ADMIN_KEY, OPEN_ENVIRONMENT
from tests.app.conftest import COLLECTION, Indexed

PATIENCE_S = 60.0
_COMMAND = [sys.executable, "-c", "from app.cli.main import run; run()"]
_SEARCH = f"/v1/collections/{COLLECTION}/search"


class Service:
    """`recoquest serve --processes 2` on a free port."""

    def __init__(self, indexed: Indexed, log: Path, **settings: object) -> None:
        given = {f"RECOQUEST_{name.upper()}": str(value) for name, value in settings.items()}
        home = str(indexed.settings.home)
        environment = {**os.environ, **OPEN_ENVIRONMENT, "RECOQUEST_HOME": home, "RECOQUEST_DEVICE": "cpu"}
        self.log = log
        with log.open("w") as written:
            self.parent = subprocess.Popen(
                [*_COMMAND, "serve", "--port", "0", "--processes", "2"],
                stderr=written,
                env={**environment, "RECOQUEST_REFRESH_S": "0.2", **given},
            )
        wait_until(lambda: "\n" in log.read_text())
        self.url = httpx.URL(log.read_text().split("\n")[0].split()[-1])

    @property
    def processes(self) -> set[int]:
        """Those that answer."""
        parent = self.parent.pid
        return {int(pid) for pid in Path(f"/proc/{parent}/task/{parent}/children").read_text().split()}

    def client_of_any(self, key: str = ADMIN_KEY) -> tuple[int, httpx.Client]:
        """A client with one connection, and the process that has taken it."""
        client = httpx.Client(
            base_url=self.url, timeout=PATIENCE_S, headers={"Authorization": f"Bearer {key}"}
        )
        stream = client.get("/livez").extensions["network_stream"]
        return self._holder(stream.get_extra_info("client_addr")[1]), client

    @contextmanager
    def each(self) -> Iterator[dict[int, httpx.Client]]:
        """A client for each process."""
        wait_until(lambda: len(self._answering()) == 2)
        with ExitStack() as opened:
            found: dict[int, httpx.Client] = {}
            while set(found) != self.processes:
                process, client = self.client_of_any()
                opened.callback(client.close)
                found[process] = client
            yield found

    def _answering(self) -> set[int]:
        listening = _inodes(lambda local, _, state: state == "0A" and local == self.url.port)
        return {process for process in self.processes if listening & _sockets(process)}

    def _holder(self, port: int) -> int:
        taken = _inodes(lambda local, remote, _: (local, remote) == (self.url.port, port))
        return next(process for process in self.processes if taken & _sockets(process))


def _inodes(wanted: Callable[[int, int, str], bool]) -> set[str]:
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ports = [(int(row[1].split(":")[1], 16), int(row[2].split(":")[1], 16)) for row in rows]
    return {row[9] for row, (local, remote) in zip(rows, ports, strict=True) if wanted(local, remote, row[3])}


def _sockets(process: int) -> set[str]:
    found = set()
    with suppress(FileNotFoundError):
        for descriptor in Path(f"/proc/{process}/fd").iterdir():
            with suppress(FileNotFoundError):
                found.add(str(descriptor.readlink()).removeprefix("socket:[").removesuffix("]"))
    return found


def wait_until(true: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.fixture
def start(own: Indexed, tmp_path: Path) -> Iterator[Callable[..., Service]]:
    started: list[Service] = []

    def begin(**settings: object) -> Service:
        started.append(Service(own, tmp_path / f"log-{len(started)}", **settings))
        return started[-1]

    yield begin
    for service in started:
        service.parent.kill()
        service.parent.wait()


def _ids(client: httpx.Client) -> list[str]:
    answer = client.post(_SEARCH, json={"text": "two dogs", "limit": 100})
    assert answer.status_code == 200, answer.text
    return [hit["id"] for hit in answer.json()["hits"]]


@pytest.mark.slow
def test_a_killed_process_is_replaced_while_the_other_answers(start: Callable[..., Service]) -> None:
    service = start()
    with service.each() as clients:
        (killed, _), (other, client) = clients.items()
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: killed not in service.processes)
        assert service.client_of_any()[0] == other
        assert _ids(client)
    with service.each() as clients:
        assert other in clients
        assert len(clients) == 2
        assert len({tuple(_ids(client)) for client in clients.values()}) == 1
    assert service.log.read_text().count("a process ended and is replaced") == 1
    service.parent.send_signal(signal.SIGTERM)
    assert service.parent.wait(15) == 128 + signal.SIGTERM


@pytest.mark.slow
def test_no_process_outlives_its_parent(start: Callable[..., Service]) -> None:
    service = start()
    with service.each() as clients:
        service.parent.kill()
        wait_until(lambda: not any(_sockets(process) for process in clients))
