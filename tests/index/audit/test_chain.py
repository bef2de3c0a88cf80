"""The chain of the audit trail: whole after concurrent appends and kills, and every change is found."""

import hashlib
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.exc import DatabaseError

from index.audit.chain import Trail
from index.audit.event import MAX_OBJECTS, Actor, Detail, Event, canonical, id_digest, in_parts, query_digest
from index.audit.listing import Selection, all_events, read_events
from index.audit.verify import prune_trail, verify_trail
from index.catalogue import Catalogue, open_catalogue
from tests.index.audit.trails import KEY, READER, some_events, trail_of, verify
from tests.index.homes import in_read


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a catalogue with a trail."""
    path = tmp_path_factory.mktemp("trail") / "catalogue.db"
    opened = open_catalogue(f"sqlite:///{path}")
    trail_of(opened, 12)
    opened.close()
    return path


def _without_triggers(path: Path) -> sqlite3.Connection:
    """Open a catalogue like somebody who changes it behind the service's back."""
    connection = sqlite3.connect(path, isolation_level=None)
    triggers = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall()
    for (name,) in triggers:
        if name.startswith("audit_"):
            connection.execute(f"DROP TRIGGER {name}")
    return connection


def _verify_file(path: Path, head: str | None = None) -> tuple[str | None, int | None]:
    with closing(open_catalogue(f"sqlite:///{path}")) as opened:
        result = verify(opened, head)
    return result.fault, result.sequence


@pytest.fixture
def copied(written: Path, tmp_path: Path) -> Path:
    """The file of a catalogue whose trail may be changed."""
    return Path(shutil.copy(written, tmp_path / "copied.db"))


def test_an_event_has_a_known_hash_that_other_programs_compute(catalogue: Catalogue) -> None:
    trail_of(catalogue, 1)
    with catalogue.read() as session:
        (entry,) = all_events(session, Selection())
    line = json.loads(entry.line())
    hash_, ids = line.pop("hash"), line.pop("ids")
    # As docs/operate/security.md has it: sorted keys, no spaces, UTF-8.
    compact = json.dumps(line, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    assert hashlib.sha256(compact.encode()).hexdigest() == hash_
    assert ids == ["image-0", "image-0"]
    assert line["previous"] == "0" * 64
    assert hash_ == "fc694955d3316cd0486c4a6e8ced66db23e0ce38c81e1406506b0448d8d708cb"


def test_every_event_is_read_in_order_page_by_page(catalogue: Catalogue) -> None:
    trail_of(catalogue, 7)
    assert verify(catalogue).events == 7
    with catalogue.read() as session:
        first = read_events(session, Selection(collection="ward"), limit=4)
        rest = read_events(session, Selection(action="search"), after=4, limit=4)
        none = read_events(session, Selection(collection="other"), limit=4)
        timed = read_events(
            session, Selection(since="2026-01-01T00:00:02", until="2026-01-01T00:00:04"), limit=9
        )
    assert [entry.record["sequence"] for entry in first + rest] == [1, 2, 3, 4, 5, 6, 7]
    assert none == []
    assert [entry.record["request"] for entry in timed] == ["r2", "r3"]
    assert first[1].record["query"]["text"] == ["Größe des Ergusses \n\x1f😀"]


def test_queries_are_kept_as_it_is_set(catalogue: Catalogue) -> None:
    (event,) = some_events(1)
    assert event.record(KEY, "none")["query"] is None
    hashed = event.record(KEY, "hash")["query"]
    assert hashed["text"] == [query_digest(KEY, "Größe des Ergusses \n\x1f😀")]
    assert "Erguss" not in canonical(event.record(KEY, "hash"))
    assert query_digest(KEY, "a") != query_digest(b"other" * 7, "a")
    names: dict[str, dict[str, str]] = {}
    replace(event, objects=["x" * 255, "x" * 256], query=None).record(KEY, "text", names)
    assert [len(one["name"]) for one in names.values()] == [255]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_events SET action = 'view' WHERE sequence = 2",
        "UPDATE audit_events SET sequence = 9 WHERE sequence = 3",
        "DELETE FROM audit_events WHERE sequence = 3",
        "DELETE FROM audit_events",
        "UPDATE audit_names SET name = 'x'",
        "UPDATE audit_head SET sequence = 1",
        "DELETE FROM audit_head",
    ],
)
def test_the_database_refuses_changes(catalogue: Catalogue, statement: str) -> None:
    trail_of(catalogue, 3)
    with pytest.raises((DatabaseError, Exception), match="append-only"), catalogue.write() as session:
        session.execute(text(statement))
    assert verify(catalogue).fault is None


