"""Models of images, texts and sounds: their features, parameters and configurations."""

from dataclasses import replace
from itertools import chain
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.training.models.tiny import (
    AUDIO,
    IMAGE_OPTIONS,
    TEXT_OPTIONS,
    image_head,
    image_tower,
    tiny_audio_encoder,
    tiny_audio_model,
    tiny_audio_preprocessing,
    tiny_config,
    tiny_model,
    tiny_pixels,
    tiny_preprocessing,
    tiny_spectrograms,
    tiny_tokenizer,
    tiny_tokens,
)
from training.common.errors import MissingModalityError, RecipeError
from training.models.config import AudioPreprocessingConfig, DualEncoderConfig, TextArchitecture
from training.models.dual_encoder import DualEncoder, build_dual_encoder
from training.models.features import ModalityFeatures
from training.models.preprocessing import TokenBatch

MLP = {"head": {"kind": "mlp", "hidden": 20}}
NO_TEXT = "trained without texts and cannot be searched by one: search by an image"


def test_returns_features_of_what_is_given() -> None:
    model = tiny_audio_model().eval()
    features = model(tiny_pixels(), tiny_tokens(), tiny_spectrograms())
    shapes = {name: each.embedding.shape for name, each in features.modalities.items()}
    assert shapes == dict.fromkeys(("image", "text", "audio"), (4, 12))
    assert model.modalities == {"image", "text", "audio"}
    assert features.positive_mask is features["image"].local is None
    heard = model(tiny_pixels(), spectrograms=tiny_spectrograms())
    assert set(heard.modalities) == {"image", "audio"}
    assert torch.equal(heard["audio"].embedding, features["audio"].embedding)


def test_a_modality_without_a_tower_is_named() -> None:
    model, encoder = tiny_audio_model(texts=False), tiny_audio_encoder(texts=False)
    assert model.modalities == encoder.modalities == {"image", "audio"}
    assert not any(name.startswith("text") for name, _ in model.named_parameters())
    with pytest.raises(MissingModalityError, match=NO_TEXT):
        model.encode_text(tiny_tokens())
    with pytest.raises(MissingModalityError, match=NO_TEXT) as missing:
        encoder.embed_texts(["a bell"])
    assert str(type(missing.value)(*missing.value.args)) == str(missing.value)
    with pytest.raises(MissingModalityError, match=r"trained without sounds.*model\.audio"):
        tiny_model().encode_audio(tiny_spectrograms())
    content = tiny_config().model_dump() | {"text": None}
    alone = build_dual_encoder(DualEncoderConfig.model_validate(content), None, load_pretrained=True)
    assert alone.modalities == {"image"}
    with pytest.raises(RecipeError, match="needs a tokenizer"):
        build_dual_encoder(tiny_config(), None, load_pretrained=True)


def test_every_trainable_parameter_is_in_exactly_one_group_and_gets_a_gradient() -> None:
    settings = {"pooling": "attention", "frozen_layers": 1, **MLP}
    parts: dict[str, Any] = {"audio": AUDIO, "branches": {"kind": "mlp"}, "retrieval": "concat"}
    model = tiny_model(tiny_config(text="bert", image_settings=MLP, text_settings=settings, **parts)).train()
    towers, heads = list(model.tower_parameters()), list(model.head_parameters())
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    assert sorted(map(id, [*towers, *heads])) == sorted(map(id, trainable))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    assert all(".backbone." in names[id(parameter)] for parameter in towers)
    assert not any(".backbone." in names[id(parameter)] for parameter in heads)
    features = model(tiny_pixels(), tiny_tokens(), tiny_spectrograms())
    losses = [each.embedding.square().sum() for each in features.modalities.values()]
    torch.autograd.backward(torch.stack(losses).sum())
    assert all(parameter.grad is not None for parameter in trainable)


