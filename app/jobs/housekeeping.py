"""Old jobs: how long their folders are kept, and generations that nobody has activated."""

import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import select

from app.jobs.folder import JobFolder
from app.jobs.kinds import KINDS, bundle_of
from app.jobs.queue import RETRAIN
from app.settings import Settings
from index.catalogue import Catalogue
from index.catalogue.jobs import Job, list_jobs
from index.catalogue.tables import CollectionRow, GenerationRow, ModelRow
from index.generations.activation import drop_generation
from index.home import Home

# A generation as the result of a retraining names it: collection, number, digest of its model.
_Made = tuple[str, int, str]


def drop_superseded_generations(settings: Settings, home: Home) -> list[tuple[str, int]]:
    """Drop generations that old retraining jobs left waiting, but for each collection's latest.

    Args:
        settings: Settings with the retention time of jobs' files.
        home: Home of the collections.

    Returns:
        Collection and number of each.

    Raises:
        GenerationError: One was activated meanwhile.
    """
    with home.catalogue.read() as session:
        retrainings = [job for job in list_jobs(session) if job.kind == RETRAIN]
        query = (
            select(CollectionRow.name, GenerationRow.id, ModelRow.digest)
            .join(CollectionRow, CollectionRow.id == GenerationRow.collection_id)
            .join(ModelRow, ModelRow.id == GenerationRow.model_id)
            .where(GenerationRow.state == "building", GenerationRow.activated.is_(None))
        )
        waiting = {(name, number, digest) for name, number, digest in session.execute(query)}
    jobs = [job for job in retrainings if (job.result or {}).get("generation") is not None]
    old = {job.id for job in _ended_long_ago(settings, jobs)}
    latest = {_made(job)[0]: job.id for job in reversed(jobs)}
    stay = {_made(job) for job in jobs if job.id not in old or job.id in latest.values()}
    superseded = sorted(waiting & {_made(job) for job in jobs} - stay)
    for collection, number, _ in superseded:
        drop_generation(home, collection, number)
    return [(collection, number) for collection, number, _ in superseded]


def remove_old_folders(settings: Settings, catalogue: Catalogue) -> list[int]:
    """Remove the folders of jobs that ended long ago, unless the model in them is registered.

    So what is searched with, and what waits for a person, stays. What lay there before goes with them.

    Args:
        settings: Settings with the folders' place and retention time.
        catalogue: Catalogue of the jobs, which keeps their rows.

    Returns:
        The numbers of the jobs.

    Raises:
        CatalogueError: The catalogue cannot be used.
        OSError: The disk does not let go of a file.
    """
    with catalogue.read() as session:
        old = _ended_long_ago(settings, list_jobs(session))
        registered = set(session.execute(select(ModelRow.digest)).scalars())
    return [job.id for job in old if _remove_all(JobFolder.of(settings, job.id), registered)]


def _ended_long_ago(settings: Settings, jobs: Iterable[Job]) -> list[Job]:
    if settings.keep_jobs_days == 0:
        return []
    since = datetime.now(UTC) - timedelta(days=settings.keep_jobs_days)
    return [job for job in jobs if job.ended is not None and datetime.fromisoformat(job.ended) < since]


def _made(job: Job) -> _Made:
    assert job.result is not None
    return job.result["collection"], job.result["generation"], job.result["bundle"]


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
