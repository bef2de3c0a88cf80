"""Batch norm where a batch is encoded in parts, by several processes or in chunks."""

import logging
from collections.abc import Callable, Iterator

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from training.common.errors import RecipeError

logger = logging.getLogger(__name__)


def check_batch_norm(model: nn.Module, *, smallest: int) -> None:
    """Make sure that batch norm that is trained has something to take statistics of.

    Raises:
        RecipeError: It would see a single item.
    """
    if smallest == 1 and any(True for _ in _trained(model)):
        raise RecipeError(
            "The encoder has batch norm, which needs two items or more at a time: set train.chunk_size or "
            "train.batch_size to more."
        )


def warn_of_batch_norm(model: nn.Module, *, chunks: bool, shares: bool) -> None:
    """Say what batch norm that is trained takes its statistics of, where it is not the whole batch.

    Args:
        model: In training mode; frozen layers are not.
        chunks: A process encodes its items in several chunks.
        shares: Each process has statistics of its own.
    """
    if not any(True for _ in _trained(model)):
        return
    if chunks:
        logger.warning(
            "The encoder has batch norm, which takes its statistics of each chunk of train.chunk_size: "
            "the gradient is not exactly that of the whole batch. Without batch norm, or where all of it is "
            "frozen, it is."
        )
    if shares:
        logger.warning(
            "The encoder has batch norm, which takes its statistics of each process's share of the batch; "
            "the encoder that is kept has the running statistics of the first process."
        )


def synchronise(model: nn.Module) -> None:
    """Let batch norm that is trained take its statistics over all processes; GPUs only."""
    for owner, name, norm in list(_trained(model)):
        # torch has no types for it.
        convert: Callable[[nn.Module], nn.Module] = nn.SyncBatchNorm.convert_sync_batchnorm
        setattr(owner, name, convert(norm))


def _trained(model: nn.Module) -> Iterator[tuple[nn.Module, str, _BatchNorm]]:
    for owner in model.modules():
        for name, child in owner.named_children():
            if isinstance(child, _BatchNorm) and child.training:
                yield owner, name, child
