import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from index.vectors.view import ReadWriteLock


def test_readers_share() -> None:
    lock = ReadWriteLock()
    inside = threading.Barrier(3, timeout=5)

    def read() -> None:
        with lock.reading():
            inside.wait()

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert not inside.broken


def test_a_writer_is_alone_and_is_not_starved() -> None:
    lock = ReadWriteLock()
    state = {"writing": 0, "overlaps": 0}
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            with lock.reading():
                state["overlaps"] += state["writing"]

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for _ in range(20):
        with lock.writing():
            state["writing"] = 1
            time.sleep(0.0005)
            state["writing"] = 0
    done.set()
    for reader in readers:
        reader.join(5)
        assert not reader.is_alive()
    assert state["overlaps"] == 0


def test_an_error_frees_the_lock() -> None:
    lock = ReadWriteLock()
    for _ in range(2):
        try:
            with lock.writing():
                raise KeyError
        except KeyError:
            pass
        try:
            with lock.reading():
                raise KeyError
        except KeyError:
            pass


def test_a_writer_that_is_interrupted_while_it_waits_lets_readers_in(monkeypatch: pytest.MonkeyPatch) -> None:
    lock = ReadWriteLock()
    waiting, interrupted = threading.Event(), threading.Event()

    def wait_for(_: Callable[[], bool]) -> bool:
        waiting.set()
        while not interrupted.is_set():
            lock._changed.wait(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(lock._changed, "wait_for", wait_for)

    def write() -> None:
        with suppress(KeyboardInterrupt), lock.writing():
            raise AssertionError("the writer was interrupted")

    def read() -> None:
        with lock.reading():
            pass

    with lock.reading():
        writer = threading.Thread(target=write)
        writer.start()
        assert waiting.wait(5)
        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        reader.join(0.1)
        assert reader.is_alive()
        interrupted.set()
        writer.join(5)
        reader.join(5)
    assert not reader.is_alive()
