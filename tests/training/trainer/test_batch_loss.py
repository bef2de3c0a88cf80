"""The loss of a batch in the precision of a run."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from tests.training.models.tiny import SIZE, TEXTS, tiny_config, tiny_model, tiny_preprocessing
from training.data.augmentation import Augmentation
from training.data.augmentation_config import AugmentationConfig
from training.objectives.infonce import InfoNCE
from training.trainer.batch_loss import BatchLoss
from training.trainer.batches import Batch, Inputs, PixelPreparation
from training.trainer.run_state.devices import build_fabric
from training.trainer.task import TrainingTask


@pytest.fixture
def restored_products() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def batch() -> Batch:
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(256, (len(TEXTS), 3, SIZE, SIZE), generator=generator, dtype=torch.uint8)
    return Batch(Inputs(torch.arange(len(TEXTS)), len(TEXTS), images, tiny_preprocessing().text(TEXTS)))


def loss_of(precision: str, chunk_size: int | None) -> BatchLoss:
    model = tiny_model(tiny_config("convnext", "gru")).train()
    task = TrainingTask(model, InfoNCE()).train()
    augmentation = Augmentation(AugmentationConfig(flip=0.5, brightness=0.4), seed=2)
    prepare = PixelPreparation(tiny_preprocessing().image, augmentation)
    fabric = build_fabric("bf16" if precision == "bf16" else "fp32", "cpu")
    return BatchLoss(task, fabric, prepare, chunk_size)


def gradients(loss: BatchLoss) -> tuple[Tensor, dict[str, Tensor]]:
    total = loss.backward(batch(), step=4).total.detach()
    return total, {name: p.grad for name, p in loss.task.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-5), ("bf16", 0.03)])
def test_chunks_change_nothing_in_any_precision(precision: str, tolerance: float) -> None:
    total, expected = gradients(loss_of(precision, None))
    chunked, found = gradients(loss_of(precision, 3))
    torch.testing.assert_close(chunked, total, rtol=tolerance, atol=0)
    assert found.keys() == expected.keys()
    largest = max(gradient.abs().max() for gradient in expected.values())
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=0, atol=float(tolerance * largest), msg=name)
    weights = [found[name] for name in found if name.endswith("weight")]
    assert all(bool(weight.any()) for weight in weights)


def test_bfloat16_computes_in_it_and_keeps_weights_in_float32() -> None:
    loss = loss_of("bf16", None)
    exact, _ = gradients(loss_of("fp32", None))
    total, found = gradients(loss)
    assert total.dtype == torch.float32
    assert 0 < abs(float(total - exact)) < 0.05 * abs(float(exact))
    assert {value.dtype for value in (*loss.task.parameters(), *found.values())} == {torch.float32}


def test_validation_takes_images_as_they_are_and_leaves_the_mode() -> None:
    loss = loss_of("fp32", None)
    assert torch.equal(loss.value(batch()), loss.value(batch()))
    torch.testing.assert_close(loss_of("fp32", 1).value(batch()), loss.value(batch()), rtol=1e-5, atol=0)
    assert loss.task.training
    assert not any(parameter.grad is not None for parameter in loss.task.parameters())


def test_towers_may_round_products_that_losses_never_round(restored_products: None) -> None:
    loss, rounded = loss_of("fp32", None), {}
    build_fabric("tf32", "cpu")
    for name, part in (("tower", loss.task.model), ("loss", loss.task)):
        part.register_forward_hook(
            lambda *_, name=name: rounded.update({name: torch.backends.cuda.matmul.allow_tf32})
        )
    loss.backward(batch(), step=4)
    assert rounded == {"tower": True, "loss": False}
    assert torch.backends.cuda.matmul.allow_tf32
    build_fabric("fp32", "cpu")
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cudnn.allow_tf32
