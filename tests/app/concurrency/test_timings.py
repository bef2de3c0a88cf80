"""Times of the parts of a request."""

import asyncio
import time

import pytest

from app.concurrency import Timings, collected_timings, record, record_waited, timed

MS = 1_000_000


def test_parts_that_run_side_by_side_count_once() -> None:
    timings = Timings(
        [
            ("decode", 0, 10 * MS),
            ("decode", 5 * MS, 20 * MS),
            ("decode", 30 * MS, 31 * MS),
            ("encode", 10 * MS, 12 * MS),
        ]
    )
    assert timings.milliseconds() == {"decode": 21.0, "encode": 2.0}


def test_the_time_of_a_search_is_not_counted_again_as_the_catalogues() -> None:
    timings = Timings(
        [("catalogue", 0, 4 * MS), ("catalogue", 10 * MS, 20 * MS), ("search", 11 * MS, 19 * MS)]
    )
    assert timings.milliseconds() == {"search": 8.0, "catalogue": 6.0}


def test_a_wait_ends_where_the_work_begins() -> None:
    with collected_timings() as timings:
        record_waited("encode", 0.5, 0.2)
    (queue, start, middle), (encode, begin, end) = timings.spans
    assert (queue, encode) == ("queue", "encode")
    assert middle - start == pytest.approx(300 * MS, abs=MS)
    assert end - begin == pytest.approx(200 * MS, abs=MS)
    assert abs(begin - middle) < 50 * MS


def test_work_longer_than_the_whole_leaves_no_wait() -> None:
    with collected_timings() as timings:
        record_waited("decode", 0.1, 0.3)
    assert [name for name, _, _ in timings.spans] == ["decode"]
    assert timings.milliseconds()["decode"] == pytest.approx(100, abs=1)


def test_tasks_that_a_block_begins_are_collected_and_nothing_outside_is() -> None:
    async def work() -> None:
        with timed("catalogue"):
            await asyncio.sleep(0.01)

    async def run() -> Timings:
        with collected_timings() as timings:
            await asyncio.gather(asyncio.create_task(work()), work())
        await work()
        return timings

    assert len(asyncio.run(run()).spans) == 2
    record("search", 1.0)


def test_so_many_parts_are_kept_and_no_more() -> None:
    with collected_timings() as timings:
        for _ in range(2000):
            record("encode", 0.001)
    assert len(timings.spans) == 1000
    assert timings.spans[0][2] <= time.time_ns()
