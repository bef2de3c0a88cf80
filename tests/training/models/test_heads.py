"""Heads: projections, concepts, QUEST's branches and normals, and statistics of heads that are shared."""

import copy
import math
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import cosine_similarity, normalize

from tests.training.models.tiny import (
    TEXT_OPTIONS,
    TEXTS,
    image_head,
    image_tower,
    saved,
    tiny_config,
    tiny_model,
    tiny_pixels,
    tiny_tokens,
)
from training.common.errors import RecipeError
from training.models.config import (
    AudioTowerConfig,
    HeadConfig,
    ImageArchitecture,
    Retrieval,
    TextArchitecture,
)
from training.models.dual_encoder import DualEncoder
from training.models.encoder import load_trainable
from training.models.features import ModalityFeatures
from training.models.heads import (
    ConceptHead,
    UniqueBranch,
    block_cross,
    build_head,
    normal_of,
    project_entries,
    retrieved,
)
from training.models.tower import Backbone, Projection
from training.objectives.base import LossOutput
from training.trainer.modules import MomentumCopy
from training.trainer.optimisation.batch_norm import synchronise
from training.trainer.optimisation.cached_gradients import FeaturesBySource, backward_in_chunks, even_chunks

GOLDEN = (
    ([[1, 2, 0, 1, 0, -1], [0, 1, 3, -1, 2, 1]], [[0, 1, 1, 2, 1, 0], [1, 0, -1, 1, 1, -2]]),
    [[2, -1, 1, 1, -2, 1], [-1, 3, -1, -5, -1, -3]],
)


def random_outputs(*shape: int) -> tuple[Tensor, Tensor]:
    shared, unique = torch.randn((2, *shape), dtype=torch.float64)
    return shared, unique


