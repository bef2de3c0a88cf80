"""Schemas of jobs."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from app.edge.schemas import Answer, Request
from index.catalogue.jobs import Job, JobState

JobKind = Literal[
    "train", "evaluate", "import", "index", "reindex", "tidy", "retrain", "duplicates", "pacs_sync"
]

DIGEST_PATTERN = r"^[0-9a-f]{64}$"


class TidyJob(Request):
    """Remove old generations, folders of old jobs, and files that nothing uses."""

    kind: Literal["tidy"]

    def arguments(self) -> list[str]:
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

    def arguments(self) -> list[str]:
        """Arguments of the command."""
        activate = ["--activate"] if self.activate else []
        if self.model is not None:
            return [self.collection, "--model", self.model, *activate]
        return [self.collection, "--generation", str(self.generation), *activate]

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

    def arguments(self) -> list[str]:
        """Arguments of the command."""
        promote = ["--promote"] if self.promote else []
        return [self.collection, f"--gain={self.gain}", *promote]


class DuplicatesJob(Request):
    """Find the images of a collection that show the same picture."""

    kind: Literal["duplicates"]
    collection: str

    def arguments(self) -> list[str]:
        """Arguments of the command."""
        return [self.collection]


class PacsSyncJob(Request):
    """Run the sync with an image archive that the service's setting RECOQUEST_PACS_SYNC describes."""

    kind: Literal["pacs_sync"]


# Kinds that name folders of the server are given on its command line only.
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
    def of(cls, job: Job) -> "JobEntry":
        """Describe a job."""
        return cls.model_validate(job, from_attributes=True)


class Jobs(Answer):
    """A page of jobs, the latest first."""

    jobs: list[JobEntry]
    workers: int = Field(description="Number of workers; jobs wait while there is none.")
    next_cursor: str | None = Field(description="Asks for the next page; null on the last.")
