"""Threads of a forward pass, and none in other threads."""

import threading
from collections.abc import Callable

import pytest
import torch

from app.encoding.threads import ComputeThreads, cores, use_torch_threads


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


def test_passes_side_by_side_share_the_given_number() -> None:
    assert ComputeThreads.of(6) == ComputeThreads(lanes=4, side_by_side=1, alone=6)
    assert ComputeThreads.of(9) == ComputeThreads(lanes=4, side_by_side=2, alone=9)
    assert ComputeThreads.of(1) == ComputeThreads(lanes=1, side_by_side=1, alone=1)


def test_without_a_number_passes_share_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ComputeThreads.of().lanes == min(cores(), 4)
    monkeypatch.setattr("app.encoding.threads.cores", lambda: 64)
    assert ComputeThreads.of() == ComputeThreads(lanes=4, side_by_side=16, alone=8)


def test_a_number_holds_in_the_encoders_thread_only() -> None:
    torch.set_num_threads(1)

    def encode() -> int:
        use_torch_threads(3)
        return torch.get_num_threads()

    assert in_a_thread(encode) == 3
    assert in_a_thread(torch.get_num_threads) == 1
