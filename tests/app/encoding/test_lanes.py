"""Lanes: batches side by side when enough queries wait, one lane for a few, and none forgotten between."""

import threading
import time
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from app.encoding.queue import EncodingQueue, Priority, QueueLimits
from tests.app.encoding.fakes import FakeEncoder
from tests.training.imaging.processes.decoding import wait_until
from training.models.embeddings import TextEmbeddings

PATIENCE = 30.0


class Gated(FakeEncoder):
    """Passes that note their thread and wait until the gate of their first text opens."""

    def __init__(self) -> None:
        super().__init__()
        self.gates: dict[str, threading.Event] = {}
        self.at_work: set[str] = set()
        self.threads: dict[str, str] = {}
        self.max_at_once = 0
        self._lock = threading.Lock()

    def embed_texts(self, texts: Sequence[str]) -> TextEmbeddings:
        with self._lock:
            self.at_work.add(texts[0])
            self.max_at_once = max(self.max_at_once, len(self.at_work))
            self.threads[texts[0]] = str(threading.get_ident())
        if texts[0] in self.gates:
            assert self.gates[texts[0]].wait(PATIENCE)
        found = super().embed_texts(texts)
        with self._lock:
            self.at_work.remove(texts[0])
        return found


@pytest.fixture
def encoder() -> Gated:
    return Gated()


@pytest.fixture
def queue(encoder: Gated, monkeypatch: pytest.MonkeyPatch) -> Iterator[EncodingQueue]:
    # However slow the machine is, no pass seems to hang.
    monkeypatch.setattr("app.encoding.queue._SLOW_PASS_S", 1000.0)
    made = EncodingQueue(encoder, QueueLimits(batch_size=4), lanes=2)
    yield made
    for gate in encoder.gates.values():
        gate.set()
    made.close()


def wait_until_at_work(encoder: Gated, *texts: str) -> None:
    wait_until(lambda: encoder.at_work >= set(texts))


def hold(encoder: Gated, queue: EncodingQueue, text: str) -> None:
    """Have a pass begin that lasts until its gate opens."""
    encoder.gates[text] = threading.Event()
    queue.submit("text", text)
    wait_until_at_work(encoder, text)


def test_a_few_texts_wait_to_be_encoded_together(encoder: Gated, queue: EncodingQueue) -> None:
    hold(encoder, queue, "first")
    late = queue.submit("text", "late")
    time.sleep(0.2)
    assert not late.done()
    encoder.gates["first"].set()
    late.result(PATIENCE)
    assert encoder.max_at_once == 1
    assert len(set(encoder.threads.values())) == 1


def test_enough_texts_are_encoded_beside_the_pass_in_work(encoder: Gated, queue: EncodingQueue) -> None:
    hold(encoder, queue, "first")
    more = [queue.submit("text", text) for text in ("a", "b")]
    assert [future.result(PATIENCE).vector.shape for future in more] == [(2,), (2,)]
    assert encoder.at_work == {"first"}
    assert encoder.batches == [2]


def test_an_image_and_a_probe_do_not_wait_for_a_pass_of_texts(encoder: Gated, queue: EncodingQueue) -> None:
    hold(encoder, queue, "first")
    image = np.full((3, 4, 4), 7, np.uint8)
    assert queue.submit("image", image).result(PATIENCE).vector.shape == (3,)
    assert queue.submit("text", "probe", priority=Priority.PROBE).result(PATIENCE).vector.shape == (2,)
    assert encoder.at_work == {"first"}


def test_a_text_does_not_wait_for_a_pass_that_seems_to_hang(
    encoder: Gated, queue: EncodingQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.encoding.queue._SLOW_PASS_S", 0.01)
    hold(encoder, queue, "first")
    time.sleep(0.05)
    assert queue.submit("text", "late").result(PATIENCE).vector.shape == (2,)
    assert encoder.at_work == {"first"}


def test_texts_that_came_while_both_lanes_worked_are_not_forgotten(
    encoder: Gated, queue: EncodingQueue
) -> None:
    encoder.gates["a"] = threading.Event()
    hold(encoder, queue, "first")
    beside = [queue.submit("text", text) for text in ("a", "b")]
    wait_until_at_work(encoder, "first", "a")
    late = queue.submit("text", "late")
    encoder.gates["first"].set()
    time.sleep(0.2)
    # One text is not worth a pass beside the other lane's.
    assert not late.done()
    encoder.gates["a"].set()
    late.result(PATIENCE)
    for future in beside:
        future.result(PATIENCE)


def test_a_text_leaves_the_place_behind_a_pass_that_becomes_slow(
    encoder: Gated, queue: EncodingQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold(encoder, queue, "first")
    late = queue.submit("text", "late")
    time.sleep(0.1)
    assert not late.done()
    # Nothing else is sent or ends: the pass alone grows old.
    monkeypatch.setattr("app.encoding.queue._SLOW_PASS_S", 0.05)
    late.result(PATIENCE)
    assert "first" in encoder.at_work
