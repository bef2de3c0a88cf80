"""A head that pooled features and regions share: the same weights, but batch-norm statistics of either."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, normalize

from tests.training.models.test_bundle import seal_again
from tests.training.models.tiny import (
    image_tower,
    tiny_config,
    tiny_model,
    tiny_pixels,
    tiny_preprocessing,
    tiny_tokens,
)
from training.models.bundle import read_bundle
from training.models.bundle_writer import save_bundle
from training.models.dual_encoder import DualEncoder
from training.models.encoder import load_trainable
from training.objectives.base import LossOutput
from training.trainer.optimisation.batch_norm import synchronise
from training.trainer.optimisation.cached_gradients import FeaturesBySource, backward_in_chunks, even_chunks
from training.trainer.task import MomentumCopy

NORMED = {"pooling": "attention", "head": {"kind": "mlp", "hidden": 20, "norm": True}}
SHARED: dict[str, Any] = {
    "image_settings": NORMED,
    "text_settings": NORMED,
    "local_features": True,
    "share_local_head": True,
}
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def shared_model() -> DualEncoder:
    return tiny_model(tiny_config("vit", "small_transformer", **SHARED))


def trained_model(steps: int = 60) -> DualEncoder:
    """A model that has learned to send random images to random places, and their regions apart."""
    model = shared_model().train()
    places = normalize(torch.randn(64, 12, generator=torch.Generator().manual_seed(1)), dim=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(steps):
        features = model.encode_image(tiny_pixels(64, seed=step))
        assert features.local is not None
        regions = normalize(features.local, dim=2)
        alike = (regions @ regions.mT).exp().mean()
        optimizer.zero_grad()
        torch.autograd.backward(alike - (normalize(features.embedding, dim=1) * places).sum(dim=1).mean())
        optimizer.step()
    return model


def test_embeddings_in_evaluation_are_those_of_training() -> None:
    model, pixels = trained_model(), tiny_pixels(256, seed=99)
    with torch.no_grad():
        found = [model.train(mode).encode_image(pixels) for mode in (False, True)]
    cosines = cosine_similarity(found[0].embedding, found[1].embedding)
    assert float(cosines.mean()) > 0.95
    assert found[0].local is not None
    assert found[1].local is not None
    assert float(cosine_similarity(found[0].local, found[1].local, dim=2).mean()) > 0.95


def test_weights_are_shared_and_statistics_are_not() -> None:
    model = shared_model().train()
    assert {name for name, _ in model.named_parameters() if "local" in name} == set()
    assert {name for name in model.state_dict() if "local" in name} == {
        f"local_norms.{modality}.{statistic}" for modality in ("image", "text") for statistic in STATISTICS
    }
    features = model.encode_image(tiny_pixels())
    head = model.image_head
    assert isinstance(head, nn.Sequential)
    output = image_tower(model)(tiny_pixels())
    hidden = head[0](output.local.flatten(0, 1))
    torch.testing.assert_close(statistics(model.local_norms["image"])[0], 0.1 * hidden.mean(dim=0))
    torch.testing.assert_close(statistics(head[1])[0], 0.1 * head[0](output.pooled).mean(dim=0))
    assert features.local is not None
    # In training both take the statistics of what they see, so the head does to regions what it always did.
    torch.testing.assert_close(features.local.flatten(0, 1), head(output.local.flatten(0, 1)))


def test_the_affine_map_of_the_norm_learns_from_both() -> None:
    model = shared_model().train()
    features = model.encode_image(tiny_pixels())
    assert isinstance(model.image_head, nn.Sequential)
    weight = model.image_head[1].get_parameter("weight")
    assert features.local is not None
    for learned in (features.embedding, features.local):
        (gradient,) = torch.autograd.grad(learned.square().sum(), weight, retain_graph=True)
        assert (gradient != 0).any()


@pytest.mark.parametrize(
    "settings", [{"share_local_head": False}, {"image_settings": {}, "text_settings": {}}]
)
def test_other_heads_have_no_statistics_for_regions(settings: dict[str, Any]) -> None:
    assert not tiny_model(tiny_config("vit", "small_transformer", **{**SHARED, **settings})).local_norms


def older(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Weights as earlier releases wrote them, without statistics of local features."""
    return {name: value for name, value in weights.items() if "local_norms." not in name}


def statistics(norm: nn.Module) -> list[Tensor]:
    return [norm.get_buffer(statistic) for statistic in STATISTICS]


