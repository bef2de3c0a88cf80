"""Verdicts of this month and the one before, for the service's figures."""

from datetime import UTC, datetime, timedelta

from index.catalogue import Catalogue
from index.feedback.judgements import count_verdicts


def verdicts_of_months(
    catalogue: Catalogue, today: datetime | None = None
) -> dict[str, dict[tuple[str, str], int]]:
    """Count the judgements that stand of this calendar month in UTC and of the one before.

    Args:
        catalogue: The catalogue.
        today: A time in this month; None: now.

    Raises:
        CatalogueError: The catalogue cannot be used.
    """
    begin = (today or datetime.now(UTC)).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    before = (begin - timedelta(days=1)).replace(day=1)
    after = (begin + timedelta(days=31)).replace(day=1)
    first, second, third = (time.isoformat(timespec="microseconds") for time in (before, begin, after))
    with catalogue.read() as session:
        return {
            "current": count_verdicts(session, second, third),
            "last": count_verdicts(session, first, second),
        }