def test_sqlite_refuses_to_replace_an_event(copied: Path) -> None:
    with (
        closing(sqlite3.connect(copied)) as connection,
        pytest.raises(sqlite3.IntegrityError, match="append-only"),
    ):
        connection.execute(
            "INSERT OR REPLACE INTO audit_events SELECT sequence, time, 'view', collection, event, hash "
            "FROM audit_events WHERE sequence = 2"
        )


_COLUMNS = ("time", "action", "collection", "event", "hash")


@pytest.mark.slow
@given(
    sequence=st.integers(1, 12),
    column=st.sampled_from(_COLUMNS),
    place=st.integers(0, 10_000),
    letter=st.sampled_from("0aZ \u00e9\x01"),
)
def test_a_changed_letter_of_any_column_is_found(
    written: Path, sequence: int, column: str, place: int, letter: str
) -> None:
    path = written.with_name("changed.db")
    shutil.copy(written, path)
    connection = _without_triggers(path)
    statement = f"SELECT {column} FROM audit_events WHERE sequence = {sequence}"
    value = connection.execute(statement).fetchone()[0]
    place %= len(value)
    changed = value[:place] + letter + value[place + 1 :]
    connection.execute(f"UPDATE audit_events SET {column} = ? WHERE sequence = ?", (changed, sequence))
    connection.close()
    fault, result = _verify_file(path)
    if changed == value:
        assert fault is None
    else:
        assert fault is not None
        # The last one's hash is held against the record of the end, which names no event.
        assert result == sequence


@given(sequence=st.integers(1, 12), forged=st.booleans())
def test_a_missing_event_is_found(written: Path, sequence: int, forged: bool) -> None:
    path = written.with_name("missing.db")
    shutil.copy(written, path)
    connection = _without_triggers(path)
    connection.execute("DELETE FROM audit_events WHERE sequence = ?", (sequence,))
    if forged:
        connection.execute("UPDATE audit_events SET sequence = sequence - 1 WHERE sequence > ?", (sequence,))
    connection.close()
    assert _verify_file(path)[1] == sequence


@pytest.mark.parametrize(
    ("statements", "message"),
    [
        (["DELETE FROM audit_events WHERE sequence > 9"], "Event 10 is missing: the trail was cut off."),
        (["DELETE FROM audit_head"], "The record of the trail's end is missing."),
        (["UPDATE audit_head SET hash = 'other'"], "The record of the trail's end differs from its last"),
        (["UPDATE audit_names SET name = 'image-99' WHERE name = 'image-5'"], "The id 'image-99' of"),
        (
            [
                "UPDATE audit_head SET (pruned, pruned_hash) = "
                "(SELECT sequence, hash FROM audit_events WHERE sequence = 4)",
                "DELETE FROM audit_events WHERE sequence <= 4",
            ],
            "Events up to 4 are gone, and no event says that they were pruned.",
        ),
    ],
)
def test_a_cut_tail_another_id_and_a_pruning_without_its_event_are_found(
    copied: Path, statements: list[str], message: str
) -> None:
    with closing(_without_triggers(copied)) as connection:
        for statement in statements:
            connection.execute(statement)
    fault, _ = _verify_file(copied)
    assert (fault or "")[: len(message)] == message


