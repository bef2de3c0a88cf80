"""Processes that write to a collection until they are killed, and say before and after what they do.

`python -m tests.faults.writer` loads everything once and then forks a process for every line that it reads,
so that a test can kill hundreds of them.
"""

import faulthandler
import json
import os
import random
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, Final

from index.engine import SearchEngine
from index.writes.live import change_image, put_images, remove_images
from tests.faults.made import (
    begin_world,
    made_record,
    made_upload,
    open_world,
    picture_name,
    stored_vector,
)

COLLECTION: Final = "c"
# An image's version, and the name of its picture; None for one that is not there.
State = tuple[int, str] | None


def tell(**said: Any) -> None:
    """Write a line in one piece."""
    os.write(1, json.dumps(said).encode() + b"\n")


class Writer(threading.Thread):
    """Writes to images that nobody else writes to."""

    def __init__(self, engine: SearchEngine, states: dict[str, State], first_version: int) -> None:
        super().__init__(daemon=True)
        self._engine = engine
        self._states = states
        self._version = first_version
        self._draw = random.Random(first_version)

    def run(self) -> None:
        """Write until the process is killed."""
        try:
            while True:
                self._write()
        except BaseException as error:  # noqa: BLE001 - whoever reads the lines must know
            tell(error=repr(error))

    def _write(self) -> None:
        image_id = self._draw.choice(sorted(self._states))
        state = self._states[image_id]
        self._version += 1
        what = self._draw.choice(("put", "put", "change", "remove", "save"))
        if what == "save" and self._draw.random() < 0.2:
            self._engine.save_snapshot(COLLECTION)
        elif what == "put" or state is None:
            self._put(image_id)
        elif what == "change":
            self._change(image_id, state[1])
        else:
            self._done(image_id, None, lambda: remove_images(self._engine.home, COLLECTION, [image_id]))

    def _put(self, image_id: str) -> None:
        record = made_record(image_id, self._version)
        picture = picture_name(image_id, self._version)
        upload = made_upload(record, picture)
        active = self._engine.active(COLLECTION)
        self._done(
            image_id, (self._version, picture), lambda: put_images(self._engine.home, active, [upload])
        )

    def _change(self, image_id: str, picture: str) -> None:
        record = made_record(image_id, self._version)
        vectors = {text: stored_vector(text) for text in record.texts}
        active = self._engine.active(COLLECTION)
        self._done(
            image_id,
            (self._version, picture),
            lambda: change_image(self._engine.home, active, image_id, lambda _: record, vectors),
        )

    def _done(self, image_id: str, state: State, work: Any) -> None:
        tell(id=image_id, state=state, done=False)
        work()
        self._states[image_id] = state
        tell(id=image_id, state=state, done=True)


def write_until_killed(home: Path, states: list[dict[str, State]], first_version: int) -> None:
    """Write with a thread for each of these sets of images."""
    engine = open_world(home)
    writers = [Writer(engine, own, first_version + number * 10_000) for number, own in enumerate(states)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()


def write_once_in_every_way() -> None:
    """Use every statement once, before there are threads.

    SQLAlchemy completes its statements when they are first used. Where one thread of CPython 3.11 copies the
    attributes of a statement and the garbage collector lets another add one, PyDict_Copy crashes.
    """
    with tempfile.TemporaryDirectory() as folder:
        engine = begin_world(Path(folder), COLLECTION)
        for version in range(1, 4):
            _put_and_change(engine, version)
            engine.save_snapshot(COLLECTION)
        remove_images(engine.home, COLLECTION, ["a"])
        engine.close()
    assert threading.active_count() == 1


def _put_and_change(engine: SearchEngine, version: int) -> None:
    record, active = made_record("a", version), engine.active(COLLECTION)
    vectors = {text: stored_vector(text) for text in record.texts}
    put_images(engine.home, active, [made_upload(record, picture_name("a", version))])
    change_image(engine.home, active, "a", lambda _: record, vectors)


def collect_ended(*_: object) -> None:
    """Collect the processes that have ended, and tell of each that nobody has killed."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if (code := os.waitstatus_to_exitcode(status)) != -signal.SIGKILL:
            tell(error=f"process {pid} ended by itself: {code}")


def main() -> None:
    """Fork a writing process for every line."""
    faulthandler.enable()
    signal.signal(signal.SIGCHLD, collect_ended)
    write_once_in_every_way()
    for line in sys.stdin:
        asked = json.loads(line)
        if "mark" in asked:
            tell(mark=asked["mark"])
            continue
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            states = [{name: state_of(state) for name, state in own.items()} for own in asked["states"]]
            write_until_killed(Path(asked["home"]), states, asked["first_version"])
            os._exit(0)
        tell(pid=child)


def state_of(value: list[Any] | None) -> State:
    """Read a state that has been JSON."""
    return None if value is None else (value[0], value[1])


if __name__ == "__main__":
    main()
