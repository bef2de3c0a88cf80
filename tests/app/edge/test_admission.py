"""Admission: refusals before any work, places that come back, and one deadline from arrival to answer."""

import asyncio
import io
import json
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import SecretStr

from app.application import create_app
from app.edge.admission import Budget, ConcurrencyLimiter, Slot, Stages
from app.edge.operations import Operation, Work
from app.settings import Settings
from index.engine import SearchEngine
from tests.access import AS_ADMIN
from tests.app.conftest import COLLECTION, Indexed
from tests.app.health.test_readiness import Trouble
from tests.app.raw_http import PATIENCE, Running, echo, serving, statuses
from training.models.encoder import Encoder, load_encoder
from training.models.text_input import TextEmbeddings

SEARCH = f"/v1/collections/{COLLECTION}/search"
IMAGES = f"/v1/collections/{COLLECTION}/images"
_WRITES = (
    ("PATCH", f"{IMAGES}/image-1"),
    ("PUT", f"{IMAGES}/image-1"),
    ("POST", IMAGES),
    ("POST", "/v1/collections"),
    ("POST", "/v1/jobs"),
    ("POST", "/v1/models"),
    ("POST", f"/v1/collections/{COLLECTION}/generations/1/activate"),
    ("POST", f"/v1/collections/{COLLECTION}/feedback"),
)
PART = b'--x\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\n\r\n'
FORM = "multipart/form-data; boundary=x"

pytestmark = pytest.mark.anyio


def head(method: str, path: str, *fields: str) -> bytes:
    lines = (f"{method} {path} HTTP/1.1", "Host: localhost", "Connection: close", *fields)
    return "\r\n".join([*lines, "", ""]).encode()


def whole(method: str, path: str, body: Any) -> bytes:
    content = json.dumps(body).encode()
    key = f"Authorization: {AS_ADMIN['Authorization']}"
    fields = ("Content-Type: application/json", f"Content-Length: {len(content)}", key)
    return head(method, path, *fields) + content


SEARCHING = whole("POST", SEARCH, {"text": "two dogs"})
LARGE = head("POST", SEARCH, "Content-Type: application/json", "Content-Length: 90000") + (
    b'{"text": "two dogs"}'.ljust(90_000)
)


@asynccontextmanager
async def service(
    settings: Settings, load: Callable[[Path], Encoder] | None = None, *, shed: bool = True, **changes: Any
) -> AsyncIterator[Running]:
    application = create_app(settings.model_copy(update=changes), load=load)
    early = application.stages.shed if shed else None
    async with serving(application, lifespan="on", shed=early) as server:
        while statuses(await server.exchange(head("GET", "/readyz"))) != [200]:
            await asyncio.sleep(0.05)
        yield server


async def figure(server: Running, name: str) -> float:
    text = (await server.exchange(head("GET", "/metrics"))).decode()
    lines = [line for line in text.splitlines() if line.startswith(name)]
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


async def until_figure(server: Running, name: str, value: float) -> None:
    end = time.monotonic() + PATIENCE
    while await figure(server, name) != value:
        assert time.monotonic() < end, name
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("shed", [True, False], ids=["by the protocol", "by the application"])
async def test_searches_beyond_the_places_are_refused_before_their_body_has_come(
    indexed: Indexed, shed: bool
) -> None:
    trouble = Trouble()
    few = {"encode_queue_size": 2, "encode_batch_size": 1}
    async with service(indexed.settings, trouble.load, shed=shed, **few) as server:
        trouble.entered.clear()
        trouble.gate.clear()
        try:
            at_work = [asyncio.create_task(server.exchange(SEARCHING))]
            await asyncio.to_thread(trouble.entered.wait, PATIENCE)
            at_work += [asyncio.create_task(server.exchange(SEARCHING)) for _ in range(2)]
            await until_figure(server, "recoquest_encode_queue_depth", 2)
            # Nothing of the body is sent: the answer cannot have waited for it.
            for size in (90_000, 900):
                waiting = head("POST", SEARCH, "Content-Type: application/json", f"Content-Length: {size}")
                answer = await server.exchange(waiting)
                assert statuses(answer) == [429]
                assert b"\r\nretry-after: 1\r\n" in answer.lower()
                assert b"urn:recoquest:too-many-requests" in answer
            assert statuses(await server.exchange(head("GET", "/livez"))) == [200]
            assert statuses(await server.exchange(head("GET", "/v1/collections"))) == [200]
            assert await figure(server, 'recoquest_refused_total{kind="search"}') == 2
        finally:
            trouble.gate.set()
        for answer in await asyncio.gather(*at_work):
            assert statuses(answer) == [200]
        assert statuses(await server.exchange(SEARCHING)) == [200]


