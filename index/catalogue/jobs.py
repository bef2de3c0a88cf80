"""Jobs in the catalogue: every change of state is one atomic update, so that one worker has a job at a time.

queued -> running -> done, failed or cancelled; a job whose worker stops or is lost is queued again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final, Literal

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from index.catalogue.collections import now
from index.catalogue.tables import CollectionRow, JobRow
from index.errors import CollectionInUseError, JobStateError, UnknownJobError

JobState = Literal["queued", "running", "done", "failed", "cancelled"]
JOB_STATES: Final[tuple[JobState, ...]] = ("queued", "running", "done", "failed", "cancelled")
# A job that loses worker after worker may be what ends them.
_MAX_LAPSES: Final = 5
# Rows in memory while many are changed.
_AT_ONCE: Final = 500


@dataclass(frozen=True, slots=True)
class Job:
    """A job as the catalogue has it; see `JobRow`."""

    id: int
    kind: str
    arguments: list[str]
    folder: str | None
    state: JobState
    created: str
    started: str | None
    ended: str | None
    worker: str | None
    beats: int
    attempts: int
    lapses: int
    cancelling: bool
    progress: dict[str, Any] | None
    result: dict[str, Any] | None
    error: str | None

    @property
    def has_ended(self) -> bool:
        """Whether nothing will happen to it any more."""
        return self.state not in ("queued", "running")


def add_job(session: Session, kind: str, arguments: Sequence[str], *, folder: str | None = None) -> Job:
    """Queue a job.

    `kind` is the command that does it, and `folder` the base of relative paths among its arguments.
    """
    row = JobRow(kind=kind, arguments=list(arguments), folder=folder, state="queued", created=now())
    session.add(row)
    session.flush()
    return _job(row)


def get_job(session: Session, job: int) -> Job:
    """Return a job, or raise `UnknownJobError`."""
    row = session.get(JobRow, job)
    if row is None:
        raise UnknownJobError(job)
    return _job(row)


def list_jobs(
    session: Session,
    *,
    state: JobState | None = None,
    kind: str | None = None,
    before: int | None = None,
    limit: int | None = None,
) -> list[Job]:
    """Return the jobs, the latest first.

    Optionally only those of a state, of a kind, or submitted before a given job.
    """
    query = select(JobRow).order_by(JobRow.id.desc()).limit(limit)
    if state is not None:
        query = query.where(JobRow.state == state)
    if kind is not None:
        query = query.where(JobRow.kind == kind)
    if before is not None:
        query = query.where(JobRow.id < before)
    return [_job(row) for row in session.execute(query).scalars()]


def latest_job(session: Session, kind: str, matches: Callable[[Sequence[str]], bool]) -> Job | None:
    """Return the latest job of a kind whose arguments match, such as those of one collection."""
    query = select(JobRow).where(JobRow.kind == kind).order_by(JobRow.id.desc())
    rows = session.execute(query).scalars()
    return next((_job(row) for row in rows if matches(row.arguments)), None)


def look_alone(session: Session, collections: Sequence[str]) -> None:
    """Serialize lookups of the jobs of these collections until the transaction ends."""
    session.execute(select(CollectionRow.id).where(CollectionRow.name.in_(collections)).with_for_update())


def job_that_made(session: Session, bundle: str) -> Job | None:
    """Return the latest job whose result is a bundle of this digest."""
    made = JobRow.result["bundle"].as_string() == bundle
    row = session.execute(select(JobRow).where(made).order_by(JobRow.id.desc()).limit(1)).scalar()
    return None if row is None else _job(row)


def next_job(session: Session) -> int | None:
    """Return the number of the oldest job that waits for a worker; None when none does."""
    query = select(JobRow.id).where(JobRow.state == "queued").order_by(JobRow.id).limit(1)
    return session.execute(query).scalar()


def claim_job(session: Session, job: int, worker: str) -> Job | None:
    """Give a queued job to a worker; None when it is not, or no longer, queued."""
    return _change(
        session,
        job,
        {"state": "running", "worker": worker, "attempts": JobRow.attempts + 1, "started": now()},
        JobRow.state == "queued",
    )


def beat(session: Session, job: int, worker: str, progress: Mapping[str, Any] | None) -> Job | None:
    """Say that a worker is at work on its job, and how far; None when the job is no longer the worker's."""
    values: dict[str, Any] = {"beats": JobRow.beats + 1}
    if progress is not None:
        values["progress"] = dict(progress)
    return _change(session, job, values, *_leased_by(worker))


