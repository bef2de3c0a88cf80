"""LoVT compared with a slow reference, as a whole and layer by layer."""

import math
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor, nn

from tests.training.objectives.local_reference import (
    DIM,
    SENTENCES,
    local_batch,
    plain_cosines,
    random_entries,
    real_vectors,
    slow_cosine,
)
from tests.training.objectives.reference import mask_of, slow_info_nce
from training.common.errors import RecipeError
from training.models.features import Features
from training.objectives import LoVT
from training.objectives.base import parse_objective
from training.objectives.local import LocalEntries
from training.objectives.lovt import (
    CrossAttention,
    MaskedBatchNorm,
    Mixtures,
    grid_positives,
    local_contrastive,
)
from training.objectives.similarity import cosine_matrix

Module = TypeVar("Module", bound=nn.Module)

GRID = (2, 3)
LONG = random_entries((4, 2, 3), seed=1)
SHORT = random_entries((2, 3, 1), seed=2)


def slow_positives(height: int, width: int, reach: float) -> list[list[float]]:
    """Weights of positives on a grid, one pair of cells after the other."""
    diagonal = math.hypot(height, width)
    cells = [(row, column) for row in range(height) for column in range(width)]
    positives = []
    for here in cells:
        distances = [math.dist(here, there) / diagonal for there in cells]
        closeness = [math.exp(-distance) if distance <= reach + 1e-12 else 0.0 for distance in distances]
        positives.append([value / sum(closeness) for value in closeness])
    return positives


def slow_direction(
    own: list[list[Tensor]], other: list[list[Tensor]], weights: Tensor, positives: list[list[float]]
) -> float:
    """Mean over samples of the weighted cross entropy of each own entry with the other side's entries."""
    total = 0.0
    for sample, partners, sample_weights in zip(own, other, weights.tolist(), strict=True):
        for k, vector in enumerate(sample):
            scores = [slow_cosine(vector, partner) / 0.3 for partner in partners]
            normalizer = math.log(sum(math.exp(score) for score in scores))
            shares = positives[k][: len(scores)]
            entropy = sum(share * (normalizer - score) for share, score in zip(shares, scores, strict=True))
            total += sample_weights[k] * entropy / sum(shares)
    return total / len(own)


def slow_attention(
    attention: CrossAttention, queries: LocalEntries, entries: LocalEntries
) -> list[list[Tensor]]:
    """What each real query attends to: every projection is applied as the paper writes it."""
    found = []
    for asking, answering in zip(real_vectors(queries), real_vectors(entries), strict=True):
        keys = torch.stack([attention.key(vector) for vector in answering])
        values = torch.stack([attention.value(vector) for vector in answering])
        shares = [(keys @ attention.key(query) / math.sqrt(len(query))).softmax(dim=0) for query in asking]
        found.append([attention.output(share @ values) for share in shares])
    every, norm = torch.stack([vector for sample in found for vector in sample]), attention.norm
    deviation = torch.sqrt(every.var(dim=0, correction=0) + norm.eps)
    return [
        [(vector - every.mean(dim=0)) / deviation * norm.weight + norm.bias for vector in sample]
        for sample in found
    ]


def test_golden_positives() -> None:
    positives = grid_positives(7, 7)
    assert positives.dtype == torch.float64
    assert int((positives[24] > 0).sum()) == 49
    assert int((positives[0] > 0).sum()) == 22
    places = ((24, 24), (0, 0), (0, 1), (1, 0))
    golden = (0.026546, 0.060408, 0.054604, 0.044075)
    assert [float(positives[place]) for place in places] == pytest.approx(golden, abs=5e-7)
    # Four rows and four columns are exactly half of the diagonal of 8 x 8: such a cell still counts.
    assert grid_positives(8, 8)[0, 4 * 8 + 4] > 0


@pytest.mark.parametrize("grid", [(1, 4), (2, 3), (7, 7)])
@pytest.mark.parametrize("reach", [0.0, 0.3, 0.5, 2.0])
def test_positives_equal_the_slow_reference(grid: tuple[int, int], reach: float) -> None:
    expected = torch.tensor(slow_positives(*grid, reach), dtype=torch.float64)
    torch.testing.assert_close(grid_positives(*grid, reach=reach), expected, rtol=0, atol=1e-15)


