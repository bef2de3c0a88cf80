"""The audit trail, for auditors."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Query

from app.access.permissions import GuardedRoute, may
from app.audit.schemas import AuditEvent, AuditPage, AuditWanted
from app.edge.http.problems import problem_responses
from app.edge.operations import operation
from app.services import InjectedServices, Services
from index.audit.listing import Entry, read_events

router = APIRouter(prefix="/v1/audit", tags=["audit"], route_class=GuardedRoute)


@router.get(
    "",
    summary="Audit trail",
    responses=problem_responses(HTTPStatus.UNPROCESSABLE_ENTITY),
    dependencies=[may("auditor")],
)
@operation("audit")
async def list_audit(wanted: Annotated[AuditWanted, Query()], services: InjectedServices) -> AuditPage:
    """Searches, views, exports, judgements and changes with their callers, the oldest first, page by page.

    Events of the last half second may still be on their way. Reading the trail is an event, too.
    """
    entries = await services.threads.read(_read, services, wanted)
    more = len(entries) > wanted.limit
    shown = entries[: wanted.limit]
    return AuditPage(
        events=[AuditEvent.of(entry) for entry in shown],
        next_cursor=str(shown[-1].record["sequence"]) if more else None,
    )


def _read(services: Services, wanted: AuditWanted) -> list[Entry]:
    with services.engine.home.catalogue.read() as session:
        after = int(wanted.cursor or 0)
        return read_events(session, wanted.selection(), after=after, limit=wanted.limit + 1)