def test_normals_are_cross_products_of_triples() -> None:
    (shared, unique), cross = (torch.tensor(values, dtype=torch.float64) for values in GOLDEN)
    assert torch.equal(block_cross(shared, unique), cross)
    expected = cross / cross.norm(dim=1, keepdim=True)
    torch.testing.assert_close(normal_of(shared, unique), expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("dim", [3, 8, 512])
def test_a_normal_is_a_unit_vector_at_right_angles_to_both(dim: int) -> None:
    shared, unique = random_outputs(5, dim)
    normal, used = normal_of(shared, unique), dim - dim % 3
    assert normal.shape == (5, used)
    torch.testing.assert_close(normal.norm(dim=1), torch.ones(5, dtype=torch.float64), rtol=0, atol=1e-12)
    for output in (shared, unique):
        assert float((normal * output[:, :used]).sum(dim=1).abs().max()) < 1e-12
    torch.testing.assert_close(normal_of(1e-3 * shared, 1e4 * unique), normal, rtol=0, atol=1e-12)
    torch.testing.assert_close(normal_of(unique, shared), -normal, rtol=0, atol=1e-12)


def test_the_gradient_of_a_normal_is_right() -> None:
    shared, unique = random_outputs(3, 7)
    assert torch.autograd.gradcheck(normal_of, (shared.requires_grad_(), unique.requires_grad_()))


@pytest.mark.parametrize("factor", [1.0, -1.0, 3.7, 1e-3, 0.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_parallel_outputs_have_almost_no_normal_and_a_finite_gradient(
    factor: float, dtype: torch.dtype
) -> None:
    shared, _ = (output.to(dtype) for output in random_outputs(4, 512))
    unique = (factor * shared).requires_grad_()
    normal = normal_of(shared.requires_grad_(), unique)
    assert float(normal.detach().norm(dim=1).max()) < 0.1
    torch.autograd.backward(normal.sum())
    for output in (shared, unique):
        assert output.grad is not None
        assert torch.isfinite(output.grad).all()


def test_normals_of_outputs_in_half_precision_are_taken_in_full() -> None:
    shared, unique = (output.bfloat16() for output in random_outputs(4, 9))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        normal = normal_of(shared, unique)
    assert normal.dtype == torch.float32
    torch.testing.assert_close(normal, normal_of(shared.float(), unique.float()), rtol=0, atol=0)
    shared[0, 0] = math.nan
    assert not torch.isfinite(normal_of(shared, unique)[0]).any()


def test_a_head_is_an_affine_map_or_two_with_a_relu_between() -> None:
    head, x = build_head(HeadConfig(), 6, 4), torch.randn(3, 6)
    weight, bias = head.parameters()
    torch.testing.assert_close(head(x), x @ weight.T + bias)
    assert next(build_head(HeadConfig(kind="mlp"), 6, 4).parameters()).shape == (4, 6)
    head = build_head(HeadConfig(kind="mlp", hidden=5), 6, 4)
    first_weight, first_bias, second_weight, second_bias = head.parameters()
    assert first_weight.shape == (5, 6)
    expected = functional.relu(x @ first_weight.T + first_bias) @ second_weight.T + second_bias
    torch.testing.assert_close(head(x), expected)


def test_dropout_only_while_training() -> None:
    for kind in ("linear", "mlp"):
        head = build_head(HeadConfig.model_validate({"kind": kind, "dropout": 0.5}), 64, 4)
        x = torch.randn(3, 64)
        assert not torch.equal(head.train()(x), head(x))
        assert torch.equal(head.eval()(x), head(x))


def test_a_linear_head_starts_from_a_pretrained_projection_of_its_shape() -> None:
    bias, x = torch.randn(4), torch.randn(3, 6)
    projection = Projection(torch.randn(4, 6), bias)
    expected = x @ projection.weight.T + bias
    torch.testing.assert_close(build_head(HeadConfig(), 6, 4, projection)(x), expected)
    without_bias = build_head(HeadConfig(), 6, 4, Projection(projection.weight))
    torch.testing.assert_close(without_bias(x), x @ projection.weight.T)
    assert build_head(HeadConfig(), 6, 5, projection)(x).shape == (3, 5)


NORMED = HeadConfig(kind="mlp", hidden=5, norm=True)
ENTRIES_MASK = torch.arange(5) < torch.tensor([[5], [2], [1]])


def test_a_batch_norm_comes_before_the_relu_of_an_mlp() -> None:
    head = build_head(NORMED, 6, 4)
    first_weight, first_bias, scale, shift, second_weight, second_bias = head.parameters()
    x = torch.randn(7, 6)
    hidden = x @ first_weight.T + first_bias
    normed = (hidden - hidden.mean(dim=0)) / (hidden.var(dim=0, unbiased=False) + 1e-5).sqrt() * scale + shift
    expected = functional.relu(normed) @ second_weight.T + second_bias
    torch.testing.assert_close(head.train()(x), expected)
    torch.testing.assert_close(head.eval()(x[:1]), head(x)[:1])
    with pytest.raises(ValidationError, match="set kind to mlp, or norm to false"):
        HeadConfig(norm=True)


@pytest.mark.parametrize("config", [HeadConfig(), HeadConfig(kind="mlp"), NORMED])
def test_projects_each_entry_by_itself(config: HeadConfig) -> None:
    head, entries = build_head(config, 6, 4).eval(), torch.randn(3, 5, 6)
    projected = project_entries(head, entries, ENTRIES_MASK)
    assert projected.shape == (3, 5, 4)
    for row, count in enumerate((5, 2, 1)):
        torch.testing.assert_close(projected[row, :count], head(entries[row, :count]))
    every = torch.ones_like(ENTRIES_MASK)
    assert torch.equal(project_entries(head, entries), project_entries(head, entries, every))


def test_padding_is_no_part_of_the_statistics_of_a_batch_norm() -> None:
    head, entries, mask = build_head(NORMED, 6, 4), torch.randn(3, 5, 6), ENTRIES_MASK
    heads = [copy.deepcopy(head).train() for _ in range(3)]
    projected = project_entries(heads[0], entries, mask)
    changed = project_entries(heads[1], entries.masked_fill(~mask[..., None], 1e4), mask)
    torch.testing.assert_close(projected[mask], heads[2](entries[mask]))
    assert torch.equal(projected, changed)
    assert (projected[~mask] == 0).all()
    for name, value in heads[2].state_dict().items():
        assert torch.equal(heads[0].state_dict()[name], value)
        assert torch.equal(heads[1].state_dict()[name], value)


def test_gradients_pass_through_the_real_entries_only() -> None:
    head = build_head(NORMED, 6, 4).double()
    mask = torch.tensor([[True, True], [True, False], [False, False]])
    entries = torch.randn(3, 2, 6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: project_entries(head, x, mask), (entries,))
    torch.autograd.backward(project_entries(head, entries, mask).square().sum())
    assert entries.grad is not None
    assert torch.equal((entries.grad != 0).any(dim=-1), mask)


@torch.no_grad()
def test_concepts_and_context_are_fused_number_by_number() -> None:
    head, pooled = ConceptHead(6, 3, 4).double(), torch.randn(2, 6, dtype=torch.float64)
    for row, feature in zip(head(pooled), pooled, strict=True):
        actual = [1 / (1 + math.exp(-float(logit))) for logit in head.predict(feature)]
        concepts = head.of_concepts(pooled.new_tensor(actual)).tolist()
        context = head.of_context(feature).tolist()
        gates = head.gate(pooled.new_tensor([*actual, *feature.tolist()])).tolist()
        for place, value in enumerate(row.tolist()):
            share = 1 / (1 + math.exp(-gates[place]))
            sides = [side[place] / math.hypot(*side) for side in (concepts, context)]
            assert value == pytest.approx(share * sides[0] + (1 - share) * sides[1], abs=1e-9)


FORKING_IMAGES: tuple[ImageArchitecture, ...] = ("clip_vision_model", "dinov2", "siglip_vision_model", "vit")
FORKING_TEXTS: tuple[TextArchitecture, ...] = (
    *("bert", "clip_text_model", "distilbert", "roberta", "siglip_text_model", "small_transformer"),
)
BRANCHES: dict[str, Any] = {"kind": "transformer"}


def branched(
    image: ImageArchitecture = "vit", text: TextArchitecture = "bert", **settings: Any
) -> DualEncoder:
    if text == "clip_text_model":
        settings = {"text_settings": {"pooling": "eos"}, **settings}
    return tiny_model(tiny_config(image, text, **{"branches": BRANCHES, **settings}))


def branch_of(model: DualEncoder, modality: Literal["image", "text"]) -> UniqueBranch:
    branch = model.image_unique if modality == "image" else model.text_unique
    assert branch is not None
    return branch


def outputs(features: ModalityFeatures) -> tuple[Tensor, Tensor]:
    """The shared and the unique output (B, D)."""
    assert features.shared is not None
    assert features.unique is not None
    return features.shared, features.unique


def layer_output(backbone: Backbone, number: int, run: Any) -> Tensor:
    """What layer `number`, counted from 1, gives in a run."""
    seen: list[Tensor] = []

    def keep(_: nn.Module, __: object, output: Any) -> None:
        seen.append(output[0] if isinstance(output, tuple) else output)

    handle = backbone.layers()[number - 1][-1].register_forward_hook(keep)
    run()
    handle.remove()
    assert len(seen) == 1
    return seen[0]


@pytest.mark.parametrize(
    ("modality", "architecture"),
    [*(("image", name) for name in FORKING_IMAGES), *(("text", name) for name in FORKING_TEXTS)],
)
def test_the_fork_of_a_tower_sees_its_layer(modality: Literal["image", "text"], architecture: Any) -> None:
    for number in (1, 2, 3):
        model = branched(**{modality: architecture}, branches={"fork_after": number}).eval()
        tower, tokens = model.towers[modality], tiny_tokens()
        values: Any = tiny_pixels() if modality == "image" else tokens
        fork = tower(values).fork
        expected = layer_output(tower.backbone, number, lambda tower=tower, values=values: tower(values))
        if modality == "text":
            expected = expected[:, : tokens.input_ids.shape[1]]
            assert torch.equal(fork.mask, tokens.attention_mask.bool())
        assert torch.equal(fork.states, expected)
        assert fork.mask.shape == expected.shape[:2]
        assert fork.mask.all() or modality == "text"


@pytest.mark.parametrize(("depth", "expected"), [(1, 1), (2, 1), (3, 2), (4, 3), (6, 4), (12, 9), (24, 18)])
def test_forks_after_three_quarters_of_the_layers(depth: int, expected: int) -> None:
    options = {**TEXT_OPTIONS["small_transformer"], "layers": depth}
    model = branched(text="small_transformer", text_settings={"options": options})
    assert model.text is not None
    assert model.text.backbone.fork_after == expected


def test_a_fork_needs_so_many_transformer_layers() -> None:
    with pytest.raises(RecipeError, match="a tower has 3 layers: choose 3 or less"):
        branched(branches={"fork_after": 4})
    branches = {"fork_after": 2}
    assert branch_of(branched("resnet", branches=branches), "text").decoder is not None
    config, sounds = tiny_config("resnet", branches=branches), AudioTowerConfig(architecture="audio_cnn")
    with pytest.raises(RecipeError, match=r"remove branches\.fork_after"):
        tiny_model(config.model_copy(update={"text": None, "audio": sounds}))


@pytest.mark.parametrize(
    ("image", "branches"), [("resnet", BRANCHES), ("clip_resnet", {"kind": "mlp"}), ("vit", {"kind": "mlp"})]
)
def test_without_a_fork_the_branch_is_a_second_head(
    image: ImageArchitecture, branches: dict[str, Any]
) -> None:
    model = branched(image, branches=branches).eval()
    output = image_tower(model)(tiny_pixels())
    assert output.fork is None
    weight, bias = branch_of(model, "image").parameters()
    assert not torch.equal(weight, image_head(model).get_parameter("1.weight"))
    torch.testing.assert_close(model.encode_image(tiny_pixels()).unique, output.pooled @ weight.T + bias)


@pytest.mark.parametrize("pooling", ["cls", "eos", "mean", "max", "attention"])
def test_padding_and_neighbours_change_no_branch(pooling: str) -> None:
    model = branched(text_settings={"pooling": pooling}).eval()
    together = model.encode_text(tiny_tokens())
    unique = torch.cat([outputs(model.encode_text(tiny_tokens((text,))))[1] for text in TEXTS])
    assert unique.std(dim=0).max() > 1e-3
    torch.testing.assert_close(together.unique, unique, atol=1e-5, rtol=0)
    torch.testing.assert_close(together.shared, together.embedding)


@pytest.mark.parametrize("pooling", ["tower", "cls", "mean", "max", "attention"])
@pytest.mark.parametrize("architecture", FORKING_IMAGES)
def test_every_pooling_of_an_image_tower_has_a_branch(architecture: ImageArchitecture, pooling: str) -> None:
    if (architecture, pooling) == ("siglip_vision_model", "cls"):
        return
    model = branched(architecture, image_settings={"pooling": pooling}).eval()
    shared, unique = outputs(model.encode_image(tiny_pixels()))
    assert shared.shape == unique.shape == (4, 12)
    assert cosine_similarity(shared, unique, dim=-1).abs().max() < 0.99


def test_patches_are_pooled_without_the_class_token() -> None:
    model = branched("vit", image_settings={"pooling": "mean"}).eval()
    decoder, fork = branch_of(model, "image").decoder, image_tower(model)(tiny_pixels()).fork
    assert decoder is not None
    hidden = fork.states
    for layer in decoder.layers:
        hidden = layer(hidden)
    torch.testing.assert_close(decoder(fork), decoder.norm(hidden)[:, 1:].mean(dim=1))


def with_gradient(model: DualEncoder) -> set[str]:
    return {name for name, p in model.named_parameters() if p.grad is not None and bool((p.grad != 0).any())}


def within(model: DualEncoder, *modules: nn.Module) -> set[str]:
    inside = {id(p) for module in modules for p in module.parameters()}
    return {name for name, parameter in model.named_parameters() if id(parameter) in inside}


# Adding a constant to all keys, which these biases do, changes no attention.
KEY_BIASES = (".key.bias", ".k_proj.bias", ".k_lin.bias")


@pytest.mark.parametrize("kind", ["shared", "unique"])
@pytest.mark.parametrize("frozen", [0, 1, 2])
def test_gradients_reach_exactly_the_branch_and_what_it_grows_from(
    kind: Literal["shared", "unique"], frozen: int
) -> None:
    settings = {"frozen_layers": frozen}
    model = branched("vit", "bert", image_settings=settings, text_settings=settings).train()
    features = model(tiny_pixels(), tiny_tokens())
    for modality in ("image", "text"):
        output = outputs(features[modality])[kind == "unique"]
        torch.autograd.backward((output * torch.randn_like(output)).sum())
    expected: set[str] = set()
    for name, tower in model.towers.items():
        head, branch = (model.get_submodule(f"{name}_{part}") for part in ("head", "unique"))
        layers = [module for layer in tower.backbone.layers() for module in layer]
        if kind == "unique":
            expected |= within(model, *([] if frozen else tower.backbone.stem()), *layers[frozen:2], branch)
        else:
            rest = within(model, *layers[:frozen], *(tower.backbone.stem() if frozen else []))
            expected |= within(model, tower, head) - rest
    reached = with_gradient(model)
    assert reached <= expected
    assert all(name.endswith(KEY_BIASES) for name in expected - reached), expected - reached


def test_a_wholly_frozen_tower_still_trains_its_branch() -> None:
    model = branched(text_settings={"frozen_layers": "all"}).train()
    torch.autograd.backward(outputs(model.encode_text(tiny_tokens()))[1].square().sum())
    reached = with_gradient(model)
    assert reached
    assert all(name.startswith("text_unique.") for name in reached)


def test_frozen_parts_stay_and_use_no_dropout_next_to_a_fork() -> None:
    settings = {"frozen_layers": 2, "options": {**TEXT_OPTIONS["bert"], "hidden_dropout_prob": 0.5}}
    model = branched(text_settings=settings).train()
    assert model.text is not None
    backbone = model.text.backbone
    frozen = [*backbone.stem(), *backbone.layers()[0], *backbone.layers()[1]]
    assert not any(part.training for module in frozen for part in module.modules())
    assert all(module.training for module in backbone.layers()[2])
    (shared, unique), (other_shared, other_unique) = (
        outputs(model.encode_text(tiny_tokens())) for _ in range(2)
    )
    assert torch.equal(unique, other_unique)
    assert not torch.equal(shared, other_shared)
    old, names = copy.deepcopy(model.state_dict()), within(model, *frozen)
    torch.autograd.backward(unique.sum() + shared.sum())
    torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=0.5).step()
    assert names
    assert all(torch.equal(value, old[name]) for name, value in model.state_dict().items() if name in names)
    weight = "text_unique.head.1.weight"
    assert not torch.equal(model.state_dict()[weight], old[weight])


@pytest.mark.parametrize(
    ("retrieval", "width"), [("shared", 13), ("unique", 13), ("concat", 26), ("normal", 12)]
)
def test_the_embedding_is_what_is_searched_by(retrieval: Retrieval, width: int) -> None:
    model = branched(retrieval=retrieval, dim=13).eval()
    features = model(tiny_pixels(), tiny_tokens())
    assert model.config.vector_dim == width
    lean = copy.deepcopy(model)
    lean.drop_unused_branches()
    others = lean(tiny_pixels(), tiny_tokens())
    for modality in ("image", "text"):
        shared, unique = outputs(features[modality])
        assert shared.shape == unique.shape == (4, 13)
        assert features[modality].embedding.shape == (4, width)
        assert torch.equal(features[modality].embedding, retrieved(shared, unique, retrieval))
        assert torch.equal(features[modality].embedding, others[modality].embedding)
    assert (lean.image_unique is None) == (retrieval == "shared")
    assert (image_tower(lean)(tiny_pixels()).fork is None) == (retrieval == "shared")


def test_what_can_be_searched_by() -> None:
    s, u, t, v = torch.randn(4, 3, 12)
    assert retrieved(s, u, "shared") is s
    assert retrieved(s, u, "unique") is u
    cosine = cosine_similarity(retrieved(s, u, "concat"), retrieved(t, v, "concat"))
    torch.testing.assert_close(cosine, (cosine_similarity(s, t) + cosine_similarity(u, v)) / 2)
    assert torch.equal(retrieved(s, u, "normal"), normal_of(s, u))


def test_a_tower_is_the_same_with_a_branch() -> None:
    plain, forked = tiny_model(tiny_config("vit", "bert")).eval(), branched("vit", "bert").eval()
    features, expected = forked(tiny_pixels(), tiny_tokens()), plain(tiny_pixels(), tiny_tokens())
    for modality in ("image", "text"):
        assert torch.equal(features[modality].embedding, expected[modality].embedding)


NORMED_TOWER = {"pooling": "attention", "head": {"kind": "mlp", "hidden": 20, "norm": True}}
SHARED_HEAD: dict[str, Any] = {
    "image_settings": NORMED_TOWER,
    "text_settings": NORMED_TOWER,
    "local_features": True,
    "share_local_head": True,
}
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def shared_model() -> DualEncoder:
    """A model whose pooled features and regions share a head, with batch-norm statistics of either."""
    return tiny_model(tiny_config("vit", "small_transformer", **SHARED_HEAD)).train()


def norms_of(model: DualEncoder, modality: str = "image") -> tuple[nn.Module, nn.Module]:
    """The batch norm of the head, and that of the local features."""
    return model.get_submodule(f"{modality}_head.1"), model.local_norms[modality]


def statistics(norm: nn.Module) -> list[Tensor]:
    return [norm.get_buffer(statistic) for statistic in STATISTICS]


def local_of(features: ModalityFeatures) -> Tensor:
    assert features.local is not None
    return features.local


def test_weights_of_a_shared_head_are_shared_and_statistics_are_not() -> None:
    model = shared_model()
    assert {name for name, _ in model.named_parameters() if "local" in name} == set()
    assert {name for name in model.state_dict() if "local" in name} == {
        f"local_norms.{modality}.{statistic}" for modality in ("image", "text") for statistic in STATISTICS
    }
    features, output = model.encode_image(tiny_pixels()), image_tower(model)(tiny_pixels())
    head, (norm, own) = image_head(model), norms_of(model)
    first = model.get_submodule("image_head.0")
    hidden = first(output.local.flatten(0, 1))
    torch.testing.assert_close(statistics(own)[0], 0.1 * hidden.mean(dim=0))
    torch.testing.assert_close(statistics(norm)[0], 0.1 * first(output.pooled).mean(dim=0))
    # In training both take the statistics of what they see, so the head does to regions what it always did.
    torch.testing.assert_close(local_of(features).flatten(0, 1), head(output.local.flatten(0, 1)))
    for learned in (features.embedding, local_of(features)):
        weight = norm.get_parameter("weight")
        (gradient,) = torch.autograd.grad(learned.square().sum(), weight, retain_graph=True)
        assert (gradient != 0).any()
    others: tuple[dict[str, Any], ...] = (
        {"share_local_head": False},
        {"image_settings": {}, "text_settings": {}},
    )
    for settings in others:
        assert not tiny_model(tiny_config("vit", **{**SHARED_HEAD, **settings})).local_norms


def test_embeddings_of_a_shared_head_in_evaluation_are_those_of_training() -> None:
    """After it has learned to send random images to random places, and their regions apart."""
    model = shared_model()
    places = normalize(torch.randn(32, 12, generator=torch.Generator().manual_seed(1)), dim=1)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(60):
        features = model.encode_image(tiny_pixels(32, seed=step))
        regions = normalize(local_of(features), dim=2)
        alike = (regions @ regions.mT).exp().mean()
        optimizer.zero_grad()
        torch.autograd.backward(alike - (normalize(features.embedding, dim=1) * places).sum(dim=1).mean())
        optimizer.step()
    pixels = tiny_pixels(128, seed=99)
    with torch.no_grad():
        one, other = (model.train(mode).encode_image(pixels) for mode in (False, True))
    assert float(cosine_similarity(one.embedding, other.embedding).mean()) > 0.95
    assert float(cosine_similarity(local_of(one), local_of(other), dim=2).mean()) > 0.95


def test_one_tower_alone_has_the_statistics_of_its_local_features(tmp_path: Path) -> None:
    model = shared_model()
    model.encode_text(tiny_tokens())
    alone, _ = load_trainable(saved(tmp_path / "b", model), only="text")
    local, expected = (local_of(each.eval().encode_text(tiny_tokens())) for each in (alone, model))
    assert torch.equal(local, expected)


def test_copies_chunks_and_gpus_have_statistics_of_local_features() -> None:
    model, pixels = shared_model(), tiny_pixels(6)
    copied = MomentumCopy(model).train()
    copied(pixels)
    assert [int(statistics(norms_of(each)[1])[2]) for each in (copied.model, model)] == [1, 0]

    def loss(features: FeaturesBySource) -> LossOutput:
        image = features["image"]
        return LossOutput(image.embedding.square().mean() + local_of(image).square().mean(), {})

    def encode(chunk: slice) -> FeaturesBySource:
        return {"image": model.encode_image(pixels[chunk])}

    backward_in_chunks(model, encode, loss, even_chunks(6, 3), torch.device("cpu"))
    assert [int(statistics(norm)[2]) for norm in norms_of(model)] == [2, 2]
    expected = local_of(model.eval().encode_image(pixels))
    synchronise(model.train())
    assert all(isinstance(norm, nn.SyncBatchNorm) for norm in model.local_norms.values())
    assert {name for name, _ in model.named_parameters() if "local" in name} == set()
    torch.testing.assert_close(local_of(model.eval().encode_image(pixels)), expected)
