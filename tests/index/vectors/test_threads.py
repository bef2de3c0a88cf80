"""Threads share views, and those that build views leave the cores to those that answer."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from index.vectors.store import lower_priority
from index.vectors.view import ReadWriteLock
from index.views.manager import Views
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


_BUILD = """
import json, os
from concurrent.futures import ThreadPoolExecutor
import faiss
import numpy as np
from index.vectors.store import use_threads, lower_priority

def build():
    use_threads(3)
    vectors = np.random.default_rng(0).random((4000, 16), dtype=np.float32)
    made = faiss.index_factory(16, "IVF16,PQ4x4fs")
    made.train(vectors)
    made.add(vectors)
    # Now: the threads of a build end with its thread.
    return sorted(os.getpriority(os.PRIO_PROCESS, int(name)) for name in os.listdir("/proc/self/task"))

print(json.dumps(ThreadPoolExecutor(1, initializer=lower_priority).submit(build).result()))
"""


def _priority() -> int:
    return os.getpriority(os.PRIO_PROCESS, 0)


def test_a_thread_that_yields_lowers_no_other() -> None:
    with ThreadPoolExecutor(1, initializer=lower_priority) as pool:
        assert pool.submit(_priority).result() == 10
    assert _priority() < 10


def test_the_threads_that_faiss_begins_for_a_build_yield_too() -> None:
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "3"}
    shown = subprocess.run(
        [sys.executable, "-c", _BUILD],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    priorities = json.loads(shown.stdout)
    assert priorities.count(10) >= 2
    assert priorities[0] < 10


def test_views_are_built_by_a_thread_that_yields(tmp_path: Path) -> None:
    views = Views(tmp_path)
    assert views._builder.submit(_priority).result() == 10
    views.close()
