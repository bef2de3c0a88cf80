"""Keeps a running service current: models are loaded, views follow the catalogue, figures are exported."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final, TypeVar

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
_Read = TypeVar("_Read")


async def follow(services: Services) -> None:
    """Keep the encoders loaded of active generations, and of those that any process is about to activate."""
    while True:
        try:
            followed = await services.threads.background(generations_to_load, services.engine)
            services.encoders.follow(followed)
        except Exception as error:  # noqa: BLE001 - a failed look is repeated; readiness tells of it
            _log.error("active generations cannot be read", error=type(error).__name__)
        await asyncio.sleep(services.settings.refresh_s)


async def refresh_views(services: Services) -> None:
    """Keep the views of these generations current, so that no search has to load one or catch much up.

    What other processes have removed is freed. The service is ready once every view has been tried.
    """
    metrics, catalogue = services.metrics, services.engine.home.catalogue
    count_at = 0.0
    while True:
        try:
            await services.threads.background(services.engine.forget_removed)
            followed = await services.threads.background(generations_to_load, services.engine)
        except Exception as error:  # noqa: BLE001 - a failed look is repeated; readiness tells of it
            _log.error("generations to load ahead cannot be read", error=type(error).__name__)
        else:
            for active in followed:
                await _warm(services, services.engine.warm, active.generation)
            services.readiness.views_tried.set()
            for active in followed:
                await _warm(services, services.engine.warm_filters, active.generation)
                if services.sharing.leads():
                    await _measure(services, active)
            await _export(services, "recalls", services.engine.measured_recalls, metrics.recalls_measured)
        if time.monotonic() >= count_at and services.sharing.leads():
            await _export(
                services, "verdicts", partial(verdicts_of_months, catalogue), metrics.verdicts_counted
            )
            await _export(
                services,
                "figures of the installation",
                partial(read_installation, services.settings, catalogue),
                metrics.installation_read,
            )
            count_at = time.monotonic() + _COUNTS_SECONDS
        await asyncio.sleep(services.settings.refresh_s)


async def publish_figures(services: Services) -> None:
    """Keep what this process has counted where the other processes of the service read it."""
    while True:
        try:
            services.metrics.publish()
        except Exception as error:  # noqa: BLE001 - a failed write is repeated
            _log.error("the figures of a process are not shared", error=type(error).__name__)
        await asyncio.sleep(_PUBLISH_SECONDS)


async def _export(
    services: Services, name: str, read: Callable[[], _Read], show: Callable[[_Read], None]
) -> None:
    try:
        found = await services.threads.background(read)
    except Exception as error:  # noqa: BLE001 - a failed look is repeated
        _log.warning(f"{name} cannot be read", error=type(error).__name__)
    else:
        show(found)


async def _measure(services: Services, active: ActiveGeneration) -> None:
    """Measure which scores count in a collection that has grown."""
    try:
        loaded = await services.encoders.of(active)
        measure = partial(services.engine.measure_confidence, active.generation, loaded.encoder, grown=True)
        await services.threads.background(measure)
    except Exception as error:  # noqa: BLE001 - searches go on with what was measured before
        name = type(error).__name__
        _log.warning("which scores count is not measured", generation=active.generation, error=name)


async def _warm(services: Services, load: Callable[[int], None], generation: int) -> None:
    try:
        await services.threads.background(load, generation)
    except Exception as error:  # noqa: BLE001 - a search that needs it will tell what is wrong
        name, kind = load.__name__, type(error).__name__
        _log.warning("a collection cannot be loaded ahead", step=name, generation=generation, error=kind)


def verdicts_of_months(
    catalogue: Catalogue, today: datetime | None = None
) -> dict[str, dict[tuple[str, str], int]]:
    """Count the judgements that stand of the calendar month of `today`, in UTC, and of the one before."""
    begin = (today or datetime.now(UTC)).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    before = (begin - timedelta(days=1)).replace(day=1)
    after = (begin + timedelta(days=31)).replace(day=1)
    first, second, third = (time.isoformat(timespec="microseconds") for time in (before, begin, after))
    with catalogue.read() as session:
        return {
            "current": count_verdicts(session, second, third),
            "last": count_verdicts(session, first, second),
        }
