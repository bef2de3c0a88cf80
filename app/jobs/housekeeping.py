"""Old jobs: how long their folders are kept."""

import json
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import select

from app.jobs.folder import JobFolder
from app.jobs.kinds import bundle_of
from app.settings import Settings
from index.catalogue import Catalogue
from index.catalogue.tables import ModelRow
from index.jobs import Job, list_jobs


def remove_old_folders(settings: Settings, catalogue: Catalogue) -> list[int]:
    """Remove the folders of jobs that ended long ago, unless the model in them is registered.

    So what is searched with, and what waits for a person, stays.

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
    return [job.id for job in old if _remove(job, JobFolder.of(settings, job.id), registered)]


def _remove(job: Job, folder: JobFolder, registered: set[str]) -> bool:
    if not folder.path.is_dir() or _model(job, folder.path) in registered:
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


def _model(job: Job, folder: Path) -> str | None:
    """The digest of the model that a job has trained."""
    bundle = bundle_of(job.kind, folder)
    if bundle is None:
        return None
    try:
        digest: str = json.loads((bundle / "digest.json").read_bytes())["digest"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return digest
