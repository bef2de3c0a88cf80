"""LTD: the reconstruction by hand, and a multiplier that ascends as SGD would and stays in its bounds."""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.training.objectives.cases import DIM, random_batch
from training.common.errors import RecipeError
from training.models.config import Modality
from training.models.features import Features, ModalityFeatures
from training.objectives.base import ObjectiveContext
from training.objectives.infonce import InfoNCESettings
from training.objectives.ltd import LTD, LTDSettings, Multiplier
from training.objectives.registry import parse_objective

TARGETS = 5
CONTEXT = ObjectiveContext(dim=DIM, target_dim=TARGETS)


def build(**settings: Any) -> LTD:
    torch.manual_seed(0)
    objective = LTDSettings(**{"hidden": 16, **settings}).build(CONTEXT).double()
    assert isinstance(objective, LTD)
    return objective


def base_loss(batch: Features) -> Tensor:
    total: Tensor = InfoNCESettings().build(CONTEXT).double()(batch).total
    return total


def slow_reconstruction(objective: LTD, batch: Features) -> float:
    """1 - cos of each decoded caption, one by one, with the layers written out."""
    assert batch.targets is not None
    first, second, third = objective.decoder[0], objective.decoder[2], objective.decoder[4]
    total = 0.0
    for caption, target in zip(batch["text"].embedding, batch.targets, strict=True):
        hidden = (first.weight @ (caption / caption.norm()) + first.bias).clamp(min=0)
        hidden = (second.weight @ hidden + second.bias).clamp(min=0)
        decoded = third.weight @ hidden + third.bias
        total += 1 - float(decoded @ target / (decoded.norm() * target.norm()))
    return total / len(batch.targets)


def test_decoder_has_the_layers_of_the_paper() -> None:
    context = ObjectiveContext(dim=512, target_dim=768)
    shapes = [tuple(p.shape) for p in LTDSettings().build(context).parameters() if p.ndim == 2]
    assert shapes == [(1024, 512), (1024, 1024), (768, 1024)]


@pytest.mark.parametrize("weight", [0.0, 1.0, 2.5])
def test_dual_adds_the_weighted_reconstruction(weight: float) -> None:
    objective, batch = build(mode="dual", weight=weight), random_batch()
    output = objective(batch)
    expected = slow_reconstruction(objective, batch)
    torch.testing.assert_close(float(output.terms["reconstruction"]), expected)
    torch.testing.assert_close(output.total, base_loss(batch) + weight * expected)
    assert "multiplier" not in output.terms


def test_constrained_adds_the_multiplied_violation() -> None:
    objective, batch = build(mode="constrained", bound=0.4), random_batch()
    objective.multiplier.value.fill_(3.0)
    output = objective(batch)
    violation = slow_reconstruction(objective, batch) / 0.4 - 1
    torch.testing.assert_close(output.total, base_loss(batch) + 3 * violation)
    assert output.terms["multiplier"] == 3


