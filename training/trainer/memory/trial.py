"""A forward and backward pass of a few made items: it tells what a step will hold, and leaves no trace."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Final

import torch
from torch import Tensor, nn

from training.models.features import ModalityFeatures
from training.trainer.batch_loss import BatchLoss
from training.trainer.batches import Batch
from training.trainer.memory.live import Growth, LiveMemory
from training.trainer.optimisation.cached_gradients import FeaturesBySource, parts_of
from training.trainer.run_state.checkpoint import random_state, restore_random_state
from training.trainer.run_state.processes import Processes

_FEW: Final = 2
_MANY: Final = 4
_NOISE: Final = 0.01
# Features are compared with each other: nothing grows faster than the square of their number.
_DEGREE: Final = 2
# Workspaces of operations, and gaps that an allocator leaves: on a CPU those of the C library, which keeps
# what is freed in pieces of all sizes.
_MARGIN: Final = 1.25
_MARGIN_ON_CPU: Final = 1.5
# A bound need not be made exact where so many times as much is free.
_PLENTY: Final = 4


@dataclass(frozen=True, slots=True)
class StepMemory:
    """Bytes that a step takes at its peak in addition to the weights, with a margin.

    Attributes:
        share: Items of a batch that a process encodes.
        encoding: Activations, and what the backward pass through them takes.
        loss: Loss of the features of the whole share.
        features: Features of the whole share.
        constant: Gradients of the parameters, state of the optimizer and batches that wait.
        device: Device that holds them.
    """

    share: int
    encoding: Growth
    loss: int
    features: int
    constant: int
    device: torch.device

    def peak(self, chunk: int) -> int:
        """The most, with at most so many items encoded at a time."""
        if chunk >= self.share:
            return with_margin(self.constant + self.encoding.at(self.share) + self.loss, self.device)
        # There are the features of the chunks, the joined ones, and later their gradients.
        with_loss = self.loss + 2 * self.features
        most = max(with_loss, self.encoding.at(chunk) + 3 * self.features)
        return with_margin(self.constant + most, self.device)


@dataclass(frozen=True)
class StepTrial:
    """Tries the two halves of a step apart: encoding, and the loss of features.

    Random numbers, statistics of batch norm and whatever else a pass changes are put back. Gradients of
    parameters are dropped as soon as they are made: their size needs no trial.

    Attributes:
        loss: Loss of the run.
        make: Makes a batch of so many items, each as large as any.
        processes: All try the same.
        room: Bytes that may be taken by the trial.
    """

    loss: BatchLoss
    make: Callable[[int], Batch]
    processes: Processes
    room: int

    def measure(self, share: int, constant: int) -> StepMemory:
        """The memory of a step of so many items.

        Args:
            share: Items of a batch that this process encodes.
            constant: As in `StepMemory`.
        """
        # A compiled tower that meets the count of storages first would never be compiled.
        device = self.loss.fabric.device
        with torch.compiler.set_stance("force_eager"), unchanged(self.loss.module, device):
            count = min(_FEW, share)
            trace, features = self._encode(count)
            growth = Growth(count, count, trace, trace)
            if share > count and not self._fits(_PLENTY * growth.at(share)) and self._fits(growth.at(_MANY)):
                count = min(_MANY, share)
                more, features = self._encode(count)
                growth = Growth(growth.few, count, trace, more)
            size = sum(part.nbytes for part in parts_of(features).values())
            loss = self._measure_loss(features, count, share)
            return StepMemory(share, growth, loss, size * share // count, constant, device)

    def _fits(self, needed: int) -> bool:
        """Whether all processes have room, so that all decide alike."""
        device = self.loss.fabric.device
        return not any(self.processes.any_rank([with_margin(needed, device) > self.room]))

    def _encode(self, items: int) -> tuple[list[int], FeaturesBySource]:
        """The bytes used by encoding some items and by the backward pass, and their features."""
        batch = self.make(items)
        with LiveMemory(self.loss.fabric.device) as live:
            features = self.loss.encoded(batch.inputs, slice(None), 0)
            learning = [part for part in parts_of(features).values() if part.requires_grad]
            torch.autograd.backward(learning, [torch.ones_like(part) for part in learning])
        return live.trace, features

    def _measure_loss(self, features: FeaturesBySource, items: int, share: int) -> int:
        """The most bytes that the loss of a share and its backward pass hold.

        The loss is computed for as many items as are sure to fit, and for more at each try.
        """
        while True:
            peak = self._loss(features, items)
            if items == share:
                return peak
            reached = next((n for n in (share, 2 * items) if self._fits(_grown(peak, items, n))), None)
            if reached is None:
                return _grown(peak, items, share)
            items = min(reached, share)

    def _loss(self, features: FeaturesBySource, items: int) -> int:
        repeated = {source: _repeated(of_source, items) for source, of_source in features.items()}
        rest = self.loss.rest_of(self.make(items))
        with LiveMemory(self.loss.fabric.device) as live:
            torch.autograd.backward(self.loss.of_features(repeated, rest).total)
        return max(live.trace)


def with_margin(size: int, device: torch.device) -> int:
    """Bytes of memory that so many bytes of tensors take on a device."""
    return round((_MARGIN_ON_CPU if device.type == "cpu" else _MARGIN) * size)


def _grown(peak: int, items: int, more: int) -> int:
    """A bound of what more items take."""
    return int(peak * (more / items) ** _DEGREE)


def _repeated(features: ModalityFeatures, items: int) -> ModalityFeatures:
    """As many rows as there shall be items, no two the same, without the graph that they came from."""
    given = {field.name: getattr(features, field.name) for field in fields(features)}
    return replace(features, **{name: _rows(part, items) for name, part in given.items() if part is not None})


def _rows(part: Tensor, items: int) -> Tensor:
    rows = part.detach()[torch.arange(items) % len(part)]
    if not rows.is_floating_point():
        return rows
    return (rows + _NOISE * torch.rand_like(rows)).requires_grad_()


@contextmanager
def unchanged(module: nn.Module, device: torch.device) -> Iterator[None]:
    """Put back what a forward or backward pass changes: gradients, buffers and random numbers."""
    state = random_state(device)
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    hooks = [
        parameter.register_post_accumulate_grad_hook(_drop_gradient)  # type: ignore[no-untyped-call]
        for parameter in module.parameters()
        if parameter.requires_grad
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        # A pass may have made others, of what never changes.
        now = dict(module.named_buffers())
        for name, buffer in buffers.items():
            now[name].copy_(buffer)
        restore_random_state(state, device)


def _drop_gradient(parameter: Tensor) -> None:
    parameter.grad = None
