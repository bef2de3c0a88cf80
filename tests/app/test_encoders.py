"""Encoders come when an active generation needs them and go when none does, also those that come late."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest
import torch
from PIL import Image
from torch import Tensor

from app.encoders import Encoders
from app.encoding import EncodingQueue, QueueLimits
from index.results import ActiveGeneration
from training.models.encoder import Encoder

PATIENCE = 30.0


class FakeEncoder:
    """One that reads images only."""

    info = None
    modalities = ("image",)

    def prepare_image(self, image: Image.Image) -> Tensor:
        return torch.zeros(3, 2, 2)

    def embed_images(self, images: Tensor) -> Tensor:
        return images


class Queues:
    """Which queues were made and closed; closing waits for the gate."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = 0
        self.closed = 0
        self.gate = threading.Event()
        self.gate.set()
        queues = self

        class Counted(EncodingQueue):
            def __init__(self, *arguments: object) -> None:
                super().__init__(*arguments)  # type: ignore[arg-type]
                queues.made += 1

            def close(self, timeout_s: float = PATIENCE) -> None:
                queues.gate.wait(timeout_s)
                super().close(timeout_s)
                queues.closed += 1

        monkeypatch.setattr("app.encoders.EncodingQueue", Counted)


@pytest.fixture
def queues(monkeypatch: pytest.MonkeyPatch) -> Queues:
    return Queues(monkeypatch)


def active(digest: str) -> ActiveGeneration:
    return ActiveGeneration("c", 1, "m", digest, 2, 1, False, Path(digest), 0)


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not true():
            await asyncio.sleep(0.005)


def test_an_encoder_that_comes_when_nobody_needs_it_any_more_is_closed(queues: Queues) -> None:
    gate, asked = threading.Event(), threading.Event()

    def load(bundle: Path) -> Encoder:
        asked.set()
        gate.wait(PATIENCE)
        return cast(Encoder, FakeEncoder())

    async def work() -> None:
        encoders = Encoders(load, QueueLimits(deadline_s=0.01))
        encoders.follow([active("a")])
        await until(asked.is_set)
        await asyncio.sleep(0.05)
        encoders.follow([])
        assert encoders.loaded() == {}
        gate.set()
        await until(lambda: queues.made == 1)
        encoders.follow([])
        await until(lambda: queues.closed == 1)
        assert encoders.loaded() == {}
        await encoders.close()

    asyncio.run(work())


def test_the_end_waits_for_all_encoders_that_are_being_closed(queues: Queues) -> None:
    async def work() -> None:
        encoders = Encoders(lambda _: cast(Encoder, FakeEncoder()), QueueLimits(deadline_s=0.01))
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

    asyncio.run(work())
