"""Order of the waiting line: probes, searches, uploads; and uploads are served under a load of searches."""

import time
from typing import Literal

import pytest

from app.encoding.queue import EncodingTimeoutError, Job, Kind, Priority, PriorityQueue, QueueFullError

Name = Literal["probe", "search", "upload"]
_PRIORITIES = {"probe": Priority.PROBE, "search": Priority.SEARCH, "upload": Priority.UPLOAD}


def put(line: PriorityQueue, *names: Name, kind: Kind = "text", seconds: float = 60.0) -> list[Job]:
    now = time.monotonic()
    jobs = [Job(kind, name, now + seconds, _PRIORITIES[name]) for name in names]
    for job in jobs:
        line.add(job, now)
    return jobs


def _many(name: Name, count: int) -> list[Name]:
    return [name] * count


def payloads(jobs: list[Job]) -> list[object]:
    return [job.payload for job in jobs]


def test_searches_go_before_uploads_that_came_first_and_probes_before_both() -> None:
    line = PriorityQueue(8)
    put(line, "upload", "upload", "search", "probe", "search")
    assert payloads(line.take(16)) == ["probe", "search", "search"]
    assert payloads(line.take(16)) == ["upload", "upload"]
    assert line.take(16) == []
    assert len(line) == 0


def test_uploads_are_served_in_part_while_searches_never_end() -> None:
    line = PriorityQueue(64)
    put(line, *_many("upload", 8))
    served: list[object] = []
    for _ in range(15):
        put(line, *_many("search", 4))
        served += payloads(line.take(4))
    assert served.count("upload") == 3
    assert served[:17] == ["search"] * 16 + ["upload"]


def test_without_searches_uploads_get_whole_batches() -> None:
    line = PriorityQueue(64)
    put(line, *_many("upload", 8))
    assert len(line.take(8)) == 8


def test_uploads_fill_only_places_of_their_own() -> None:
    line = PriorityQueue(2)
    put(line, "upload", "upload")
    with pytest.raises(QueueFullError, match="uploads"):
        put(line, "upload")
    put(line, "search", "search", "probe")
    with pytest.raises(QueueFullError, match="searches"):
        put(line, "search")


def test_one_kind_makes_a_batch_and_the_others_keep_their_order() -> None:
    line = PriorityQueue(8)
    first = put(line, "search", kind="image") + put(line, "search") + put(line, "search", kind="image")
    head = line.head()
    assert head is first[0]
    assert line.count(head) == 2
    assert line.take(16) == [first[0], first[2]]
    assert line.take(16) == [first[1]]


def test_queries_past_their_deadline_are_failed_and_forgotten() -> None:
    line = PriorityQueue(8)
    (late,) = put(line, "upload", seconds=0.0)
    (waits,) = put(line, "search")
    line.drop_stale(time.monotonic() + 1)
    with pytest.raises(EncodingTimeoutError):
        late.future.result(0)
    assert line.take(16) == [waits]


def test_the_oldest_text_takes_with_it_those_of_about_its_length() -> None:
    line = PriorityQueue(16)
    texts = ["x" * length for length in (50, 10, 90, 48, 12, 53, 88, 11)]
    jobs = [Job("text", text, time.monotonic() + 60.0) for text in texts]
    for job in jobs:
        line.add(job, time.monotonic())
    assert [len(str(job.payload)) for job in line.take(3)] == [50, 48, 53]
    assert [len(str(job.payload)) for job in line.take(3)] == [10, 11, 12]
    assert [len(str(job.payload)) for job in line.take(3)] == [90, 88]


def test_no_text_waits_longer_than_those_before_it_take_passes() -> None:
    line = PriorityQueue(64)
    odd = Job("text", "x" * 5_000, time.monotonic() + 60.0)
    put(line, *_many("search", 20))
    line.add(odd, time.monotonic())
    passes = 0
    while odd not in line.take(4):
        passes += 1
        assert passes < 20
        # As many of the usual length come as have gone.
        put(line, *_many("search", 4))
    assert passes == 5


def test_fewer_texts_than_a_batch_holds_keep_their_order() -> None:
    line = PriorityQueue(8)
    jobs = [Job("text", "x" * length, time.monotonic() + 60.0) for length in (9, 1, 5)]
    for job in jobs:
        line.add(job, time.monotonic())
    assert line.take(3) == jobs
