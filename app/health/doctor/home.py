"""The examination of the home folder."""

import os
import shutil
from pathlib import Path
from typing import Final

from app.health.doctor.finding import Finding
from app.settings import Settings
from index.audit.dead_letters import count_dead_letters, dead_letters_of
from index.catalogue.connections import is_disk_full
from index.erasure import pending_erasures
from training.common.atomic import atomic_file

_GIB: Final = 1 << 30
# Less than this is soon used up by a snapshot, a checkpoint or a log.
_LOW_DISK: Final = 5 * _GIB


def examine_home(settings: Settings) -> Finding:
    """Look whether the home folder can be written and has room, or can be made.

    Raises:
        OSError: The folder cannot be written.
    """
    home = settings.home.absolute()
    if (file := file_in_the_way(home)) is not None:
        return Finding("home", "wrong", f"{file} is a file, not a folder: name another with --home.")
    if not home.is_dir():
        return Finding("home", "doubtful", f"{home} does not exist: `recoquest index` makes it.")
    try:
        _try_to_write(home)
    except OSError as error:
        if not is_disk_full(error):
            raise
        return Finding("home", "wrong", f"{home} cannot be written: the disk is full; free some space there.")
    for erasure in pending_erasures(home):
        return Finding(
            "home",
            "doubtful",
            f"{home} can be written, but an erasure in {erasure.collection!r} is under way or was stopped "
            f"(images: {len(erasure.ids):,}): `recoquest erase {erasure.collection}` goes on with it.",
        )
    if letters := count_dead_letters(home):
        return Finding(
            "home",
            "doubtful",
            f"{home} can be written, but the audit trail did not take {letters:,} events, which are in "
            f"{dead_letters_of(home)}: keep that file elsewhere, and report the error in it.",
        )
    free = shutil.disk_usage(home).free
    found = f"{home} can be written, {free / _GIB:.1f} GiB free"
    if free < _LOW_DISK:
        return Finding("home", "doubtful", f"{found}: writes are refused when the disk is full.")
    return Finding("home", "ok", found)


def file_in_the_way(home: Path) -> Path | None:
    """The first part of the home folder's path that is not a folder."""
    there = next(path for path in (home.absolute(), *home.absolute().parents) if os.path.lexists(path))
    return None if there.is_dir() else there


def _try_to_write(folder: Path) -> None:
    probe = folder / f".doctor-{os.getpid()}"
    try:
        with atomic_file(probe) as file:
            file.write(b"written by recoquest doctor")
    finally:
        probe.unlink(missing_ok=True)