def assert_statistics_of_the_head(model: DualEncoder) -> None:
    for modality, head in (("image", model.image_head), ("text", model.text_head)):
        assert isinstance(head, nn.Sequential)
        for found, expected in zip(statistics(model.local_norms[modality]), statistics(head[1]), strict=True):
            assert torch.equal(found, expected)


def test_a_bundle_of_an_earlier_release_gives_the_vectors_that_it_gave(tmp_path: Path) -> None:
    model = shared_model().train()
    model(tiny_pixels(), tiny_tokens())
    model.eval()
    folder = tmp_path / "bundle"
    preprocessing = tiny_preprocessing()
    save_bundle(folder, name="a", model=model, preprocessing=preprocessing, metrics={}, recipe_yaml="")
    again, _ = load_trainable(read_bundle(folder))
    for name, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], value)
    weights = load_file(folder / "model.safetensors")
    save_file(older(weights), folder / "model.safetensors", metadata={"format": "pt"})
    seal_again(folder)
    again, _ = load_trainable(read_bundle(folder))
    again.eval()
    assert_statistics_of_the_head(again)
    features, expected = again.encode_image(tiny_pixels()), model.encode_image(tiny_pixels())
    assert torch.equal(features.embedding, expected.embedding)
    # Releases before normalised regions by the statistics of the head.
    assert isinstance(again.image_head, nn.Sequential)
    assert features.local is not None
    regions = image_tower(again)(tiny_pixels()).local.flatten(0, 1)
    torch.testing.assert_close(features.local.flatten(0, 1), again.image_head(regions))


def test_a_checkpoint_of_an_earlier_release_loads_with_its_momentum_copy() -> None:
    model = shared_model().train()
    model(tiny_pixels(), tiny_tokens())
    task = nn.ModuleDict({"model": model, "momentum": MomentumCopy(model)})
    fresh = shared_model()
    again = nn.ModuleDict({"model": fresh, "momentum": MomentumCopy(fresh)})
    again.load_state_dict(older(task.state_dict()))
    assert_statistics_of_the_head(fresh)
    copy = again["momentum"]
    assert isinstance(copy, MomentumCopy)
    assert_statistics_of_the_head(copy.model)


def test_a_momentum_copy_has_statistics_of_its_own() -> None:
    model = shared_model().train()
    copy = MomentumCopy(model).train()
    copy(tiny_pixels())
    assert not torch.equal(
        statistics(copy.model.local_norms["image"])[0], statistics(model.local_norms["image"])[0]
    )
    counts = [int(statistics(each.local_norms["image"])[2]) for each in (copy.model, model)]
    assert counts == [1, 0]


def test_chunks_move_each_statistic_once() -> None:
    model, pixels = shared_model().train(), tiny_pixels(6)

    def loss(features: FeaturesBySource) -> LossOutput:
        image = features["image"]
        assert image.local is not None
        return LossOutput(image.embedding.square().mean() + image.local.square().mean(), {})

    backward_in_chunks(
        model,
        lambda chunk: {"image": model.encode_image(pixels[chunk])},
        loss,
        even_chunks(6, 3),
        torch.device("cpu"),
    )
    assert isinstance(model.image_head, nn.Sequential)
    norms = (model.local_norms["image"], model.image_head[1])
    assert [int(statistics(norm)[2]) for norm in norms] == [2, 2]


def test_several_gpus_take_the_statistics_together() -> None:
    model = shared_model().train()
    expected = model.eval().encode_image(tiny_pixels())
    synchronise(model.train())
    assert all(isinstance(norm, nn.SyncBatchNorm) for norm in model.local_norms.values())
    assert {name for name, _ in model.named_parameters() if "local" in name} == set()
    features = model.eval().encode_image(tiny_pixels())
    assert features.local is not None
    assert expected.local is not None
    torch.testing.assert_close(features.local, expected.local)


def test_one_tower_alone_has_the_statistics_of_its_local_features(tmp_path: Path) -> None:
    model = shared_model().train()
    model.encode_text(tiny_tokens())
    info = save_bundle(
        tmp_path / "b", name="b", model=model, preprocessing=tiny_preprocessing(), metrics={}, recipe_yaml=""
    )
    alone, _ = load_trainable(info, only="text")
    local = alone.eval().encode_text(tiny_tokens()).local
    expected = model.eval().encode_text(tiny_tokens()).local
    assert local is not None
    assert expected is not None
    assert torch.equal(local, expected)
