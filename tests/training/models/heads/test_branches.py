import copy
from typing import Any, Literal

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.nn import functional

from tests.training.models.tiny import (
    IMAGE_OPTIONS,
    TEXT_OPTIONS,
    TEXTS,
    image_head,
    image_tower,
    tiny_config,
    tiny_model,
    tiny_pixels,
    tiny_tokens,
)
from training.common.errors import RecipeError
from training.models.config import AudioTowerConfig, ImageArchitecture, TextArchitecture
from training.models.dual_encoder import DualEncoder
from training.models.features import ModalityFeatures
from training.models.heads.normal import normal_of
from training.models.heads.projection import UniqueBranch, retrieved
from training.models.tower import Backbone

FORKING_IMAGES: tuple[ImageArchitecture, ...] = (
    "clip_vision_model",
    "dinov2",
    "siglip_vision_model",
    "vit",
)
FORKING_TEXTS: tuple[TextArchitecture, ...] = (
    "bert",
    "clip_text_model",
    "distilbert",
    "roberta",
    "siglip_text_model",
    "small_transformer",
)
BRANCHES: dict[str, Any] = {"kind": "transformer"}
Retrieval = Literal["shared", "unique", "concat", "normal"]


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


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("architecture", FORKING_IMAGES)
def test_the_fork_of_an_image_tower_sees_its_layer(architecture: ImageArchitecture, number: int) -> None:
    model = branched(architecture, branches={"fork_after": number}).eval()
    fork = image_tower(model)(tiny_pixels()).fork
    assert fork is not None
    expected = layer_output(image_tower(model).backbone, number, lambda: image_tower(model)(tiny_pixels()))
    assert torch.equal(fork.states, expected)
    assert fork.mask.shape == expected.shape[:2]
    assert fork.mask.all()


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("architecture", FORKING_TEXTS)
def test_the_fork_of_a_text_tower_sees_its_layer(architecture: TextArchitecture, number: int) -> None:
    model = branched(text=architecture, branches={"fork_after": number}).eval()
    assert model.text is not None
    tower, tokens = model.text, tiny_tokens()
    fork = tower(tokens).fork
    assert fork is not None
    expected = layer_output(tower.backbone, number, lambda: tower(tokens))[:, : tokens.input_ids.shape[1]]
    assert torch.equal(fork.states, expected)
    assert torch.equal(fork.mask, tokens.attention_mask.bool())


@pytest.mark.parametrize(("depth", "expected"), [(1, 1), (2, 1), (3, 2), (4, 3), (6, 4), (12, 9), (24, 18)])
def test_forks_after_three_quarters_of_the_layers(depth: int, expected: int) -> None:
    options = {**TEXT_OPTIONS["small_transformer"], "layers": depth}
    model = branched(text="small_transformer", text_settings={"options": options})
    assert model.text is not None
    assert model.text.backbone.fork_after == expected


def test_says_how_many_layers_there_are() -> None:
    with pytest.raises(RecipeError, match="a tower has 3 layers: choose 3 or less"):
        branched(branches={"fork_after": 4})


def test_a_fork_needs_a_tower_of_transformer_layers() -> None:
    branches = {"fork_after": 2}
    assert branch_of(branched("resnet", branches=branches), "text").decoder is not None
    config = tiny_config("resnet", branches=branches)
    sounds = AudioTowerConfig(architecture="audio_cnn")
    with pytest.raises(RecipeError, match=r"remove branches\.fork_after"):
        tiny_model(config.model_copy(update={"text": None, "audio": sounds}))


@pytest.mark.parametrize(
    ("image", "branches"), [("resnet", BRANCHES), ("clip_resnet", {"kind": "mlp"}), ("vit", {"kind": "mlp"})]
)
def test_without_a_fork_the_branch_is_a_second_head(
    image: ImageArchitecture, branches: dict[str, Any]
) -> None:
    model = branched(image, branches=branches).eval()
    pixels = tiny_pixels()
    output = image_tower(model)(pixels)
    assert output.fork is None
    weight, bias = branch_of(model, "image").parameters()
    assert not torch.equal(weight, image_head(model).get_parameter("1.weight"))
    torch.testing.assert_close(model.encode_image(pixels).unique, output.pooled @ weight.T + bias)


