"""The loss of a batch: in chunks, in each precision, of two views, and with a copy of the encoder."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.training.models.tiny import SIZE, TEXTS, tiny_config, tiny_model, tiny_preprocessing
from tests.training.trainer.scenes import tiny_recipe
from training.data.augmentation import Augmentation
from training.data.augmentation_config import AugmentationConfig
from training.models.config import DualEncoderConfig
from training.models.dual_encoder import build_dual_encoder
from training.models.features import Source
from training.objectives.base import ObjectiveContext, parse_objective
from training.objectives.infonce import InfoNCE
from training.trainer.batch_loss import BatchLoss
from training.trainer.batches import Batch, Inputs, PixelPreparation
from training.trainer.modules import EncoderModule
from training.trainer.optimisation.parameter_groups import build_optimizer
from training.trainer.run_state.devices import build_fabric

COUNT = 6


def batch(count: int = COUNT, *, texts: bool = False) -> Batch:
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(256, (count, 3, SIZE, SIZE), generator=generator, dtype=torch.uint8)
    return Batch(
        Inputs(torch.arange(count), count, images, tiny_preprocessing().text(TEXTS) if texts else None)
    )


def pairs() -> Batch:
    return batch(len(TEXTS), texts=True)


def prepare(**changes: Any) -> PixelPreparation:
    augmentation = Augmentation(AugmentationConfig(flip=0.5, brightness=0.4, **changes), seed=2)
    return PixelPreparation(tiny_preprocessing().image, augmentation)


def loss_of(precision: str, chunk_size: int | None) -> BatchLoss:
    torch.manual_seed(0)
    task = EncoderModule(tiny_model(tiny_config("convnext", "gru")).train(), InfoNCE()).train()
    return BatchLoss(
        task, build_fabric("bf16" if precision == "bf16" else "fp32", "cpu"), prepare(), chunk_size
    )


def views_of(name: str, chunk_size: int | None = None, *, norm: bool = False) -> BatchLoss:
    """The loss of an objective of two views of each image."""
    torch.manual_seed(0)
    local = {"local_features": name == "pixpro", "share_local_head": name == "pixpro"}
    content = tiny_config("resnet" if norm else "convnext").model_dump() | {"text": None} | local
    model = build_dual_encoder(DualEncoderConfig.model_validate(content), None, load_pretrained=False)
    settings = {"name": name, "hidden": 8} if name == "byol" else {"name": name}
    objective = parse_objective(settings).build(ObjectiveContext(dim=model.config.dim))
    task = EncoderModule(model, objective).train()
    return BatchLoss(task, build_fabric("fp32", "cpu"), prepare(crop_scale=(0.5, 1)), chunk_size)


def gradients(loss: BatchLoss, some: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    total = loss.backward(some, step=4).total.detach()
    return total, {name: p.grad for name, p in loss.module.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(
    ("name", "tolerance"),
    [("fp32", 1e-5), ("bf16", 0.03), ("simclr", 1e-5), ("byol", 1e-5), ("pixpro", 1e-5)],
)
def test_chunks_change_nothing(name: str, tolerance: float) -> None:
    losses = (
        [loss_of(name, size) for size in (None, 3)]
        if name in ("fp32", "bf16")
        else [views_of(name, size) for size in (None, 2)]
    )
    some = pairs() if name in ("fp32", "bf16") else batch()
    (total, expected), (chunked, ours) = (gradients(loss, some) for loss in losses)
    torch.testing.assert_close(chunked, total, rtol=tolerance, atol=0)
    assert ours.keys() == expected.keys()
    largest = max(gradient.abs().max() for gradient in expected.values())
    for key, gradient in expected.items():
        torch.testing.assert_close(ours[key], gradient, rtol=0, atol=float(tolerance * largest), msg=key)
    assert not [key for key in ours if key.startswith("momentum")]
    towers = [
        gradient for key, gradient in ours.items() if key.startswith("model.") and key.endswith("weight")
    ]
    assert towers
    assert all(gradient.any() for gradient in towers)


def test_bfloat16_computes_in_it_and_keeps_weights_in_float32() -> None:
    loss = loss_of("bf16", None)
    exact, _ = gradients(loss_of("fp32", None), pairs())
    total, ours = gradients(loss, pairs())
    assert total.dtype == torch.float32
    assert 0 < abs(float(total - exact)) < 0.05 * abs(float(exact))
    assert {value.dtype for value in (*loss.module.parameters(), *ours.values())} == {torch.float32}


def test_validation_takes_images_as_they_are_and_leaves_the_mode() -> None:
    loss = loss_of("fp32", None)
    assert torch.equal(loss.value(pairs()), loss.value(pairs()))
    torch.testing.assert_close(loss_of("fp32", 1).value(pairs()), loss.value(pairs()), rtol=1e-5, atol=0)
    assert loss.module.training
    assert not any(parameter.grad is not None for parameter in loss.module.parameters())


@pytest.fixture
def restored_products() -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    yield
    torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


def test_towers_may_round_products_that_losses_never_round(restored_products: None) -> None:
    loss, rounded = loss_of("fp32", None), {}
    build_fabric("tf32", "cpu")
    for name, part in (("tower", loss.module.model), ("loss", loss.module)):
        part.register_forward_hook(
            lambda *_, name=name: rounded.update({name: torch.backends.cuda.matmul.allow_tf32})
        )
    loss.backward(pairs(), step=4)
    assert rounded == {"tower": True, "loss": False}
    assert torch.backends.cuda.matmul.allow_tf32
    build_fabric("fp32", "cpu")
    assert not torch.backends.cuda.matmul.allow_tf32
    assert not torch.backends.cudnn.allow_tf32


def test_views_and_frames_of_a_step_differ_and_are_the_same_again() -> None:
    loss = views_of("pixpro")
    inputs = batch().inputs
    for made in (loss.prepare, loss.prepare.frames):
        first, second = (made(inputs, 4, view=view) for view in (0, 1))
        assert torch.equal(first, made(inputs, 4))
        assert torch.equal(second, made(inputs, 4, view=1))
        assert not torch.equal(first, second)
        assert not torch.equal(second, made(inputs, 5, view=1))
        assert torch.equal(made(inputs.rows(slice(2, 5)), 4, view=1), second[2:5])
    assert torch.equal(loss.prepare.frames(inputs, None), torch.eye(2, 3).repeat(COUNT, 1, 1))


@pytest.mark.parametrize("name", ["simclr", "byol"])
def test_loss_is_that_of_both_views(name: str) -> None:
    """Embeddings of one view after the other, together with the copy's."""
    loss = views_of(name)
    task = loss.module
    total = loss.backward(batch(), step=4).total.detach()
    pixels = [loss.prepare(batch().inputs, 4, view=view) for view in (0, 1)]
    features = task.encode(pixels[0], None, None, pixels[1])
    sources: list[tuple[Source, Source]] = [("image", "view")]
    if name == "byol":
        sources.append(("momentum", "momentum_view"))
    assert (task.momentum is not None) == (len(sources) == 2)
    assert any(key.startswith("momentum.") for key in task.state_dict()) == (len(sources) == 2)
    for both in sources:
        for view, source in zip(pixels, both, strict=True):
            # At the start the copy is the model.
            embedding = features[source].embedding
            torch.testing.assert_close(embedding, task.model.encode_image(view).embedding)
            assert embedding.requires_grad == (source in ("image", "view"))
    torch.testing.assert_close(views_of(name).backward(batch(), step=4).total.detach(), total)


