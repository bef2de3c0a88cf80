"""Jobs that sync with an image archive: as HTTP takes them, when they are due, and who may follow them."""

import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, Literal

from sqlalchemy.orm import Session

from app.edge.problems import invalid
from app.edge.schemas import Request
from app.jobs.kinds import Rules
from app.setting_values import is_time
from app.settings import Settings
from index.catalogue import Catalogue
from index.catalogue.jobs import Job, add_job, latest_job, look_alone
from index.errors import JobExistsError
from index.keys.api_keys import Role

SYNC: Final = "pacs_sync"
_NOTE: Final = "--note"


class PacsSyncJob(Request):
    """Run the sync with an image archive that the service's setting RECOQUEST_PACS_SYNC describes."""

    kind: Literal["pacs_sync"]

    def arguments(self, _session: Session, settings: Settings) -> list[str]:
        """Arguments of the command."""
        # The service never connects to an address from a caller.
        if settings.pacs_sync is None:
            raise invalid(
                "kind",
                "The setting RECOQUEST_PACS_SYNC describes no sync: set it for the service and its workers.",
            )
        return shlex.split(settings.pacs_sync)


def synced_collection(sync: str) -> str:
    """Return the collection of a sync, by the arguments in the settings."""
    return shlex.split(sync)[0]


def study_sync(sync: str, study: str, *, note: bool = False) -> list[str]:
    """Return the arguments of a sync of one study."""
    return [*shlex.split(sync), *([_NOTE] if note else []), "--study", study]


def give_sync(settings: Settings, catalogue: Catalogue, at: datetime | None = None) -> Job | None:
    """Submit the sync that is due, unless the previous one is still running."""
    if settings.pacs_sync is None or settings.pacs_sync_at is None:
        return None
    minute = (at or datetime.now(UTC)).replace(second=0, microsecond=0)
    if not is_time(settings.pacs_sync_at, minute):
        return None
    arguments = shlex.split(settings.pacs_sync)
    with catalogue.write() as session:
        last = _last_sync(session, arguments)
        if last is not None and (
            not last.has_ended or last.created >= minute.isoformat(timespec="microseconds")
        ):
            return None
        return add_job(session, SYNC, arguments)


def _last_sync(session: Session, arguments: Sequence[str]) -> Job | None:
    """Return the latest sync with these arguments; others who look wait until the transaction ends."""
    look_alone(session, arguments)
    return latest_job(session, SYNC, lambda job_arguments: list(job_arguments) == list(arguments))


def _refuse_second(session: Session, arguments: Sequence[str]) -> None:
    last = _last_sync(session, arguments)
    if last is not None and last.state == "queued":
        raise JobExistsError(
            f"Job {last.id} waits to sync the same, and will import everything that is there by then: submit "
            "no other before it has started."
        )


def _role(arguments: Sequence[str]) -> tuple[Role, str] | None:
    """Return who may follow a sync of one study."""
    match arguments:
        case [collection, *_, "--study", _]:
            return "curator", collection
    return None


SYNC_RULES: Final = Rules(_refuse_second, _role)