@pytest.mark.parametrize("pooling", ["cls", "eos", "mean", "max", "attention"])
def test_padding_and_neighbours_change_nothing(pooling: str) -> None:
    model = branched(text_settings={"pooling": pooling}).eval()
    together = model.encode_text(tiny_tokens())
    alone = [model.encode_text(tiny_tokens((text,))) for text in TEXTS]
    unique = torch.cat([outputs(features)[1] for features in alone])
    assert unique.std(dim=0).max() > 1e-3
    torch.testing.assert_close(together.unique, unique, atol=1e-5, rtol=0)
    torch.testing.assert_close(together.shared, together.embedding)


@pytest.mark.parametrize("pooling", ["tower", "cls", "mean", "max", "attention"])
@pytest.mark.parametrize("architecture", FORKING_IMAGES)
def test_every_pooling_of_an_image_tower(architecture: ImageArchitecture, pooling: str) -> None:
    if (architecture, pooling) == ("siglip_vision_model", "cls"):
        return
    model = branched(architecture, image_settings={"pooling": pooling}).eval()
    shared, unique = outputs(model.encode_image(tiny_pixels()))
    assert shared.shape == unique.shape == (4, 12)
    cosines = functional.cosine_similarity(shared, unique, dim=-1)
    assert cosines.abs().max() < 0.99


def test_patches_are_pooled_without_the_class_token() -> None:
    model = branched("vit", image_settings={"pooling": "mean"}).eval()
    decoder = branch_of(model, "image").decoder
    assert decoder is not None
    fork = image_tower(model)(tiny_pixels()).fork
    hidden = fork.states
    for layer in decoder.layers:
        hidden = layer(hidden)
    torch.testing.assert_close(decoder(fork), decoder.norm(hidden)[:, 1:].mean(dim=1))


def with_gradient(model: DualEncoder) -> set[str]:
    return {name for name, p in model.named_parameters() if p.grad is not None and bool((p.grad != 0).any())}


def within(model: DualEncoder, *modules: nn.Module) -> set[str]:
    wanted = {id(p) for module in modules for p in module.parameters()}
    return {name for name, parameter in model.named_parameters() if id(parameter) in wanted}


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
    for tower, head, branch in (
        (model.image, model.image_head, model.image_unique),
        (model.text, model.text_head, model.text_unique),
    ):
        assert tower is not None
        assert head is not None
        assert branch is not None
        layers = [module for layer in tower.backbone.layers() for module in layer]
        if kind == "unique":
            expected |= within(model, *([] if frozen else tower.backbone.stem()), *layers[frozen:2], branch)
        else:
            rest = within(model, *layers[:frozen], *(tower.backbone.stem() if frozen else []))
            expected |= within(model, tower, head) - rest
    reached = with_gradient(model)
    assert reached <= expected
    unreached = expected - reached
    assert all(name.endswith(KEY_BIASES) for name in unreached), unreached


def test_frozen_parts_stand_still_and_use_no_dropout_beside_a_fork() -> None:
    settings = {"frozen_layers": 2, "options": {**TEXT_OPTIONS["bert"], "hidden_dropout_prob": 0.5}}
    model = branched(text_settings=settings).train()
    assert model.text is not None
    backbone = model.text.backbone
    frozen = [*backbone.stem(), *backbone.layers()[0], *backbone.layers()[1]]
    assert not any(part.training for module in frozen for part in module.modules())
    assert not any(p.requires_grad for module in frozen for p in module.parameters())
    assert all(module.training for module in backbone.layers()[2])
    tokens = tiny_tokens()
    (shared, unique), (other_shared, other_unique) = (outputs(model.encode_text(tokens)) for _ in range(2))
    assert torch.equal(unique, other_unique)
    assert not torch.equal(shared, other_shared)
    before = copy.deepcopy(model)
    torch.autograd.backward(unique.sum() + shared.sum())
    torch.optim.SGD((p for p in model.parameters() if p.requires_grad), lr=0.5).step()
    old, names = before.state_dict(), within(model, *frozen)
    assert names
    assert all(torch.equal(value, old[name]) for name, value in model.state_dict().items() if name in names)
    weight = "text_unique.head.1.weight"
    assert not torch.equal(model.state_dict()[weight], old[weight])


