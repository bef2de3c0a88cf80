"""LTD: the reconstruction by hand, and a multiplier that ascends as SGD would and stays in its bounds."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.training.objectives.cases import DIM, extra, random_batch, with_extras
from training.common.errors import RecipeError
from training.models.features import Features, ModalityFeatures
from training.objectives import LTD, VSE, InfoNCE

TARGETS = 5


def ltd(**settings: Any) -> LTD:
    torch.manual_seed(0)
    return LTD(**{"hidden": 16, **settings}, embedding_dim=DIM, target_dim=TARGETS).double()


def slow_reconstruction(objective: LTD, batch: Features) -> float:
    """1 - cos of each decoded caption, one by one, with the layers written out."""
    targets = extra(batch, "targets")
    layers = [layer for layer in objective.decoder if isinstance(layer, torch.nn.Linear)]
    total = 0.0
    for caption, target in zip(batch["text"].embedding, targets, strict=True):
        hidden = caption / caption.norm()
        for layer in layers[:-1]:
            hidden = (layer.weight @ hidden + layer.bias).clamp(min=0)
        decoded = layers[-1].weight @ hidden + layers[-1].bias
        total += 1 - float((decoded @ target / (decoded.norm() * target.norm())).detach())
    return total / len(targets)


def test_decoder_has_the_layers_of_the_paper() -> None:
    parameters = LTD(VSE(), embedding_dim=512, target_dim=768).parameters()
    assert [tuple(p.shape) for p in parameters if p.ndim == 2] == [(1024, 512), (1024, 1024), (768, 1024)]


@pytest.mark.parametrize(("settings", "weight"), [({}, 1), ({"weight": 0.0}, 0), ({"weight": 2.5}, 2.5)])
def test_dual_adds_the_weighted_reconstruction(settings: dict[str, float], weight: float) -> None:
    objective, batch = ltd(mode="dual", **settings), random_batch()
    output, base = objective.compute(batch), InfoNCE().double().compute(batch)
    expected = slow_reconstruction(objective, batch)
    torch.testing.assert_close(float(output.terms["reconstruction"]), expected)
    torch.testing.assert_close(output.total, base.total + weight * expected)
    assert set(output.terms) == {*base.terms, "reconstruction"}


@pytest.mark.parametrize(("settings", "bound"), [({}, 0.2), ({"bound": 0.4}, 0.4)])
def test_constrained_adds_the_multiplied_violation(settings: dict[str, float], bound: float) -> None:
    objective, batch = ltd(base=VSE(0.5), **settings), random_batch()
    violation = slow_reconstruction(objective, batch) / bound - 1
    for multiplier in (1.0, 3.0):
        output = objective.compute(batch)
        torch.testing.assert_close(output.total, VSE(0.5)(batch) + multiplier * violation)
        objective.multiplier.value.fill_(3)
        # What a report has isn't changed by later steps.
        assert output.terms["multiplier"] == multiplier


@pytest.mark.parametrize("dampening", [0.0, 0.9])
def test_multiplier_ascends_as_sgd_with_momentum_would(dampening: float) -> None:
    objective = ltd(multiplier_rate=3e-3, multiplier_momentum=0.8, multiplier_dampening=dampening)
    theirs = torch.ones((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([theirs], lr=3e-3, momentum=0.8, dampening=dampening, maximize=True)
    for violation in torch.randn(50, dtype=torch.float64):
        objective.multiplier.ascend(violation)
        theirs.grad = violation.clone()
        optimizer.step()
    torch.testing.assert_close(objective.multiplier.value, theirs.detach())
    assert objective.multiplier.value != 1


def test_multiplier_under_a_steady_violation_is_that_of_the_authors() -> None:
    """2.0 after 200 steps; without dampening it would be 10.55."""
    multiplier = ltd().multiplier
    for _ in range(200):
        multiplier.ascend(torch.ones((), dtype=torch.float64))
    torch.testing.assert_close(float(multiplier.value), 2.0)


@pytest.mark.parametrize(("violation", "end"), [(500.0, 100.0), (-50.0, 0.0)])
def test_multiplier_stays_within_its_bounds(violation: float, end: float) -> None:
    multiplier = ltd().multiplier
    for _ in range(100):
        multiplier.ascend(torch.tensor(violation))
    assert multiplier.value == end
    assert ltd(max_multiplier=0.5).multiplier.value == 0.5
    assert set(multiplier.state_dict()) == {"value", "velocity", "moving"}


@pytest.mark.parametrize(("bound", "rises"), [(0.01, True), (10.0, False)])
def test_multiplier_moves_once_a_training_step_and_never_in_evaluation(bound: float, rises: bool) -> None:
    objective, batch = ltd(bound=bound), random_batch()
    violation = float(objective.compute(batch).terms["reconstruction"]) / bound - 1
    assert objective.multiplier.value == 1
    objective.after_step()
    moved = float(objective.multiplier.value)
    assert moved == pytest.approx(1 + 5e-3 * violation)
    assert (moved > 1) is rises
    objective.after_step()
    objective.eval()
    objective(batch)
    objective.after_step()
    assert float(objective.multiplier.value) == moved


def test_the_length_of_an_embedding_carries_nothing_and_targets_learn_nothing() -> None:
    batch, objective = random_batch(), ltd()
    text = ModalityFeatures(batch["text"].embedding * 7)
    targets = (extra(batch, "targets") * 3).requires_grad_()
    scaled = replace(batch, modalities={"image": batch["image"], "text": text})
    longer = with_extras(scaled, targets=targets)
    found, expected = (objective.compute(each).terms["reconstruction"] for each in (longer, batch))
    torch.testing.assert_close(found, expected)
    torch.autograd.backward(objective(longer))
    assert targets.grad is None


def test_without_targets_or_with_blades_the_setting_is_named() -> None:
    batch = random_batch()
    blades = ModalityFeatures(torch.randn(6, 2, DIM, dtype=torch.float64))
    with pytest.raises(RecipeError, match=r"name a sentence encoder in data\.target_encoder"):
        ltd()(with_extras(batch, targets=None))
    with pytest.raises(RecipeError, match=r"^ltd reads embeddings of one vector .* set model\.blades to 1"):
        ltd()(Features({"image": blades, "text": blades}, extras=batch.extras))
