"""Events are written to the audit trail in batches, or to a file of dead letters."""

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from structlog.testing import capture_logs

from app.audit.recorder import AuditUnavailableError, Recorder
from app.health.doctor import examine_home
from app.settings import Settings
from index.audit.chain import Trail
from index.audit.dead_letters import count_dead_letters, dead_letters_of, keep_dead_letter
from index.audit.event import Actor, Event
from index.audit.listing import Selection, all_events
from index.audit.verify import verify_trail
from index.catalogue import Catalogue, open_catalogue
from index.errors import CatalogueBusyError
from tests.app.commands import plain_output as said_by
from tests.app.conftest import COLLECTION, Indexed

HERE = f"/v1/collections/{COLLECTION}"


class _Stuck(Trail):
    """A trail of a catalogue that takes no writes at first."""

    refusals = 0

    def append(self, events: Any) -> None:
        """Refuse some batches."""
        if _Stuck.refusals:
            _Stuck.refusals -= 1
            raise CatalogueBusyError("busy")
        super().append(events)


def _recorder(trail: Trail, counts: list[int]) -> Recorder:
    return Recorder(trail, counts.append, lambda: counts.append(-1), _letters(counts), patience_s=0.3)


def _letters(counts: list[int]) -> Callable[[Trail, Event, Exception], Event]:
    return partial(keep_dead_letter, Path("no folder/letters"), lambda: counts.append(-2))


@pytest.mark.anyio
async def test_a_batch_that_is_refused_is_written_later(catalogue: Catalogue) -> None:
    _Stuck.refusals, counts = 2, list[int]()
    recorder = _recorder(_Stuck(catalogue, b"k" * 32), counts)
    for number in range(7):
        await recorder.record(
            Event(action="view", actor=Actor("anonymous"), details={"n": number}), durable=False
        )
    deadline = time.monotonic() + 10
    while len(recorder) and time.monotonic() < deadline:
        time.sleep(0.02)
    recorder.close()
    assert counts == [-1, -1, 7]
    with catalogue.read() as session:
        assert verify_trail(session).events == 7


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_batch_search_names_every_hit_in_transactions_of_bounded_size(catalogue: Catalogue) -> None:
    counts = list[int]()
    recorder = Recorder(
        Trail(catalogue, b"k" * 32), counts.append, lambda: counts.append(-1), _letters(counts), 60
    )
    event = Event(action="search", actor=Actor("anonymous"), objects=[str(one) for one in range(100_000)])
    await recorder.record(event, durable=True)
    recorder.close()
    assert counts == [20] * 5
    with catalogue.read() as session:
        assert verify_trail(session, key=b"k" * 32).events == 100
        named = [name for entry in all_events(session, Selection()) for name in entry.ids]
    assert named == event.objects


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_queue_with_many_ids_makes_requests_wait(catalogue: Catalogue) -> None:
    _Stuck.refusals, counts = 10**6, list[int]()
    recorder = _recorder(_Stuck(catalogue, b"k" * 32), counts)
    event = Event(action="search", actor=Actor("anonymous"), objects=["a"] * 500_000)
    await recorder.record(event, durable=False)
    with pytest.raises(AuditUnavailableError):
        await recorder.record(event, durable=False)
    assert len(recorder) == 500
    _Stuck.refusals = 0
    recorder.close()


