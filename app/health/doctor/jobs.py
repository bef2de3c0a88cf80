"""The examination of jobs: how many wait, and whether workers work and retrain as told."""

import time
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

from app.health.doctor.finding import Finding
from app.settings import Settings
from index.catalogue import Catalogue
from index.catalogue.jobs import Job, get_job, list_jobs

# A worker takes what waits, or says that it is at work, within 5 seconds.
_WATCH_SECONDS: Final = 8.0
_LOOK_SECONDS: Final = 0.25


def examine_jobs(catalogue: Catalogue, watch_s: float = _WATCH_SECONDS) -> Finding:
    """Look whether a worker is at work on what is to be done.

    Args:
        catalogue: Catalogue of the jobs.
        watch_s: Seconds to wait for a worker's heartbeat.

    Raises:
        CatalogueError: The catalogue cannot be used.
    """
    with catalogue.read() as session:
        running = list_jobs(session, state="running")
        queued = list_jobs(session, state="queued")
    found = f"{len(running):,} running, {len(queued):,} waiting"
    if not running and not queued:
        return Finding("jobs", "ok", found)
    if _is_worked_on(catalogue, [*running, *queued], watch_s):
        return Finding("jobs", "ok", f"{found}; a worker is at work")
    return Finding(
        "jobs",
        "doubtful",
        f"{found}, and no worker has said anything for {watch_s:.0f} seconds: run `recoquest worker` with "
        "the settings of the service (home folder and database).",
    )


def examine_retraining(
    settings: Settings, collections: Collection[str], renamed: Mapping[str, str] = MappingProxyType({})
) -> Finding:
    """Look whether workers can retrain by themselves what they are told to.

    Args:
        settings: Say what, and when.
        collections: The names of all that there are.
        renamed: Present names of collections by those that they had before.
    """
    subject, named = "retraining", settings.retrain
    timed = settings.retrain_at is not None or settings.retrain_feedback is not None
    unknown = [name for name in named if name not in collections]
    if unknown:
        known = ", ".join(sorted(collections)) or "none"
        shown = [f"{name} (called {renamed[name]} now)" if name in renamed else name for name in unknown]
        return Finding(
            subject,
            "doubtful",
            f"RECOQUEST_RETRAIN names {', '.join(shown)}, which is no collection and never retrained: "
            f"those here are {known}.",
        )
    if named and not timed:
        return Finding(
            subject,
            "doubtful",
            "RECOQUEST_RETRAIN alone does nothing: set RECOQUEST_RETRAIN_AT or RECOQUEST_RETRAIN_FEEDBACK.",
        )
    if timed and not named:
        return Finding(
            subject,
            "doubtful",
            "when to retrain is set, but not what: name the collections in RECOQUEST_RETRAIN.",
        )
    return Finding(subject, "ok", f"workers retrain {', '.join(named) or 'nothing'} by themselves")


def _is_worked_on(catalogue: Catalogue, jobs: list[Job], watch_s: float) -> bool:
    """Whether a worker begins any of the jobs, or says that it is at work on it, within this time."""
    deadline = time.monotonic() + watch_s
    while time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
        with catalogue.read() as session:
            now = [get_job(session, job.id) for job in jobs]
        if any(
            (job.attempts, job.beats) != (then.attempts, then.beats)
            for job, then in zip(now, jobs, strict=True)
        ):
            return True
    return False