def test_a_tail_that_was_cut_with_its_record_is_found_by_a_noted_hash(copied: Path) -> None:
    with closing(open_catalogue(f"sqlite:///{copied}")) as opened:
        noted = verify(opened).hash
    with closing(_without_triggers(copied)) as connection:
        connection.execute("DELETE FROM audit_events WHERE sequence > 9")
        connection.execute(
            "UPDATE audit_head SET (sequence, hash) = "
            "(SELECT sequence, hash FROM audit_events WHERE sequence = 9)"
        )
    assert _verify_file(copied)[0] is None
    fault, _ = _verify_file(copied, noted)
    assert fault == f"No event has the hash {noted}, which was to be one of the trail's."


def test_a_noted_hash_is_found_after_more_events(catalogue: Catalogue) -> None:
    trail = trail_of(catalogue, 3)
    noted = verify(catalogue).hash
    trail.append(some_events(2))
    assert verify(catalogue, noted).fault is None
    assert verify(catalogue, "f" * 64).fault is not None


def test_erased_ids_are_named_by_their_keyed_hash_alone(catalogue: Catalogue) -> None:
    trail = trail_of(catalogue, 3)
    with catalogue.write() as session:
        trail.forget(session, "ward", ["image-1"])
        trail.append_in(
            session, [Event(action="erase", actor=READER, collection="ward", objects=["image-1"], keyed=True)]
        )
    # An event that another process had queued.
    with catalogue.read() as session:
        named = list(all_events(session, Selection()))[1]
    trail.append(some_events(2)[1:])
    assert named.ids[0] is None
    with catalogue.read() as session:
        entries = list(all_events(session, Selection()))
    assert [entry.ids for entry in entries[1:]] == [
        (None, "image-0"),
        ("image-2", "image-0"),
        (None,),
        (None, "image-0"),
    ]
    assert entries[3].record["objects"] == [id_digest(KEY, "ward", "image-1")]
    assert verify(catalogue).fault is None


@pytest.mark.slow
def test_erased_ids_and_an_event_that_comes_meanwhile_never_wait_for_each_other(postgresql_url: str) -> None:
    catalogue = open_catalogue(postgresql_url)
    trail, late = trail_of(catalogue), some_events(1)
    appending = Thread(target=trail.append, args=(late,))
    waiting = text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    with catalogue.write() as session:
        trail.forget(session, "ward", ["image-0"])
        appending.start()
        waits = False
        while not waits:
            assert appending.is_alive()
            with catalogue.read() as reader:
                waits = bool(reader.execute(waiting).scalar_one())
        trail.append_in(session, [Event(action="erase", actor=READER, collection="ward", keyed=True)])
    appending.join()
    with catalogue.read() as session:
        assert [entry.record["action"] for entry in all_events(session, Selection())] == ["erase", "search"]
    catalogue.close()


def test_pruned_events_are_told_of_and_the_chain_goes_on(catalogue: Catalogue) -> None:
    trail = trail_of(catalogue, 5)
    trail.append(some_events(3, day=2))
    noted = verify(catalogue).hash
    event = Event(action="prune", actor=Actor("command", "root"))
    pruned = prune_trail(trail, "2026-01-02T00:00:00", event)
    assert pruned.events == 5
    result = verify(catalogue, noted)
    assert (result.fault, result.pruned, result.events) == (None, 5, 4)
    with catalogue.read() as session:
        entries = list(all_events(session, Selection()))
        names = session.execute(text("SELECT name FROM audit_names ORDER BY name")).scalars().all()
    details = {"before": "2026-01-02T00:00:00", "up_to": 5, "hash": pruned.hash, "events": 5}
    assert (entries[-1].record["action"], entries[-1].record["details"]) == ("prune", details)
    assert names == ["image-0", "image-1", "image-2"]
    assert prune_trail(trail, "2026-01-02T00:00:00", event).events == 0
    assert verify(catalogue).events == 4