def test_chunks_move_the_statistics_of_the_copy_once() -> None:
    counts = []
    for chunk_size in (None, 3):
        loss = views_of("byol", chunk_size, norm=True)
        loss.backward(batch(), step=4)
        counts.append(
            {int(b) for name, b in loss.module.named_buffers() if name.endswith("num_batches_tracked")}
        )
    # Two views, or two chunks of each; the predictor sees both views whole.
    assert counts == [{2}, {2, 4}]


def test_validation_takes_the_same_two_views_each_time() -> None:
    loss = views_of("simclr")
    assert torch.equal(loss.value(batch()), loss.value(batch()))
    same = [loss.prepare(batch().inputs, None)] * 2
    loss.module.eval()
    unchanged = loss.module.encode(same[0], None, None, same[1])
    assert torch.equal(unchanged["view"].embedding, unchanged["image"].embedding)
    assert float(loss.value(batch())) > 0


def test_copy_follows_by_a_share_and_is_never_trained() -> None:
    task = views_of("byol", norm=True).module
    copy = task.momentum
    assert copy is not None
    optimizer = build_optimizer(task, tiny_recipe(), torch.device("cpu"))
    trained = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert not trained & {id(parameter) for parameter in copy.parameters()}
    assert not [p for p in copy.parameters() if p.requires_grad]
    for training in (False, True):
        task.train(training)
        assert copy.model.training is training
    before = {name: value.clone() for name, value in copy.model.named_parameters()}
    with torch.no_grad():
        for parameter in task.model.parameters():
            parameter.add_(torch.randn_like(parameter))
    for _ in range(2):
        task.after_step()
    ours = dict(task.model.named_parameters())
    for name, value in copy.model.named_parameters():
        expected = torch.lerp(ours[name], before[name], 0.99 * 0.99)
        torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6)
