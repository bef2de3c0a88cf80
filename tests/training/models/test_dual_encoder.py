from dataclasses import replace
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn
from torch.nn import functional

from tests.training.models.tiny import (
    TEXT_OPTIONS,
    TEXTS,
    image_head,
    image_tower,
    tiny_config,
    tiny_model,
    tiny_pixels,
    tiny_preprocessing,
    tiny_tokenizer,
    tiny_tokens,
)
from training.common.errors import RecipeError
from training.models.config import TextArchitecture
from training.models.dual_encoder import build_dual_encoder
from training.models.features import ModalityFeatures
from training.models.heads.pooling import AttentionPooling
from training.models.preprocessing import TokenBatch

MLP = {"head": {"kind": "mlp", "hidden": 20}}


def test_returns_features_of_both_modalities() -> None:
    features = tiny_model()(tiny_pixels(), tiny_tokens())
    assert features.positive_mask is None
    for modality in ("image", "text"):
        assert features[modality].embedding.shape == (4, 12)
        assert features[modality].local is None


def test_local_features_are_projected_and_masked() -> None:
    config = tiny_config(
        "vit",
        "bert",
        image_settings={"pooling": "attention"},
        text_settings={"pooling": "attention"},
        local_features=True,
    )
    tokens = tiny_tokens()
    features = tiny_model(config).eval()(tiny_pixels(), tokens)
    image, text = features["image"], features["text"]
    assert image.local.shape == (4, 4, 12)
    assert image.local_mask.all()
    assert text.local.shape == (4, tokens.input_ids.shape[1], 12)
    assert torch.equal(text.local_mask, tokens.attention_mask.bool())
    assert (text.local_weights[~text.local_mask] == 0).all()
    torch.testing.assert_close(text.local_weights.sum(dim=1), torch.ones(4))


def test_order_of_the_batch_changes_nothing() -> None:
    model = tiny_model().eval()
    forward = model(tiny_pixels(), tiny_tokens())
    backward = model(tiny_pixels().flip(0), tiny_tokens(TEXTS[::-1]))
    for modality in ("image", "text"):
        torch.testing.assert_close(backward[modality].embedding.flip(0), forward[modality].embedding)


def test_every_trainable_parameter_is_in_exactly_one_group() -> None:
    settings = {"pooling": "attention", "frozen_layers": 1, **MLP}
    model = tiny_model(tiny_config(text="bert", text_settings=settings, local_features=True))
    towers, heads = list(model.tower_parameters()), list(model.head_parameters())
    trainable = [id(parameter) for parameter in model.parameters() if parameter.requires_grad]
    assert sorted([*map(id, towers), *map(id, heads)]) == sorted(trainable)
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert all(".backbone." in names[id(parameter)] for parameter in towers)
    assert not any(".backbone." in names[id(parameter)] for parameter in heads)


def test_gradients_reach_every_trainable_parameter() -> None:
    settings = {"pooling": "attention", **MLP}
    model = tiny_model(tiny_config(text="bert", image_settings=MLP, text_settings=settings)).train()
    features = model(tiny_pixels(), tiny_tokens())
    (features["image"].embedding.square().sum() + features["text"].embedding.square().sum()).backward()
    assert all(p.grad is not None for p in model.parameters() if p.requires_grad)


def test_the_same_seed_gives_the_same_weights() -> None:
    first, second, other = tiny_model(), tiny_model(), tiny_model(seed=1)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True))


def test_builds_from_its_resolved_configuration_on_the_meta_device() -> None:
    model = tiny_model(tiny_config("clip_resnet", "roberta"))
    with torch.device("meta"):
        again = build_dual_encoder(model.config, tiny_tokenizer(), load_pretrained=False)
    assert again.config == model.config
    assert {n: p.shape for n, p in again.named_parameters()} == {
        n: p.shape for n, p in model.named_parameters()
    }


def test_refuses_preprocessing_that_does_not_fit() -> None:
    model = tiny_model(tiny_config("vit", "siglip_text_model"))
    model.check_preprocessing(tiny_preprocessing().config)
    with pytest.raises(RecipeError, match="32 pixels, not 64"):
        model.check_preprocessing(tiny_preprocessing(image={"size": 64}).config)
    with pytest.raises(RecipeError, match="64 tokens, not 65"):
        model.check_preprocessing(tiny_preprocessing(text={"max_tokens": 65}).config)