def end_job(
    session: Session,
    job: int,
    worker: str,
    state: Literal["done", "failed", "cancelled"],
    *,
    result: Mapping[str, Any] | None = None,
    error: str | None = None,
) -> Job | None:
    """Write down how a worker's job ended; None when the job is no longer the worker's."""
    values: dict[str, Any] = {"state": state, "ended": now(), "error": error}
    if result is not None:
        values["result"] = dict(result)
    return _change(session, job, values, *_leased_by(worker))


def release_job(session: Session, job: int, worker: str) -> Job | None:
    """Queue a worker's job again, to continue where it was; None when it is no longer the worker's."""
    return _change(session, job, {"state": "queued", "worker": None}, *_leased_by(worker))


def expire_lease(session: Session, seen: Job) -> Job | None:
    """Take a job from a worker that has sent no heartbeat since `seen`; None if it has, or has ended the job.

    The job is queued again. One that was to be cancelled is, and one that has lost too many workers fails.
    """
    values: dict[str, Any] = {"state": "queued", "worker": None, "lapses": JobRow.lapses + 1}
    if seen.cancelling:
        values |= {"state": "cancelled", "ended": now()}
    elif seen.lapses + 1 >= _MAX_LAPSES:
        error = f"The worker that ran it was lost {_MAX_LAPSES} times: see the job's log."
        values |= {"state": "failed", "ended": now(), "error": error}
    still = (JobRow.state == "running", JobRow.worker == seen.worker, JobRow.beats == seen.beats)
    return _change(session, seen.id, values, *still, JobRow.cancelling == seen.cancelling)


def cancel_job(session: Session, job: int) -> Job:
    """Cancel a queued job, or have its worker end one that is running.

    Raises:
        UnknownJobError: No job has this number.
        JobStateError: The job has ended.
    """
    cancelled = _change(session, job, {"state": "cancelled", "ended": now()}, JobRow.state == "queued")
    cancelling = _change(session, job, {"cancelling": True}, JobRow.state == "running")
    job_row = cancelled or cancelling or get_job(session, job)
    if cancelled is None and cancelling is None:
        raise JobStateError(f"Job {job} has ended already: it is {job_row.state}.")
    return job_row


def rename_in_jobs(session: Session, old: str, new: str) -> None:
    """Let jobs that have ended name a collection by its new name.

    Raises:
        CollectionInUseError: A job that names it waits or runs.
    """
    # Elsewhere it may be the value of an option.
    query = select(JobRow.id, JobRow.state, JobRow.arguments).where(JobRow.arguments[0].as_string() == old)
    last = 0
    while rows := session.execute(query.where(JobRow.id > last).order_by(JobRow.id).limit(_AT_ONCE)).all():
        for row in rows:
            if row.state in ("queued", "running"):
                raise CollectionInUseError(
                    f"Job {row.id} of {old!r} is {row.state}: wait for its end, or cancel it, then rename."
                )
        session.execute(
            update(JobRow), [{"id": row.id, "arguments": [new, *row.arguments[1:]]} for row in rows]
        )
        last = rows[-1].id


def _leased_by(worker: str) -> tuple[Any, ...]:
    return JobRow.state == "running", JobRow.worker == worker


def _change(session: Session, job: int, values: Mapping[str, Any], *conditions: Any) -> Job | None:
    """Change a job if the conditions hold at this moment."""
    statement = (
        update(JobRow)
        .where(JobRow.id == job, *conditions)
        .values(**values)
        .returning(JobRow)
        .execution_options(synchronize_session=False, populate_existing=True)
    )
    row = session.execute(statement).scalar_one_or_none()
    return None if row is None else _job(row)


def _job(row: JobRow) -> Job:
    return Job(**{field.name: getattr(row, field.name) for field in fields(Job)})
