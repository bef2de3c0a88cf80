"""Answers about erasures, jobs, models and the audit trail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recoquest_client.answers.images import Generation, Refusal


@dataclass(frozen=True)
class Backup:
    """A backup that still holds an erased image."""

    path: str
    created: str
    digest: str
    is_there: bool


@dataclass(frozen=True)
class Deleted:
    """A deletion by filter; send it again while `remaining` is not 0. `problem` says what stopped it."""

    collection: str
    dry_run: bool
    matched: int
    deleted: int
    remaining: int
    ids: tuple[str, ...] = ()
    problem: Refusal | None = None


@dataclass(frozen=True)
class Erased:
    """An erasure; send it again while `log_is_empty` is false."""

    collection: str
    erased: tuple[str, ...]
    log_is_empty: bool
    unknown: tuple[str, ...] = ()
    shared_files: tuple[str, ...] = ()
    reports: int = 0
    judgements: int = 0
    jobs: tuple[int, ...] = ()
    retrainings: tuple[int, ...] = ()
    left_files: tuple[str, ...] = ()
    backups: tuple[Backup, ...] = ()


@dataclass(frozen=True)
class Progress:
    """Progress of a job; `total` is None where it is unknown."""

    what: str
    done: int
    total: int | None = None
    note: str = ""


@dataclass(frozen=True)
class Job:
    """A job: queued, running, done, failed or cancelled."""

    id: int
    kind: str
    state: str
    arguments: tuple[str, ...] = ()
    cancelling: bool = False
    created: str | None = None
    started: str | None = None
    ended: str | None = None
    worker: str | None = None
    attempts: int = 0
    progress: Progress | None = None
    result: Mapping[str, Any] | None = None
    error: str | None = None

    @property
    def has_ended(self) -> bool:
        """Whether it is done, failed or cancelled."""
        return self.state in ("done", "failed", "cancelled")


@dataclass(frozen=True)
class JobPage:
    """A page of jobs, the latest first, and the number of workers."""

    jobs: tuple[Job, ...]
    workers: int
    next_cursor: str | None = None


@dataclass(frozen=True)
class Model:
    """A registered model; a single one has also its towers, training, retraining and generations."""

    name: str
    digest: str
    dim: int
    score_kind: str
    created: str
    loaded: bool
    metrics: Mapping[str, Any] = field(default_factory=dict)
    collections: tuple[str, ...] = ()
    towers: Mapping[str, str] | None = None
    training: Mapping[str, Any] | None = None
    retraining: Mapping[str, Any] | None = None
    generations: tuple[Generation, ...] = ()


@dataclass(frozen=True)
class Actor:
    """A caller: the kind of its credential, its id and its name."""

    kind: str
    id: str
    name: str


@dataclass(frozen=True)
class AuditEvent:
    """An event of the audit trail."""

    sequence: int
    time: str
    action: str
    outcome: str
    actor: Actor
    hash: str
    previous: str
    address: str | None = None
    collection: str | None = None
    ids: tuple[str | None, ...] = ()
    objects: tuple[str, ...] = ()
    object_count: int = 0
    query: Mapping[str, Any] | None = None
    query_form: str | None = None
    model: str | None = None
    generation: int | None = None
    request: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class AuditPage:
    """A page of events, the oldest first."""

    events: tuple[AuditEvent, ...]
    next_cursor: str | None = None
