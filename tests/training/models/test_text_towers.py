"""Text towers of every architecture, and the networks of our own by their equations."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from tests.training.models.tiny import (
    TEXT_OPTIONS,
    TEXTS,
    saved,
    tiny_config,
    tiny_preprocessing,
    tiny_tokenizer,
    tiny_tokens,
)
from training.common.errors import RecipeError
from training.models.config import TextArchitecture, TextTowerConfig
from training.models.dual_encoder import build_dual_encoder
from training.models.encoder import load_encoder
from training.models.learned_tokenizer import build_tokenizer
from training.models.preprocessing import Preprocessing, TokenBatch
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
        found = backbone.model(input_ids=tokens.input_ids, attention_mask=mask).last_hidden_state
    real = tokens.attention_mask.bool()
    torch.testing.assert_close(found[real], expected[real], atol=1e-6, rtol=0)


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


def test_a_gru_never_reads_padding() -> None:
    backbone, other = tiny_gru(), IDS.clone()
    other[1, 2:] = 13
    assert torch.equal(backbone(IDS, MASK).local, backbone(other, MASK).local)
    backbone(other, MASK).local[:, 1].sum().backward()
    gradient = backbone.words.weight.grad
    assert gradient is not None
    assert gradient[13].abs().max() == 0


@torch.no_grad()
@pytest.mark.parametrize("layers", [1, 2])
def test_read_both_ways_a_state_is_the_mean_of_both(layers: int) -> None:
    """Compared with two networks of one direction, one of which is given the words turned round."""
    both = tiny_gru(layers, bidirectional=True)
    found = both(IDS, MASK).local
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
        torch.testing.assert_close(found[row, :length], states, rtol=0, atol=1e-12)
        assert not found[row, length:].any()
    assert not both.causal
    assert tiny_gru().causal


def test_a_bundle_keeps_the_words_of_a_gru(tmp_path: Path) -> None:
    config = tiny_config(text="gru", text_settings={"pooling": "eos"})
    assert config.text is not None
    texts = ("a dog runs over the grass", "two people", "a red car and a dog", "the end")
    tokenizer = build_tokenizer(config.text, texts)
    model = build_dual_encoder(config, tokenizer, load_pretrained=True).eval()
    preprocessing = Preprocessing(tiny_preprocessing().config, tokenizer)
    encoder = load_encoder(saved(tmp_path / "vse", model, preprocessing).folder, "cpu")
    with torch.no_grad():
        embedding = model.encode_text(preprocessing.text(texts)).embedding
    expected = functional.normalize(embedding, dim=1).numpy()
    np.testing.assert_allclose(encoder.embed_texts(texts).vectors, expected, atol=1e-6)
    np.testing.assert_array_equal(*encoder.embed_texts(["an okapi", "an aardvark"]).vectors)


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
    found = backbone(IDS, MASK).local
    assert found.shape == (3, 4, 12)
    for row, length in enumerate(LENGTHS):
        expected = by_words(backbone, IDS[row, :length].tolist())
        torch.testing.assert_close(found[row, :length], expected, rtol=0, atol=1e-12)
        assert not found[row, length:].any()


def test_defaults_are_those_of_vse_and_of_a_resnet_50() -> None:
    with torch.device("meta"):
        gru, cnn = own("gru", 8481), own("text_cnn")
    assert isinstance(gru, Gru)
    assert gru.words.weight.shape == (8481, 300)
    assert [layer.hidden_size for layer in gru.recurrent] == [1024]
    assert gru.width == gru.local_width == 1024
    assert len(cnn.layers()) == 16
    assert 15e6 < sum(parameter.numel() for parameter in cnn.parameters()) < 30e6


WIDTH, LAYERS, CONTEXT = 64, 2, 40


class OpenClipText(nn.Module):
    """CLIP's text transformer with parameters named as open_clip names them, written on torch.nn alone."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.token_embedding = nn.Embedding(vocabulary, WIDTH)
        self.positional_embedding = nn.Parameter(torch.randn(CONTEXT, WIDTH))

        def block() -> nn.ModuleDict:
            mlp = {"c_fc": nn.Linear(WIDTH, 96), "c_proj": nn.Linear(96, WIDTH)}
            attention = nn.MultiheadAttention(WIDTH, WIDTH // 64, batch_first=True)
            norms = {"ln_1": nn.LayerNorm(WIDTH), "ln_2": nn.LayerNorm(WIDTH)}
            return nn.ModuleDict({**norms, "attn": attention, "mlp": nn.ModuleDict(mlp)})

        self.transformer = nn.ModuleDict({"resblocks": nn.ModuleList(block() for _ in range(LAYERS))})
        self.ln_final = nn.LayerNorm(WIDTH)
        self.text_projection = nn.Parameter(torch.randn(WIDTH, 6))

    def forward(self, ids: Tensor, last: Tensor, *, quick: bool) -> Tensor:
        x = self.token_embedding(ids) + self.positional_embedding[: ids.shape[1]]
        future = torch.ones(ids.shape[1], ids.shape[1], dtype=torch.bool).triu(1)
        for block in self.transformer.get_submodule("resblocks").children():
            attention, mlp = block.get_submodule("attn"), block.get_submodule("mlp")
            h = block.get_submodule("ln_1")(x)
            x = x + attention(h, h, h, attn_mask=future, need_weights=False)[0]
            h = mlp.get_submodule("c_fc")(block.get_submodule("ln_2")(x))
            h = h * torch.sigmoid(1.702 * h) if quick else functional.gelu(h)
            x = x + mlp.get_submodule("c_proj")(h)
        pooled: Tensor = self.ln_final(x)[torch.arange(len(ids)), last] @ self.text_projection
        return pooled


@pytest.mark.parametrize(("settings", "quick"), [(None, True), ({"quick_gelu": True}, True), ({}, False)])
def test_text_of_an_open_clip_file_is_the_same(
    tmp_path: Path, settings: dict[str, bool] | None, quick: bool
) -> None:
    reference = OpenClipText(tiny_tokenizer().size).eval()
    nn.init.normal_(reference.ln_final.bias)
    others = {"visual.conv1.weight": torch.zeros(1), "logit_scale": torch.zeros(1)}
    save_file({**reference.state_dict(), **others}, tmp_path / "open_clip_model.safetensors")
    if settings is not None:
        (tmp_path / "open_clip_config.json").write_text(json.dumps({"model_cfg": settings}))
    config = TextTowerConfig(architecture="clip_text_model", pretrained=str(tmp_path), pooling="eos")
    tower = build_text_tower(config, tiny_tokenizer(), load_pretrained=True).eval()
    tokens = tiny_tokens()
    last = tokens.attention_mask.sum(dim=1) - 1
    with torch.no_grad():
        expected = reference(tokens.input_ids, last, quick=quick)
        pooled = tower(tokens).pooled
    assert tower.projection is not None
    assert tower.backbone.max_tokens == CONTEXT
    torch.testing.assert_close(pooled @ tower.projection.weight.T, expected, atol=1e-4, rtol=1e-4)
