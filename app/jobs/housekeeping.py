"""Old jobs: how long their folders are kept."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import select

from app.jobs.folder import JobFolder
from app.jobs.kinds import KINDS, bundle_of
from app.settings import Settings
from index.catalogue import Catalogue
from index.catalogue.tables import ModelRow
from index.jobs import list_jobs


def remove_old_folders(settings: Settings, catalogue: Catalogue) -> list[int]:
    """Remove the folders of jobs that ended long ago, unless the model in them is registered.

    So what is searched with, and what waits for a person, stays. What lay there before goes with them.

    Args:
        settings: Say where they are, and how long they are kept.
        catalogue: Where the jobs are; they stay in it.

    Returns:
        The numbers of the jobs.

    Raises:
        CatalogueError: The catalogue cannot be used.
        OSError: The disk does not let go of a file.
    """
    if settings.keep_jobs_days == 0:
        return []
    since = datetime.now(UTC) - timedelta(days=settings.keep_jobs_days)
    with catalogue.read() as session:
        ended = [(job, job.ended) for job in list_jobs(session) if job.has_ended]
        registered = set(session.execute(select(ModelRow.digest)).scalars())
    old = [job for job, at in ended if at is not None and datetime.fromisoformat(at) < since]
    return [job.id for job in old if _remove_all(JobFolder.of(settings, job.id), registered)]


def _remove_all(folder: JobFolder, registered: set[str]) -> bool:
    """Remove what may go of a job's folder and those that were put aside for it; whether anything went."""
    return sum(_remove(each, registered) for each in (folder, *folder.aside())) > 0


def _remove(folder: JobFolder, registered: set[str]) -> bool:
    if not folder.path.is_dir() or not registered.isdisjoint(_models(folder.path)):
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


def _models(folder: Path) -> Iterator[str]:
    """The digests of models in the folder of a job of any kind: of what lay there before, nobody knows it."""
    for bundle in filter(None, (bundle_of(kind, folder) for kind in KINDS)):
        with suppress(OSError, ValueError, LookupError, TypeError):
            yield str(json.loads((bundle / "digest.json").read_bytes())["digest"])
