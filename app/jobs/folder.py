"""Folders of jobs below the home folder: what a process writes there, and how long it is kept."""

import json
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from sqlalchemy import select

from app.jobs.kinds import KINDS, bundle_of, digest_of
from app.settings import Settings
from index.catalogue import Catalogue
from index.catalogue.collections import now
from index.catalogue.jobs import Job, list_jobs
from index.catalogue.tables import ModelRow
from index.files.stale import try_lock

# Between the name of a folder that was put aside and the time when it was.
_ASIDE: Final = ".before-"
_TAIL_BYTES: Final = 1 << 14
# Beginning of an attempt in the log.
ATTEMPT: Final = "--- Attempt "
# Beginning of a command's error message.
_SENTENCE: Final = "recoquest: "


@dataclass(frozen=True, slots=True)
class JobFolder:
    """Names inside the folder of a job."""

    path: Path

    @classmethod
    def for_job(cls, settings: Settings, job: int) -> "JobFolder":
        """The folder of a job by its number."""
        return cls(settings.home.absolute() / "jobs" / str(job))

    @property
    def log(self) -> Path:
        """Output of all attempts."""
        return self.path / "log.txt"

    @property
    def progress(self) -> Path:
        """File with the progress of the present attempt."""
        return self.path / "progress.json"

    def begin(self, job: Job) -> None:
        """Make the folder; one left by a job of another catalogue is moved aside."""
        if job.attempts == 1 and self.path.exists():
            self.path.rename(self.path.with_name(f"{self.path.name}{_ASIDE}{now().replace(':', '')}"))
        self.path.mkdir(parents=True, exist_ok=True)
        self.progress.unlink(missing_ok=True)

    def aside(self) -> list["JobFolder"]:
        """Folders that were put aside for this one."""
        return [JobFolder(path) for path in sorted(self.path.parent.glob(f"{self.path.name}{_ASIDE}*"))]

    def lock(self) -> int | None:
        """Lock the folder for the holder of the returned descriptor; None while another process holds it.

        It is let go when all processes that have inherited it have closed it or ended. Nothing can be read
        from it.
        """
        descriptor = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        if try_lock(descriptor):
            return descriptor
        os.close(descriptor)
        return None

    def read_progress(self) -> dict[str, Any] | None:
        """Progress of the present attempt; None if it has reported none."""
        try:
            parsed = json.loads(self.progress.read_bytes())
        except (OSError, ValueError):
            return None
        return parsed if isinstance(parsed, dict) else None

    def last_sentence(self) -> str | None:
        """Last error line of the latest attempt."""
        with self.log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            tail = file.read().decode(errors="replace").rpartition(ATTEMPT)[2]
        sentences = [line.removeprefix(_SENTENCE) for line in tail.splitlines() if line.startswith(_SENTENCE)]
        return sentences[-1] if sentences else None


def remove_old_folders(settings: Settings, catalogue: Catalogue) -> list[int]:
    """Remove the folders of jobs that ended long ago, unless the model in them is registered.

    So models that are in use, or wait for a person, stay. Older contents of a removed job's folder are also
    removed. Returns the numbers of the jobs.
    """
    with catalogue.read() as session:
        old = ended_long_ago(settings, list_jobs(session))
        registered = set(session.execute(select(ModelRow.digest)).scalars())
    removed = []
    for job in old:
        folder = JobFolder.for_job(settings, job.id)
        if sum(_remove(each, registered) for each in (folder, *folder.aside())):
            removed.append(job.id)
    return removed


def ended_long_ago(settings: Settings, jobs: Iterable[Job]) -> list[Job]:
    """Return the jobs whose files are no longer kept."""
    if settings.keep_jobs_days == 0:
        return []
    since = datetime.now(UTC) - timedelta(days=settings.keep_jobs_days)
    return [job for job in jobs if job.ended is not None and datetime.fromisoformat(job.ended) < since]


def _remove(folder: JobFolder, registered: set[str]) -> bool:
    """Remove what may be removed of a job's folder; return whether anything was."""
    # For any kind: the kind of older contents of the folder is unknown.
    bundles = filter(None, (bundle_of(kind, folder.path) for kind in KINDS))
    if not folder.path.is_dir() or not registered.isdisjoint(filter(None, map(digest_of, bundles))):
        return False
    lock = folder.lock()
    if lock is None:
        # A process of it that its worker has lost is still there.
        return False
    try:
        shutil.rmtree(folder.path)
    finally:
        os.close(lock)
    return True
