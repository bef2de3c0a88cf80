"""Workers say that they are there, until they stop or are killed."""

import os
import time
from pathlib import Path

from app.heartbeat import Heartbeat, count_workers
from app.settings import Settings


def _files(settings: Settings) -> set[str]:
    return {file.name for file in (settings.home / "workers").iterdir()}


def test_who_says_nothing_any_more_does_not_count(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "home")
    assert count_workers(settings) == 0
    heartbeat = Heartbeat(settings)
    heartbeat.beat()
    (ours,) = _files(settings)
    for name, seconds in (("here:1", 3), ("here:2", 40), ("gone:3", 4000)):
        file = settings.home / "workers" / name
        file.touch()
        os.utime(file, (time.time() - seconds,) * 2)
    assert count_workers(settings) == 2
    os.utime(settings.home / "workers" / ours, (0, 0))
    assert count_workers(settings) == 1
    heartbeat.beat()
    assert count_workers(settings) == 2
    heartbeat.end()
    assert _files(settings) == {"here:1", "here:2"}