LOVT: dict[str, Any] = {
    "image_settings": {"pooling": "attention", "head": {"kind": "mlp", "hidden": 20, "norm": True}},
    "text_settings": {"pooling": "attention", "head": {"kind": "mlp", "hidden": 20, "norm": True}},
    "local_features": True,
}
REPORTS = ("The cat sits. Two dogs run! A red ball.", "x-ray", "", "No effusion. The lungs are clear.")


def sentence_tokens(texts: tuple[str, ...] = REPORTS) -> TokenBatch:
    return tiny_preprocessing(text={"max_tokens": 32, "sentences": True}).text(texts)


def local_of(features: ModalityFeatures) -> tuple[Tensor, Tensor, Tensor]:
    """Local features (B, K, D), their mask (B, K) and weights (B, K)."""
    assert features.local is not None
    assert features.local_mask is not None
    assert features.local_weights is not None
    return features.local, features.local_mask, features.local_weights


def test_a_blade_is_several_vectors() -> None:
    model = tiny_model(tiny_config(blades=3)).eval()
    embedding = model.encode_image(tiny_pixels()).embedding
    assert embedding.shape == (4, 3, 12)
    assert torch.equal(embedding.flatten(1), image_head(model)(image_tower(model)(tiny_pixels()).pooled))
    assert model.encode_text(tiny_tokens()).embedding.shape == (4, 3, 12)
    assert model.config.vector_dim == 36


