"""Several processes of one `recoquest serve`: each answers, none is missed, and all keep the same limits."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from index.audit.verify import verify_trail
from tests.access import ADMIN_KEY, OPEN_ENVIRONMENT
from tests.app.conftest import COLLECTION, Indexed
from tests.app.images.test_uploads import IMAGES, picture
from tests.training.imaging.processes.decoding import wait_until

pytestmark = pytest.mark.slow

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
        ports = (self.url.port, stream.get_extra_info("client_addr")[1])
        taken = _inodes(lambda local, remote, _: (local, remote) == ports)
        return next(process for process in self.processes if taken & _sockets(process)), client

    @contextmanager
    def each(self) -> Iterator[dict[int, httpx.Client]]:
        """A client for each process."""
        wait_until(lambda: len(self._answering()) == 2)
        with ExitStack() as opened:
            results: dict[int, httpx.Client] = {}
            while set(results) != self.processes:
                process, client = self.client_of_any()
                opened.callback(client.close)
                results[process] = client
            yield results

    @property
    def lead(self) -> int | None:
        """The process that holds the lock of the one that leads."""
        rows = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        held = {int(row[4]) for row in rows if row[1] == "POSIX" and row[-2:] == ["0", "0"]}
        return next(iter(held & self.processes), None)

    def _answering(self) -> set[int]:
        listening = _inodes(lambda local, _, state: state == "0A" and local == self.url.port)
        return {process for process in self.processes if listening & _sockets(process)}


def _inodes(expected: Callable[[int, int, str], bool]) -> set[str]:
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ports = [(int(row[1].split(":")[1], 16), int(row[2].split(":")[1], 16)) for row in rows]
    return {
        row[9] for row, (local, remote) in zip(rows, ports, strict=True) if expected(local, remote, row[3])
    }


def _sockets(process: int) -> set[str]:
    result = set()
    with suppress(FileNotFoundError):
        for descriptor in Path(f"/proc/{process}/fd").iterdir():
            with suppress(FileNotFoundError):
                result.add(str(descriptor.readlink()).removeprefix("socket:[").removesuffix("]"))
    return result


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


@pytest.fixture(scope="module")
def home(make_indexed: Callable[..., Indexed]) -> Indexed:
    return make_indexed()


@pytest.fixture(scope="module")
def running(home: Indexed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """One service for all tests that leave it as it was."""
    service = Service(home, tmp_path_factory.mktemp("running") / "log", max_bodies_bytes=128 << 10)
    yield service
    service.parent.kill()
    service.parent.wait()


@pytest.fixture
def pair(running: Service) -> Iterator[list[httpx.Client]]:
    """A client of each process."""
    with running.each() as clients:
        yield list(clients.values())


def _value(client: httpx.Client, pattern: str) -> float:
    """A figure of the service, as a process adds it up; 0: it is not there."""
    return sum(
        float(result) for result in re.findall(rf"^{pattern} (\S+)$", client.get("/metrics").text, re.M)
    )


def test_what_one_process_writes_the_next_search_of_any_finds(pair: list[httpx.Client]) -> None:
    for number, (one, other) in enumerate((pair, pair[::-1])):
        name = f"late-{number}"
        sent = {"image": ("late.png", picture(number), "image/png")}
        made = one.post(IMAGES, data={"records": json.dumps([{"id": name}])}, files=sent)
        assert made.status_code in (200, 201), made.text
        assert name in _ids(other)
        assert name in _ids(one)
        assert other.delete(f"{IMAGES}/{name}").status_code in (200, 204)
        assert name not in _ids(one) + _ids(other)


def test_pages_go_on_in_another_process(pair: list[httpx.Client]) -> None:
    whole, walked = _ids(pair[0]), []
    query: dict[str, object] = {"text": "two dogs", "limit": 5, "cursor": True}
    for number in range(10):
        page = pair[number % 2].post(_SEARCH, json=query).json()
        walked += [hit["id"] for hit in page["hits"]]
        if page["next_cursor"] is None:
            break
        query["cursor"] = page["next_cursor"]
    assert walked == whole
    assert len(walked) > 20


def test_wrong_keys_count_together(pair: list[httpx.Client]) -> None:
    refusals = r'recoquest_key_refusals_total\{reason="wrong"\}'
    before = _value(pair[0], refusals)
    answers = [
        client.get("/v1/jobs", headers={"Authorization": f"Bearer {number}-a-guess"}).status_code
        for number, client in enumerate(pair * 5)
    ]
    # Waits are seconds, so that few of them may have passed on a slow machine.
    assert answers[:5] == [401] * 5
    assert 429 in answers[5:]
    assert all(client.get("/v1/jobs").status_code == 200 for client in pair)
    wait_until(lambda: _value(pair[1], refusals) - before == answers.count(401))


def test_a_request_that_another_process_has_done_is_not_done_again(pair: list[httpx.Client]) -> None:
    key = {"Idempotency-Key": uuid.uuid4().hex}
    first, second = (client.post("/v1/jobs", json={"kind": "tidy"}, headers=key) for client in pair)
    assert first.status_code == second.status_code == 202
    assert first.json()["id"] == second.json()["id"]


def test_bodies_of_all_processes_have_one_budget(running: Service, pair: list[httpx.Client]) -> None:
    content = b" " * 160_000
    head = f"POST {_SEARCH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

    def are_refused() -> bool:
        with socket.create_connection((running.url.host, running.url.port)) as slow:
            slow.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content[:-1])
            # Of those that come at once, any may be the one that is taken.
            time.sleep(0.5)
            return [_sends_a_body(client, content) for client in pair] == [429, 429]

    wait_until(are_refused)
    wait_until(lambda: [_sends_a_body(client, content) for client in pair] == [422, 422])


def _sends_a_body(client: httpx.Client, content: bytes) -> int:
    return client.post(_SEARCH, content=content, headers={"Content-Type": "application/json"}).status_code


def test_figures_are_those_of_all_processes(pair: list[httpx.Client]) -> None:
    count = r'recoquest_requests_total\{operation="search_images",status="200"\}'
    before = max(_value(client, count) for client in pair)
    wait_until(lambda: _value(pair[0], count) == _value(pair[1], count))
    before = _value(pair[0], count)
    for client in (pair[0], pair[0], pair[1]):
        _ids(client)
    # One process has its own figures at once, and those of the other within seconds.
    for client in pair:
        wait_until(lambda client=client: _value(client, count) == before + 3)  # type: ignore[misc]
    assert _value(pair[0], "recoquest_home_free_bytes") > 0
    assert _value(pair[0], "recoquest_connections") >= 2


def test_the_audit_trail_is_one_chain(home: Indexed, pair: list[httpx.Client]) -> None:
    with home.read() as session:
        before = verify_trail(session).events
    for client in pair * 5:
        _ids(client)

    def verified() -> bool:
        with home.read() as session:
            result = verify_trail(session)
        assert result.fault is None
        return result.events >= before + 10

    wait_until(verified)


def test_a_killed_process_is_replaced_while_the_other_answers(start: Callable[..., Service]) -> None:
    service = start()
    count = r'recoquest_requests_total\{operation="search_images",status="200"\}'
    with service.each() as clients:
        killed = service.lead
        assert killed is not None
        (other,) = set(clients) - {killed}
        for _ in range(3):
            _ids(clients[killed])
        counted = _value(clients[killed], count)
        os.kill(killed, signal.SIGKILL)
        wait_until(lambda: killed not in service.processes)
        assert service.client_of_any()[0] == other
        assert _ids(clients[other])
        wait_until(lambda: service.lead == other)
        assert _value(clients[other], count) >= counted
    with service.each() as clients:
        assert other in clients
        assert len(clients) == 2
        assert len({tuple(_ids(client)) for client in clients.values()}) == 1
        (new,) = set(clients) - {other}
        assert _value(clients[new], count) >= counted
    assert service.log.read_text().count("a process ended and is replaced") == 1
    service.parent.send_signal(signal.SIGTERM)
    assert service.parent.wait(15) == 128 + signal.SIGTERM


def test_no_process_outlives_its_parent(start: Callable[..., Service]) -> None:
    service = start()
    with service.each() as clients:
        service.parent.kill()
        wait_until(lambda: not any(_sockets(process) for process in clients))