def test_refuses_preprocessing_that_does_not_fit() -> None:
    model, sounds = tiny_model(tiny_config("vit", "siglip_text_model")), tiny_audio_preprocessing().config
    model.check_preprocessing(tiny_preprocessing().config)
    with pytest.raises(RecipeError, match="32 pixels, not 64"):
        model.check_preprocessing(tiny_preprocessing(image={"size": 64}).config)
    with pytest.raises(RecipeError, match="64 tokens, not 65"):
        model.check_preprocessing(tiny_preprocessing(text={"max_tokens": 65}).config)
    tiny_audio_model().check_preprocessing(sounds)
    with pytest.raises(RecipeError, match="20 bands, not 21"):
        wrong = sounds.model_copy(update={"audio": AudioPreprocessingConfig(mels=21)})
        tiny_audio_model().check_preprocessing(wrong)


NORMED = {"pooling": "attention", "head": {"kind": "mlp", "hidden": 20, "norm": True}}
LOVT: dict[str, Any] = {"image_settings": NORMED, "text_settings": NORMED, "local_features": True}
REPORTS = ("The cat sits. Two dogs run! A red ball.", "x-ray", "", "No effusion. The lungs are clear.")


def sentence_tokens(texts: tuple[str, ...] = REPORTS) -> TokenBatch:
    return tiny_preprocessing(text={"max_tokens": 32, "sentences": True}).text(texts)


def local_of(features: ModalityFeatures) -> tuple[Tensor, Tensor]:
    """Local features (B, K, D) and their mask (B, K)."""
    assert features.local is not None
    assert features.local_mask is not None
    return features.local, features.local_mask


def test_a_blade_is_several_vectors() -> None:
    model = tiny_model(tiny_config(blades=3)).eval()
    embedding = model.encode_image(tiny_pixels()).embedding
    assert embedding.shape == (4, 3, 12)
    assert torch.equal(embedding.flatten(1), image_head(model)(image_tower(model)(tiny_pixels()).pooled))
    assert model.encode_text(tiny_tokens()).embedding.shape == (4, 3, 12)
    assert model.config.vector_dim == 36


