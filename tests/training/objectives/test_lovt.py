from dataclasses import replace
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from tests.training.objectives.local_reference import (
    DIM,
    local_batch,
    real_vectors,
    real_weights,
    slow_attention,
    slow_direction,
    slow_positives,
    with_padding_of,
)
from tests.training.objectives.reference import mask_of, slow_info_nce
from training.common.errors import RecipeError
from training.models.features import Features
from training.objectives.base import ObjectiveContext
from training.objectives.local_entries import LocalEntries
from training.objectives.lovt import LoVT, LoVTSettings
from training.objectives.similarity import cosine_matrix

CONTEXT = ObjectiveContext(DIM)
GRID = (2, 3)


def build(**settings: Any) -> LoVT:
    """The objective in float64 from fixed random weights, on a grid of 2 x 3."""
    torch.manual_seed(0)
    return LoVTSettings(**{"grid": GRID, **settings}).build(CONTEXT).double()


def slow_lovt(objective: LoVT, batch: Features, reach: float = 0.5) -> dict[str, float]:
    """Both local losses term by term."""
    regions, sentences = LocalEntries.of(batch["image"]), LocalEntries.of(batch["text"])
    losses = {}
    for name, own, other, positives in (
        ("region", regions, sentences, slow_positives(*GRID, reach)),
        ("sentence", sentences, regions, None),
    ):
        here, found = real_vectors(own), slow_attention(objective.attention, own, other)
        weights = real_weights(own)
        losses[name] = sum(
            slow_direction(a, b, weights, 0.3, positives) for a, b in ((here, found), (found, here))
        )
    return losses


@pytest.mark.parametrize("reach", [0.0, 0.5])
def test_equals_the_slow_reference(reach: float) -> None:
    batch, objective = local_batch(GRID), build(reach=reach)
    output = objective(batch)
    with torch.no_grad():
        expected = slow_lovt(objective, batch, reach)
    cosines = cosine_matrix(batch["image"].embedding, batch["text"].embedding)
    whole = slow_info_nce(cosines, 0.1, 0.75, mask_of(len(cosines)))
    assert float(output.terms["global"]) == pytest.approx(whole, abs=1e-12)
    assert float(output.terms["region"]) == pytest.approx(expected["region"], abs=1e-11)
    assert float(output.terms["sentence"]) == pytest.approx(expected["sentence"], abs=1e-11)
    total = whole + 0.375 * expected["region"] + 0.375 * expected["sentence"]
    assert float(output.total.detach()) == pytest.approx(total, abs=1e-11)


def test_weights_of_the_parts() -> None:
    batch = local_batch(GRID)
    terms = build()(batch).terms
    output = build(global_weight=0.5, region_weight=2.0, sentence_weight=3.0)(batch)
    total = 0.5 * terms["global"] + 2 * terms["region"] + 3 * terms["sentence"]
    torch.testing.assert_close(output.total.detach(), total, rtol=0, atol=1e-12)


@pytest.mark.parametrize("garbage", [1e6, float("inf"), float("nan")])
def test_padding_has_no_influence_whatever_it_holds(garbage: float) -> None:
    batch, objective = local_batch(GRID), build()
    dirty = with_padding_of(batch, garbage)
    local = dirty["text"].local
    assert local is not None
    local.requires_grad_()
    total = objective(dirty).total
    assert torch.equal(total, objective(batch).total)
    torch.autograd.backward(total)
    assert local.grad is not None
    assert torch.isfinite(local.grad).all()
    mask = dirty["text"].local_mask
    assert mask is not None
    assert not local.grad[~mask].any()


def test_attention_weights_get_no_gradient() -> None:
    batch, objective = local_batch(GRID), build()
    weights = [batch[modality].local_weights for modality in ("image", "text")]
    for tensor in weights:
        assert tensor is not None
        tensor.requires_grad_()
    torch.autograd.backward(objective(batch).total)
    assert all(tensor is not None and tensor.grad is None for tensor in weights)
    assert objective.attention.key.weight.grad is not None


def test_attention_is_learned_by_the_model_s_optimizer() -> None:
    objective = build()
    torch.autograd.backward(objective(local_batch(GRID)).total)
    gradients = {name: parameter.grad for name, parameter in objective.named_parameters()}
    assert set(gradients) >= {"attention.key.weight", "attention.output.weight", "attention.norm.bias"}
    for name in ("key", "value", "output"):
        gradient = gradients[f"attention.{name}.weight"]
        assert gradient is not None
        assert gradient.any()


def test_reports_of_one_sentence_add_nothing_to_the_loss_over_sentences() -> None:
    terms = build()(local_batch(GRID, sentences=(1, 1, 1))).terms
    assert float(terms["sentence"]) == 0
    assert float(terms["region"]) > 0


def test_a_square_of_regions_needs_no_grid() -> None:
    batch = local_batch((2, 2))
    implied, given = build(grid=None), build(grid=(2, 2))
    assert torch.equal(implied(batch).total, given(batch).total)


def test_grid_may_change_between_batches() -> None:
    objective = build(grid=None)
    there = objective(local_batch((2, 2))).total
    objective(local_batch((3, 3)))
    assert torch.equal(objective(local_batch((2, 2))).total, there)
    assert not any("positives" in name for name in objective.state_dict())


@pytest.mark.parametrize(("grid", "regions"), [(None, (2, 3)), ((3, 3), (2, 3))])
def test_says_what_to_do_when_regions_are_no_such_grid(
    grid: tuple[int, int] | None, regions: tuple[int, int]
) -> None:
    with pytest.raises(RecipeError, match=r"6 regions.*set objective\.grid"):
        build(grid=grid)(local_batch(regions))


def test_says_what_to_do_without_local_features() -> None:
    batch = local_batch(GRID)
    image = replace(batch["image"], local=None)
    with pytest.raises(RecipeError, match="local_features"):
        build()(replace(batch, modalities={**batch.modalities, "image": image}))


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": 0.0},
        {"local_temperature": -1.0},
        {"reach": -0.1},
        {"grid": (0, 7)},
        {"pairs": (("text", "image"),)},
        {"tau": 0.1},
    ],
)
def test_settings_refuse_what_has_no_meaning(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        LoVTSettings.model_validate(wrong)
