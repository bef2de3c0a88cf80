"""Objectives that write texts compared with slow references, which read and write one word at a time."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.training.objectives.cases import (
    DIM,
    LABELS,
    VOCABULARY,
    build_case,
    captions,
    random_batch,
    with_extras,
)
from tests.training.objectives.local_reference import set_plain_weights, without
from training.common.errors import RecipeError
from training.models.features import Features, ModalityFeatures
from training.models.preprocessing import TokenBatch
from training.objectives import VSE, Labels
from training.objectives.base import ObjectiveContext, parse_objective
from training.papers.captioning import SCO, Captioning, CaptionLSTM, CaptionTransformer

pytestmark = pytest.mark.usefixtures("one_thread")

WITHOUT_WORDS = ObjectiveContext(dim=DIM, embedding_dim=DIM, labels=LABELS)
NAMES = ("caption_lstm", "caption_transformer")


def build(name: str) -> Captioning:
    if name == "caption_lstm":
        return CaptionLSTM(dim=DIM, vocabulary=VOCABULARY, width=4).double().eval()
    return CaptionTransformer(dim=DIM, vocabulary=VOCABULARY, width=4, layers=2, heads=2).double().eval()


def plain_batch() -> Features:
    """Three images of four regions, and texts of different lengths, all plain numbers."""
    regions = ((torch.arange(3 * 4 * DIM, dtype=torch.float64) * 5 % 13) - 6).view(3, 4, DIM) / 4
    ids = torch.tensor([[1, 3, 4, 2, 0], [1, 5, 2, 0, 0], [1, 6, 3, 5, 2]])
    written = TokenBatch(ids, (ids > 0).long(), truncations=(None,) * 3)
    image = ModalityFeatures(regions.mean(dim=1), local=regions)
    return Features({"image": image}, extras={"captions": written})


def slow_lstm(objective: CaptionLSTM, regions: Tensor, words: list[Tensor]) -> list[Tensor]:
    """The states of one image's text, as Xu et al. write them."""
    mean = sum(regions) / len(regions)
    hidden, cell = torch.tanh(objective.first_state(mean)), torch.tanh(objective.first_cell(mean))
    weights = objective.cell
    states = []
    for word in words:
        scores = [
            objective.score(torch.tanh(objective.of_region(region) + objective.of_state(hidden)))
            for region in regions
        ]
        shares = torch.cat(scores).softmax(dim=0)
        seen = torch.sigmoid(objective.gate(hidden)) * (shares @ regions)
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
        scores = [asked[own] @ (of_key @ key + shift_key)[own] / math.sqrt(width // heads) for key in keys]
        values = [(of_value @ key + shift_value)[own] for key in keys]
        parts.append(torch.stack(scores).softmax(dim=0) @ torch.stack(values))
    mixed: Tensor = attention.out_proj(torch.cat(parts))
    return mixed


def slow_transformer(objective: CaptionTransformer, regions: Tensor, words: list[Tensor]) -> list[Tensor]:
    """The states of one image's text, position by position."""
    width = len(words[0])
    seen = [objective.regions(region) for region in regions]
    states = []
    for position, word in enumerate(words):
        angles = [position / 10_000 ** (2 * pair / width) for pair in range(width // 2)]
        waves = [wave(angle) for angle in angles for wave in (math.sin, math.cos)]
        states.append(word + torch.tensor(waves, dtype=torch.float64))
    for layer in objective.layers:
        assert isinstance(layer, nn.TransformerDecoderLayer)
        normed = [layer.norm1(state) for state in states]
        states = [
            state + slow_attention(layer.self_attn, normed[position], normed[: position + 1])
            for position, state in enumerate(states)
        ]
        states = [state + slow_attention(layer.multihead_attn, layer.norm2(state), seen) for state in states]
        states = [
            state + layer.linear2(nn.functional.gelu(layer.linear1(layer.norm3(state)))) for state in states
        ]
    return [objective.norm(state) for state in states]


@torch.no_grad()
def slow_captioning(objective: Captioning, batch: Features) -> tuple[float, float]:
    """The mean of -log p over all real words, one after another, and the share of words that are right."""
    written, regions = captions(batch), batch["image"].local
    assert regions is not None
    costs, right = [], []
    for row, (ids, mask) in enumerate(zip(written.input_ids, written.attention_mask, strict=True)):
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
            right.append(logits[following] == max(logits))
    return float(sum(costs) / len(costs)), sum(right) / len(right)


@pytest.mark.parametrize(
    ("name", "golden"), [("caption_lstm", 2.253132973462), ("caption_transformer", 2.289632880933)]
)
def test_equals_the_slow_reference(name: str, golden: float) -> None:
    plain, free = build(name), build(name)
    set_plain_weights(plain, span=11, divisor=8)
    assert slow_captioning(plain, plain_batch())[0] == pytest.approx(golden, abs=1e-11)
    for objective, batch in ((plain, plain_batch()), (free, random_batch(12))):
        (loss, right), output = slow_captioning(objective, batch), objective.compute(batch)
        assert float(output.total.detach()) == pytest.approx(loss, abs=1e-11)
        assert float(output.terms["words_right"]) == pytest.approx(right)
    assert 0 < right < 1


@pytest.mark.parametrize("name", NAMES)
def test_padded_regions_are_not_looked_at(name: str) -> None:
    batch, objective = random_batch(), build(name)
    image = batch["image"]
    assert image.local is not None
    mask = torch.ones(image.local.shape[:2], dtype=torch.bool)
    mask[:, 3] = False
    masked, cut = replace(image, local_mask=mask), ModalityFeatures(image.embedding, image.local[:, :3])
    found, expected = (objective(replace(batch, modalities={"image": one})) for one in (masked, cut))
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "settings", [{}, {"hardest": False, "margin": 0.3}, {"concept_weight": 0.5, "order_weight": 2.0}]
)
def test_sco_is_the_sum_of_matching_concepts_and_order(settings: dict[str, Any]) -> None:
    """Compared with VSE, a classifier of labels that returns its input, and CaptionLSTM."""
    batch = random_batch()
    objective = SCO(embedding_dim=DIM, vocabulary=VOCABULARY, width=8, **settings).double()
    image = batch["image"]
    hinge = {key: value for key, value in settings.items() if key in ("hardest", "margin")}
    matching = VSE(**hinge)(batch) / len(image.embedding)
    labels = Labels(embedding_dim=LABELS, labels=LABELS).double()
    labels.load_state_dict({"classifier.weight": torch.eye(LABELS), "classifier.bias": torch.zeros(LABELS)})
    assert image.concepts is not None
    concepts = labels(replace(batch, modalities={"image": ModalityFeatures(image.concepts)}))
    alone = ModalityFeatures(image.embedding, local=image.embedding[:, None])
    order = objective.writer(replace(batch, modalities={"image": alone}))
    output = objective.compute(batch)
    weights = settings.get("concept_weight", 1), settings.get("order_weight", 1)
    expected = matching + weights[0] * concepts + weights[1] * order
    torch.testing.assert_close(output.total, expected, rtol=0, atol=1e-12)
    for name, value in (("matching", matching), ("concepts", concepts), ("order", order)):
        torch.testing.assert_close(output.terms[name], value.detach(), rtol=0, atol=1e-12)


def test_needs() -> None:
    for name in NAMES:
        assert build(name).requires == {"local"}
        assert build(name).needs.keys() == {"data.captions", "model.share_local_head"}
        assert parse_objective(name).modalities == {"image"}
    sco = SCO(embedding_dim=DIM, vocabulary=VOCABULARY)
    assert sco.requires == {"one_vector"}
    assert sco.needs.keys() == {"data.captions", "model.concepts"}


@pytest.mark.parametrize("name", [*NAMES, "sco"])
def test_data_without_captions_are_refused(name: str) -> None:
    with pytest.raises(RecipeError, match=rf"{name} needs texts as words: give data\.captions"):
        parse_objective(name).build(WITHOUT_WORDS)
    batch = random_batch()
    with pytest.raises(RecipeError, match=r"needs them in its batches: give data\.captions"):
        build_case(name, batch)(with_extras(batch, captions=None))


@pytest.mark.parametrize(
    ("name", "lacking", "sentence"),
    [
        ("caption_lstm", {"image": "local"}, r"set model\.local_features to true"),
        ("sco", {"image": "concepts"}, r"predicts concepts of images: give model\.concepts"),
        ("sco", {}, r"predicts concepts of images: give model\.concepts"),
    ],
)
def test_batches_without_local_features_concepts_or_labels_are_refused(
    name: str, lacking: dict[str, str], sentence: str
) -> None:
    batch = random_batch()
    objective = build_case(name, batch)
    for source, feature in lacking.items():
        batch = without(batch, source, feature)
    with pytest.raises(RecipeError, match=sentence):
        objective(batch if lacking else with_extras(batch, labels=None))


@pytest.mark.parametrize(
    ("recipe", "sentence"),
    [
        ({"name": "caption_lstm", "width": 0}, "width\n  Input should be greater than 0"),
        ({"name": "caption_lstm", "pairs": [["image", "text"]]}, r"leave objective\.pairs out"),
        ({"name": "caption_transformer", "width": 12, "heads": 5}, "even number that the heads divide"),
        ({"name": "caption_transformer", "width": 9, "heads": 3}, "even number that the heads divide"),
        ({"name": "caption_transformer", "dropout": 1}, "dropout\n  Input should be less than 1"),
        ({"name": "sco", "order_weight": -1}, "order_weight\n  Input should be greater than or equal to 0"),
        ({"name": "sco", "pairs": [["text", "image"]]}, r"sco matches images with texts: leave objective\."),
    ],
)
def test_wrong_settings_are_refused(recipe: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_objective(recipe)
