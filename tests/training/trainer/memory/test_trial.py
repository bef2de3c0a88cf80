"""The trial before the first step: what it tells, and that it leaves no trace."""

import random
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from tests.training.models.tiny import SIZE, TEXTS, tiny_config, tiny_model, tiny_preprocessing
from tests.training.runs import assert_same
from training.data.augmentation import Augmentation
from training.data.augmentation_config import AugmentationConfig
from training.models.config import ImageArchitecture, TextArchitecture
from training.models.features import Features
from training.objectives.base import LossOutput
from training.objectives.infonce import InfoNCE
from training.trainer.batch_loss import BatchLoss
from training.trainer.batches import Batch, Inputs, PixelPreparation
from training.trainer.memory.live import LiveMemory
from training.trainer.memory.trial import StepTrial, with_margin
from training.trainer.modules import EncoderModule
from training.trainer.optimisation.cached_gradients import FeaturesBySource
from training.trainer.run_state.checkpoint import random_state
from training.trainer.run_state.devices import build_fabric
from training.trainer.run_state.processes import Processes

PLENTY = 2**40
CPU = torch.device("cpu")


def make(items: int) -> Batch:
    images = torch.zeros(1, dtype=torch.uint8).expand(items, 3, SIZE, SIZE)
    tokens = tiny_preprocessing().text([max(TEXTS, key=len)] * items)
    return Batch(Inputs(torch.arange(items), items, images, tokens))


def loss_of(image: ImageArchitecture, text: TextArchitecture) -> BatchLoss:
    model = tiny_model(tiny_config(image, text)).train()
    task = EncoderModule(model, InfoNCE()).train()
    augmentation = Augmentation(AugmentationConfig(flip=0.5, brightness=0.4), seed=2)
    prepare = PixelPreparation(tiny_preprocessing().image, augmentation)
    return BatchLoss(task, build_fabric("fp32", "cpu"), prepare)


def trial(loss: BatchLoss, room: int = PLENTY) -> StepTrial:
    return StepTrial(loss, make, Processes(), room)


def step_peak(loss: BatchLoss, items: int) -> int:
    """The most bytes that a whole step holds, without the gradients of parameters that it leaves."""
    loss.module.zero_grad()
    batch = make(items)
    with LiveMemory(torch.device("cpu")) as live:
        loss.backward(batch, 0)
    return max(live.trace)


@pytest.mark.parametrize(
    ("image", "text"),
    [
        ("resnet", "small_transformer"),
        pytest.param("vit", "gru", marks=pytest.mark.slow),
        ("mobilenet_v2", "bert"),
    ],
)
def test_few_items_tell_what_a_step_of_many_takes(image: ImageArchitecture, text: TextArchitecture) -> None:
    loss = loss_of(image, text)
    found = trial(loss, room=1).measure(32, 0)
    assert found.encoding.many == 2
    exact = trial(loss, room=with_margin(4 * found.encoding.at(32), CPU) - 1).measure(32, 0)
    assert exact.encoding.many == 4
    peak = step_peak(loss, 32)
    gradients = sum(p.nbytes for p in loss.module.parameters())
    assert with_margin(peak - gradients, CPU) * 0.98 <= exact.peak(32) <= with_margin(peak, CPU) * 1.02
    assert exact.peak(32) <= found.peak(32)


@pytest.mark.slow
def test_chunks_take_as_much_less() -> None:
    loss = loss_of("resnet", "gru")
    found = trial(loss).measure(32, constant=0)
    chunked = BatchLoss(loss.module, loss.fabric, loss.prepare, chunk_size=8)
    peak, whole = step_peak(chunked, 32), step_peak(loss, 32)
    gradients = sum(p.nbytes for p in loss.module.parameters())
    assert peak < whole / 2
    assert with_margin(peak - gradients, CPU) * 0.98 <= found.peak(8) <= with_margin(peak, CPU) * 1.1


def test_a_trial_leaves_no_trace() -> None:
    loss = loss_of("resnet", "small_transformer")
    random.seed(1)
    np.random.seed(2)
    torch.manual_seed(3)
    loss.module.train()
    before, state = deepcopy(loss.module.state_dict()), random_state(torch.device("cpu"))
    trial(loss).measure(8, 0)
    assert_same(dict(loss.module.state_dict()), dict(before))
    assert_same(random_state(torch.device("cpu")), state)
    assert all(parameter.grad is None for parameter in loss.module.parameters())
    loss.backward(make(4), 0)
    assert any(parameter.grad is not None for parameter in loss.module.parameters())


class Wrapped(nn.Module):
    """A module of no library, since torch.compile leaves layers of its own alone."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, values: Tensor) -> Tensor:
        found: Tensor = self.inner(values)
        return found


@pytest.mark.slow
def test_what_is_to_be_compiled_is_compiled_after_the_trial() -> None:
    loss = loss_of("vit", "gru")
    compiled: list[GraphModule] = []

    def backend(graph: GraphModule, _: object) -> Callable[..., Any]:
        compiled.append(graph)
        return graph.forward

    head = loss.module.model.image_head
    assert isinstance(head, nn.Sequential)
    wrapped = Wrapped(head)
    wrapped.compile(backend=backend)
    loss.module.model.image_head = nn.Sequential(wrapped)
    trial(loss).measure(4, 0)
    assert not compiled
    loss.backward(make(4), 0)
    assert compiled


@dataclass(frozen=True)
class PairwiseLoss(BatchLoss):
    """Compares all pairs at length, and notes of how many items."""

    tried: list[int] = field(default_factory=list)

    def of_features(self, features: FeaturesBySource, rest: Features) -> LossOutput:
        image, text = features["image"].embedding, features["text"].embedding
        self.tried.append(len(image))
        pairs = (image[:, None] * text).exp().repeat(1, 1, 20)
        return LossOutput(pairs.mean(), {})


@pytest.mark.parametrize(("room", "tried"), [(PLENTY, [2, 64]), (2 * 10**6, [4, 8, 16, 32])])
def test_a_loss_is_tried_on_as_many_items_as_are_sure_to_fit(room: int, tried: list[int]) -> None:
    plain = loss_of("vit", "gru")
    loss = PairwiseLoss(plain.module, plain.fabric, plain.prepare)
    found = trial(loss, room).measure(64, 0)
    assert loss.tried == tried
    dim = loss.encoded(make(2).inputs, slice(None), 0)["image"].embedding.shape[1]
    assert found.loss >= 64 * 64 * 20 * dim * 4