def test_local_contrast_golden_value_of_two_entries() -> None:
    cosines = torch.tensor([[[1.0, 0.5], [0.0, 0.75]]], dtype=torch.float64)
    weights = torch.tensor([[0.25, 0.75]], dtype=torch.float64)
    there, back = local_contrastive(cosines, weights, torch.ones((1, 2), dtype=torch.bool), temperature=0.5)
    # The cross entropy of two scores is log(1 + exp(-difference)).
    rows = 0.25 * math.log1p(math.exp(-1.0)) + 0.75 * math.log1p(math.exp(-1.5))
    columns = 0.25 * math.log1p(math.exp(-2.0)) + 0.75 * math.log1p(math.exp(-0.5))
    assert (float(there), float(back)) == pytest.approx((rows, columns), abs=1e-15)


@pytest.mark.parametrize("counts", [(6, 6, 6), (6, 1, 4)])
@pytest.mark.parametrize("with_grid", [True, False])
def test_local_contrast_equals_the_slow_reference(counts: tuple[int, ...], with_grid: bool) -> None:
    own, other = random_entries(counts, seed=1), random_entries(counts, seed=2)
    cosines = plain_cosines(own.values, other.values)
    positives = grid_positives(*GRID) if with_grid else None
    found = local_contrastive(cosines, own.weights, own.mask, positives=positives)
    slow = slow_positives(*GRID, 0.5 if with_grid else 0)
    ours, theirs = real_vectors(own), real_vectors(other)
    expected = [slow_direction(a, b, own.weights, slow) for a, b in ((ours, theirs), (theirs, ours))]
    assert [float(loss) for loss in found] == pytest.approx(expected, abs=1e-12)


def test_sample_without_real_entries_costs_nothing_and_stays_finite() -> None:
    own = random_entries((3, 3), seed=1)
    mask, weights = own.mask.clone(), own.weights.clone()
    mask[1], weights[1] = False, 0
    cosines = torch.rand(2, 3, 3, dtype=torch.float64, requires_grad=True)
    there, back = local_contrastive(cosines, weights, mask, positives=torch.ones(3, 3) / 3)
    alone, _ = local_contrastive(cosines[:1], weights[:1], mask[:1], positives=torch.ones(3, 3) / 3)
    assert float(there.detach()) == pytest.approx(float(alone.detach()) / 2, abs=1e-15)
    torch.autograd.backward(there + back)
    assert cosines.grad is not None
    assert torch.isfinite(cosines.grad).all()
    assert not cosines.grad[1].any()


