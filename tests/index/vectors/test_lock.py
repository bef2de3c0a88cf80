import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from index.vectors.view import ReadWriteLock
from tests.index.meanwhile import beside


def test_readers_share() -> None:
    lock, inside = ReadWriteLock(), threading.Barrier(3, timeout=5)

    def read(_: threading.Event) -> None:
        with lock.reading():
            inside.wait()

    with beside(*[read] * 3):
        pass


def test_a_writer_is_alone_and_is_not_starved() -> None:
    lock, writing = ReadWriteLock(), threading.Event()

    def read(over: threading.Event) -> None:
        while not over.is_set():
            with lock.reading():
                assert not writing.is_set()

    with beside(*[read] * 3):
        for _ in range(20):
            with lock.writing():
                writing.set()
                time.sleep(0.0005)
                writing.clear()


def test_an_error_frees_the_lock() -> None:
    lock = ReadWriteLock()
    for _ in range(2):
        for held in (lock.writing, lock.reading):
            with pytest.raises(KeyError), held():
                raise KeyError


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
