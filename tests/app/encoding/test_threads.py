"""Threads of a forward pass: the given number, or the quickest; and none in other threads."""

import threading
from collections.abc import Callable

import pytest
import torch

from app.encoding.threads import ComputeThreads, quickest_count


@pytest.fixture(autouse=True)
def _own_count() -> object:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def in_a_thread(work: Callable[[], object]) -> object:
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


class Clock:
    """Seconds that pass only in the passes measured, by the threads they run on."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def pass_of(self, seconds: Callable[[int], float]) -> Callable[[], None]:
        def one() -> None:
            self.now += seconds(torch.get_num_threads())

        return one


@pytest.mark.parametrize("quickest", [1, 2, 4, 6])
def test_the_quickest_number_of_threads_is_found(quickest: int) -> None:
    clock = Clock()
    one = clock.pass_of(lambda count: 0.01 if count == quickest else 0.02)
    assert in_a_thread(lambda: quickest_count([one], 6, clock)) == quickest


def test_texts_and_images_weigh_the_same() -> None:
    clock = Clock()
    # A second thread makes short passes five times quicker, and costs long ones more than that saves.
    short = clock.pass_of(lambda count: 0.02 if count == 1 else 0.004)
    long = clock.pass_of(lambda count: 0.1 if count == 1 else 0.13)
    assert in_a_thread(lambda: quickest_count([short, long], 2, clock)) == 2


def test_slow_passes_are_measured_on_one_thread_and_two_and_no_more() -> None:
    clock, tried = Clock(), set[int]()

    def seconds(count: int) -> float:
        tried.add(count)
        return 3.0 / count

    assert in_a_thread(lambda: quickest_count([clock.pass_of(seconds)], 64, clock)) == 2
    assert tried == {1, 2}


def test_passes_side_by_side_share_the_given_number() -> None:
    threads = ComputeThreads(6)
    assert threads.lanes == 4
    seen = []

    def encode() -> None:
        for alone in (True, False, True):
            threads.enter(alone)
            seen.append(torch.get_num_threads())

    in_a_thread(encode)
    assert seen == [6, 1, 6]
    assert ComputeThreads(1).lanes == 1


def test_a_given_number_is_not_measured_and_holds_in_the_encoders_thread_only() -> None:
    torch.set_num_threads(1)
    threads = ComputeThreads(3)
    passes: list[int] = []

    def encode() -> int:
        threads.enter()
        threads.measure([lambda: passes.append(1)])
        return torch.get_num_threads()

    assert in_a_thread(encode) == 3
    assert passes == []
    assert in_a_thread(torch.get_num_threads) == 1


def test_a_thread_that_replaces_the_encoders_takes_the_measured_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("app.encoding.threads.quickest_count", lambda *_passes, **_how: 3)
    threads = ComputeThreads()
    in_a_thread(lambda: threads.measure([lambda: None]))

    def enter() -> int:
        threads.enter()
        return torch.get_num_threads()

    assert in_a_thread(enter) == 3
