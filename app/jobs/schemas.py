"""Jobs over HTTP: schemas, checks before one is queued, and responses."""

from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import fastapi
from pydantic import Field, model_validator
from sqlalchemy.orm import Session

from app.edge.operations import root_of
from app.edge.schemas import DIGEST_PATTERN, Answer, Request
from app.idempotency import Attempt, attempt_of
from app.jobs.kinds import KINDS
from app.jobs.queue import give_job
from app.radiology.jobs import PacsSyncJob
from app.services import Services
from app.settings import Settings
from index.catalogue.collections import require_active, require_collection
from index.catalogue.jobs import Job, JobState
from index.generations.activation import generation_of
from index.generations.models import require_model

# One of `KINDS`, which mypy cannot follow.
if TYPE_CHECKING:
    JobKind = str
else:
    JobKind = Literal[*KINDS]


class TidyJob(Request):
    """Remove old generations, folders of old jobs, and files that nothing uses."""

    kind: Literal["tidy"]

    def arguments(self, _session: Session, _settings: Settings) -> list[str]:
        """Arguments of the command."""
        return []


class ReindexJob(Request):
    """Embed a collection with a registered model, or what a generation of it lacks."""

    kind: Literal["reindex"]
    collection: str
    generation: int | None = Field(default=None, ge=1, lt=2**63, description="Number of the generation.")
    model: str | None = Field(
        default=None, pattern=DIGEST_PATTERN, description="Instead of a generation: digest of the model."
    )
    activate: bool = Field(default=False, description="Search in it as soon as it is complete.")

    def arguments(self, session: Session, _settings: Settings) -> list[str]:
        """Arguments of the command."""
        if self.model is not None:
            require_collection(session, self.collection)
            require_model(session, self.model)
            by = ["--model", self.model]
        else:
            assert self.generation is not None
            generation_of(session, self.collection, self.generation)
            by = ["--generation", str(self.generation)]
        return [self.collection, *by, *(["--activate"] if self.activate else [])]

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.generation is None) == (self.model is None):
            raise ValueError("give either generation or model")
        return self


class RetrainJob(Request):
    """Train the model of a collection further on its images, texts and relevance judgements."""

    kind: Literal["retrain"]
    collection: str
    gain: float = Field(
        default=0.0,
        allow_inf_nan=False,
        description="By how much the held-out figure has to rise; below 0: how much it may fall.",
    )
    promote: bool = Field(default=False, description="Search with the new model if it passes.")

    def arguments(self, session: Session, _settings: Settings) -> list[str]:
        """Arguments of the command."""
        require_active(session, self.collection)
        promote = ["--promote"] if self.promote else []
        return [self.collection, f"--gain={self.gain}", *promote]


class DuplicatesJob(Request):
    """Find the images of a collection that show the same picture."""

    kind: Literal["duplicates"]
    collection: str

    def arguments(self, session: Session, _settings: Settings) -> list[str]:
        """Arguments of the command."""
        require_active(session, self.collection)
        return [self.collection]


# Kinds that name folders of the server can only be submitted on its command line.
NewJob = Annotated[
    TidyJob | ReindexJob | RetrainJob | DuplicatesJob | PacsSyncJob, Field(discriminator="kind")
]


class JobProgress(Answer):
    """Progress of a job."""

    what: str = Field(description="Present step.", examples=["training"])
    done: int
    total: int | None = Field(description="null: unknown.")
    note: str = Field(description="Remark, such as the present loss.")


class JobEntry(Answer):
    """A job and its state; times are in ISO 8601."""

    id: int
    kind: str = Field(description="The command that does it.")
    arguments: list[str] = Field(description="Arguments of that command.")
    state: JobState
    cancelling: bool = Field(description="Whether its cancellation was requested.")
    created: str
    started: str | None = Field(description="Start of its latest attempt.")
    ended: str | None
    worker: str | None = Field(description="Worker that has the job, or had it last.")
    attempts: int = Field(description="Number of attempts.")
    progress: JobProgress | None
    result: dict[str, Any] | None = Field(
        description="Result, such as the metrics of a model or the groups of near-duplicates."
    )
    error: str | None = Field(description="Reason of a failure.")

    @classmethod
    def from_job(cls, job: Job) -> "JobEntry":
        """Describe a job."""
        return cls.model_validate(job, from_attributes=True)


class Jobs(Answer):
    """A page of jobs, the latest first."""

    jobs: list[JobEntry]
    workers: int = Field(description="Number of workers; jobs wait while there is none.")
    next_cursor: str | None = Field(description="Cursor of the next page; null on the last.")


async def queue_job(
    request: fastapi.Request,
    services: Services,
    kind: str,
    arguments: list[str],
    *,
    check: Callable[[Session], object] = lambda _: None,
) -> Job:
    """Queue a job as `give_job` does; the answer to a request with a key is kept in the same transaction."""
    attempt = attempt_of(request)
    # A service that is killed now has queued the job with its answer, or neither.
    also = None if attempt is None else partial(_keep_answer, attempt, request)
    give = partial(give_job, services.engine.home.catalogue, kind, arguments, check=check, also=also)
    return await services.threads.write(give)


def location_of(request: fastapi.Request, job: Job) -> str:
    """Return the path of a job."""
    return f"{root_of(request.scope)}/v1/jobs/{job.id}"


def _keep_answer(attempt: Attempt, request: fastapi.Request, session: Session, job: Job) -> None:
    headers = {"content-type": "application/json", "location": location_of(request, job)}
    attempt.keep(session, HTTPStatus.ACCEPTED, headers, JobEntry.from_job(job).model_dump_json().encode())
