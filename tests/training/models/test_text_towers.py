"""Text towers of every architecture, and the networks of our own by their equations."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.training.conversion.open_clip_folders import CONTEXT, own_clip
from tests.training.models.tiny import (
    TEXT_OPTIONS,
    TEXTS,
    tiny_tokenizer,
    tiny_tokens,
)
from training.common.errors import RecipeError
from training.conversion.references import OpenClipReference
from training.models.config import TextArchitecture, TextPreprocessingConfig, TextTowerConfig
from training.models.learned_tokenizer import build_tokenizer
from training.models.preprocessing import TextPreprocessing, TokenBatch
from training.models.text_towers import Gru, TextCNN, TextTower, build_own_text_backbone, build_text_tower
from training.models.tower import TextBackbone
from training.models.transformers_backbones import TransformersTextBackbone, attended

pytestmark = pytest.mark.usefixtures("one_thread")

ARCHITECTURES = sorted(TEXT_OPTIONS)
POOLINGS = ("cls", "eos", "mean", "max", "attention")


def build(architecture: TextArchitecture, **settings: object) -> TextTower:
    torch.manual_seed(0)
    content = {"architecture": architecture, "options": TEXT_OPTIONS[architecture], **settings}
    config = TextTowerConfig.model_validate(content)
    return build_text_tower(config, tiny_tokenizer(), load_pretrained=True)


@pytest.mark.parametrize(
    ("architecture", "pooling"),
    [
        (architecture, pooling)
        for architecture in ARCHITECTURES
        for pooling in POOLINGS
        if pooling != "cls" or architecture not in ("clip_text_model", "gru")
    ],
)
def test_padding_and_neighbours_change_nothing(architecture: TextArchitecture, pooling: str) -> None:
    tower, tokens = build(architecture, pooling=pooling).eval(), tiny_tokens()
    longer = replace(
        tokens,
        input_ids=functional.pad(tokens.input_ids, (0, 9), value=tiny_tokenizer().pad_id),
        attention_mask=functional.pad(tokens.attention_mask, (0, 9)),
    )
    with torch.no_grad():
        expected = tower(tokens)
        alone = torch.cat([tower(tiny_tokens((text,))).pooled for text in TEXTS])
        torch.testing.assert_close(tower(longer).pooled, expected.pooled, atol=1e-5, rtol=0)
    assert expected.pooled.shape == (len(TEXTS), tower.width)
    assert expected.pooled.std(dim=0).max() > 1e-3
    torch.testing.assert_close(alone, expected.pooled, atol=1e-5, rtol=0)
    assert expected.local.shape[:2] == tokens.input_ids.shape
    assert torch.equal(expected.local_mask, tokens.attention_mask.bool())


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
        expected = backbone(tokens.input_ids, tokens.attention_mask).local
        actual = backbone.model(input_ids=tokens.input_ids, attention_mask=mask).last_hidden_state
    real = tokens.attention_mask.bool()
    torch.testing.assert_close(actual[real], expected[real], atol=1e-6, rtol=0)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_word_counts_and_texts_may_be_as_long_as_is_said(architecture: TextArchitecture) -> None:
    tower = build(architecture).eval()
    first, second = tower(tiny_tokens(("a cat sits", "a dog sits"))).pooled
    assert (first - second).abs().max() > 1e-4
    ids = torch.full((1, tower.backbone.max_tokens), 5)
    assert tower(TokenBatch(ids, torch.ones_like(ids), (None,))).pooled.isfinite().all()


@pytest.mark.parametrize(
    ("architecture", "settings", "message"),
    [
        ("small_transformer", {"options": {"vocab_size": 10}}, "only 10"),
        ("small_transformer", {"options": {"width": 10, "heads": 3}}, "3 heads do not divide its width 10"),
        ("small_transformer", {"options": {"depth": 3}}, "depth"),
        ("small_transformer", {"pretrained": "somewhere"}, "no pretrained weights"),
        ("gru", {"options": {"width": 0}}, "options of gru do not fit"),
        ("text_cnn", {"options": {"widths": [8, 8]}}, "as many widths as depths"),
        ("text_cnn", {"options": {"depth": 3}}, "depth"),
        ("gru", {"pooling": "cls"}, "first token of gru does not know the text"),
        ("clip_text_model", {"pooling": "cls"}, "first token of clip_text_model does not know the text"),
    ],
)
def test_what_does_not_fit_is_named(
    architecture: TextArchitecture, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(RecipeError, match=message):
        build(architecture, **settings)


def own(architecture: TextArchitecture, words: int = 20, **options: Any) -> TextBackbone:
    torch.manual_seed(0)
    config = TextTowerConfig(architecture=architecture, options=options)
    backbone = build_own_text_backbone(config, words)
    assert backbone is not None
    return backbone.double()


def tiny_gru(layers: int = 1, *, bidirectional: bool = False) -> Gru:
    backbone = own("gru", word_width=5, width=7, layers=layers, bidirectional=bidirectional)
    assert isinstance(backbone, Gru)
    return backbone


IDS = torch.tensor([[3, 4, 9, 11], [5, 6, 0, 0], [7, 0, 0, 0]])
LENGTHS = (4, 2, 1)
MASK = (torch.arange(4) < torch.tensor(LENGTHS)[:, None]).long()


def unrolled(backbone: Gru, ids: list[int]) -> Tensor:
    """The last state by the equations of Cho et al. (2014), one word after another."""
    inputs = [backbone.words.weight[number] for number in ids]
    for layer in backbone.recurrent:
        weights = dict(layer.named_parameters())
        state = torch.zeros(7, dtype=torch.float64)
        states = []
        for word in inputs:
            from_word = weights["weight_ih_l0"] @ word + weights["bias_ih_l0"]
            from_state = weights["weight_hh_l0"] @ state + weights["bias_hh_l0"]
            reset = torch.sigmoid(from_word[:7] + from_state[:7])
            update = torch.sigmoid(from_word[7:14] + from_state[7:14])
            new = torch.tanh(from_word[14:] + reset * from_state[14:])
            state = (1 - update) * new + update * state
            states.append(state)
        inputs = states
    return inputs[-1]


@torch.no_grad()
@pytest.mark.parametrize("layers", [1, 2])
def test_the_last_real_state_of_a_gru_follows_the_equations(layers: int) -> None:
    backbone = tiny_gru(layers)
    states = backbone(IDS, MASK).local
    for row, length in enumerate(LENGTHS):
        expected = unrolled(backbone, IDS[row, :length].tolist())
        torch.testing.assert_close(states[row, length - 1], expected, atol=1e-12, rtol=0)
        assert (states[row, length:] == 0).all()


@torch.no_grad()
@pytest.mark.parametrize("layers", [1, 2])
def test_read_both_ways_a_state_is_the_mean_of_both(layers: int) -> None:
    """Compared with two networks of one direction, one of which is given the words turned round."""
    both = tiny_gru(layers, bidirectional=True)
    actual = both(IDS, MASK).local
    for row, length in enumerate(LENGTHS):
        states = both.words(IDS[row, :length])
        for layer in both.recurrent:
            ways = []
            for suffix, turned in (("", states), ("_reverse", states.flip(0))):
                alone = nn.GRU(turned.shape[1], 7, batch_first=True).double()
                names = [name for name, _ in alone.named_parameters()]
                alone.load_state_dict({name: layer.get_parameter(f"{name}{suffix}") for name in names})
                ways.append(alone(turned.unsqueeze(0))[0][0])
            states = (ways[0] + ways[1].flip(0)) / 2
        torch.testing.assert_close(actual[row, :length], states, rtol=0, atol=1e-12)
        assert not actual[row, length:].any()
    assert not both.causal
    assert tiny_gru().causal


def by_words(backbone: TextCNN, ids: list[int]) -> Tensor:
    """The states of one text, word by word."""
    states = [backbone.words.weight[number] for number in ids]
    for block in backbone.blocks:
        enter, mix, leave, skip = (block.get_submodule(name) for name in ("enter", "mix", "leave", "skip"))
        weight, bias = mix.get_parameter("weight"), mix.get_parameter("bias")
        narrow = [enter(state) for state in states]
        nothing = torch.zeros_like(narrow[0])
        around = zip([nothing, *narrow[:-1]], narrow, [*narrow[1:], nothing], strict=True)
        mixed = [bias + sum(weight[:, :, n] @ word for n, word in enumerate(words)) for words in around]
        states = [torch.relu(skip(s) + leave(word)) for s, word in zip(states, mixed, strict=True)]
    return torch.stack(states)


@torch.no_grad()
def test_a_state_of_the_text_cnn_is_what_its_word_and_those_around_it_give() -> None:
    backbone = own("text_cnn", word_width=5, widths=[8, 12], depths=[1, 2])
    assert isinstance(backbone, TextCNN)
    actual = backbone(IDS, MASK).local
    assert actual.shape == (3, 4, 12)
    for row, length in enumerate(LENGTHS):
        expected = by_words(backbone, IDS[row, :length].tolist())
        torch.testing.assert_close(actual[row, :length], expected, rtol=0, atol=1e-12)
        assert not actual[row, length:].any()


def test_defaults_are_those_of_vse_and_of_a_resnet_50() -> None:
    with torch.device("meta"):
        gru, cnn = own("gru", 8481), own("text_cnn")
    assert isinstance(gru, Gru)
    assert gru.words.weight.shape == (8481, 300)
    assert [layer.hidden_size for layer in gru.recurrent] == [1024]
    assert gru.width == gru.local_width == 1024
    assert len(cnn.layers()) == 16
    assert 15e6 < sum(parameter.numel() for parameter in cnn.parameters()) < 30e6


@pytest.mark.parametrize(("configured", "quick"), [(True, True), (True, False), (False, True)])
def test_text_of_an_open_clip_file_is_the_same(tmp_path: Path, configured: bool, quick: bool) -> None:
    folder = tmp_path / "model"
    own_clip(folder, quick=quick)
    settings = folder / "open_clip_config.json"
    content = json.loads(settings.read_text())
    # A tower from weights alone has heads of 64 numbers.
    content["model_cfg"]["text_cfg"]["heads"] = content["model_cfg"]["text_cfg"]["width"] // 64
    settings.write_text(json.dumps(content))
    expected = OpenClipReference(folder).embed_texts(TEXTS, CONTEXT)
    if not configured:
        settings.unlink()
    config = TextTowerConfig(architecture="clip_text_model", pretrained=str(folder), pooling="eos")
    tokenizer = build_tokenizer(config, ())
    tower = build_text_tower(config, tokenizer, load_pretrained=True).eval()
    assert tower.projection is not None
    assert tower.backbone.max_tokens == CONTEXT
    tokens = TextPreprocessing(TextPreprocessingConfig(max_tokens=CONTEXT), tokenizer)(TEXTS)
    with torch.no_grad():
        vectors = functional.normalize(tower(tokens).pooled @ tower.projection.weight.T, dim=1)
    np.testing.assert_allclose(vectors.numpy(), expected, atol=1e-4)