def test_an_event_of_an_aborted_transaction_leaves_no_gap(catalogue: Catalogue) -> None:
    trail = trail_of(catalogue, 2)
    with pytest.raises(RuntimeError), catalogue.write() as session:
        trail.append_in(session, some_events(2))
        raise RuntimeError
    trail.append(some_events(1))
    assert verify(catalogue).events == 3


def _begin(url: str, name: str, batches: int) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.index.audit.appending", url, name, str(batches)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_processes_append_to_one_chain(catalogue: Catalogue, catalogue_url: str) -> None:
    trail = trail_of(catalogue, 1)
    writers = [_begin(catalogue_url, name, 25) for name in ("a", "b")]
    for _ in range(10):
        trail.append(some_events(1))
    counts = [int(writer.communicate(timeout=120)[0].split()[-1]) for writer in writers]
    assert [writer.returncode for writer in writers] == [0, 0]
    result = verify(catalogue)
    assert (result.fault, result.events) == (None, sum(counts) + 11)
    with catalogue.read() as session:
        records = [entry.record for entry in all_events(session, Selection())]
    for name, count in zip("ab", counts, strict=True):
        numbers = [record["details"]["number"] for record in records if record["actor"]["id"] == name]
        assert numbers == list(range(1, count + 1))


def test_a_killed_process_leaves_what_it_acknowledged(catalogue: Catalogue, catalogue_url: str) -> None:
    trail = trail_of(catalogue, 1)
    writer = _begin(catalogue_url, "a", 100_000)
    assert writer.stdout is not None
    output = [int(writer.stdout.readline()) for _ in range(7)]
    writer.send_signal(signal.SIGKILL)
    output += [int(line) for line in writer.stdout.read().split()]
    writer.wait(30)
    trail.append(some_events(1))
    result = verify(catalogue)
    assert result.fault is None
    assert result.events >= output[-1] + 2


def test_an_empty_trail_is_whole(catalogue: Catalogue) -> None:
    assert verify(catalogue).fault is None
    Trail(catalogue, KEY).append([])
    assert verify(catalogue).events == 0


def _named_trail(catalogue: Catalogue) -> Trail:
    """A trail with an erasure, a failure and an example that no search names as a hit."""
    trail = trail_of(catalogue, 4)
    with catalogue.write() as session:
        trail.forget(session, "ward", ["image-2"])
        erased = Event(action="erase", actor=READER, collection="ward", objects=["image-2"], keyed=True)
        trail.append_in(session, [erased])
    view = Event(action="view", actor=READER, collection="ward", objects=["x" * 300], outcome="failure")
    liked = Event(
        action="search",
        actor=READER,
        collection="ward",
        query={"like": ["liked"], "filter_ids": ["y" * 300]},
        time="2026-01-01T00:00:09.000000+00:00",
    )
    trail.append([view, liked])
    return trail


@pytest.mark.parametrize(
    ("statement", "event"),
    [
        ("DELETE FROM audit_names WHERE name = 'image-1'", 2),
        ("DELETE FROM audit_names WHERE name = 'liked'", 7),
        ("DELETE FROM audit_names WHERE name IS NULL", 3),
        ("DELETE FROM audit_names", 1),
        ("UPDATE audit_names SET name = NULL WHERE name = 'image-3'", 4),
        ("UPDATE audit_names SET name = NULL", 1),
    ],
)
def test_ids_that_are_taken_away_without_an_erasure_are_found(
    catalogue: Catalogue, statement: str, event: int
) -> None:
    _named_trail(catalogue)
    assert verify(catalogue).fault is None
    with catalogue.write() as session:
        # Neither database refuses these: a pruning deletes ids, and an erasure takes them away.
        session.execute(text(statement))
    result = verify(catalogue)
    assert result.fault is not None
    assert result.sequence == event


def test_a_trail_is_whole_after_a_pruning_of_its_erasures(catalogue: Catalogue) -> None:
    trail = _named_trail(catalogue)
    trail.append(some_events(3, day=3))
    prune_trail(trail, "2026-01-02", Event(action="prune", actor=READER))
    assert verify(catalogue).fault is None


