"""Two views of each image, and the copy of the encoder that follows it slowly."""

import json

import pytest
import torch
from torch import Tensor

from tests.training.models.tiny import SIZE, tiny_config, tiny_preprocessing
from tests.training.trainer.scenes import tiny_recipe
from training.common.errors import RecipeError
from training.data.augmentation import Augmentation
from training.data.augmentation_config import AugmentationConfig
from training.models.config import DualEncoderConfig
from training.models.dual_encoder import DualEncoder, build_dual_encoder
from training.objectives.base import ObjectiveContext, parse_objective
from training.recipes.load import parse_recipe
from training.trainer.batch_loss import BatchLoss
from training.trainer.batches import Batch, Inputs, PixelPreparation
from training.trainer.optimisation.parameter_groups import build_optimizer
from training.trainer.requirements import check_requirements
from training.trainer.run_state.devices import build_fabric
from training.trainer.task import MomentumCopy, TrainingTask

pytestmark = pytest.mark.usefixtures("one_thread")

COUNT = 6


def image_model(architecture: str = "convnext", **settings: bool) -> DualEncoder:
    content = tiny_config("convnext" if architecture == "convnext" else "resnet").model_dump()
    config = DualEncoderConfig.model_validate(content | {"text": None, **settings})
    return build_dual_encoder(config, None, load_pretrained=False)


def loss_of(name: str, chunk_size: int | None = None, architecture: str = "convnext") -> BatchLoss:
    torch.manual_seed(0)
    settings = {"hidden": 8} if name == "byol" else {}
    model = image_model(architecture, local_features=name == "pixpro", share_local_head=name == "pixpro")
    objective = parse_objective({"name": name, **settings}).build(ObjectiveContext(dim=model.config.dim))
    task = TrainingTask(model, objective).train()
    augmentation = Augmentation(AugmentationConfig(flip=0.5, brightness=0.4, crop_scale=(0.5, 1)), seed=2)
    prepare = PixelPreparation(tiny_preprocessing().image, augmentation)
    return BatchLoss(task, build_fabric("fp32", "cpu"), prepare, chunk_size)


def batch() -> Batch:
    generator = torch.Generator().manual_seed(1)
    images = torch.randint(256, (COUNT, 3, SIZE, SIZE), generator=generator, dtype=torch.uint8)
    return Batch(Inputs(torch.arange(COUNT), COUNT, images))


def gradients(loss: BatchLoss) -> tuple[Tensor, dict[str, Tensor]]:
    total = loss.backward(batch(), step=4).total.detach()
    return total, {name: p.grad for name, p in loss.task.named_parameters() if p.grad is not None}


def test_views_of_a_step_differ_and_are_the_same_again() -> None:
    prepare = loss_of("simclr").prepare
    first, second = (prepare(batch().inputs, 4, view=view) for view in (0, 1))
    assert torch.equal(first, prepare(batch().inputs, 4))
    assert torch.equal(second, prepare(batch().inputs, 4, view=1))
    assert not torch.equal(first, second)
    assert not torch.equal(second, prepare(batch().inputs, 5, view=1))
    part = batch().inputs.rows(slice(2, 5))
    assert torch.equal(prepare(part, 4, view=1), second[2:5])


def test_frames_are_those_of_a_view_and_of_its_images() -> None:
    prepare = loss_of("pixpro").prepare
    inputs = batch().inputs
    first, second = (prepare.frames(inputs, 4, view=view) for view in (0, 1))
    assert not torch.equal(first, second)
    assert torch.equal(prepare.frames(inputs.rows(slice(2, 5)), 4, view=1), second[2:5])
    assert torch.equal(prepare.frames(inputs, None), torch.eye(2, 3).repeat(COUNT, 1, 1))