def mixtures() -> Mixtures:
    """Three mixtures of two parts in each of three samples."""
    weights = torch.rand(3, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return Mixtures(weights / weights.sum(dim=2, keepdim=True), random_entries((2, 2, 2), seed=4).values)


def test_cosines_and_moments_of_mixtures_are_those_of_their_vectors() -> None:
    others, mask = random_entries((2, 2, 2), seed=5).values, random_entries((3, 1, 2)).mask
    found = mixtures().cosines(others)
    torch.testing.assert_close(found, plain_cosines(others, mixtures().vectors()), rtol=0, atol=1e-13)
    count, mean, deviations = mixtures().moments(mask)
    real = mixtures().vectors()[mask]
    assert count.tolist() == [6]
    torch.testing.assert_close(mean, real.mean(dim=0), rtol=0, atol=1e-14)
    torch.testing.assert_close(deviations, (real - real.mean(dim=0)).square().sum(dim=0), rtol=0, atol=1e-13)
    assert torch.equal(Mixtures.of_vectors(others).vectors(), others)


def test_cosines_of_mixtures_are_exact_enough_in_float32() -> None:
    weights, parts = torch.randn(4, 49, 8).softmax(dim=2), torch.randn(4, 8, 512)
    others = torch.randn(4, 49, 512)
    exact = plain_cosines(others.double(), weights.double() @ parts.double())
    assert (Mixtures(weights, parts).cosines(others) - exact).abs().max() < 1e-6


def test_mixtures_that_cancel_out_keep_cosine_and_gradient_in_bounds() -> None:
    pair = torch.randn(8, 2, 512) * 100
    parts = torch.cat([pair, -pair.sum(dim=1, keepdim=True)], dim=1).requires_grad_()
    found = Mixtures(torch.full((8, 4, 3), 1 / 3), parts).cosines(pair)
    assert found.detach().abs().max() <= 1.001
    torch.autograd.backward(found.sum())
    assert parts.grad is not None
    assert torch.isfinite(parts.grad).all()


@torch.no_grad()
def shaken(module: Module) -> Module:
    """The module in float64 with random numbers added to all weights and biases."""
    for parameter in module.double().parameters():
        parameter.add_(torch.randn_like(parameter) * 0.3)
    return module


@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_equals_that_of_the_real_entries_alone(training: bool) -> None:
    """In evaluation as well: it keeps no statistics."""
    entries, norm = random_entries((3, 1, 2)), shaken(MaskedBatchNorm(DIM)).train(training)
    reference = nn.BatchNorm1d(DIM).double()
    assert not list(norm.buffers())
    reference.load_state_dict(norm.state_dict(), strict=False)
    padded = entries.values.masked_fill(~entries.mask.unsqueeze(2), 7)
    ours, theirs = (padded.clone().requires_grad_() for _ in range(2))
    found = norm(Mixtures.of_vectors(ours), entries.mask).vectors()[entries.mask]
    expected = reference(theirs[entries.mask])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-13)
    torch.autograd.backward((found**3).sum() + (expected**3).sum())
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=0, atol=1e-11)
    for name, parameter in norm.named_parameters():
        torch.testing.assert_close(parameter.grad, reference.get_parameter(name).grad, rtol=0, atol=1e-12)


def test_batch_norm_of_mixtures_is_that_of_their_vectors() -> None:
    norm, mask = shaken(MaskedBatchNorm(DIM)), random_entries((3, 1, 2)).mask
    found = norm(mixtures(), mask).vectors()[mask]
    expected = norm(Mixtures.of_vectors(mixtures().vectors()), mask).vectors()[mask]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_large_mean_takes_no_digits_from_the_variance() -> None:
    mask = torch.ones((2, 6), dtype=torch.bool)
    shifted = (random_entries((6, 6), seed=3).values + 1000).float()
    found = MaskedBatchNorm(DIM)(Mixtures.of_vectors(shifted), mask).vectors()
    expected = MaskedBatchNorm(DIM).double()(Mixtures.of_vectors(shifted.double()), mask).vectors()
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize("real", [0, 1])
def test_batch_norm_of_one_real_entry_or_none_is_finite(real: int) -> None:
    norm = shaken(MaskedBatchNorm(DIM))
    values = random_entries((3, 1, 2)).values.requires_grad_()
    mask = torch.zeros((3, 3), dtype=torch.bool)
    mask[0, :real] = True
    found = norm(Mixtures.of_vectors(values), mask).vectors()
    torch.testing.assert_close(found[mask], norm.bias.expand(real, 5), rtol=0, atol=1e-9)
    torch.autograd.backward(found[mask].sum())
    assert values.grad is not None
    assert torch.isfinite(values.grad).all()


@pytest.mark.parametrize(("first", "second"), [(LONG, SHORT), (SHORT, LONG), (LONG, LONG)])
def test_attention_equals_the_slow_reference(first: LocalEntries, second: LocalEntries) -> None:
    attention = shaken(CrossAttention(DIM))
    ways = zip(attention(first, second), ((first, second), (second, first)), strict=True)
    for found, (queries, entries) in ways:
        expected = [vector for sample in slow_attention(attention, queries, entries) for vector in sample]
        real = found.vectors()[queries.mask]
        torch.testing.assert_close(real, torch.stack(expected), rtol=0, atol=1e-11)


def test_gradient_of_attention_is_right() -> None:
    attention = shaken(CrossAttention(3))
    first, second = random_entries((3, 2), seed=1, dim=3), random_entries((1, 2), seed=2, dim=3)

    def attend(a: Tensor, b: Tensor, *_: Tensor) -> tuple[Tensor, Tensor]:
        of_second, of_first = attention(
            LocalEntries(a, first.mask, first.weights), LocalEntries(b, second.mask, second.weights)
        )
        return of_second.vectors()[first.mask], of_first.vectors()[second.mask]

    inputs = (first.values.requires_grad_(), second.values.requires_grad_())
    assert torch.autograd.gradcheck(attend, (*inputs, *attention.parameters()))