async def test_a_search_that_is_slow_to_send_keeps_no_other_out(indexed: Indexed) -> None:
    async with service(indexed.settings, encode_queue_size=1, encode_batch_size=1) as server:
        opened = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(20)]
        for _, writer in opened:
            writer.write(SEARCHING[:-5])
        # Longer than a body may take that counts as one that comes at once.
        await asyncio.sleep(1.0)
        for _ in range(3):
            assert statuses(await server.exchange(SEARCHING)) == [200]
        reader, writer = opened[0]
        writer.write(SEARCHING[-5:])
        assert statuses(await asyncio.wait_for(reader.read(), PATIENCE)) == [200]
        for _, writer in opened:
            writer.close()


@pytest.mark.parametrize("kind", ["declared", "chunked"])
async def test_bodies_beyond_the_budget_are_refused_until_others_are_done(
    indexed: Indexed, kind: str
) -> None:
    async with service(indexed.settings, max_bodies_bytes=100_000) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        fields = (f"Content-Type: {FORM}", "Content-Length: 160000")
        writer.write(head("POST", SEARCH, *fields) + PART.ljust(155_000))
        await asyncio.sleep(0.3)
        if kind == "declared":
            refused = head("POST", SEARCH, *fields)
        else:
            chunked = (f"Content-Type: {FORM}", "Transfer-Encoding: chunked")
            refused = head("POST", SEARCH, *chunked) + b"15f90\r\n" + PART.ljust(90_000) + b"\r\n"
        assert statuses(await server.exchange(refused)) == [429]
        # Small ones still pass.
        assert statuses(await server.exchange(SEARCHING)) == [200]
        writer.close()
        await until_figure(server, 'recoquest_requests_total{operation="search_images",status="499"}', 1)
        assert statuses(await server.exchange(LARGE)) == [200]


async def test_bodies_that_are_announced_and_do_not_come_leave_room_for_others(indexed: Indexed) -> None:
    async with service(indexed.settings, max_bodies_bytes=100_000) as server:
        opened = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(6)]
        for _, writer in opened:
            writer.write(head("POST", SEARCH, f"Content-Type: {FORM}", "Content-Length: 99000") + PART)
        await asyncio.sleep(0.1)
        assert statuses(await server.exchange(LARGE)) == [200]
        for _, writer in opened:
            writer.close()


@dataclass
class Machine:
    """A machine whose time a test lets pass."""

    now: float = 0.0

    def after(self, count: int, seconds: float) -> ConcurrencyLimiter:
        """The places of searches after so many, one after another, of so many seconds each."""
        positions = ConcurrencyLimiter("search", limit=80, deadline_s=10.0)
        for _ in range(count):
            position = positions.take()
            assert position is not None
            self.now += seconds
            positions.give_back(position, answered=True)
        return positions


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr("app.edge.admission.time.monotonic", lambda: machine.now)
    return machine


def test_what_an_overload_has_taken_is_forgotten_once_nothing_is_at_work(machine: Machine) -> None:
    positions = machine.after(40, 9.0)
    assert positions.take()
    assert not positions.take()
    positions = machine.after(40, 9.0)
    machine.now += 5.0
    assert None not in [positions.take() for _ in range(8)]