@pytest.mark.anyio
async def test_a_full_queue_takes_no_events_and_those_that_are_lost_are_counted(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.audit.recorder._CLOSE_SECONDS", 0.05)
    monkeypatch.setattr(_Stuck, "refusals", 10**6)
    recorder = _recorder(_Stuck(catalogue, KEY), [])
    for _ in range(5000):
        await recorder.record(_event(0), durable=False)
    with pytest.raises(AuditUnavailableError, match="takes no events: nothing was answered"):
        await recorder.record(_event(0), durable=False)
    with capture_logs() as lines:
        recorder.close()
    lost = {"event": "events of the audit trail are lost", "count": 5000, "log_level": "error"}
    assert [line for line in lines if "count" in line] == [lost]


def test_a_change_whose_event_is_not_written_is_said_to_be(own: Indexed, service: TestClient) -> None:
    catalogue = open_catalogue(own.settings.catalogue_url)
    _Stuck.refusals = 10**6
    counts: list[int] = []
    application: Any = service.app
    before = application.state.services
    stuck = _recorder(_Stuck(catalogue, b"k" * 32), counts)
    application.state.services = replace(before, recorder=stuck)
    answer = service.delete(f"{HERE}/images/image-4")
    assert answer.status_code == 503
    assert answer.json()["type"] == "urn:recoquest:audit-unavailable"
    assert answer.json()["detail"].startswith(
        "The change is made, but the audit trail does not take its event"
    )
    assert answer.headers["Retry-After"] == "5"
    # Searches continue, and their events wait.
    assert service.post(f"{HERE}/search", json={"text": "a boat"}).status_code == 200
    assert len(stuck) == 2
    _Stuck.refusals = 0
    stuck.close()
    with catalogue.read() as session:
        assert verify_trail(session).events == 2
    application.state.services = before
    catalogue.close()


KEY = b"k" * 32


def _event(number: int, **details: Any) -> Event:
    return Event(
        action="view",
        actor=Actor("anonymous"),
        collection="ward",
        objects=[f"image-{number}"],
        details={"n": number, **details},
    )


async def _record(recorder: Recorder, events: list[Event]) -> None:
    for event in events[:-1]:
        await recorder.record(event, durable=False)
    await recorder.record(events[-1], durable=True)


def test_an_event_that_is_never_taken_is_kept_and_the_others_are_written(
    catalogue: Catalogue, tmp_path: Path
) -> None:
    written, letters = list[int](), list[int]()
    dead = partial(keep_dead_letter, dead_letters_of(tmp_path), lambda: letters.append(1))
    trail = Trail(catalogue, KEY)
    recorder = Recorder(trail, written.append, lambda: None, dead, 60)
    # No JSON has such a value.
    events = [_event(0), _event(1), _event(2, score=object()), _event(3)]
    asyncio.run(_record(recorder, events))
    recorder.close()
    assert (sum(written), letters) == (3, [1])
    with catalogue.read() as session:
        assert verify_trail(session, key=KEY).fault is None
        entries = list(all_events(session, Selection()))
    assert [entry.record["details"].get("n") for entry in entries] == [0, 1, None, 3]
    (line,) = dead_letters_of(tmp_path).read_bytes().splitlines()
    assert entries[2].record["details"] == {"operation": "dead letter", "sha256": sha256(line).hexdigest()}
    letter = json.loads(line)
    assert letter["error"] == "TypeError"
    assert letter["event"]["details"]["n"] == 2
    assert letter["event"]["objects"]
    # A letter is erased as easily as an event: it names no image.
    assert b"image-2" not in line
    assert dead_letters_of(tmp_path).stat().st_mode & 0o777 == 0o600


def test_a_letter_that_cannot_be_kept_is_told_of_once_and_kept_later(
    catalogue: Catalogue, tmp_path: Path
) -> None:
    """A folder has the name of the file, until two attempts after the line in the log."""
    path = dead_letters_of(tmp_path)
    path.mkdir()
    failed = list[int]()

    def fail() -> None:
        failed.append(1)
        if len(failed) == 8:
            path.rmdir()

    dead = partial(keep_dead_letter, path, lambda: None)
    recorder = Recorder(Trail(catalogue, KEY), lambda _: None, fail, dead, 60)
    with capture_logs() as lines:
        asyncio.run(_record(recorder, [_event(0, score=object()), _event(1)]))
        recorder.close()
    expected = "a dead letter of the audit trail cannot be written"
    assert [line["error"] for line in lines if line["event"] == expected] == ["IsADirectoryError"]
    assert count_dead_letters(tmp_path) == 1
    with catalogue.read() as session:
        assert [entry.record["details"].get("n") for entry in all_events(session, Selection())] == [None, 1]


def test_events_that_the_database_refuses_are_kept_too(catalogue: Catalogue, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "c.db") as connection:
        connection.execute(
            "CREATE TRIGGER refused BEFORE INSERT ON audit_events WHEN NEW.event LIKE '%\"n\":1%' "
            "BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
    dead = partial(keep_dead_letter, dead_letters_of(tmp_path), lambda: None)
    recorder = Recorder(Trail(catalogue, KEY), lambda _: None, lambda: None, dead, 60)
    asyncio.run(_record(recorder, [_event(number) for number in range(3)]))
    recorder.close()
    with catalogue.read() as session:
        assert verify_trail(session, key=KEY).fault is None
    assert count_dead_letters(tmp_path) == 1
    assert b"image-1" not in dead_letters_of(tmp_path).read_bytes()


def test_verify_and_doctor_tell_of_them(own: Indexed) -> None:
    home = own.settings.home
    own.run("search", COLLECTION, "a")
    assert count_dead_letters(home) == 0
    dead_letters_of(home).write_bytes(b"{}\n{}\n")
    verified = said_by(own.run("audit", "verify"))
    assert "1 events are as they were written" in verified
    assert "2 events could not be written to the trail" in verified
    result = examine_home(Settings(home=home))
    assert result.state == "doubtful"
    assert "did not take 2 events" in result.found
