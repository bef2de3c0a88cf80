"""Both objectives that write texts, beside slow references that read and write one word at a time."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from tests.training.objectives.cases import DIM, VOCABULARY, captions_of, random_batch, rows_of
from training.common.errors import RecipeError
from training.models.features import Features, ModalityFeatures
from training.models.preprocessing import TokenBatch
from training.objectives.base import ObjectiveContext
from training.objectives.caption_lstm import CaptionLSTM
from training.objectives.caption_transformer import CaptionTransformer, positions
from training.objectives.captions import Captioning
from training.objectives.local_entries import LocalEntries
from training.objectives.registry import parse_objective

pytestmark = pytest.mark.usefixtures("one_thread")

CONTEXT = ObjectiveContext(dim=DIM, vocabulary=VOCABULARY)
SETTINGS: dict[str, dict[str, Any]] = {
    "caption_lstm": {"width": 4},
    "caption_transformer": {"width": 4, "layers": 2, "heads": 2},
}
NAMES = sorted(SETTINGS)
# Worked out by the slow references below.
GOLDEN = {"caption_lstm": 2.253132973462, "caption_transformer": 2.289632880933}


def build(name: str) -> Captioning:
    """The objective in evaluation, with weights that are plain numbers."""
    objective = parse_objective({"name": name, **SETTINGS[name]}).build(CONTEXT).double().eval()
    assert isinstance(objective, Captioning)
    with torch.no_grad():
        for number, parameter in enumerate(objective.parameters(), start=1):
            values = torch.arange(parameter.numel(), dtype=torch.float64)
            parameter.copy_(((values * 7 + number) % 11 - 5).view_as(parameter) / 8)
    return objective


def plain_batch() -> Features:
    """Three images of four regions, and texts of different lengths, all plain numbers."""
    regions = ((torch.arange(3 * 4 * DIM, dtype=torch.float64) * 5 % 13) - 6).view(3, 4, DIM) / 4
    ids = torch.tensor([[1, 3, 4, 2, 0], [1, 5, 2, 0, 0], [1, 6, 3, 5, 2]])
    captions = TokenBatch(ids, (ids > 0).long(), truncations=(None,) * 3)
    return Features({"image": ModalityFeatures(regions.mean(dim=1), local=regions)}, captions=captions)


def slow_lstm(objective: CaptionLSTM, regions: Tensor, words: list[Tensor]) -> list[Tensor]:
    """The states of one image's text, as Xu et al. write them."""
    mean = sum(regions) / len(regions)
    hidden, cell = torch.tanh(objective.first_state(mean)), torch.tanh(objective.first_cell(mean))
    weights = objective.cell
    states = []
    for word in words:
        scores = [
            float(objective.score(torch.tanh(objective.of_region(region) + objective.of_state(hidden))))
            for region in regions
        ]
        shares = [math.exp(score) / sum(map(math.exp, scores)) for score in scores]
        seen = sum(share * region for share, region in zip(shares, regions, strict=True))
        seen = seen / (1 + math.exp(-float(objective.gate(hidden))))
        gates = weights.weight_ih @ torch.cat((word, seen)) + weights.bias_ih
        gates = gates + weights.weight_hh @ hidden + weights.bias_hh
        enter, forget, candidate, leave = gates.chunk(4)
        cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(candidate)
        hidden = torch.sigmoid(leave) * torch.tanh(cell)
        states.append(word + objective.state_out(hidden) + objective.region_out(seen))
    return states