@pytest.mark.parametrize("body", [b"", b"a body that the route does not read"])
async def test_one_deadline_holds_from_arrival_to_answer_whatever_takes_the_time(
    own: Indexed, monkeypatch: pytest.MonkeyPatch, body: bytes
) -> None:
    opened = threading.Event()
    collections = SearchEngine.collections

    def stuck(engine: SearchEngine) -> Any:
        opened.wait(PATIENCE)
        return collections(engine)

    monkeypatch.setattr(SearchEngine, "collections", stuck)
    async with service(own.settings, encode_deadline_s=0.5) as server:
        # More than there are threads: those that wait for a thread have the same deadline.
        sent = head("GET", "/v1/collections", f"Content-Length: {len(body)}") + body
        try:
            for answer in await asyncio.gather(*(server.exchange(sent) for _ in range(30))):
                assert statuses(answer) == [504]
                assert b"urn:recoquest:deadline-passed" in answer
            for path in ("/livez", "/readyz"):
                assert statuses(await server.exchange(head("GET", path))) == [200]
        finally:
            opened.set()


async def test_writes_that_wait_for_the_lock_of_another_process_starve_no_search(own: Indexed) -> None:
    judgement = {"query": {"text": "two dogs"}, "hit": "image-1", "relevant": True}

    async with service(own.settings) as server:
        other = sqlite3.connect(own.settings.home / "catalogue.sqlite3", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        path = f"/v1/collections/{COLLECTION}/feedback"
        writes = [asyncio.create_task(server.exchange(whole("POST", path, judgement))) for _ in range(60)]
        await asyncio.sleep(0.5)
        for _ in range(5):
            assert statuses(await asyncio.wait_for(server.exchange(SEARCHING), PATIENCE)) == [200]
            assert statuses(await server.exchange(head("GET", "/readyz"))) == [200]
        # The lock was held all the time.
        assert other.in_transaction
        assert [write for write in writes if not write.done()]
        other.execute("ROLLBACK")
        other.close()
        answers = [statuses(answer) for answer in await asyncio.gather(*writes)]
        assert set(map(tuple, answers)) <= {(200,), (429,), (503,)}
        assert [200] in answers


async def test_who_may_not_write_is_told_before_a_body_has_come(indexed: Indexed) -> None:
    key = SecretStr("a key of sixteen characters")
    async with service(indexed.settings, admin_key=key) as server:
        for method, path in _WRITES:
            for kind in ("application/json", FORM):
                begun = head(method, path, f"Content-Type: {kind}", "Content-Length: 90000")
                answer = await server.exchange(begun)
                assert statuses(answer) == [401]
                assert b"urn:recoquest:authentication-needed" in answer


@pytest.mark.slow
async def test_every_search_at_ten_times_the_capacity_is_answered_or_refused_within_the_deadline(
    indexed: Indexed,
) -> None:
    def slow(bundle: Path) -> Encoder:
        encoder = load_encoder(bundle, "cpu")
        embed = encoder.embed_texts

        def embed_texts(texts: Sequence[str | Sequence[str]]) -> TextEmbeddings:
            time.sleep(0.1)
            return embed(texts)

        encoder.embed_texts = embed_texts  # type: ignore[method-assign]
        return encoder

    counts: Counter[int] = Counter()
    async with service(indexed.settings, slow, encode_queue_size=6, encode_batch_size=2) as server:
        # Two in a tenth of a second are twenty a second.
        requests = []
        for _ in range(400):
            requests.append(asyncio.create_task(server.exchange(SEARCHING)))
            await asyncio.sleep(0.005)
        for answer in await asyncio.gather(*requests):
            counts.update(statuses(answer))
        started = time.monotonic()
        assert statuses(await server.exchange(SEARCHING)) == [200]
        after = time.monotonic() - started
    assert set(counts) == {200, 429}
    assert counts.total() == 400
    assert counts[429] > counts[200] >= 8
    assert after < PATIENCE / 3


def full(settings: Settings) -> Stages:
    """The stages of an application while all places of searches are taken."""
    stages = create_app(settings.model_copy(update={"encode_queue_size": 1, "encode_batch_size": 1})).stages
    assert stages.searches.limiter.take()
    assert stages.searches.limiter.take()
    return stages


async def test_a_connection_carries_searches_that_are_refused_and_those_after_them(indexed: Indexed) -> None:
    stages = full(indexed.settings)
    kept, other = SEARCHING.replace(b"Connection: close\r\n", b""), head("GET", "/a")
    async with serving(echo, shed=stages.shed) as server:
        # A moment apart, at once, and in parts.
        assert statuses(await server.exchange(kept, kept, kept, other)) == [429, 429, 429, 200]
        assert statuses(await server.exchange(kept + kept + other)) == [429, 429, 200]
        assert statuses(await server.exchange(kept[:-5], kept[-5:], SEARCHING)) == [429, 429]
        stages.searches.limiter.give_back(Slot(0.0, 1), answered=False)
        assert statuses(await server.exchange(SEARCHING)) == [200]


@pytest.mark.parametrize(
    "request_",
    [
        head("GET", SEARCH),
        head("POST", IMAGES, "Content-Length: 2") + b"{}",
        head("POST", "/livez?/search HTTP/1.1", "Content-Length: 2") + b"{}",
        head("POST", SEARCH, "Origin: http://viewer", "Content-Length: 2") + b"{}",
        head("POST", SEARCH, f"Content-Type: {FORM}", "Content-Length: 2") + b"{}",
    ],
)
async def test_other_requests_go_the_usual_way(indexed: Indexed, request_: bytes) -> None:
    async with serving(echo, shed=full(indexed.settings).shed) as server:
        result = statuses(await server.exchange(request_))
        assert result
        assert result[0] != 429
        assert statuses(await server.exchange(SEARCHING)) == [429]


def test_each_kind_of_request_has_its_places_and_its_time(machine: Machine) -> None:
    stages, result = Stages(Settings(), lambda _: None), []
    for work in get_args(Work):
        for kind in (b"application/json", b"Multipart/form-data; boundary=x"):
            stage, size = stages.select(Operation(None, work), {b"content-type": kind})
            assert size == ((24 << 20) if b"form" in kind else (1 << 20))
            if stage is not None and stage.limiter.kind == work:
                room = sum(1 for _ in iter(stage.limiter.take, None))
                result.append((work, room, stage.limiter.deadline_s) if room else work)
    assert result == [
        ("search", 80, 10.5), ("image-search", 64, 10.5), "image-search", ("read", 256, 10.5), "read",
        ("write", 32, 60.0), "write", ("change", 32, 600.0), "change",
    ]  # fmt: skip


def test_refused_searches_are_summed_up_in_the_log(
    indexed: Indexed, machine: Machine, json_log: io.StringIO
) -> None:
    stages = full(indexed.settings)
    for machine.now in (1.0, 2.0, 5.9, 6.0):
        assert stages.shed({"method": "POST", "path": SEARCH, "headers": []}, False)
    lines = [json.loads(line) for line in json_log.getvalue().splitlines()]
    assert [(line["event"], line["number"]) for line in lines] == [
        ("searches were refused: too many are at work", number) for number in (1, 3)
    ]


def test_a_slow_machine_has_fewer_places(machine: Machine) -> None:
    positions = machine.after(100, 1.0)
    taken = [position for _ in range(80) if (position := positions.take()) is not None]
    assert len(taken) == 5
    # What is refused or wrong says nothing of the speed.
    for position in taken:
        positions.give_back(position, answered=False)
    assert len([position for _ in range(80) if positions.take() is not None]) == 5


def test_a_lone_request_is_admitted_however_slow_the_last_was(machine: Machine) -> None:
    positions = machine.after(50, 1000.0)
    assert positions.take() is not None
    assert positions.take() is None


def test_a_lone_body_gets_its_bytes_and_others_what_is_left() -> None:
    budget = Budget(100)
    assert budget.reserve(300)
    assert not budget.reserve(1)
    assert budget.reserve(0)
    budget.free(300)
    assert budget.reserve(60)
    assert not budget.reserve(60)
    assert budget.reserve(40)
