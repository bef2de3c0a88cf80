"""Threads of passes: their number, and one whose pass hangs is replaced; a second one ends the process."""

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from structlog.testing import capture_logs

from app.cli.errors import HANGING
from app.encoding.queue import EncodingQueue, EncodingTimeoutError, QueueLimits
from app.encoding.threads import ComputeThreads, ThreadedEncoder, use_torch_threads
from tests.app.encoding.fakes import FakeEncoder, Observer, queue_of
from tests.training.imaging.processes.decoding import wait_until
from training.common.host import cores


@pytest.fixture
def _own_count() -> object:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_own_count")
def test_passes_side_by_side_share_the_given_number_or_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ComputeThreads.share(6) == ComputeThreads(lanes=4, side_by_side=1, alone=6)
    assert ComputeThreads.share(9) == ComputeThreads(lanes=4, side_by_side=2, alone=9)
    assert ComputeThreads.share(1) == ComputeThreads(lanes=1, side_by_side=1, alone=1)
    assert ComputeThreads.share().lanes == min(cores(), 4)
    monkeypatch.setattr("app.encoding.threads.cores", lambda: 64)
    assert ComputeThreads.share() == ComputeThreads(lanes=4, side_by_side=16, alone=8)


@pytest.mark.usefixtures("_own_count")
def test_a_number_holds_in_the_encoders_thread_only() -> None:
    torch.set_num_threads(1)

    def encode(number: int | None) -> int:
        if number is not None:
            use_torch_threads(number)
        return torch.get_num_threads()

    results = []
    for number in (3, None):
        with ThreadPoolExecutor(1) as thread:
            results.append(thread.submit(encode, number).result())
    assert results == [3, 1]


# Longer than anything takes on a busy machine; a test that passes waits for none of it.
PATIENCE = 30.0
LIMITS = QueueLimits(deadline_s=PATIENCE, hang_s=0.2)


class Hanging(FakeEncoder):
    """Texts that contain `hang` wait for the event."""

    def __init__(self) -> None:
        super().__init__()
        self.release = threading.Event()
        self.before = self._maybe_hang

    def _maybe_hang(self, texts: Sequence[str]) -> None:
        if "hang" in texts:
            self.release.wait(PATIENCE)


def workers() -> int:
    return sum(thread.name.startswith("encoding-worker") for thread in threading.enumerate())


def test_a_pass_that_hangs_is_given_up_and_others_are_encoded_by_a_new_thread() -> None:
    encoder, observer = Hanging(), Observer()
    given_up: list[bool] = []
    with queue_of(encoder, LIMITS, observer, lambda: given_up.append(True)) as queue:
        hangs = queue.submit("text", "hang")
        with pytest.raises(EncodingTimeoutError):
            hangs.result(PATIENCE)
        assert queue.submit("text", "harmless").result(PATIENCE).vector.shape == (2,)
        assert observer.restarts == 1
        assert not given_up
        before = workers()
        encoder.release.set()
        wait_until(lambda: workers() == before - 1)
        assert queue.submit("text", "again").result(PATIENCE).vector.shape == (2,)
    assert not given_up


def test_each_thread_that_encodes_is_set_up_first() -> None:
    encoder = Hanging()
    entered: list[int] = []
    threaded = ThreadedEncoder(encoder, LIMITS, set_up=lambda: entered.append(threading.get_ident()))
    queue = EncodingQueue(threaded, LIMITS)
    with pytest.raises(EncodingTimeoutError):
        queue.submit("text", "hang").result(PATIENCE)
    queue.submit("text", "harmless").result(PATIENCE)
    assert len(set(entered)) == 2
    encoder.release.set()
    queue.close()


def test_the_process_is_given_up_when_the_replacement_hangs_too() -> None:
    encoder = Hanging()
    given_up = threading.Event()
    with capture_logs() as lines, queue_of(encoder, LIMITS, None, given_up.set) as queue:
        for _ in range(2):
            assert not given_up.is_set()
            with pytest.raises(EncodingTimeoutError):
                queue.submit("text", "hang").result(PATIENCE)
        assert given_up.wait(PATIENCE)
        told = [(line["log_level"], line.get("limit_s")) for line in lines if "hangs" in line["event"]]
        assert told == [("error", 0.2), ("error", 0.2), ("critical", None)]
        # No third thread is lost to it; the queue continues when one of the two comes back.
        waits = queue.submit("text", "waits")
        time.sleep(0.3)
        assert not waits.done()
        encoder.release.set()
        assert waits.result(PATIENCE).vector.shape == (2,)


@pytest.mark.slow
@pytest.mark.anyio
async def test_queries_behind_a_hanging_encoder_end_at_their_deadline() -> None:
    encoder = Hanging()
    with queue_of(encoder, QueueLimits(deadline_s=1.0, hang_s=0.2)) as queue:
        for text in ("hang", "hang", "waits"):
            with pytest.raises(EncodingTimeoutError):
                await queue.encode_text(text)
        late = queue.submit("text", "late")
        with pytest.raises(EncodingTimeoutError):
            late.result(PATIENCE)
        encoder.release.set()


def test_the_limit_of_a_pass_follows_the_deadline_but_forgives_a_slow_machine() -> None:
    assert QueueLimits(deadline_s=30.0).pass_limit_s == 60.0
    assert QueueLimits(deadline_s=0.5).pass_limit_s == 10.0


def test_the_end_of_a_hanging_process_waits_for_nobody_who_reads_its_reason() -> None:
    script = (
        "import os; from app.cli.errors import leave_hanging; "
        "os.set_blocking(2, False)\n"
        "try:\n    while True: os.write(2, bytes(4096))\n"
        "except BlockingIOError:\n    os.set_blocking(2, True)\n"
        "leave_hanging()"
    )
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE) as process:
        try:
            assert process.wait(PATIENCE) == HANGING
        finally:
            process.kill()


def test_a_worker_for_which_there_is_no_thread_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    start, refused = threading.Thread.start, list[threading.Thread]()

    def refuse_once(self: threading.Thread) -> None:
        if self.name.startswith("encoding-worker") and not refused:
            refused.append(self)
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", refuse_once)
    with queue_of(FakeEncoder(), LIMITS) as queue:
        assert queue.submit("text", "harmless").result(PATIENCE).vector.shape == (2,)
    assert refused


def test_the_end_of_a_hanging_process_has_a_reason_and_a_code_of_its_own() -> None:
    script = "from app.cli.errors import leave_hanging; leave_hanging()"
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert ended.returncode == HANGING == 69
    assert "hangs" in ended.stderr