def test_attention_starts_with_projections_that_keep_the_variance() -> None:
    attention = CrossAttention(256)
    values = torch.randn(64, 256)
    for layer in (attention.key, attention.value, attention.output):
        assert 0.9 < float(layer(values).detach().std()) < 1.1
        assert layer.bias is not None
        assert not layer.bias.any()


@torch.no_grad()
def slow_lovt(objective: LoVT, batch: Features) -> dict[str, float]:
    """The global loss and both local losses, term by term."""
    cosines = cosine_matrix(batch["image"].embedding, batch["text"].embedding)
    losses = {"global": slow_info_nce(cosines, 0.1, 0.75, mask_of(len(cosines)))}
    regions, sentences = LocalEntries.of(batch["image"]), LocalEntries.of(batch["text"])
    for name, own, other, positives in (
        ("region", regions, sentences, slow_positives(*GRID, objective.reach)),
        ("sentence", sentences, regions, slow_positives(1, max(SENTENCES), 0)),
    ):
        here, found = real_vectors(own), slow_attention(objective.attention, own, other)
        losses[name] = sum(
            slow_direction(a, b, own.weights, positives) for a, b in ((here, found), (found, here))
        )
    return losses


@pytest.mark.parametrize(
    ("settings", "weights"),
    [
        ({}, (1, 0.375, 0.375)),
        ({"reach": 0.0}, (1, 0.375, 0.375)),
        ({"global_weight": 0.5, "region_weight": 2.0, "sentence_weight": 3.0}, (0.5, 2, 3)),
    ],
)
def test_equals_the_slow_reference(settings: dict[str, float], weights: tuple[float, ...]) -> None:
    batch, objective = local_batch(GRID), LoVT(dim=DIM, grid=GRID, **settings).double()
    expected, output = slow_lovt(objective, batch), objective.compute(batch)
    assert {name: float(term) for name, term in output.terms.items()} == pytest.approx(expected, abs=1e-11)
    total = sum(weight * loss for weight, loss in zip(weights, expected.values(), strict=True))
    assert float(output.total.detach()) == pytest.approx(total, abs=1e-11)


def test_a_square_of_regions_needs_no_grid_and_may_change_between_batches() -> None:
    implied, given = LoVT(dim=DIM).double(), LoVT(dim=DIM, grid=(2, 2)).double()
    given.load_state_dict(implied.state_dict())
    first = implied(local_batch((2, 2)))
    assert torch.equal(first, given(local_batch((2, 2))))
    implied(local_batch((3, 3)))
    assert torch.equal(implied(local_batch((2, 2))), first)
    assert "positives" not in implied.state_dict()


@pytest.mark.parametrize(("grid", "named"), [(None, "2 x 2"), ((3, 3), "3 x 3")])
def test_says_what_to_do_when_regions_are_no_such_grid(grid: tuple[int, int] | None, named: str) -> None:
    objective = LoVT(dim=DIM, grid=grid).double()
    sentence = rf"gives 6 regions, which are no grid of {named}: set objective\.grid"
    with pytest.raises(RecipeError, match=sentence):
        objective(local_batch(GRID))
    with pytest.raises(RecipeError, match=sentence):
        objective.check_regions(6)
    objective.check_regions(9)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"temperature": 0.0}, "temperature\n  Input should be greater than 0"),
        ({"local_temperature": -1.0}, "local_temperature\n  Input should be greater than 0"),
        ({"region_weight": -1}, "region_weight\n  Input should be greater than or equal to 0"),
        ({"reach": -0.1}, "reach\n  Input should be greater than or equal to 0"),
        ({"grid": (0, 7)}, "grid.0\n  Input should be greater than 0"),
        ({"pairs": (("text", "image"),)}, "every pair of lovt starts with image"),
        ({"tau": 0.1}, "tau\n  Extra inputs are not permitted"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        parse_objective({"name": "lovt", **wrong})
