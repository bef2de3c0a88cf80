"""Heartbeats of workers: who counts as running, and which files are removed."""

import os
import socket
import time
from pathlib import Path

import pytest

from app.heartbeat import Heartbeat, count_workers
from app.settings import Settings


def test_a_worker_counts_for_half_a_minute_and_its_file_is_kept_for_an_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, now = Settings(home=tmp_path), 1_000_000.0
    monkeypatch.setattr(time, "time", lambda: now)
    folder, heartbeat = tmp_path / "workers", Heartbeat(settings)
    heartbeat.beat()
    (own,) = folder.iterdir()
    assert own.name == f"{socket.gethostname()}:{os.getpid()}"
    os.utime(own, (now, now))
    for silent_s in (0, 29, 30, 3600, 3601):
        (folder / f"x:{silent_s}").touch()
        os.utime(folder / f"x:{silent_s}", (now, now - silent_s))
    assert count_workers(settings) == 3
    heartbeat.end()
    assert {file.name for file in folder.iterdir()} == {"x:0", "x:29", "x:30", "x:3600"}