@pytest.mark.parametrize(("height", "width"), [(32, 32), (224, 224), (96, 160)])
def test_regions_are_the_cells_of_any_map(height: int, width: int) -> None:
    model = tiny_model(tiny_config(**LOVT)).eval()
    features = model.encode_image(torch.randn(2, 3, height, width))
    local, mask = local_of(features)
    assert local.shape == (2, (height // 32) * (width // 32), 12)
    assert mask.all()
    assert features.local_weights is not None
    torch.testing.assert_close(features.local_weights.sum(dim=1), torch.ones(2))


def test_local_features_are_tokens_sentences_or_frames() -> None:
    model, tokens = tiny_model(tiny_config("vit", "bert", **LOVT)).eval(), tiny_tokens()
    for batch, expected in ((tokens, tokens.attention_mask.sum(dim=1)), (sentence_tokens(), [3, 1, 1, 2])):
        features = model.encode_text(batch)
        local, mask = local_of(features)
        assert local.shape == (4, mask.shape[1], 12)
        assert mask.sum(dim=1).tolist() == list(expected)
        assert features.local_weights is not None
        assert (features.local_weights[~mask] == 0).all()
        torch.testing.assert_close(features.local_weights.sum(dim=1), torch.ones(4))
    sounds = tiny_audio_model(local_features=True).eval()(spectrograms=tiny_spectrograms())["audio"]
    assert sounds.local.shape == (4, 4, 12)
    assert sounds.local_mask.sum(dim=1).tolist() == [2, 2, 3, 4]


def test_sentences_equal_a_slow_reference() -> None:
    model = tiny_model(tiny_config(text="bert", **LOVT)).eval()
    assert model.text is not None
    attention, head, local_head = map(
        model.get_submodule, ("text.pooling.attention", "text_head", "text_local_head")
    )
    tokens = sentence_tokens()
    assert tokens.sentence_ids is not None
    hidden = model.text.backbone(tokens.input_ids, tokens.attention_mask).local
    features = model.encode_text(tokens)
    for row, numbers in enumerate(tokens.sentence_ids):
        sentences = torch.stack(
            [hidden[row][numbers == number].amax(dim=0) for number in range(int(numbers.max()) + 1)]
        )
        torch.testing.assert_close(local_of(features)[0][row, : len(sentences)], local_head(sentences))
        pooled, _ = attention(sentences.mean(dim=0, keepdim=True), sentences, sentences)
        torch.testing.assert_close(features.embedding[row], head(pooled)[0])


@pytest.mark.parametrize("pooling", ["cls", "eos", "mean", "max", "attention"])
@pytest.mark.parametrize("architecture", ["bert", "small_transformer", "siglip_text_model"])
def test_neighbours_change_no_sentence_and_no_embedding(architecture: TextArchitecture, pooling: str) -> None:
    settings = {**NORMED, "pooling": pooling}
    model = tiny_model(tiny_config(text=architecture, **{**LOVT, "text_settings": settings})).eval()
    together = model.encode_text(sentence_tokens())
    local, mask = local_of(together)
    for row, text in enumerate(REPORTS):
        alone = model.encode_text(sentence_tokens((text,)))
        torch.testing.assert_close(together.embedding[row], alone.embedding[0], atol=1e-5, rtol=0)
        torch.testing.assert_close(local[row][mask[row]], local_of(alone)[0][0], atol=1e-5, rtol=0)


def test_padding_changes_nothing_in_training_either() -> None:
    options = {**TEXT_OPTIONS["small_transformer"], "dropout": 0.0}
    config = tiny_config(**{**LOVT, "text_settings": {**NORMED, "options": options}})
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
    local, mask = local_of(first.encode_text(tokens))
    other, other_mask = local_of(second.encode_text(longer))
    torch.testing.assert_close(local[mask], other[other_mask], atol=1e-5, rtol=1e-4)
    for name, value in first.state_dict().items():
        torch.testing.assert_close(second.state_dict()[name], value)


def test_local_features_have_a_head_of_their_own_or_share_one_of_their_width() -> None:
    model = tiny_model(tiny_config(local_features=True, local_head={"kind": "mlp", "hidden": 7}))
    assert isinstance(model.image_local_head, nn.Sequential)
    assert next(model.image_local_head.parameters()).shape == (7, 16)
    assert len(list(image_head(model).children())) == 2
    assert len([name for name, _ in model.named_parameters() if "local_head" in name]) == 8
    model = tiny_model(tiny_config(share_local_head=True, **LOVT)).eval()
    assert not [name for name, _ in model.named_parameters() if "local_head" in name]
    cells = image_tower(model)(tiny_pixels()).local
    local, _ = local_of(model.encode_image(tiny_pixels()))
    torch.testing.assert_close(local[:, 0], image_head(model)(cells[:, 0]))
    settings = {"pooling": "eos", "options": {**TEXT_OPTIONS["siglip_text_model"], "projection_size": 24}}
    shared: dict[str, Any] = {"local_features": True, "share_local_head": True}
    with pytest.raises(RecipeError, match="24 numbers and the local ones have 16"):
        tiny_model(tiny_config(text="siglip_text_model", text_settings=settings, **shared))


AST = {"architecture": "audio_spectrogram_transformer"}
KINDS: dict[str, dict[str, Any]] = {
    **{f"image {name}": {"image": {"architecture": name}} for name in sorted(IMAGE_OPTIONS)},
    **{f"text {name}": {"text": {"architecture": name, "pooling": "eos"}} for name in sorted(TEXT_OPTIONS)},
    "audio": {"text": None, "audio": AST},
    "audio cnn": {"audio": {"architecture": "audio_cnn"}},
    "branches": {"branches": {}, "audio": AST},
}


def build_on_meta(content: dict[str, Any]) -> DualEncoder:
    """A model of full size, which takes no memory for a single weight."""
    defaults = {"image": {"architecture": "vit"}, "text": {"architecture": "bert"}}
    config = DualEncoderConfig.model_validate({**defaults, **content})
    with torch.device("meta"):
        return build_dual_encoder(config, tiny_tokenizer(), load_pretrained=False)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_builds_on_the_meta_device(kind: str) -> None:
    model = build_on_meta(KINDS[kind])
    assert all(tensor.is_meta for tensor in chain(model.parameters(), model.buffers()))
    assert sum(parameter.numel() for parameter in model.parameters()) > 1_000_000
    again = build_on_meta(model.config.model_dump(mode="json"))
    assert again.config == model.config
    shapes = [{name: value.shape for name, value in each.state_dict().items()} for each in (model, again)]
    assert shapes[0] == shapes[1]
