"""Decoding in processes: limits hold, the task of a lost one is done once more, and no slot is used twice."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest
from PIL import Image

from tests.training.data.hostile import deep_png, encoded, slow_bmp
from tests.training.imaging.processes import sleeping
from tests.training.imaging.processes.decoding import (
    MIB,
    PATIENCE,
    WORKER,
    cpu_ticks,
    is_at_work,
    is_there,
    small,
    status,
    wait_until,
)
from training.common import workers
from training.common.errors import ImageError, ImageTooLargeError
from training.common.workers import LossReason
from training.imaging.images import ImageLimits
from training.imaging.processes.pool import (
    Answer,
    DecodeOutcome,
    DecodersBusyError,
    DecodersClosedError,
    DecoderStartError,
    DecodingPool,
    DecodingTimeoutError,
    PoolLimits,
    Priority,
    Task,
)
from training.imaging.processes.worker import decode_task
from training.imaging.resizing import Square

MakePool = Callable[..., DecodingPool]


class Observed:
    """Keeps what a pool tells."""

    def __init__(self) -> None:
        self.outcomes: list[DecodeOutcome] = []
        self.restarts: list[LossReason] = []

    def decoded(self, outcome: DecodeOutcome) -> None:
        self.outcomes.append(outcome)

    def decoder_restarted(self, reason: LossReason) -> None:
        self.restarts.append(reason)


@pytest.fixture
def observed() -> Observed:
    return Observed()


@pytest.fixture
def make_pool(observed: Observed) -> Iterator[MakePool]:
    """Makes a pool of real processes, closed behind the test; limits by keyword."""
    pools = []

    def make(**limits: Any) -> DecodingPool:
        usual: dict[str, Any] = {"worker": WORKER, "processes": 1, "waiting": 8, "deadline_s": 60.0}
        usual |= {"memory_bytes": 560 * MIB, "cpu_s": 30}
        pools.append(DecodingPool(PoolLimits(**(usual | limits)), observed))
        return pools[-1]

    yield make
    for pool in pools:
        pool.close()


def decode(content: bytes) -> Task:
    return decode_task(content, ImageLimits(), square=Square(16, "crop"))


def submit(pool: DecodingPool, content: bytes, priority: Priority = Priority.SEARCH) -> Future[Answer]:
    return pool.submit(decode(content), priority)


def the_process(pool: DecodingPool) -> int:
    wait_until(lambda: len(pool.pids) == 1)
    return pool.pids[0]


def test_a_file_that_is_refused_costs_no_process(make_pool: MakePool, observed: Observed) -> None:
    pool = make_pool()
    pid = the_process(pool)
    with pytest.raises(ImageError, match="The PNG image is damaged"):
        submit(pool, small()[:60]).result(PATIENCE)
    with pytest.raises(ImageTooLargeError, match="the limit is 50 megapixels"):
        submit(pool, encoded(Image.new("1", (9_000, 6_000)), "PNG")).result(PATIENCE)
    assert (observed.outcomes, observed.restarts, pool.pids) == (["refused", "too-large"], [], [pid])


@pytest.mark.slow
def test_an_image_takes_no_more_memory_than_it_may(make_pool: MakePool, observed: Observed) -> None:
    enough, little = make_pool(), make_pool(memory_bytes=200 * MIB)
    pid, refusing = the_process(enough), the_process(little)
    submit(enough, deep_png()).result(PATIENCE)
    assert enough.pids == [pid]
    assert status(pid, "VmHWM") < 450 * MIB
    with pytest.raises(ImageTooLargeError, match=r"^Decoding the image takes more memory than the 210 MB "):
        submit(little, deep_png()).result(PATIENCE)
    assert submit(little, small()).result(PATIENCE).outcome == "done"
    assert (observed.outcomes, observed.restarts) == (["done", "memory", "done"], ["memory"])
    assert little.pids != [refusing]
    assert not is_there(refusing)


@pytest.mark.slow
def test_a_file_that_takes_too_long_costs_its_own_task_alone(make_pool: MakePool, observed: Observed) -> None:
    pool = make_pool(cpu_s=1)
    slow, content = submit(pool, slow_bmp()), deep_png(5_000, 2_000)
    with pytest.raises(ImageTooLargeError, match="takes more than 1 seconds of work"):
        slow.result(PATIENCE)
    for _ in range(20):
        submit(pool, content).result(PATIENCE)
    assert (observed.outcomes, observed.restarts) == (["cpu", *["done"] * 20], ["cpu"])


@pytest.mark.slow
def test_a_task_past_its_deadline_is_killed(make_pool: MakePool, observed: Observed) -> None:
    pool = make_pool(deadline_s=1.0)
    pid = the_process(pool)
    with pytest.raises(DecodingTimeoutError):
        submit(pool, slow_bmp()).result(PATIENCE)
    wait_until(lambda: pool.pids not in ([], [pid]))
    assert (observed.outcomes, observed.restarts) == (["wall"], ["wall"])
    assert not is_there(pid)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [1, 2])
def test_a_task_whose_process_is_killed_is_done_by_the_next_and_refused_the_second_time(
    make_pool: MakePool, observed: Observed, kills: int
) -> None:
    pool = make_pool()
    slow = submit(pool, slow_bmp(15_000_000))
    after = submit(pool, small())
    killed: list[int] = []
    for _ in range(kills):
        wait_until(lambda: pool.pids not in ([], killed[-1:]))
        killed.extend(pool.pids)
        wait_until(partial(is_at_work, killed[-1], cpu_ticks(killed[-1])))
        os.kill(killed[-1], signal.SIGKILL)
    if kills == 1:
        assert slow.result(PATIENCE).outcome == "done"
    else:
        with pytest.raises(ImageError, match=r"its decoder broke down; save it anew\.$"):
            slow.result(PATIENCE)
    assert after.result(PATIENCE).outcome == "done"
    assert observed.outcomes == [["done"], ["crash"]][kills - 1] + ["done"]
    assert observed.restarts == ["crash"] * kills


@pytest.mark.parametrize(
    ("sent", "content", "reason"),
    [
        (signal.SIGKILL, small(), "crash"),
        pytest.param(signal.SIGSTOP, small(), "stopped", marks=pytest.mark.slow),
        # More than a socket holds.
        pytest.param(signal.SIGSTOP, slow_bmp(15_000_000), "stopped", marks=pytest.mark.slow),
    ],
    ids=["killed", "stopped", "stopped before a large file"],
)
def test_a_process_that_is_killed_or_stopped_idle_costs_no_task(
    make_pool: MakePool, observed: Observed, sent: signal.Signals, content: bytes, reason: LossReason
) -> None:
    pool = make_pool()
    pid = the_process(pool)
    os.kill(pid, sent)
    wait_until(lambda: sent == signal.SIGSTOP or not is_there(pid))
    assert submit(pool, content).result(PATIENCE).outcome == "done"
    assert (observed.outcomes, observed.restarts) == (["done"], [reason])
    assert not is_there(pid)


@pytest.mark.slow
def test_a_process_that_is_stopped_at_work_costs_no_task(make_pool: MakePool, observed: Observed) -> None:
    pool = make_pool(processes=2)
    wait_until(lambda: len(pool.pids) == 2)
    idle = {pid: cpu_ticks(pid) for pid in pool.pids}
    slow = submit(pool, slow_bmp(15_000_000))
    wait_until(lambda: any(is_at_work(pid, idle[pid]) for pid in idle))
    for pid in idle:
        os.kill(pid, signal.SIGSTOP)
    assert slow.result(PATIENCE).outcome == "done"
    assert not any(is_there(pid) for pid in idle)
    assert observed.restarts == ["stopped"] * len(observed.restarts)


def test_a_process_that_waits_for_a_disk_or_stops_for_a_moment_is_left_alone(
    make_pool: MakePool, observed: Observed
) -> None:
    pool = make_pool(worker=sleeping.__name__)
    pid = the_process(pool)
    task = Task({"task": "sleep", "seconds": 4 * workers._LOOK_S}, 0)
    waiting = pool.submit(task, Priority.SEARCH)
    wait_until(lambda: pool.busy == 1)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.2)
    os.kill(pid, signal.SIGCONT)
    assert waiting.result(PATIENCE).outcome == "done"
    assert (observed.restarts, pool.pids) == ([], [pid])


@contextmanager
def stopped(pool: DecodingPool, processes: int = 1) -> Iterator[list[Future[Answer]]]:
    """Tasks that stay at work for as long as the block runs, one for each process."""
    wait_until(lambda: len(pool.pids) == processes)
    pids = pool.pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        futures = [submit(pool, small()) for _ in pids]
        wait_until(lambda: pool.busy == processes)
        yield futures
    finally:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


@pytest.mark.usefixtures("stops_last")
def test_a_caller_that_leaves_gives_no_slot_back(make_pool: MakePool) -> None:
    pool = make_pool(processes=2)
    with stopped(pool, processes=2) as first:
        pids = pool.pids
        for future in first:
            assert not future.cancel()
        later = [submit(pool, small()) for _ in range(6)]
        done, _ = wait(later, 0.5, FIRST_COMPLETED)
        assert not done
        assert not any(future.running() for future in later)
        assert (pool.busy, pool.waiting, pool.pids) == (2, 6, pids)
    wait([*first, *later], PATIENCE)
    assert {future.result().outcome for future in (*first, *later)} == {"done"}


@pytest.mark.usefixtures("stops_last")
def test_a_task_whose_caller_has_gone_is_not_done(make_pool: MakePool, observed: Observed) -> None:
    pool = make_pool()
    with stopped(pool):
        left = [submit(pool, small()) for _ in range(4)]
        for future in left:
            assert future.cancel()
        last = submit(pool, small("blue"))
    assert last.result(PATIENCE).outcome == "done"
    assert observed.outcomes == ["done", "done"]


@pytest.mark.usefixtures("stops_last")
def test_searches_come_before_uploads_and_those_before_thumbnails(make_pool: MakePool) -> None:
    pool = make_pool()
    done: list[Priority] = []

    def submit(priority: Priority) -> Future[Answer]:
        future = pool.submit(decode(small()), priority)
        future.add_done_callback(lambda _: done.append(priority))
        return future

    with stopped(pool):
        futures = [submit(Priority(number)) for number in (2, 1, 0, 1, 0)]
    wait(futures, PATIENCE)
    assert done == [0, 0, 1, 1, 2]


@pytest.mark.usefixtures("stops_last")
def test_a_full_queue_refuses_what_comes_last_in_it(make_pool: MakePool) -> None:
    pool = make_pool(waiting=2)
    with stopped(pool):
        thumbnails = [pool.submit(decode(small()), Priority.THUMBNAIL) for _ in range(2)]
        with pytest.raises(DecodersBusyError, match="Too many images are waiting"):
            pool.submit(decode(small()), Priority.THUMBNAIL)
        search = submit(pool, small())
        with pytest.raises(DecodersBusyError):
            thumbnails[1].result(PATIENCE)
    assert search.result(PATIENCE).outcome == thumbnails[0].result(PATIENCE).outcome == "done"


@pytest.mark.usefixtures("stops_last")
def test_a_task_that_waits_too_long_is_dropped(make_pool: MakePool, observed: Observed) -> None:
    pool = make_pool(deadline_s=0.5)
    with stopped(pool):
        waiting = submit(pool, small())
        with pytest.raises(DecodingTimeoutError):
            waiting.result(PATIENCE)
    assert observed.outcomes == ["wall"]


def test_where_no_process_starts_a_task_fails_and_the_next_is_tried(
    make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as broken:
        broken.setattr(sys, "executable", "/nowhere/python")
        pool = make_pool()
        with pytest.raises(DecoderStartError, match="Images cannot be decoded now"):
            submit(pool, small()).result(PATIENCE)
    assert pool.busy == 0
    wait_until(lambda: _is_done(pool))


def _is_done(pool: DecodingPool) -> bool:
    try:
        return submit(pool, small()).result(PATIENCE).outcome == "done"
    except DecoderStartError:
        return False


def test_closing_ends_whatever_is_at_work(make_pool: MakePool) -> None:
    pool = make_pool(processes=2)
    wait_until(lambda: len(pool.pids) == 2)
    pids = pool.pids
    idle = [cpu_ticks(pid) for pid in pids]
    futures = [submit(pool, slow_bmp()) for _ in range(4)]
    wait_until(lambda: all(map(is_at_work, pids, idle)))
    pool.close()
    assert all(future.done() for future in futures)
    for future in futures:
        with pytest.raises(DecodersClosedError):
            future.result()
    with pytest.raises(DecodersClosedError):
        submit(pool, small())
    assert not any(is_there(pid) for pid in pids)
