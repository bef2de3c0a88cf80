"""Readiness: a read of the catalogue, a query through every encoder in use, and views loaded at the start."""

import asyncio
import time
from contextlib import suppress

import structlog
from PIL import Image

from app.concurrency import Threads
from app.encoding.pool import Encoders, LoadedEncoder
from app.encoding.queue import Priority, QueueFullError
from app.settings import Settings
from index.engine import SearchEngine
from index.errors import HomeError, NoActiveGenerationError, UnknownCollectionError
from index.search.results import ActiveGeneration

# Some collections can't be searched, since their encoder can't be loaded, while others can.
DEGRADED = "degraded: the encoder cannot be loaded"

_PROBE = "ready"
_BROKEN = "cannot be loaded"

_log = structlog.stdlib.get_logger(__name__)


class Readiness:
    """Checks whether searches are answered now, one check at a time; a report is reused for a moment.

    Attributes:
        views_tried: Set when the views of the generations in use at the start are loaded, or failed to be:
            one that failed keeps nobody from searching other collections.
    """

    def __init__(
        self, settings: Settings, engine: SearchEngine, encoders: Encoders, threads: Threads
    ) -> None:
        self._engine = engine
        self._threads = threads
        self._encoders = encoders
        self._timeout_s = settings.readiness_timeout_s
        self._cache_s = settings.readiness_cache_s
        self._lock = asyncio.Lock()
        self.views_tried = asyncio.Event()
        self._report: dict[str, str] = {}
        self._checked_at = float("-inf")

    async def report(self) -> dict[str, str]:
        """Run the checks, or give their last results while these are fresh: ok, DEGRADED, or a failure."""
        async with self._lock:
            if time.monotonic() - self._checked_at > self._cache_s:
                self._report = await self._check()
                self._checked_at = time.monotonic()
            return self._report

    async def _check(self) -> dict[str, str]:
        # A moved home may have taken its catalogue along: report both.
        seen: dict[str, str] = {}
        try:
            async with asyncio.timeout(self._timeout_s):
                seen["home"] = await self._threads.health(_look_at_home, self._engine)
                actives = await self._threads.health(active_generations, self._engine)
        except TimeoutError:
            return {**seen, "catalogue": "took too long"}
        except Exception as error:  # noqa: BLE001 - after any error the service is not ready
            _log.error("catalogue check failed", error=type(error).__name__)
            return {**seen, "catalogue": "cannot be read"}
        by_digest = {active.digest: active for active in actives}
        views, *results = await asyncio.gather(
            self._check_views(), *(self._check_encoder(active) for active in by_digest.values())
        )
        if "ok" in results:
            results = [DEGRADED if result == _BROKEN else result for result in results]
        named = {f"encoder {digest[:12]}": result for digest, result in zip(by_digest, results, strict=True)}
        return {**seen, "catalogue": "ok", "views": views, **named}

    async def _check_views(self) -> str:
        with suppress(TimeoutError):
            await asyncio.wait_for(self.views_tried.wait(), self._timeout_s)
        return "ok" if self.views_tried.is_set() else "are being loaded"

    async def _check_encoder(self, active: ActiveGeneration) -> str:
        if self._encoders.is_broken(active.digest):
            return _BROKEN
        try:
            async with asyncio.timeout(self._timeout_s):
                loaded = await self._encoders.get(active)
                return await self._pass_through(loaded)
        except TimeoutError:
            return "took too long"
        except Exception as error:  # noqa: BLE001 - after any error the service is not ready
            if self._encoders.is_broken(active.digest):
                return _BROKEN
            _log.warning("encoder check failed", digest=active.digest, error=type(error).__name__)
            return "failed"

    async def _pass_through(self, loaded: LoadedEncoder) -> str:
        try:
            if "text" in loaded.encoder.modalities:
                await loaded.queue.encode_text(_PROBE, priority=Priority.PROBE)
            else:
                await loaded.queue.encode_image(
                    loaded.encoder.prepare_image(Image.new("RGB", (8, 8))), priority=Priority.PROBE
                )
        except QueueFullError:
            # A full queue that moves is busy, not broken: a recent batch counts as a pass of the encoder.
            return "ok" if loaded.queue.seconds_since_success < self._timeout_s else "stuck"
        return "ok"


def _look_at_home(engine: SearchEngine) -> str:
    try:
        engine.home.catalogue.guard()
    except HomeError as error:
        _log.error("home check failed", reason=str(error))
        return "was moved or replaced"
    return "ok"


def active_generations(engine: SearchEngine) -> list[ActiveGeneration]:
    """The active generation of every collection that has one."""
    actives = []
    for name in engine.names():
        # Another process may remove one at this moment.
        with suppress(NoActiveGenerationError, UnknownCollectionError):
            actives.append(engine.active(name))
    return actives


def generations_to_load(engine: SearchEngine) -> list[ActiveGeneration]:
    """The active generation of every collection, and the generations that are being preloaded."""
    return [*active_generations(engine), *engine.preloading()]
