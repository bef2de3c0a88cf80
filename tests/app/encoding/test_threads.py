"""Threads of a forward pass: the given number, or the quickest; and none in other threads."""

import threading
import time
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


def pass_of(seconds: Callable[[int], float]) -> Callable[[], None]:
    return lambda: time.sleep(seconds(torch.get_num_threads()))


@pytest.mark.parametrize("quickest", [1, 2, 4, 6])
def test_the_quickest_number_of_threads_is_found(quickest: int) -> None:
    one = pass_of(lambda count: 0.002 if count == quickest else 0.04)
    assert in_a_thread(lambda: quickest_count([one], 6)) == quickest


def test_texts_and_images_weigh_the_same() -> None:
    # A second thread makes short passes five times quicker, and long ones slower by more than that saves.
    short, long = pass_of(lambda n: 0.02 if n == 1 else 0.004), pass_of(lambda n: 0.1 if n == 1 else 0.13)
    assert in_a_thread(lambda: quickest_count([short, long], 2)) == 2


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


def test_a_thread_that_replaces_the_encoders_takes_the_measured_number() -> None:
    threads = ComputeThreads()
    in_a_thread(lambda: threads.measure([pass_of(lambda count: 0.001 if count == 1 else 0.02)]))

    def enter() -> int:
        threads.enter()
        return torch.get_num_threads()

    torch.set_num_threads(4)
    assert in_a_thread(enter) == 1
