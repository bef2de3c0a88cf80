"""Keeps a running service current: models are loaded, views follow the catalogue, figures are exported."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

import structlog

from app.edge.metrics import read_installation
from app.health.readiness import generations_to_load
from app.services import Services
from index.catalogue import Catalogue
from index.feedback import count_verdicts
from index.search.results import ActiveGeneration

# Judgements of two months are counted, which may be hundreds of thousands.
_COUNTS_SECONDS: Final = 30.0
# A process that is killed loses what it has counted since.
_PUBLISH_SECONDS: Final = 2.0

_log = structlog.stdlib.get_logger(__name__)


@contextmanager
def _logged(tell: Callable[..., object], event: str, **about: object) -> Iterator[None]:
    """Log a failure of the block; it is retried, and the service uses the previous state."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the other work continues after any error
        tell(event, error=type(error).__name__, **about)


async def follow(services: Services) -> None:
    """Keep the encoders loaded of active generations, and of those that any process is about to activate."""
    while True:
        # Readiness reports a failure.
        with _logged(_log.error, "active generations cannot be read"):
            followed = await services.threads.background(generations_to_load, services.engine)
            services.encoders.follow(followed)
        await asyncio.sleep(services.settings.refresh_s)


async def refresh_views(services: Services) -> None:
    """Keep the views of these generations current, so that no search has to load one or catch much up.

    What other processes have removed is freed. The service is ready once every view has been tried.
    """
    metrics, engine, background = services.metrics, services.engine, services.threads.background
    count_at = 0.0
    while True:
        followed: list[ActiveGeneration] | None = None
        with _logged(_log.error, "generations to load ahead cannot be read"):
            await background(engine.forget_removed)
            followed = await background(generations_to_load, engine)
        if followed is not None:
            for active in followed:
                await _warm(services, engine.warm, active.generation)
            services.readiness.views_tried.set()
            for active in followed:
                await _warm(services, engine.warm_filters, active.generation)
                if services.sharing.is_main():
                    await _measure(services, active)
            with _logged(_log.warning, "recalls cannot be read"):
                metrics.recalls_measured(await background(engine.measured_recalls))
        if time.monotonic() >= count_at and services.sharing.is_main():
            with _logged(_log.warning, "verdicts cannot be read"):
                metrics.verdicts_counted(await background(verdicts_of_months, engine.home.catalogue))
            with _logged(_log.warning, "figures of the installation cannot be read"):
                figures = await background(read_installation, services.settings, engine.home.catalogue)
                metrics.installation_read(figures)
            count_at = time.monotonic() + _COUNTS_SECONDS
        await asyncio.sleep(services.settings.refresh_s)


async def publish_figures(services: Services) -> None:
    """Keep what this process has counted where the other processes of the service read it."""
    while True:
        with _logged(_log.error, "the figures of a process are not shared"):
            services.metrics.publish()
        await asyncio.sleep(_PUBLISH_SECONDS)


async def _measure(services: Services, active: ActiveGeneration) -> None:
    """Measure which scores are confident in a collection that has grown; searches use the old ones."""
    with _logged(_log.warning, "confident scores were not measured", generation=active.generation):
        encoder, measure = (await services.encoders.get(active)).encoder, services.engine.measure_confidence
        await services.threads.background(measure, active.generation, encoder, grown=True)


async def _warm(services: Services, load: Callable[[int], None], generation: int) -> None:
    # A search that needs it will report the error.
    about = {"step": load.__name__, "generation": generation}
    with _logged(_log.warning, "a collection cannot be loaded ahead", **about):
        await services.threads.background(load, generation)


def verdicts_of_months(
    catalogue: Catalogue, today: datetime | None = None
) -> dict[str, dict[tuple[str, str], int]]:
    """Count the valid judgements of the calendar month of `today`, in UTC, and of the previous one."""
    begin = (today or datetime.now(UTC)).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    before = (begin - timedelta(days=1)).replace(day=1)
    after = (begin + timedelta(days=31)).replace(day=1)
    first, second, third = (time.isoformat(timespec="microseconds") for time in (before, begin, after))
    with catalogue.read() as session:
        return {
            "current": count_verdicts(session, second, third),
            "last": count_verdicts(session, first, second),
        }