def test_another_key_is_told_from_a_changed_id(catalogue: Catalogue) -> None:
    trail_of(catalogue, 3)
    result = in_read(catalogue, verify_trail, key=b"o" * 32)
    assert result.fault is not None
    assert "none of the ids fits" in result.fault


@pytest.mark.parametrize(
    ("ids", "former", "others"),
    [
        (["c"], True, {"b", "a"}),
        (["a"], False, {"b", "c"}),
        (["b"], True, set()),
        (["y-600"], True, {"x-600"}),
        (["z"], True, set()),
    ],
)
def test_moves_lead_to_the_other_ids_of_an_image(
    catalogue: Catalogue, ids: list[str], former: bool, others: set[str]
) -> None:
    """The image called a became b, then c; another one came to be called b afterwards."""
    trail = Trail(catalogue, KEY)
    pairs = [["a", "b"], ["b", "c"], [part for n in range(700) for part in (f"x-{n}", f"y-{n}")]]
    for objects in pairs:
        moved: dict[str, Detail] = {"operation": "index", "moved": len(objects) // 2}
        trail.append(
            [Event(action="change", actor=READER, collection="ward", objects=objects, details=moved)]
        )
    assert in_read(catalogue, trail.other_ids, ["ward"], ids, former=former) == others


def _event(count: int) -> Event:
    return Event(
        action="search",
        actor=READER,
        collection="ward",
        objects=[f"image-{number}" for number in range(count)],
        query={"text": ["a"], "filter_ids": ["held"]},
        details={"searches": 7},
        time="2026-01-02T00:00:00.000000+00:00",
    )


@given(st.integers(0, 3 * MAX_OBJECTS + 1))
def test_parts_name_every_image_once_and_in_order(count: int) -> None:
    event = _event(count)
    parts = list(in_parts(event, iter(event.objects)))
    assert [name for part in parts for name in part.objects] == event.objects
    assert all(len(part.objects) <= MAX_OBJECTS for part in parts)
    assert len(parts) == max(1, -(-count // MAX_OBJECTS))
    assert [part.query for part in parts] == [event.query, *[None] * (len(parts) - 1)]
    if len(parts) == 1:
        assert parts == [replace(event, objects=tuple(event.objects))]
    else:
        assert [part.details["part"] for part in parts] == list(range(1, len(parts) + 1))
        assert [part.details.get("parts") for part in parts] == [*[None] * (len(parts) - 1), len(parts)]
        assert len({part.details["series"] for part in parts}) == 1
        assert {part.details["searches"] for part in parts} == {7}


def test_parts_are_made_as_they_are_read() -> None:
    read = 0

    def names() -> Iterator[str]:
        nonlocal read
        for number in range(1_000_000):
            read += 1
            yield str(number)

    parts = in_parts(_event(0), names())
    for _ in range(3):
        next(parts)
    assert read <= 5 * MAX_OBJECTS


def test_all_images_of_a_large_event_are_in_the_trail(catalogue: Catalogue) -> None:
    event = _event(2 * MAX_OBJECTS + 5)
    Trail(catalogue, KEY).append([event, _event(1)])
    assert verify(catalogue).events == 4
    entries = in_read(catalogue, read_events, Selection(), limit=10)
    assert [name for entry in entries[:3] for name in entry.ids] == event.objects
    assert [entry.record["object_count"] for entry in entries] == [MAX_OBJECTS, MAX_OBJECTS, 5, 1]


def test_ids_in_filters_stay_as_long_as_an_event_names_them(catalogue: Catalogue) -> None:
    trail = Trail(catalogue, KEY)
    trail.append([replace(_event(0), time="2026-01-01T00:00:00.000000+00:00"), _event(1)])
    assert prune_trail(trail, "2026-01-02", Event(action="prune", actor=READER)).events == 1
    with catalogue.read() as session:
        names = session.connection().exec_driver_sql("SELECT name FROM audit_names").scalars().all()
    assert set(names) == {"held", "image-0"}