@pytest.mark.parametrize("name", ["simclr", "byol"])
def test_loss_is_that_of_both_views(name: str) -> None:
    """Of embeddings that are made one view after the other, with the copy's beside them."""
    loss = loss_of(name)
    task, prepare = loss.task, loss.prepare
    total = loss.backward(batch(), step=4).total.detach()
    pixels = [prepare(batch().inputs, 4, view=view) for view in (0, 1)]
    features = task.encode(pixels[0], None, None, pixels[1])
    for view, found in zip(pixels, (features["image"], features["view"]), strict=True):
        torch.testing.assert_close(found.embedding, task.model.encode_image(view).embedding)
    if name == "byol":
        assert task.momentum is not None
        for view, found in zip(pixels, (features["momentum"], features["momentum_view"]), strict=True):
            assert not found.embedding.requires_grad
            # At the start the copy is the model.
            torch.testing.assert_close(found.embedding, task.model.encode_image(view).embedding)
    again = loss_of(name)
    torch.testing.assert_close(again.backward(batch(), step=4).total.detach(), total)


@pytest.mark.parametrize("name", ["simclr", "byol", "pixpro"])
def test_chunks_change_nothing(name: str) -> None:
    total, expected = gradients(loss_of(name))
    chunked, found = gradients(loss_of(name, chunk_size=2))
    torch.testing.assert_close(chunked, total, rtol=1e-5, atol=0)
    assert found.keys() == expected.keys()
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    for key, gradient in expected.items():
        torch.testing.assert_close(found[key], gradient, rtol=0, atol=1e-5 * largest, msg=key)
    assert not [key for key in found if key.startswith("momentum")]
    assert [key for key in found if key.startswith("model.image.")]


def test_chunks_move_the_statistics_of_the_copy_once() -> None:
    whole, chunked = loss_of("byol", architecture="resnet"), loss_of("byol", 3, architecture="resnet")
    for loss in (whole, chunked):
        loss.backward(batch(), step=4)
    counts = [
        [int(buffer) for name, buffer in loss.task.named_buffers() if name.endswith("num_batches_tracked")]
        for loss in (whole, chunked)
    ]
    # Two views, or two chunks of each; the predictor sees both views whole.
    assert set(counts[0]) == {2}
    assert set(counts[1]) == {2, 4}


def test_validation_takes_the_same_two_views_each_time() -> None:
    loss = loss_of("simclr")
    assert torch.equal(loss.value(batch()), loss.value(batch()))
    same = [loss.prepare(batch().inputs, None)] * 2
    loss.task.eval()
    unchanged = loss.task.encode(same[0], None, None, same[1])
    assert torch.equal(unchanged["view"].embedding, unchanged["image"].embedding)
    assert float(loss.value(batch())) > 0


def test_copy_follows_by_a_share_and_is_never_trained() -> None:
    loss = loss_of("byol")
    task = loss.task
    copy = task.momentum
    assert copy is not None
    trained = {
        id(p)
        for group in build_optimizer(task, tiny_recipe(), torch.device("cpu")).param_groups
        for p in group["params"]
    }
    assert not trained & {id(parameter) for parameter in copy.parameters()}
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


def test_copy_is_in_the_state_and_only_where_it_is_asked_for() -> None:
    names = loss_of("byol").task.state_dict().keys()
    assert {name for name in names if name.startswith("momentum.")}
    assert loss_of("simclr").task.momentum is None


def test_copy_has_the_mode_of_the_model_and_weights_of_its_own() -> None:
    model = image_model("resnet")
    copy = MomentumCopy(model)
    assert not [p for p in copy.parameters() if p.requires_grad]
    assert not {id(p) for p in copy.parameters()} & {id(p) for p in model.parameters()}
    task = loss_of("byol").task
    assert task.momentum is not None
    assert task.eval().momentum.model.training is False  # type: ignore[union-attr]
    assert task.train().momentum.model.training is True  # type: ignore[union-attr]


def test_views_need_an_augmentation() -> None:
    tree = json.loads(tiny_recipe().model_dump_json())
    tree["model"]["text"] = None
    tree["objective"] = {"name": "simclr"}
    described = parse_recipe(tree, "A recipe")
    context = ObjectiveContext(described.model.dim)
    check_requirements(described.objective.build(context), described)
    tree["augmentation"] = {}
    described = parse_recipe(tree, "A recipe")
    with pytest.raises(RecipeError, match="give augmentation"):
        check_requirements(described.objective.build(context), described)
