"""Several processes that train one model: who they are, what they agree on, and which of them speaks."""

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeVar

import torch
import torch.distributed as dist
from lightning_fabric import Fabric
from torch import Tensor, nn
from torch.distributed.distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous

from training.common.errors import RecipeError
from training.trainer.run_state.errors import AnotherProcessFailedError, TrainingError

Value = TypeVar("Value")
# While one process validates, the others wait, however long that takes.
_PATIENCE: Final = timedelta(days=30)
_FAILURES: Final = "recoquest/failures"


def launched_processes() -> int:
    """How many processes torchrun has started; 1 without it."""
    return int(os.environ["WORLD_SIZE"]) if dist.is_torchelastic_launched() else 1


@dataclass(frozen=True)
class Processes:
    """The processes of a run, from the point of view of one; with its defaults, the only one.

    What they agree on is sent between CPUs, not between GPUs, so that no step waits for a GPU.

    Attributes:
        rank: Number of this process, from 0.
        count: How many there are.
        control: The group that they agree over; None when there is one.
    """

    rank: int = 0
    count: int = 1
    control: dist.ProcessGroup | None = None

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes, reports and validates."""
        return self.rank == 0

    def any_rank(self, flags: Sequence[bool]) -> list[bool]:
        """For each flag, whether it is set in any process."""
        if self.count == 1:
            return list(flags)
        together = torch.tensor(flags, dtype=torch.int32)
        dist.all_reduce(together, op=dist.ReduceOp.MAX, group=self.control)
        return [bool(flag) for flag in together.tolist()]

    def gathered(self, value: Value) -> list[Value]:
        """The values of all processes, by rank."""
        if self.count == 1:
            return [value]
        values: list[Value] = [value] * self.count
        dist.all_gather_object(values, value, group=self.control)
        return values

    def broadcast(self, value: Value) -> Value:
        """The main process's value; the others wait for it as long as it takes."""
        if self.count == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0, group=self.control)
        return box[0]

    def main_first(self, act: Callable[[], Value]) -> Value:
        """The result of an action that the others begin when the main process has done it."""
        if not self.is_main:
            self.broadcast(None)
            return act()
        result = act()
        self.broadcast(None)
        return result

    def check_alike(self, value: str, name: str) -> None:
        """Make sure that all processes have read the same.

        Raises:
            TrainingError: They have not.
        """
        if len(set(self.gathered(value))) > 1:
            raise TrainingError(
                f"The processes of this run have different {name}: give all the same files and command."
            )

    def share_weights(self, module: nn.Module) -> None:
        """Give all processes the main process's parameters and buffers."""
        self._share((*module.parameters(), *module.buffers()))

    def share_statistics(self, module: nn.Module) -> None:
        """Give all processes the main process's buffers, such as the running statistics of batch norm."""
        self._share(module.buffers())

    def _share(self, tensors: Iterable[Tensor]) -> None:
        if self.count == 1:
            return
        for tensor in tensors:
            dist.broadcast(tensor.detach(), src=0)


@contextmanager
def joined(fabric: Fabric) -> Iterator[Processes]:
    """Join the other processes of the run, if there are any, and leave them when the block has succeeded.

    A process that fails must not take its leave: the others learn of it by losing the connection.
    """
    if fabric.world_size == 1:
        yield Processes()
        return
    with _level("lightning_fabric", logging.WARNING):
        fabric.launch()
    control = dist.new_group(backend="gloo", timeout=_PATIENCE)
    yield Processes(fabric.global_rank, fabric.world_size, control)
    dist.destroy_process_group()


def check_divisible(batch_size: int, processes: int) -> None:
    """Make sure that a batch can be split evenly.

    Raises:
        RecipeError: It cannot.
    """
    if batch_size % processes:
        raise RecipeError(
            f"A batch of {batch_size} cannot be split evenly among {processes} processes: set "
            f"train.batch_size to a multiple of {processes}."
        )


@contextmanager
def one_voice() -> Iterator[bool]:
    """Let only one of several processes speak: the first that fails, or the main one when all is well.

    Yields:
        Whether this process is the one to report success.

    Raises:
        AnotherProcessFailedError: Instead of the error of a process that is not the first to fail; most
            often it only lost the connection to the one that was.
        TrainingError: Another process ended without a word, as one does that the system kills.
    """
    if launched_processes() == 1:
        yield True
        return
    store, rank, _ = next(rendezvous("env://"))
    # A process that torchrun starts again must not be kept quiet by the failure before.
    key = f"{_FAILURES}/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    try:
        # The warnings of one process are enough.
        with _level("training", logging.NOTSET if rank == 0 else logging.ERROR):
            yield rank == 0
    except BaseException as error:
        if not _is_first(store, key):
            raise AnotherProcessFailedError from error
        if _lost_another(error):
            raise TrainingError(
                "Another process of the run ended without saying why; the system may have killed it for want "
                "of memory. The same command with --resume continues from the last checkpoint."
            ) from error
        raise


def _is_first(store: Store, key: str) -> bool:
    try:
        return bool(store.add(key, 1) == 1)
    except (RuntimeError, ConnectionError):
        # The process that holds the store has ended, so it has failed before.
        return False


def _lost_another(error: BaseException) -> bool:
    """Whether an error says that the connection to another process is gone."""
    return isinstance(error, dist.DistError) or (
        isinstance(error, RuntimeError) and "gloo" in str(error).lower()
    )


@contextmanager
def _level(name: str, lowest: int) -> Iterator[None]:
    """Let a logger say only what is at least of this level."""
    logger = logging.getLogger(name)
    before = logger.level
    logger.setLevel(max(before, lowest))
    try:
        yield
    finally:
        logger.setLevel(before)