@pytest.mark.parametrize("dampening", [0.0, 0.9])
def test_multiplier_ascends_as_sgd_with_momentum_would(dampening: float) -> None:
    ours = Multiplier(rate=5e-3, momentum=0.9, dampening=dampening, limit=100).double()
    theirs = torch.ones((), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([theirs], lr=5e-3, momentum=0.9, dampening=dampening, maximize=True)
    violations = torch.randn(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for violation in violations:
        ours.ascend(violation)
        theirs.grad = violation.clone()
        optimizer.step()
    torch.testing.assert_close(ours.value, theirs.detach())
    assert ours.value != 1


def test_multiplier_under_a_steady_violation_is_that_of_the_authors() -> None:
    """2.0 after 200 steps; without dampening it would be 10.55."""
    multiplier = build().multiplier
    for _ in range(200):
        multiplier.ascend(torch.ones((), dtype=torch.float64))
    torch.testing.assert_close(float(multiplier.value), 2.0)


@pytest.mark.parametrize(("violation", "end"), [(500.0, 100.0), (-50.0, 0.0)])
def test_multiplier_stays_within_its_bounds(violation: float, end: float) -> None:
    multiplier = Multiplier(rate=5e-3, momentum=0.9, dampening=0.9, limit=100)
    values = []
    for _ in range(100):
        multiplier.ascend(torch.tensor(violation))
        values.append(float(multiplier.value))
    assert values[-1] == end
    assert all(0 <= value <= 100 for value in values)
    assert sorted(values, reverse=violation < 0) == values


def test_multiplier_rises_above_the_bound_and_falls_below_it() -> None:
    batch = random_batch()
    for bound, rises in ((0.01, True), (10.0, False)):
        objective = build(bound=bound)
        for _ in range(3):
            objective(batch)
            objective.after_step()
        assert bool(objective.multiplier.value > 1) is rises
        assert float(objective.multiplier.value) != 1


def test_multiplier_moves_once_a_training_step_and_never_in_evaluation() -> None:
    objective, batch = build(), random_batch()
    objective(batch)
    assert objective.multiplier.value == 1
    objective.after_step()
    moved = objective.multiplier.value.clone()
    assert moved != 1
    objective.after_step()
    objective.eval()
    objective(batch)
    objective.after_step()
    assert objective.multiplier.value == moved


def test_multiplier_is_in_the_state_and_takes_no_gradient() -> None:
    objective = build()
    assert {"multiplier.value", "multiplier.velocity", "multiplier.moving"} <= objective.state_dict().keys()
    assert not [name for name, _ in objective.named_parameters() if "multiplier" in name]


def test_constraint_is_met_by_training() -> None:
    """Captions start where the base wants them; the multiplier makes them decodable."""
    objective, batch = build(bound=0.2, multiplier_rate=0.05), random_batch(masked=False)
    modalities: tuple[Modality, ...] = ("image", "text")
    values = {name: batch[name].embedding.clone().requires_grad_() for name in modalities}
    optimizer = torch.optim.Adam([*values.values(), *objective.parameters()], lr=0.01)
    for _ in range(150):
        features = Features(
            {name: ModalityFeatures(value) for name, value in values.items()},
            targets=batch.targets,
        )
        optimizer.zero_grad()
        output = objective(features)
        torch.autograd.backward(output.total)
        optimizer.step()
        objective.after_step()
    assert output.terms["reconstruction"] < 0.25


def test_length_of_a_caption_embedding_carries_nothing() -> None:
    objective, batch = build(), random_batch()
    text = ModalityFeatures(batch["text"].embedding * 7)
    longer = Features({"image": batch["image"], "text": text}, batch.positive_mask, targets=batch.targets)
    torch.testing.assert_close(
        objective(longer).terms["reconstruction"], objective(batch).terms["reconstruction"]
    )


def test_targets_get_no_gradient() -> None:
    batch = random_batch()
    assert batch.targets is not None
    batch.targets.requires_grad_()
    torch.autograd.backward(build()(batch).total)
    assert batch.targets.grad is None


def test_zero_embeddings_and_targets_are_finite() -> None:
    zeros = torch.zeros(4, DIM, dtype=torch.float64, requires_grad=True)
    embeddings = ModalityFeatures(zeros)
    features = Features(
        {"image": embeddings, "text": embeddings}, targets=torch.zeros(4, TARGETS, dtype=torch.float64)
    )
    output = build()(features)
    torch.autograd.backward(output.total)
    assert output.total.isfinite()
    assert zeros.grad is not None
    assert zeros.grad.isfinite().all()


def test_without_targets_the_setting_is_named() -> None:
    with pytest.raises(RecipeError, match=r"data\.target_encoder"):
        LTDSettings().build(ObjectiveContext(dim=DIM))
    batch = random_batch()
    with pytest.raises(RecipeError, match=r"data\.target_encoder"):
        build()(Features(batch.modalities, batch.positive_mask))


def test_blades_are_refused() -> None:
    batch = random_batch()
    blades = ModalityFeatures(torch.randn(6, 2, DIM, dtype=torch.float64))
    with pytest.raises(RecipeError, match=r"model\.blades"):
        build()(Features({"image": blades, "text": blades}, targets=batch.targets))


def test_needs_targets_and_what_its_base_needs() -> None:
    assert build().requires == {"targets", "one_vector"}
    both = parse_objective({"name": "ltd", "base": {"name": "reclaim"}})
    needed = both.build(ObjectiveContext(dim=DIM, instances=4, target_dim=3)).requires
    assert needed == {"targets", "items", "one_vector"}
