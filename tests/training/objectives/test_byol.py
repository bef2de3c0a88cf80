import math
from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from tests.training.objectives.cases import random_batch
from tests.training.objectives.reference import CONTEXT, U, V
from training.common.errors import RecipeError
from training.models.features import Features, ModalityFeatures, Source
from training.objectives.byol import BYOL, BYOLSettings

pytestmark = pytest.mark.usefixtures("one_thread")

# Worked out by the slow reference below, with batch norm of the batch and of its running statistics.
GOLDEN = {True: 4.616837089854, False: 4.873253796506}


def build(*, training: bool = False) -> BYOL:
    """The objective with weights that are plain numbers."""
    objective = BYOLSettings(hidden=3).build(CONTEXT).double().train(training)
    with torch.no_grad():
        for number, parameter in enumerate(objective.parameters(), start=1):
            values = torch.arange(parameter.numel(), dtype=torch.float64)
            parameter.copy_(((values * 7 + number) % 5 - 2).view_as(parameter) / 4)
    return objective


def batch_of(first: Tensor, second: Tensor, of_first: Tensor, of_second: Tensor) -> Features:
    return Features(
        {
            "image": ModalityFeatures(first),
            "view": ModalityFeatures(second),
            "momentum": ModalityFeatures(of_first),
            "momentum_view": ModalityFeatures(of_second),
        }
    )


def plain_batch() -> Features:
    return batch_of(U, V, V.flip(0), U.flip(1))


@torch.no_grad()
def slow_loss(objective: BYOL, batch: Features) -> float:
    """Squared distances of unit vectors, both ways, with the predictor written out."""
    enter, norm, _, leave = objective.predictor
    assert isinstance(norm, torch.nn.BatchNorm1d)
    assert isinstance(enter, torch.nn.Linear)
    assert isinstance(leave, torch.nn.Linear)

    def predicted(views: Tensor) -> list[list[float]]:
        hidden = (views @ enter.weight.T + enter.bias).tolist()
        columns = [list(column) for column in zip(*hidden, strict=True)]
        for place, column in enumerate(columns):
            mean, variance = 0.0, 1.0
            if norm.training:
                mean = sum(column) / len(column)
                variance = sum((x - mean) ** 2 for x in column) / len(column)
            weight, bias = float(norm.weight[place]), float(norm.bias[place])
            columns[place] = [
                max(0.0, (x - mean) / math.sqrt(variance + norm.eps) * weight + bias) for x in column
            ]
        rows = [list(row) for row in zip(*columns, strict=True)]
        return [
            [
                sum(w * x for w, x in zip(weights, row, strict=True)) + shift
                for weights, shift in zip(leave.weight.tolist(), leave.bias.tolist(), strict=True)
            ]
            for row in rows
        ]

    def unit(values: list[float]) -> list[float]:
        length = math.sqrt(sum(x * x for x in values))
        return [x / length for x in values]

    total = 0.0
    ways: tuple[tuple[Source, Source], ...] = (("image", "momentum_view"), ("view", "momentum"))
    for online, target in ways:
        targets = batch[target].embedding.tolist()
        for ours, theirs in zip(predicted(batch[online].embedding), targets, strict=True):
            total += sum((x - y) ** 2 for x, y in zip(unit(ours), unit(theirs), strict=True))
    return total / len(batch["image"].embedding)


@pytest.mark.parametrize("training", [True, False])
def test_golden_values(training: bool) -> None:
    objective, batch = build(training=training), plain_batch()
    assert slow_loss(objective, batch) == pytest.approx(GOLDEN[training], abs=1e-11)
    assert float(objective(batch).total.detach()) == pytest.approx(GOLDEN[training], abs=1e-11)


@pytest.mark.parametrize("training", [True, False])
def test_equals_the_slow_reference(training: bool) -> None:
    objective = BYOLSettings(hidden=6).build(replace(CONTEXT, dim=9)).double().train(training)
    batch = random_batch()
    expected = slow_loss(objective, batch)
    assert float(objective(batch).total.detach()) == pytest.approx(expected, abs=1e-9)


def test_each_view_predicts_what_the_copy_says_of_the_other() -> None:
    """Not of itself: with only one target changed, only the other view's embedding has another gradient."""
    objective = build()

    def gradients(of_first: Tensor) -> tuple[Tensor, Tensor]:
        first, second = U.clone().requires_grad_(), V.clone().requires_grad_()
        torch.autograd.backward(objective(batch_of(first, second, of_first, U.flip(1))).total)
        assert first.grad is not None
        assert second.grad is not None
        return first.grad, second.grad

    before, after = gradients(V.flip(0)), gradients(V.flip(0) + torch.arange(4))
    assert torch.equal(before[0], after[0])
    assert not torch.equal(before[1], after[1])


def test_targets_get_no_gradient() -> None:
    of_first, of_second = V.clone().requires_grad_(), U.clone().requires_grad_()
    torch.autograd.backward(build()(batch_of(U, V, of_first, of_second)).total)
    assert of_first.grad is None
    assert of_second.grad is None


def test_term_is_the_mean_cosine_that_the_loss_is_made_of() -> None:
    output = build()(plain_batch())
    assert float(output.total.detach()) == pytest.approx(4 - 4 * float(output.terms["similarity"]))
    assert not output.terms["similarity"].requires_grad


def test_predictions_become_the_targets() -> None:
    objective, batch = BYOLSettings(hidden=32).build(replace(CONTEXT, dim=9)).double(), random_batch()
    first, second, of_first, of_second = (
        batch[source].embedding.clone() for source in ("image", "view", "momentum", "momentum_view")
    )
    first.requires_grad_(), second.requires_grad_()
    optimizer = torch.optim.Adam([first, second, *objective.parameters()], lr=0.02)
    for _ in range(200):
        optimizer.zero_grad()
        output = objective(batch_of(first, second, of_first, of_second))
        torch.autograd.backward(output.total)
        optimizer.step()
    assert output.terms["similarity"] > 0.95


def test_what_is_missing_is_said() -> None:
    views = dict(random_batch().modalities)
    objective = BYOLSettings(hidden=3).build(replace(CONTEXT, dim=9)).double()
    assert objective.requires == {"views", "momentum", "one_vector"}
    assert objective.momentum == 0.99
    with pytest.raises(RecipeError, match="copy of the encoder"):
        objective(Features({"image": views["image"], "view": views["view"]}))
    with pytest.raises(RecipeError, match="two views"):
        objective(Features({"image": views["image"]}))
    for wrong in ({"momentum": 1.1}, {"hidden": 0}, {"pairs": [["image", "text"]]}):
        with pytest.raises(ValidationError):
            BYOLSettings.model_validate(wrong)
