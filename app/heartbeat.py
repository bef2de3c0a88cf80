"""Heartbeats of workers: each touches a file of its own in the home folder, with or without a job."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from app.settings import Settings

# A worker beats every 5 seconds, later where a catalogue lets it wait.
_SILENT_SECONDS: Final = 30.0
# The files of killed workers are kept this long.
_GONE_SECONDS: Final = 3600.0


class Heartbeat:
    """Heartbeat of this process, by which others know that a worker runs."""

    def __init__(self, settings: Settings) -> None:
        self._file = _folder(settings) / f"{socket.gethostname()}:{os.getpid()}"

    def beat(self) -> None:
        """Renew the heartbeat; a worker without one for 30 seconds counts as gone.

        Raises:
            OSError: The home folder cannot be written.
        """
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._file.touch()

    def end(self) -> None:
        """Remove this worker's file, and the files of killed workers."""
        with suppress(OSError):
            self._file.unlink(missing_ok=True)
            for file, silent_s in _ages(self._file.parent):
                if silent_s > _GONE_SECONDS:
                    file.unlink(missing_ok=True)


def count_workers(settings: Settings) -> int:
    """Number of running workers of the home folder."""
    return sum(silent_s < _SILENT_SECONDS for _, silent_s in _ages(_folder(settings)))


def _folder(settings: Settings) -> Path:
    return settings.home.absolute() / "workers"


def _ages(folder: Path) -> Iterator[tuple[Path, float]]:
    """The file of each worker, and the seconds since its last heartbeat."""
    for file in folder.glob("*:*"):
        with suppress(FileNotFoundError):
            yield file, time.time() - file.stat().st_mtime
