"""An encoder with a gate and an observer, for tests of the queue."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from app.encoding.queue import EncodingQueue, Kind, QueueLimits
from app.encoding.threads import ThreadedEncoder
from training.models.image_input import Pixels
from training.models.text_input import TextEmbeddings


def vector_of(text: str) -> NDArray[np.float32]:
    return np.array([len(text), sum(map(ord, text))], dtype=np.float32)


class FakeEncoder:
    """Vectors that tell which text they are of; a gate holds it, and `before` may raise."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.texts: list[str] = []
        self.gate = threading.Event()
        self.gate.set()
        self.started = threading.Event()
        self.before: Callable[[Sequence[str]], None] = lambda _texts: None

    def embed_texts(self, texts: Sequence[str]) -> TextEmbeddings:
        self.started.set()
        self.gate.wait(10)
        self.before(texts)
        self.batches.append(len(texts))
        self.texts.extend(texts)
        vectors = np.stack([vector_of(text) for text in texts])
        return TextEmbeddings(vectors, (None,) * len(texts), tuple(map(len, texts)))

    def embed_images(self, images: Pixels) -> NDArray[np.float32]:
        self.batches.append(len(images))
        vectors: NDArray[np.float32] = images.mean((2, 3), dtype=np.float32)
        return vectors

    def embed_regions(self, images: Pixels) -> NDArray[np.float32]:
        self.batches.append(len(images))
        regions: NDArray[np.float32] = images.mean(3, dtype=np.float32)
        return regions


class Observer:
    def __init__(self) -> None:
        self.sizes: list[tuple[Kind, int]] = []
        self.restarts = 0

    def encoded(self, kind: Kind, size: int, seconds: float) -> None:
        assert seconds >= 0
        self.sizes.append((kind, size))

    def restarted(self) -> None:
        self.restarts += 1


@contextmanager
def queue_of(
    encoder: FakeEncoder,
    limits: QueueLimits | None = None,
    observer: Observer | None = None,
    give_up: Callable[[], object] = lambda: None,
) -> Iterator[EncodingQueue]:
    observer = observer or Observer()
    threaded = ThreadedEncoder(encoder, limits or QueueLimits(), observer.restarted, give_up)
    queue = EncodingQueue(threaded, limits, observer)
    try:
        yield queue
    finally:
        encoder.gate.set()
        queue.close()