def slow_attention(attention: nn.MultiheadAttention, query: Tensor, keys: list[Tensor]) -> Tensor:
    """One query's mixture of some values, head by head."""
    width, heads = attention.embed_dim, attention.num_heads
    of_query, of_key, of_value = attention.in_proj_weight.chunk(3)
    shift_query, shift_key, shift_value = attention.in_proj_bias.chunk(3)
    asked = of_query @ query + shift_query
    parts = []
    for head in range(heads):
        own = slice(head * width // heads, (head + 1) * width // heads)
        scores = [
            float(asked[own] @ (of_key @ key + shift_key)[own]) / math.sqrt(width // heads) for key in keys
        ]
        shares = [math.exp(score) / sum(map(math.exp, scores)) for score in scores]
        values = [(of_value @ key + shift_value)[own] for key in keys]
        parts.append(torch.stack([s * value for s, value in zip(shares, values, strict=True)]).sum(dim=0))
    mixed: Tensor = attention.out_proj(torch.cat(parts))
    return mixed


def slow_transformer(objective: CaptionTransformer, regions: Tensor, words: list[Tensor]) -> list[Tensor]:
    """The states of one image's text, place by place."""
    width = len(words[0])
    seen = [objective.regions(region) for region in regions]
    hidden = []
    for place, word in enumerate(words):
        angles = [place / 10_000 ** (2 * pair / width) for pair in range(width // 2)]
        waves = [wave(angle) for angle in angles for wave in (math.sin, math.cos)]
        hidden.append(word + torch.tensor(waves, dtype=torch.float64))
    for layer in objective.layers:
        assert isinstance(layer, nn.TransformerDecoderLayer)
        normed = [layer.norm1(state) for state in hidden]
        hidden = [
            state + slow_attention(layer.self_attn, normed[place], normed[: place + 1])
            for place, state in enumerate(hidden)
        ]
        hidden = [state + slow_attention(layer.multihead_attn, layer.norm2(state), seen) for state in hidden]
        hidden = [
            state + layer.linear2(nn.functional.gelu(layer.linear1(layer.norm3(state)))) for state in hidden
        ]
    return [objective.norm(state) for state in hidden]


@torch.no_grad()
def slow_loss(objective: Captioning, batch: Features) -> float:
    """The mean of -log p over all real words, one after another."""
    captions, regions = batch.captions, batch["image"].local
    assert captions is not None
    assert regions is not None
    costs = []
    for row, (ids, mask) in enumerate(zip(captions.input_ids, captions.attention_mask, strict=True)):
        text = ids[mask.bool()]
        words = [objective.words.weight[word] for word in text[:-1]]
        if isinstance(objective, CaptionLSTM):
            states = slow_lstm(objective, regions[row], words)
        else:
            assert isinstance(objective, CaptionTransformer)
            states = slow_transformer(objective, regions[row], words)
        for state, following in zip(states, text[1:].tolist(), strict=True):
            logits = objective.output(state).tolist()
            costs.append(math.log(sum(map(math.exp, logits))) - logits[following])
    return float(sum(costs) / len(costs))


@pytest.mark.parametrize("name", NAMES)
def test_golden_value(name: str) -> None:
    objective, batch = build(name), plain_batch()
    assert slow_loss(objective, batch) == pytest.approx(GOLDEN[name], abs=1e-11)
    assert float(objective(batch).total.detach()) == pytest.approx(GOLDEN[name], abs=1e-11)


@pytest.mark.parametrize("name", NAMES)
def test_equals_the_slow_reference(name: str) -> None:
    objective = parse_objective({"name": name, **SETTINGS[name]}).build(CONTEXT).double().eval()
    assert isinstance(objective, Captioning)
    batch = random_batch()
    expected = slow_loss(objective, batch)
    assert float(objective(batch).total.detach()) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_no_word_is_predicted_from_itself_or_those_behind_it(name: str) -> None:
    """Another last word changes no state before it is read; another first one changes all that follow."""
    batch = random_batch()
    captions, image = batch.captions, batch["image"]
    assert captions is not None
    objective = build(name)
    words = objective.words(captions.input_ids).detach()
    regions = LocalEntries.of(image)
    states = objective.states(regions, words)
    for place in range(words.shape[1]):
        changed = words.clone()
        changed[:, place] += torch.arange(words.shape[2])
        moved = (objective.states(regions, changed) - states).abs().amax(dim=2) > 1e-9
        assert not moved[:, :place].any()
        assert moved[:, place:].all()


@pytest.mark.parametrize("name", NAMES)
def test_padded_regions_are_not_looked_at(name: str) -> None:
    batch, objective = random_batch(), build(name)
    image = batch["image"]
    assert image.local is not None
    mask = torch.ones(image.local.shape[:2], dtype=torch.bool)
    mask[:, 3] = False
    hidden = replace(batch, modalities={"image": replace(image, local_mask=mask)})
    cut = replace(image, local=image.local[:, :3], local_mask=None, local_weights=None)
    expected = objective(replace(batch, modalities={"image": cut})).total
    torch.testing.assert_close(objective(hidden).total, expected, rtol=0, atol=1e-12)
    assert float((objective(batch).total - expected).abs().detach()) > 1e-6


@pytest.mark.parametrize("name", NAMES)
def test_longer_padding_changes_nothing(name: str) -> None:
    batch, objective = random_batch(), build(name)
    captions = batch.captions
    assert captions is not None
    longer = replace(
        captions,
        input_ids=nn.functional.pad(captions.input_ids, (0, 3)),
        attention_mask=nn.functional.pad(captions.attention_mask, (0, 3)),
    )
    torch.testing.assert_close(
        objective(replace(batch, captions=longer)).total, objective(batch).total, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("name", NAMES)
def test_all_words_count_alike(name: str) -> None:
    """Not the mean over texts: a longer text has more of a say."""
    batch, objective = rows_of(random_batch(masked=False), torch.arange(3)), build(name)
    captions = batch.captions
    assert captions is not None
    counts = (captions.attention_mask.sum(dim=1) - 1).double()
    alone = [objective(rows_of(batch, torch.tensor([row]))).total.detach() for row in range(3)]
    expected = (torch.stack(alone) * counts).sum() / counts.sum()
    torch.testing.assert_close(objective(batch).total.detach(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "name", ["caption_lstm", pytest.param("caption_transformer", marks=pytest.mark.slow)]
)
def test_texts_are_learned_from_images_alone(name: str) -> None:
    """Free regions come to hold their text: after training every word is right, of each image its own."""
    torch.manual_seed(0)
    batch = random_batch()
    captions, image = batch.captions, batch["image"]
    assert captions is not None
    assert image.local is not None
    settings = {"name": name, **SETTINGS[name], "width": 16}
    settings |= {"dropout": 0} if name == "caption_transformer" else {}
    objective = parse_objective(settings).build(CONTEXT).double().train()
    local = image.local.clone().requires_grad_()
    optimizer = torch.optim.Adam([local, *objective.parameters()], lr=0.02)
    for _ in range(200):
        optimizer.zero_grad()
        found = replace(batch, modalities={"image": replace(image, local=local)})
        torch.autograd.backward(objective(found).total)
        optimizer.step()
    objective.eval()
    assert float(objective(found).terms["words_right"]) == 1
    others = captions_of(captions, torch.tensor([3, 4, 5, 0, 1, 2]))
    assert float(objective(replace(found, captions=others)).total.detach()) > 1


def test_places_are_told_apart_by_waves() -> None:
    found = positions(5, 6)
    for place in range(5):
        for pair in range(3):
            angle = place / 10_000 ** (2 * pair / 6)
            assert float(found[place, 2 * pair]) == pytest.approx(math.sin(angle), abs=1e-12)
            assert float(found[place, 2 * pair + 1]) == pytest.approx(math.cos(angle), abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_missing_is_named(name: str) -> None:
    settings = parse_objective({"name": name})
    assert settings.modalities == {"image"}
    with pytest.raises(RecipeError, match=r"data\.captions"):
        settings.build(ObjectiveContext(dim=DIM))
    objective, batch = build(name), random_batch()
    assert objective.requires == {"local", "shared_head", "captions"}
    with pytest.raises(RecipeError, match=r"data\.captions"):
        objective(replace(batch, captions=None))
    with pytest.raises(RecipeError, match=r"model\.local_features"):
        objective(replace(batch, modalities={"image": ModalityFeatures(batch["image"].embedding)}))


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "caption_lstm", "width": 0},
        {"name": "caption_lstm", "pairs": [["image", "text"]]},
        {"name": "caption_transformer", "width": 12, "heads": 5},
        {"name": "caption_transformer", "width": 9, "heads": 3},
        {"name": "ltd", "base": {"name": "caption_lstm"}},
    ],
)
def test_settings_refuse_what_has_no_meaning(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        parse_objective(wrong)
