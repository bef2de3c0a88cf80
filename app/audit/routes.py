"""The audit trail, for auditors."""

from datetime import UTC, datetime
from http import HTTPStatus
from typing import Annotated, Any, Self

from fastapi import APIRouter, Query
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from app.edge.operations import operation
from app.edge.problems import problem_responses
from app.edge.schemas import Answer
from app.permissions import GuardedRoute, may
from app.services import InjectedServices
from index.audit.event import Action, Outcome, QueryForm
from index.audit.listing import Entry, Selection, read_events
from index.errors import shortened


class AuditActor(Answer):
    """A caller: the kind of its credential, its id and its name."""

    kind: str = Field(description="How the caller was identified: anonymous, key, token, session or command.")
    id: str
    name: str


class AuditEvent(Answer):
    """An event of the audit trail."""

    sequence: int
    time: str
    action: Action
    outcome: Outcome
    actor: AuditActor
    address: str | None = Field(description="Address of the client; null for commands.")
    collection: str | None
    ids: list[str | None] = Field(
        description="Ids of the images: hits that were shown, or images that were seen or written; null for "
        "one that was erased."
    )
    objects: list[str] = Field(description="Keyed hashes of these ids, which are what is hashed.")
    object_count: int = Field(description="Number of the images; older events may have more than they name.")
    query: dict[str, list[str]] | None = Field(description="Parts of the query.")
    query_form: QueryForm | None
    model: str | None
    generation: int | None
    request: str | None
    details: dict[str, Any]
    previous: str = Field(description="Hash of the event before.")
    hash: str = Field(description="SHA-256 of this event as canonical JSON, without `hash` and `ids`.")

    @classmethod
    def from_entry(cls, entry: Entry) -> Self:
        """Describe an event."""
        return cls(**entry.record, hash=entry.hash, ids=list(entry.ids))


class AuditPage(Answer):
    """A page of events, the oldest first."""

    events: list[AuditEvent]
    next_cursor: str | None = Field(description="Send it as `cursor` for the next page; null on the last.")


def read_time(text: str) -> datetime:
    """Return a day, or a time, as people write it (ISO 8601), in UTC; one without a zone is in UTC."""
    try:
        return _in_utc(datetime.fromisoformat(text.strip()))
    except ValueError:
        raise ValueError(
            f"{shortened(text)!r} is no time: write a day such as 2026-01-31, or a time such as "
            "2026-01-31T12:00:00Z."
        ) from None


def _in_utc(time: datetime) -> datetime:
    try:
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except OverflowError:
        raise ValueError("No calendar has this time in UTC: write a later or an earlier one.") from None


_Time = Annotated[datetime, AfterValidator(_in_utc)]


class AuditQuery(BaseModel):
    """Events to be read."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    since: _Time | None = Field(default=None, description="Time of the first; UTC, if it names no zone.")
    until: _Time | None = Field(default=None, description="Time before which they are.")
    collection: str | None = Field(default=None, max_length=100)
    action: Action | None = None
    cursor: str | None = Field(
        default=None, pattern=r"^\d{1,18}$", description="`next_cursor` of the page before."
    )
    limit: int = Field(default=100, ge=1, le=1000, description="Number of events on a page.")


def time_stamp(time: datetime | None) -> str | None:
    """Return a time in UTC as the catalogue keeps it."""
    return None if time is None else time.isoformat(timespec="microseconds")


router = APIRouter(prefix="/v1/audit", tags=["audit"], route_class=GuardedRoute)


@router.get(
    "",
    summary="Audit trail",
    responses=problem_responses(HTTPStatus.UNPROCESSABLE_ENTITY),
    dependencies=[may("auditor")],
)
@operation("audit", "read")
async def list_audit(parameters: Annotated[AuditQuery, Query()], services: InjectedServices) -> AuditPage:
    """Searches, views, exports, judgements and changes with their callers, the oldest first, page by page.

    Events of the last half second may be missing. Reading the trail is also an event.
    """
    since, until, after = (
        time_stamp(parameters.since),
        time_stamp(parameters.until),
        int(parameters.cursor or 0),
    )
    selection = Selection(since, until, parameters.collection, parameters.action)
    entries = await services.read(read_events, selection, after=after, limit=parameters.limit + 1)
    more = len(entries) > parameters.limit
    shown = entries[: parameters.limit]
    return AuditPage(
        events=[AuditEvent.from_entry(entry) for entry in shown],
        next_cursor=str(shown[-1].record["sequence"]) if more else None,
    )
