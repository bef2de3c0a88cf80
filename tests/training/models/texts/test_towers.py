from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from tests.training.models.tiny import TEXT_OPTIONS, TEXTS, tiny_tokenizer, tiny_tokens
from training.common.errors import RecipeError
from training.models.config import TextArchitecture, TextTowerConfig
from training.models.preprocessing import TokenBatch
from training.models.texts.backbones import TransformersTextBackbone, attended
from training.models.texts.towers import TextTower, build_text_tower

ARCHITECTURES = sorted(TEXT_OPTIONS)
POOLINGS = ("cls", "eos", "mean", "max", "attention")


def build(architecture: TextArchitecture, **settings: object) -> TextTower:
    torch.manual_seed(0)
    content = {"architecture": architecture, "options": TEXT_OPTIONS[architecture], **settings}
    config = TextTowerConfig.model_validate(content)
    return build_text_tower(config, tiny_tokenizer(), load_pretrained=True)


def padded(tokens: TokenBatch, extra: int, fill: int) -> TokenBatch:
    return replace(
        tokens,
        input_ids=functional.pad(tokens.input_ids, (0, extra), value=fill),
        attention_mask=functional.pad(tokens.attention_mask, (0, extra)),
    )


@pytest.mark.parametrize(
    ("architecture", "pooling"),
    [
        (a, p)
        for a in ARCHITECTURES
        for p in POOLINGS
        if (a, p) not in [("clip_text_model", "cls"), ("gru", "cls")]
    ],
)
def test_padding_changes_nothing(architecture: TextArchitecture, pooling: str) -> None:
    tower = build(architecture, pooling=pooling).eval()
    tokens = tiny_tokens()
    with torch.no_grad():
        expected = tower(tokens)
        longer = tower(padded(tokens, 9, fill=tiny_tokenizer().pad_id))
        alone = torch.cat([tower(tiny_tokens((text,))).pooled for text in TEXTS])
    assert expected.pooled.shape == (len(TEXTS), tower.width)
    assert expected.pooled.std(dim=0).max() > 1e-3
    torch.testing.assert_close(longer.pooled, expected.pooled, atol=1e-5, rtol=0)
    torch.testing.assert_close(alone, expected.pooled, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "architecture", ["altclip_text_model", "bert", "clip_text_model", "distilbert", "roberta"]
)
@pytest.mark.parametrize("texts", [TEXTS, TEXTS[:1]], ids=["padding", "none"])
def test_the_mask_that_a_gpu_gets_is_that_of_a_cpu(
    architecture: TextArchitecture, texts: tuple[str, ...]
) -> None:
    backbone, tokens = build(architecture).eval().backbone, tiny_tokens(texts)
    assert isinstance(backbone, TransformersTextBackbone)
    mask = attended(tokens.attention_mask, causal=backbone.causal)
    with torch.no_grad():
        expected = backbone(tokens.input_ids, tokens.attention_mask).tokens
        found = backbone.model(input_ids=tokens.input_ids, attention_mask=mask).last_hidden_state
    real = tokens.attention_mask.bool()
    torch.testing.assert_close(found[real], expected[real], atol=1e-6, rtol=0)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_order_of_the_batch_changes_nothing(architecture: TextArchitecture) -> None:
    tower = build(architecture).eval()
    with torch.no_grad():
        expected = tower(tiny_tokens()).pooled
        backwards = tower(tiny_tokens(TEXTS[::-1])).pooled.flip(0)
    torch.testing.assert_close(backwards, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_local_features_are_the_tokens(architecture: TextArchitecture) -> None:
    tokens = tiny_tokens()
    output = build(architecture).eval()(tokens)
    assert output.local.shape[:2] == tokens.input_ids.shape
    assert torch.equal(output.local_mask, tokens.attention_mask.bool())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_word_changes_the_embedding(architecture: TextArchitecture) -> None:
    tower = build(architecture).eval()
    first, second = tower(tiny_tokens(("a cat sits", "a dog sits"))).pooled
    assert (first - second).abs().max() > 1e-4


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_resolved_configuration_rebuilds_the_tower(architecture: TextArchitecture) -> None:
    tower = build(architecture, pooling="attention").eval()
    config = TextTowerConfig.model_validate_json(tower.config.model_dump_json())
    again = build_text_tower(config, tiny_tokenizer(), load_pretrained=False).eval()
    assert again.config == tower.config
    again.load_state_dict(tower.state_dict())
    assert torch.equal(again(tiny_tokens()).pooled, tower(tiny_tokens()).pooled)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_builds_without_memory_on_the_meta_device(architecture: TextArchitecture) -> None:
    with torch.device("meta"):
        tower = build(architecture, pooling="attention")
    assert all(parameter.is_meta for parameter in tower.parameters())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_takes_as_many_tokens_as_it_says(architecture: TextArchitecture) -> None:
    tower = build(architecture).eval()
    ids = torch.full((1, tower.backbone.max_tokens), 5)
    assert tower(TokenBatch(ids, torch.ones_like(ids), (None,))).pooled.isfinite().all()


def test_refuses_a_tokenizer_with_more_words_than_the_tower() -> None:
    with pytest.raises(RecipeError, match="only 10"):
        build("small_transformer", options={"vocab_size": 10})


def test_refuses_the_first_token_of_a_causal_tower() -> None:
    for architecture in ("clip_text_model", "gru"):
        with pytest.raises(RecipeError, match=f"first token of {architecture} does not know the text"):
            build(architecture, pooling="cls")


def test_small_transformer_says_what_does_not_fit() -> None:
    with pytest.raises(RecipeError, match="do not divide"):
        build("small_transformer", options={"width": 10, "heads": 3})
    with pytest.raises(RecipeError, match="depth"):
        build("small_transformer", options={"depth": 3})
    with pytest.raises(RecipeError, match="no pretrained weights"):
        build("small_transformer", pretrained="somewhere")
