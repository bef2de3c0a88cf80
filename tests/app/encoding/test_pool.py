"""Encoders come when an active generation needs them and go when none does, also those that come late."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from structlog.testing import capture_logs

from app.concurrency import collected_timings
from app.encoding.pool import EncoderBrokenError, Encoders
from app.encoding.queue import EncodingQueue, QueueLimits
from index.search.results import ActiveGeneration
from training.common.errors import BundleError
from training.models.encoder import Encoder
from training.models.image_input import Pixels

PATIENCE = 30.0
# With such a deadline, encoders that are needed no more are closed soon.
SOON = QueueLimits(deadline_s=0.01)

pytestmark = pytest.mark.anyio


class FakeEncoder:
    """One that reads images only."""

    info = None
    modalities = ("image",)
    fixed_threads = False
    regions = False

    def prepare_image(self, image: Image.Image) -> Pixels:
        return np.zeros((3, 2, 2), np.uint8)

    def embed_images(self, images: Pixels) -> NDArray[np.float32]:
        return images.astype(np.float32)


class Queues:
    """Which queues were made and closed; closing waits for the gate."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = 0
        self.closed = 0
        self.gate = threading.Event()
        self.gate.set()
        queues = self

        class Counted(EncodingQueue):
            def __init__(self, *arguments: object, **named: object) -> None:
                super().__init__(*arguments, **named)  # type: ignore[arg-type]
                queues.made += 1

            def close(self, timeout_s: float = PATIENCE) -> None:
                queues.gate.wait(timeout_s)
                super().close(timeout_s)
                queues.closed += 1

        monkeypatch.setattr("app.encoding.pool.EncodingQueue", Counted)


@pytest.fixture
def queues(monkeypatch: pytest.MonkeyPatch) -> Queues:
    return Queues(monkeypatch)


def active(digest: str, bundle: Path | None = None) -> ActiveGeneration:
    return ActiveGeneration(1, "uid", 1, "c", "m", digest, 2, 1, False, bundle or Path(digest), 0)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not true():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def opened(
    limits: QueueLimits | None = None, load: Callable[[Path], object] = lambda _: FakeEncoder()
) -> AsyncIterator[Encoders]:
    """Encoders, which are closed at the end."""
    encoders = Encoders(cast("Callable[[Path], Encoder]", load), limits or QueueLimits())
    yield encoders
    await encoders.close()


async def test_who_waits_for_an_encoder_is_told_how_long_it_took_to_load() -> None:
    def load(bundle: Path) -> object:
        time.sleep(0.2)
        return FakeEncoder()

    timings_seen = []
    async with opened(load=load) as encoders:
        for _ in range(2):
            with collected_timings() as timings:
                await encoders.get(active("a"))
            timings_seen.append(timings.milliseconds())
    assert timings_seen[0]["load"] >= 200
    assert timings_seen[1] == {}


async def test_an_encoder_that_comes_when_nobody_needs_it_any_more_is_closed(queues: Queues) -> None:
    gate, requested = threading.Event(), threading.Event()

    def load(bundle: Path) -> object:
        requested.set()
        gate.wait(PATIENCE)
        return FakeEncoder()

    async with opened(SOON, load) as encoders:
        encoders.follow([active("a")])
        await until(requested.is_set)
        await asyncio.sleep(0.05)
        encoders.follow([])
        assert encoders.loaded() == {}
        gate.set()
        await until(lambda: len(encoders.loaded()) == 1)
        encoders.follow([])
        await until(lambda: queues.closed == 1)
        assert encoders.loaded() == {}


async def test_the_end_waits_for_all_encoders_that_are_being_closed(queues: Queues) -> None:
    async with opened(SOON) as encoders:
        encoders.follow([active("a"), active("b")])
        await until(lambda: len(encoders.loaded()) == 2)
        await asyncio.sleep(0.05)
        queues.gate.clear()
        encoders.follow([])
        assert encoders.loaded() == {}
        ending = asyncio.create_task(encoders.close())
        await asyncio.sleep(0.05)
        assert not ending.done()
        queues.gate.set()
        await ending
        assert queues.closed == 2


