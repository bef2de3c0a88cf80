"""The loss of a batch and its gradient: all of it at once, or in chunks that fit into memory."""

from dataclasses import dataclass, replace
from typing import Final, Protocol

import torch
from lightning_fabric import Fabric
from torch import Tensor

from training.common.distributed import gather_detached
from training.common.errors import RecipeError
from training.models.features import Features, Source
from training.objectives.base import LossOutput, errors_of_own_code
from training.trainer.batches import Batch, Inputs
from training.trainer.modules import EncoderModule
from training.trainer.optimisation.cached_gradients import (
    FeaturesBySource,
    backward_in_chunks,
    even_chunks,
    joined_features,
)
from training.trainer.run_state.devices import full_products

_ALL: Final = slice(None)
_VIEWS: Final[tuple[Source, ...]] = ("image", "view")


class PreparePixels(Protocol):
    """Makes the pixels of images, and tells where they come from."""

    def __call__(self, inputs: Inputs, step: int | None, *, view: int = 0) -> Tensor:
        """Pixels (b, 3, S, S), changed at random in the way of a step and a view; None: as they are."""

    def frames(self, inputs: Inputs, step: int | None, *, view: int = 0) -> Tensor:
        """Where points of such images come from (b, 2, 3), as in `ModalityFeatures`."""


@dataclass(frozen=True)
class BatchLoss:
    """Computes losses in the precision of a run.

    Attributes:
        module: Model and objective, on the device.
        fabric: Device and precision.
        prepare: Makes the pixels of images, changed at random when a step is given.
        chunk_size: Most items that are encoded at once; None: all.
    """

    module: EncoderModule
    fabric: Fabric
    prepare: PreparePixels
    chunk_size: int | None = None

    def backward(self, batch: Batch, step: int) -> LossOutput:
        """Add the gradient of the loss of a training step to the parameters."""
        rest = self.rest_of(batch)
        chunks = self._chunks(batch)
        if len(chunks) == 1:
            output = self.of_features(self.encoded(batch.inputs, _ALL, step), rest)
            torch.autograd.backward(output.total)
            return output
        return backward_in_chunks(
            self.module,
            lambda chunk: self.encoded(batch.inputs, chunk, step),
            lambda features: self.of_features(features, rest),
            chunks,
            self.fabric.device,
        )

    def value(self, batch: Batch) -> Tensor:
        """The loss (scalar) as it is measured in validation: no gradient, nothing that differs each time."""
        training = self.module.training
        self.module.eval()
        with torch.no_grad():
            features = [self.encoded(batch.inputs, chunk, None) for chunk in self._chunks(batch)]
            total = self.of_features(joined_features(features), self.rest_of(batch)).total
        self.module.train(training)
        return total

    def _chunks(self, batch: Batch) -> list[slice]:
        return even_chunks(len(batch.inputs), self.chunk_size or len(batch.inputs))

    def encoded(self, inputs: Inputs, chunk: slice, step: int | None) -> FeaturesBySource:
        """The features of some items, changed at random in the way of a step; None: as they are."""
        some = inputs.rows(chunk).to(self.fabric.device)
        view = None
        if "views" in self.module.objective.requires:
            # Unchanged, both would be the same: validation takes views as the first step does.
            step = step or 0
            view = self.prepare(some, step, view=1)
        pixels = self.prepare(some, step)
        # Autocast keeps the weights it converted to its end, and without gradient it keeps them without.
        with self.fabric.autocast():
            features = self.module.encode(pixels, some.tokens, some.spectrograms, view)
        if view is not None:
            for number, name in enumerate(_VIEWS):
                frame = self.prepare.frames(some, step, view=number)
                features[name] = replace(features[name], frame=frame)
        return features

    def of_features(self, features: FeaturesBySource, rest: Features) -> LossOutput:
        """The loss of the features of a batch, and of what else there is of it."""
        with self.fabric.autocast(), full_products(), errors_of_own_code():
            output = self.module(replace(rest, modalities=features))
        name = type(self.module.objective).__name__
        if not isinstance(output, LossOutput):
            raise RecipeError(f"compute() of {name} returned {type(output).__name__}: return a LossOutput.")
        if torch.is_grad_enabled() and not output.total.requires_grad:
            raise RecipeError(
                f"The loss of {name} has no gradient: compute it from features, without detach() or item()."
            )
        return output

    def rest_of(self, batch: Batch) -> Features:
        """The parts of a batch for the loss alone, on the device; the mask with the rows of all processes."""
        device = self.fabric.device
        mask, items = (
            None if tensor is None else tensor.to(device, non_blocking=True)
            for tensor in (batch.positive_mask, batch.items)
        )
        extras = {
            name: value.to(device, non_blocking=True) if isinstance(value, Tensor) else value.to(device)
            for name, value in batch.extras.items()
        }
        return Features({}, None if mask is None else gather_detached(mask), items, extras)