def test_a_wholly_frozen_tower_still_trains_its_branch() -> None:
    model = branched(text_settings={"frozen_layers": "all"}).train()
    torch.autograd.backward(outputs(model.encode_text(tiny_tokens()))[1].square().sum())
    reached = with_gradient(model)
    assert reached
    assert all(name.startswith("text_unique.") for name in reached)


def test_branches_are_no_part_of_the_towers() -> None:
    model = branched()
    towers = {id(parameter) for parameter in model.tower_parameters()}
    branches = [*branch_of(model, "image").parameters(), *branch_of(model, "text").parameters()]
    assert not towers & {id(parameter) for parameter in branches}
    heads = {id(parameter) for parameter in model.head_parameters()}
    assert {id(parameter) for parameter in branches} <= heads


@pytest.mark.parametrize(
    ("retrieval", "width"), [("shared", 13), ("unique", 13), ("concat", 26), ("normal", 12)]
)
def test_the_embedding_is_what_is_searched_by(retrieval: Retrieval, width: int) -> None:
    model = branched(retrieval=retrieval, dim=13).eval()
    features = model(tiny_pixels(), tiny_tokens())
    assert model.config.vector_dim == width
    for modality in ("image", "text"):
        shared, unique = outputs(features[modality])
        assert shared.shape == unique.shape == (4, 13)
        assert features[modality].embedding.shape == (4, width)
        assert torch.equal(features[modality].embedding, retrieved(shared, unique, retrieval))


def test_what_can_be_searched_by() -> None:
    torch.manual_seed(0)
    s, u, t, v = torch.randn(4, 3, 12)
    assert retrieved(s, u, "shared") is s
    assert retrieved(s, u, "unique") is u
    cosine = functional.cosine_similarity(retrieved(s, u, "concat"), retrieved(t, v, "concat"))
    mean = (functional.cosine_similarity(s, t) + functional.cosine_similarity(u, v)) / 2
    torch.testing.assert_close(cosine, mean)
    assert torch.equal(retrieved(s, u, "normal"), normal_of(s, u))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"retrieval": "concat"}, "add branches"),
        ({"branches": {"kind": "mlp", "fork_after": 2}}, "remove fork_after"),
        ({"branches": {}, "blades": 2}, "set blades to 1"),
        ({"branches": {}, "dim": 2}, "set dim to 3"),
        ({"branches": {"fork_after": 0}}, "greater than 0"),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        tiny_config(**settings)


def test_the_tower_itself_stays_as_it_was() -> None:
    plain, forked = tiny_model(tiny_config("vit", "bert")).eval(), branched("vit", "bert").eval()
    features, expected = forked(tiny_pixels(), tiny_tokens()), plain(tiny_pixels(), tiny_tokens())
    for modality in ("image", "text"):
        assert torch.equal(features[modality].embedding, expected[modality].embedding)
    assert set(IMAGE_OPTIONS) > set(FORKING_IMAGES)


@pytest.mark.parametrize("retrieval", ["shared", "unique", "concat", "normal"])
def test_only_branches_that_are_not_searched_by_can_be_given_up(retrieval: Retrieval) -> None:
    model = branched("vit", "bert", retrieval=retrieval).eval()
    lean = copy.deepcopy(model)
    lean.drop_unused_branches()
    features, expected = lean(tiny_pixels(), tiny_tokens()), model(tiny_pixels(), tiny_tokens())
    for modality in ("image", "text"):
        assert torch.equal(features[modality].embedding, expected[modality].embedding)
    assert (lean.image_unique is None) == (retrieval == "shared")
    assert (image_tower(lean)(tiny_pixels()).fork is None) == (retrieval == "shared")
    kept = sum(parameter.numel() for parameter in lean.parameters())
    assert (kept < sum(parameter.numel() for parameter in model.parameters())) == (retrieval == "shared")
