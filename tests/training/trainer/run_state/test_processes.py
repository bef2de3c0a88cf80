"""Which of several processes speaks, and what one process alone makes of their agreements."""

import logging

import pytest
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore
from torch.distributed.distributed_c10d import Store

from training.common.errors import DataError, RecipeError
from training.trainer.run_state import processes
from training.trainer.run_state.errors import AnotherProcessFailedError, TrainingError
from training.trainer.run_state.processes import Processes, check_divisible, one_voice

GLOO = "[../third_party/gloo/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:3405"


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    """What two processes meet over; this one is what `become` says."""
    store = HashStore()
    monkeypatch.setattr(processes, "launched_processes", lambda: 2)
    become(monkeypatch, 0, store)
    return store


def become(monkeypatch: pytest.MonkeyPatch, rank: int, store: Store) -> None:
    monkeypatch.setattr(processes, "rendezvous", lambda _: iter([(store, rank, 2)]))


def fail(error: BaseException) -> None:
    with one_voice():
        raise error


def test_the_first_that_fails_speaks_and_no_other(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    become(monkeypatch, 1, store)
    with pytest.raises(DataError, match="broken"):
        fail(DataError("broken"))
    become(monkeypatch, 0, store)
    for consequence in (DataError("broken"), RuntimeError(GLOO), KeyboardInterrupt()):
        with pytest.raises(AnotherProcessFailedError):
            fail(consequence)


def test_a_run_that_torchrun_starts_again_speaks_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    for attempt in ("0", "1"):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", attempt)
        with pytest.raises(DataError):
            fail(DataError("broken"))


@pytest.mark.usefixtures("store")
@pytest.mark.parametrize(
    ("error", "raised", "said"),
    [
        (RuntimeError(GLOO), TrainingError, r"ended without saying why.*--resume"),
        (dist.DistNetworkError("reset"), TrainingError, r"ended without saying why.*--resume"),
        (RuntimeError("shape mismatch"), RuntimeError, "shape mismatch"),
    ],
)
def test_a_process_that_was_killed_is_told_of_in_plain_words_and_a_defect_stays_one(
    error: Exception, raised: type[Exception], said: str
) -> None:
    with pytest.raises(raised, match=said):
        fail(error)


class GoneStore(HashStore):
    """The store of a process that has ended."""

    def add(self, key: str, value: int) -> int:
        raise dist.DistNetworkError(f"the connection was reset while adding {value} to {key}")


@pytest.mark.usefixtures("store")
def test_a_store_that_is_gone_means_that_another_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    become(monkeypatch, 1, GoneStore())
    with pytest.raises(AnotherProcessFailedError):
        fail(DataError("broken"))


def test_only_the_leading_process_reports_and_warns(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for rank in (0, 1):
        become(monkeypatch, rank, store)
        with one_voice() as speaks:
            assert speaks == (rank == 0)
            logging.getLogger("training.anything").warning("from %d", rank)
    logging.getLogger("training.anything").warning("afterwards")
    assert caplog.messages == ["from 0", "afterwards"]


def test_one_process_agrees_with_itself() -> None:
    alone = Processes()
    assert alone.is_main
    assert alone.any_rank([True, False]) == [True, False]
    assert alone.gathered("value") == ["value"]
    assert alone.broadcast("value") == "value"
    alone.check_alike("value", "data")
    with one_voice() as speaks:
        assert speaks


def test_a_batch_that_cannot_be_shared_evenly_is_refused() -> None:
    check_divisible(6, 3)
    with pytest.raises(RecipeError, match="multiple of 4"):
        check_divisible(6, 4)
