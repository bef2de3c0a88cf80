"""How much of a batch is encoded at once: all of it, or as much as memory has room for."""

import logging
from bisect import bisect_right
from typing import Final

import torch
from torch import nn

from training.common.errors import RecipeError
from training.common.host import return_freed_memory
from training.common.memory import free_memory_each
from training.recipes.schema import TrainConfig
from training.trainer.batch_loss import BatchLoss
from training.trainer.batches import BatchLoader
from training.trainer.memory.trial import StepMemory, StepTrial, with_margin
from training.trainer.optimisation.cached_gradients import even_chunks
from training.trainer.run_state.processes import Processes

_MIB: Final = 2**20
_GIB: Final = 2**30
_LEAST: Final = 2
# The batch that a step takes, the next one, and its images before they are put together.
_BATCHES: Final = 3

logger = logging.getLogger(__name__)


def settled_chunk_size(
    train: TrainConfig,
    loss: BatchLoss,
    batches: BatchLoader,
    processes: Processes,
) -> int | None:
    """The most items that a process encodes at once, by what a step takes and what is free.

    All processes get the same. A number of the recipe stays; where it may not fit, the log says so.

    Args:
        train: Training settings of the recipe.
        loss: Loss of the run, its task as it trains.
        batches: Batches of the train split.
        processes: Processes that train together.

    Returns:
        None: the whole share of a batch at once.

    Raises:
        RecipeError: The least that could be encoded at once does not fit.
    """
    device, share = loss.fabric.device, train.batch_size // processes.count
    free = free_bytes(device, processes)
    waiting = _BATCHES * share * batches.image_bytes
    constant = waiting + bytes_of_learning(loss.module, processes)
    if device.type == "cpu":
        constant += batches.cache_bytes
    if with_margin(constant, device) > free:
        message = (
            "The gradients of the weights, the optimizer and the batches that wait need "
            f"{format_bytes(with_margin(constant, device))} of memory, and {format_bytes(free)} are free: "
            f"{_relief(constant, waiting)}."
        )
        if train.chunk_size == "auto":
            raise RecipeError(f"{message} A number as train.chunk_size tries it nevertheless.")
        if processes.is_main:
            logger.warning("%s", message)
        return train.chunk_size
    trial = StepTrial(loss, batches.largest, processes, free - constant)
    memory = trial.measure(share, constant)
    # The first pass leaves memory that its libraries keep, and others may have taken some meanwhile.
    free = free_bytes(device, processes)
    if train.chunk_size == "auto":
        chunk = min(processes.gathered(_largest_chunk(memory, free)))
        chosen = None if chunk >= share else chunk
    else:
        chosen = train.chunk_size
    if processes.is_main:
        _tell(train, memory, chosen, free)
    return chosen


def _relief(constant: int, waiting: int) -> str:
    """Advice on what weighs most of all that comes however a batch is cut."""
    if 2 * waiting > constant:
        return "set preprocessing.image.size or train.batch_size to less"
    return "set frozen_layers of the towers, or give train.lora"


def _largest_chunk(memory: StepMemory, free: int) -> int:
    """The whole share if it fits, else the largest of even chunks that do.

    Raises:
        RecipeError: None does.
    """
    share = memory.share
    if memory.peak(share) <= free:
        return share
    sizes = range(_LEAST, share)
    fitting = bisect_right(sizes, free, key=lambda size: memory.peak(_largest(share, size)))
    if fitting:
        return _largest(share, sizes[fitting - 1])
    least = _largest(share, min(_LEAST, share))
    raise RecipeError(
        f"A training step needs {format_bytes(memory.peak(least))} of memory even with {least} pairs encoded "
        f"at a time, and {format_bytes(free)} are free: {_advice(memory, least)}. A number as "
        "train.chunk_size tries it nevertheless."
    )


def _largest(share: int, size: int) -> int:
    """Items of the largest of even chunks."""
    sizes: list[int] = [chunk.stop - chunk.start for chunk in even_chunks(share, size)]
    return max(sizes)


def _advice(memory: StepMemory, least: int) -> str:
    if memory.loss + 2 * memory.features > memory.encoding.at(least):
        return "the loss of a batch compares all its pairs, so set train.batch_size to less"
    return (
        "set preprocessing.image.size or train.batch_size to less, train.gradient_checkpointing to true, or "
        "frozen_layers of the towers"
    )


def _tell(train: TrainConfig, memory: StepMemory, chosen: int | None, free: int) -> None:
    """Say what was chosen where it is not the whole batch, and what may not fit."""
    whole = format_bytes(memory.peak(memory.share))
    if train.chunk_size == "auto" and chosen is not None:
        logger.warning(
            "A step needs %s of memory, %s are free: of a batch of %d, a process encodes %d at a time "
            "(train.chunk_size).",
            whole,
            format_bytes(free),
            train.batch_size,
            chosen,
        )
        return
    needed = memory.peak(chosen or memory.share)
    if needed > free:
        logger.warning(
            "A step needs %s of memory and %s are free: the system may end the run. Make room, or begin it "
            "with train.chunk_size=auto.",
            format_bytes(needed),
            format_bytes(free),
        )
        return
    logger.info("A step needs %s of memory, %s are free.", format_bytes(needed), format_bytes(free))


def free_bytes(device: torch.device, processes: Processes) -> int:
    """The bytes that every process may take."""
    return_freed_memory()
    # Nobody measures while another still reads its data.
    processes.gathered(None)
    if device.type == "cuda":
        reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        free = torch.cuda.mem_get_info(device)[0] + reserved
    else:
        free = free_memory_each()
    return min(processes.gathered(free))


def bytes_of_learning(module: nn.Module, processes: Processes) -> int:
    """Bytes of what comes with the weights: gradients, their sums over processes, and two states of Adam."""
    trained = sum(parameter.nbytes for parameter in module.parameters() if parameter.requires_grad)
    return (3 if processes.count == 1 else 4) * trained


def format_bytes(size: int) -> str:
    """Return a number of bytes for people to read."""
    return f"{size / _GIB:.1f} GiB" if size >= _GIB else f"{size / _MIB:.1f} MiB"