def test_regions_are_the_cells_of_any_map() -> None:
    model = tiny_model(tiny_config(**LOVT)).eval()
    for height, width in ((32, 32), (224, 224), (96, 160)):
        local, mask, weights = local_of(model.encode_image(torch.randn(2, 3, height, width)))
        cells = (height // 32) * (width // 32)
        assert local.shape == (2, cells, 12)
        assert mask.all()
        torch.testing.assert_close(weights.sum(dim=1), torch.ones(2))


def test_local_features_of_a_text_are_its_sentences() -> None:
    model = tiny_model(tiny_config(text="bert", **LOVT)).eval()
    local, mask, weights = local_of(model.encode_text(sentence_tokens()))
    assert local.shape == (4, 3, 12)
    assert mask.sum(dim=1).tolist() == [3, 1, 1, 2]
    assert (weights[~mask] == 0).all()
    torch.testing.assert_close(weights.sum(dim=1), torch.ones(4))


def test_sentences_equal_a_slow_reference() -> None:
    model = tiny_model(tiny_config(text="bert", **LOVT)).eval()
    assert model.text is not None
    assert model.text_head is not None
    assert model.text_local_head is not None
    assert isinstance(model.text.pooling, AttentionPooling)
    attention = model.text.pooling.attention
    tokens = sentence_tokens()
    assert tokens.sentence_ids is not None
    hidden = model.text.backbone(tokens.input_ids, tokens.attention_mask).tokens
    features = model.encode_text(tokens)
    local, _, _ = local_of(features)
    for row, numbers in enumerate(tokens.sentence_ids):
        sentences = torch.stack(
            [hidden[row][numbers == number].amax(dim=0) for number in range(int(numbers.max()) + 1)]
        )
        torch.testing.assert_close(local[row, : len(sentences)], model.text_local_head(sentences))
        query = sentences.mean(dim=0, keepdim=True)
        pooled, _ = attention(query, sentences, sentences)
        torch.testing.assert_close(features.embedding[row], model.text_head(pooled)[0])


@pytest.mark.parametrize("pooling", ["cls", "eos", "mean", "max", "attention"])
@pytest.mark.parametrize("architecture", ["bert", "small_transformer", "siglip_text_model"])
def test_neighbours_change_no_sentence_and_no_embedding(architecture: TextArchitecture, pooling: str) -> None:
    settings = {**LOVT["text_settings"], "pooling": pooling}
    model = tiny_model(tiny_config(text=architecture, **{**LOVT, "text_settings": settings})).eval()
    together = model.encode_text(sentence_tokens())
    assert together.local is not None
    assert together.local_mask is not None
    for row, text in enumerate(REPORTS):
        alone = model.encode_text(sentence_tokens((text,)))
        assert alone.local is not None
        torch.testing.assert_close(together.embedding[row], alone.embedding[0], atol=1e-5, rtol=0)
        real = together.local[row][together.local_mask[row]]
        torch.testing.assert_close(real, alone.local[0], atol=1e-5, rtol=0)


def test_padding_changes_nothing_in_training_either() -> None:
    config = tiny_config(text="small_transformer", **LOVT)
    options = {**config.text.options, "dropout": 0.0} if config.text else {}
    config = tiny_config(**{**LOVT, "text_settings": {**LOVT["text_settings"], "options": options}})
    tokens = sentence_tokens()
    assert tokens.sentence_ids is not None
    longer = replace(
        tokens,
        input_ids=functional.pad(tokens.input_ids, (0, 5), value=tiny_tokenizer().pad_id),
        attention_mask=functional.pad(tokens.attention_mask, (0, 5)),
        sentence_ids=functional.pad(tokens.sentence_ids, (0, 5), value=-1),
        sentence_count=6,
    )
    first, second = (tiny_model(config).train() for _ in range(2))
    local, mask, _ = local_of(first.encode_text(tokens))
    other, other_mask, _ = local_of(second.encode_text(longer))
    torch.testing.assert_close(local[mask], other[other_mask], atol=1e-5, rtol=1e-4)
    for name, value in first.state_dict().items():
        torch.testing.assert_close(second.state_dict()[name], value)


def test_local_features_have_a_head_of_their_own() -> None:
    model = tiny_model(tiny_config(local_features=True, local_head={"kind": "mlp", "hidden": 7}))
    assert isinstance(model.image_local_head, nn.Sequential)
    assert next(model.image_local_head.parameters()).shape == (7, 16)
    assert len(list(image_head(model).children())) == 2
    names = [name for name, _ in model.named_parameters() if "local_head" in name]
    assert len(names) == 8


def test_local_features_may_share_the_head_of_the_global_one() -> None:
    model = tiny_model(tiny_config(share_local_head=True, **LOVT)).eval()
    assert not [name for name, _ in model.named_parameters() if "local_head" in name]
    local, _, _ = local_of(model.encode_image(tiny_pixels()))
    cells = image_tower(model)(tiny_pixels()).local
    torch.testing.assert_close(local[:, 0], image_head(model)(cells[:, 0]))


def test_a_head_is_shared_between_features_of_one_width_only() -> None:
    options = {**TEXT_OPTIONS["siglip_text_model"], "projection_size": 24}
    settings = {"pooling": "eos", "options": options}
    config = tiny_config(
        text="siglip_text_model", text_settings=settings, local_features=True, share_local_head=True
    )
    with pytest.raises(RecipeError, match="24 numbers and the local ones have 16"):
        tiny_model(config)


def test_gradients_of_local_features_reach_their_heads_and_towers_only() -> None:
    model = tiny_model(tiny_config(text="bert", **LOVT)).train()
    features = model(tiny_pixels(), sentence_tokens())
    for modality in ("image", "text"):
        local, mask, _ = local_of(features[modality])
        torch.autograd.backward((local[mask] * torch.randn_like(local[mask])).sum())
    without = {name for name, parameter in model.named_parameters() if parameter.grad is None}
    assert without
    assert {name.split(".")[0] for name in without} == {"image", "text", "image_head", "text_head"}
    assert all(".pooling." in name for name in without if not name.split(".")[0].endswith("_head"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"local_head": {}}, "set local_features to true"),
        ({"share_local_head": True}, "set local_features to true"),
        ({"local_features": True, "share_local_head": True, "local_head": {}}, "remove local_head"),
        ({"local_features": True, "share_local_head": True, "blades": 2}, "set blades to 1"),
        ({"blades": 5}, "less than or equal to 4"),
        ({"blades": 3, "dim": 2}, "set dim to 4 or more, or blades to less"),
        ({"blades": 3, "dim": 3}, "set dim to 4 or more, or blades to less"),
    ],
)
def test_settings_that_do_not_fit(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        tiny_config(**settings)
