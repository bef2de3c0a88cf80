"""Writing processes are killed at random moments: what was acknowledged is there, and all of it is whole."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest

from index.engine import SearchEngine
from index.errors import UnknownImageError
from index.search.request import SearchRequest
from index.writes.deletion import collect_garbage
from tests.faults.made import begin_world, made_record, open_world, vector_of
from tests.faults.oracle import (
    Oracle,
    check_collection,
    check_files,
    check_nothing_else,
    check_page,
)
from tests.faults.writer import COLLECTION, State, state_of

KILLS = int(os.environ.get("RECOQUEST_TEST_KILLS", "200"))
PROCESSES = 2
THREADS = 3
IMAGES = 5
PATIENCE_S = 120.0
ROOT = Path(__file__).parent.parent.parent


class Nursery:
    """The process that forks writers, and what they have said."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.writer"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            process_group=0,
        )
        self._said: Queue[dict[str, Any]] = Queue()
        threading.Thread(target=self._listen, daemon=True).start()
        self._marks = 0

    def ask(self, **asked: Any) -> None:
        """Send a line."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()

    def next(self, timeout_s: float) -> dict[str, Any] | None:
        """Return what is said next, if anything is in time."""
        try:
            return self._said.get(timeout=timeout_s)
        except Empty:
            return None

    def rest(self) -> Iterator[dict[str, Any]]:
        """Return all that was said by processes that are dead by now."""
        self._marks += 1
        self.ask(mark=self._marks)
        while (said := self.next(PATIENCE_S)) != {"mark": self._marks}:
            assert said is not None
            yield said

    def close(self) -> None:
        """End it, with all writers that are left."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE_S)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.put(json.loads(line))


class Round:
    """Two processes that write and are killed one after the other."""

    def __init__(self, nursery: Nursery, home: Path, known: dict[str, State], number: int) -> None:
        self.known = known
        self.begun: dict[str, State] = {}
        self.acknowledged = 0
        self._nursery = nursery
        self._draw = random.Random(number)
        self._pids: list[int] = []
        for process in range(PROCESSES):
            states = [{name: known.get(name) for name in _ids(process, thread)} for thread in range(THREADS)]
            first = (number * PROCESSES + process + 1) * THREADS * 10_000
            nursery.ask(home=str(home), states=states, first_version=first)

    def run(self, observer: SearchEngine) -> None:
        """Let them write for a while, search meanwhile, and kill them."""
        self._hear_until(lambda: self.acknowledged >= 2 and len(self._pids) == PROCESSES, PATIENCE_S)
        assert self.acknowledged >= 2
        assert len(self._pids) == PROCESSES
        for pid in self._draw.sample(self._pids, PROCESSES):
            until = time.monotonic() + self._draw.uniform(0, 0.3)
            while time.monotonic() < until:
                hits = observer.search(observer.active(COLLECTION), vector_of("q"), SearchRequest(k=20)).hits
                assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
                self._hear_until(lambda: False, 0.01)
            self._kill(pid)
        for pid in self._pids:
            _wait_for_end(pid)
        for said in self._nursery.rest():
            self._hear(said)

    def _kill(self, pid: int) -> None:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            # The nursery says how the process ended.
            self._hear_until(lambda: False, PATIENCE_S)
            raise

    def _hear_until(self, enough: Any, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not enough() and (left := until - time.monotonic()) > 0:
            said = self._nursery.next(left)
            if said is not None:
                self._hear(said)

    def _hear(self, said: dict[str, Any]) -> None:
        assert "error" not in said, said["error"]
        if "pid" in said:
            self._pids.append(said["pid"])
            return
        state = state_of(said["state"])
        if said["done"]:
            self.known[said["id"]] = state
            del self.begun[said["id"]]
            self.acknowledged += 1
        else:
            self.begun[said["id"]] = state


def _ids(process: int, thread: int) -> list[str]:
    return [f"{process}-{thread}-{number}" for number in range(IMAGES)]


def _wait_for_end(pid: int) -> None:
    until = time.monotonic() + PATIENCE_S
    while Path(f"/proc/{pid}").exists():
        assert time.monotonic() < until
        time.sleep(0.002)


def _found_state(engine: SearchEngine, image_id: str) -> State:
    """Return what the catalogue has of an image; that it is whole is looked at afterwards."""
    try:
        image = engine.image(COLLECTION, image_id)
    except UnknownImageError:
        return None
    picture = engine.home.store.path(image.sha256).read_bytes().decode()
    return int(str(image.metadata["version"])), picture


def _check(engine: SearchEngine, ended: Round) -> None:
    """Compare the catalogue, the files and searches with what was said."""
    oracle = Oracle()
    for image_id in sorted(ended.known.keys() | ended.begun.keys()):
        found = _found_state(engine, image_id)
        allowed = [ended.known.get(image_id)]
        if image_id in ended.begun:
            allowed.append(ended.begun[image_id])
        assert found in allowed, image_id
        ended.known[image_id] = found
        if found is not None:
            oracle.put(made_record(image_id, found[0]), found[1])
    check_collection(engine, COLLECTION, oracle)
    check_nothing_else(engine)
    collect_garbage(engine.home)
    check_files(engine, oracle, killed=True)
    _check_searches(engine, oracle)


def _check_searches(engine: SearchEngine, oracle: Oracle) -> None:
    for number in range(3):
        query = vector_of(f"query {number}")
        page = engine.search(engine.active(COLLECTION), query, SearchRequest(k=10))
        check_page(page, oracle.ranked(query), 10)


def _kill(home: Path, kills: int) -> None:
    begin_world(home, COLLECTION).close()
    observer, nursery = open_world(home), Nursery()
    known: dict[str, State] = {}
    unacknowledged = 0
    try:
        for number in range(kills // PROCESSES):
            ended = Round(nursery, home, known, number)
            ended.run(observer)
            unacknowledged += len(ended.begun)
            restarted = open_world(home)
            _check(restarted, ended)
            restarted.close()
            # The process that was there all the time finds the same.
            _check(observer, ended)
    finally:
        nursery.close()
        observer.close()
    # Or they were never killed in the middle of a write.
    assert unacknowledged > kills // 4


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_acknowledged_is_lost_and_nothing_is_there_by_half(home: Path) -> None:
    _kill(home, 8)


@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
def test_the_same_after_many_kills(home: Path) -> None:
    _kill(home, KILLS)