class Bundles:
    """Loads any bundle but the broken ones, and counts the tries."""

    def __init__(self, *broken: str) -> None:
        self.broken = set(broken)
        self.tries: list[str] = []

    def load(self, bundle: Path) -> object:
        self.tries.append(bundle.name)
        if bundle.name in self.broken:
            raise BundleError(f"{bundle} is damaged.")
        return FakeEncoder()


async def _ask_for(encoders: Encoders, expected: ActiveGeneration, seconds: float) -> None:
    """Follow and ask all the time, as a service under load does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        encoders.follow([expected])
        with suppress(BundleError):
            await encoders.get(expected)
        await asyncio.sleep(0.01)


async def test_a_broken_bundle_rests_longer_after_each_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.encoding.pool._FIRST_REST_S", 0.2)
    bundles = Bundles("broken")
    with capture_logs() as lines:
        async with opened(load=bundles.load) as encoders:
            await _ask_for(encoders, active("broken"), 1.2)
            # After 0, .2, .6 s; the fourth try is due at 1.4 s.
            assert 2 <= len(bundles.tries) <= 3
            assert encoders.is_broken("broken")
            with pytest.raises(EncoderBrokenError) as refused:
                await encoders.get(active("broken"))
            assert "damaged" not in str(refused.value)
    timings_seen = {"event": "encoder cannot be loaded", "log_level": "error", "digest": "broken"}
    timings_seen |= {"error": "BundleError", "reason": "broken is damaged."}
    for tries, rest_s in ((1, 0.2), (2, 0.4)):
        assert {**timings_seen, "tries": tries, "next_try_s": rest_s} in lines


async def test_a_bundle_is_tried_again_at_once_when_its_folder_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.encoding.pool._FIRST_REST_S", 1000.0)
    monkeypatch.setattr("app.encoding.pool._MAX_REST_S", 1000.0)
    monkeypatch.setattr("app.encoding.pool._LOOK_S", 0.01)
    bundles, folder = Bundles("b"), tmp_path / "b"
    folder.mkdir()
    expected = active("digest", folder)

    async with opened(load=bundles.load) as encoders:
        await _ask_for(encoders, expected, 0.3)
        assert bundles.tries == ["b"]
        bundles.broken.clear()
        (folder / "model.safetensors").write_bytes(b"mended")

        def mended() -> bool:
            encoders.follow([expected])
            return "digest" in encoders.loaded()

        await until(mended)
        assert not encoders.is_broken("digest")


async def test_an_encoder_that_is_given_up_ends_the_rest_of_its_bundle() -> None:
    before = asyncio.all_tasks()
    async with opened(SOON, Bundles("broken").load) as encoders:
        encoders.follow([active("broken")])
        await until(lambda: encoders.is_broken("broken"))
        await asyncio.sleep(0.05)
        encoders.follow([])
        assert not encoders.is_broken("broken")
        await encoders.close()
        await until(lambda: asyncio.all_tasks() == before)


async def test_a_bundle_whose_first_pass_fails_is_broken_and_leaves_no_queue(queues: Queues) -> None:
    class Failing(FakeEncoder):
        def embed_images(self, images: Pixels) -> NDArray[np.float32]:
            raise RuntimeError

    async with opened(SOON, lambda _: Failing()) as encoders:
        encoders.follow([active("a")])
        await until(lambda: encoders.is_broken("a"))
    assert queues.made == queues.closed


async def test_first_pass_measurement_and_batches_are_made_by_one_thread() -> None:
    seen: set[int] = set()

    class Noting(FakeEncoder):
        def embed_images(self, images: Pixels) -> NDArray[np.float32]:
            seen.add(threading.get_ident())
            return np.zeros((len(images), 2), np.float32)

    async with opened(load=lambda _: Noting()) as encoders:
        loaded = await encoders.get(active("a"))
        await loaded.queue.encode_image(np.zeros((3, 2, 2), np.uint8))
    assert len(seen) == 1
    assert threading.get_ident() not in seen
