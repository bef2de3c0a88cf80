import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.training.objectives.cases import DIM, INSTANCES, random_batch
from tests.training.objectives.reference import U, V, features, random_embeddings
from training.common.errors import RecipeError
from training.models.features import Features
from training.objectives.base import ObjectiveContext
from training.objectives.dpc import DPC, DPCSettings
from training.objectives.registry import parse_objective
from training.objectives.similarity import cosine_matrix

pytestmark = pytest.mark.usefixtures("one_thread")

# Worked out by the slow reference below, of both losses and of the ranking loss alone.
GOLDEN = {True: 3.221919082947, False: 0.983158146095}
ITEMS = torch.tensor([2, 0, 1])


def build(dim: int = 4, instances: int = 3, groups: tuple[int, ...] | None = None, **settings: Any) -> DPC:
    """The objective with weights that are plain numbers."""
    context = ObjectiveContext(dim, instances=instances, groups=groups)
    objective = DPCSettings.model_validate(settings).build(context).double()
    with torch.no_grad():
        for number, parameter in enumerate(objective.parameters(), start=1):
            values = torch.arange(parameter.numel(), dtype=torch.float64)
            parameter.copy_(((values * 7 + number) % 5 - 2).view_as(parameter) / 4)
    return objective


@torch.no_grad()
def slow_loss(objective: DPC, batch: Features, classes: list[int] | None, margin: float = 1.0) -> float:
    """-log p of each item's class from either side, and the mean lack of each item's other pairs."""
    image, text = batch["image"].embedding, batch["text"].embedding
    size = len(image)
    mask = torch.eye(size).bool() if batch.positive_mask is None else batch.positive_mask
    cosines = cosine_matrix(image, text).tolist()
    total = 0.0
    for i in range(size):
        for scores, matches in ((cosines[i], mask[i]), ([row[i] for row in cosines], mask[:, i])):
            lacks = [max(0.0, margin - scores[i] + scores[j]) for j in range(size) if not matches[j]]
            total += sum(lacks) / max(1, len(lacks)) / size
    for embedding in (image, text) if classes is not None else ():
        for row, own in zip(embedding, classes or (), strict=True):
            logits = objective.classifier(row).tolist()
            total += (math.log(sum(map(math.exp, logits))) - logits[own]) / size
    return total


@pytest.mark.parametrize("trained_on", [True, False])
def test_golden_values(trained_on: bool) -> None:
    batch = replace(features(U, V), items=ITEMS if trained_on else None)
    objective = build()
    expected = slow_loss(objective, batch, ITEMS.tolist() if trained_on else None)
    assert expected == pytest.approx(GOLDEN[trained_on], abs=1e-11)
    assert float(objective(batch).total.detach()) == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("margin", [0.2, 1.0])
def test_equals_the_slow_reference(margin: float) -> None:
    batch = random_batch()
    assert batch.items is not None
    groups = tuple(number // 2 for number in range(INSTANCES))
    objective = build(DIM, INSTANCES, groups, margin=margin)
    assert objective.classifier.out_features == INSTANCES // 2
    expected = slow_loss(objective, batch, [groups[item] for item in batch.items.tolist()], margin)
    assert float(objective(batch).total.detach()) == pytest.approx(expected, abs=1e-11)


def test_ranking_joins_after_so_many_steps() -> None:
    batch = replace(features(U, V), items=ITEMS)
    objective = build(instance_steps=2)
    for steps in range(4):
        output = objective(batch)
        ranking = output.terms["ranking"] if steps >= 2 else 0
        torch.testing.assert_close(output.total.detach(), output.terms["instance"] + ranking)
        objective.after_step()
    assert "steps" in objective.state_dict()
    assert "classes" not in objective.state_dict()


def test_images_and_texts_meet_by_the_instance_loss_alone() -> None:
    """Both learn to be told by one classifier, so a text comes to be nearest to its image."""
    torch.manual_seed(0)
    image, text = (batch.requires_grad_() for batch in random_embeddings(12, 8))
    objective = DPCSettings(instance_steps=1000).build(ObjectiveContext(8, instances=12)).double()
    optimizer = torch.optim.Adam([image, text, *objective.parameters()], lr=0.05)
    for _ in range(300):
        optimizer.zero_grad()
        output = objective(replace(features(image, text), items=torch.arange(12)))
        torch.autograd.backward(output.total)
        optimizer.step()
        objective.after_step()
    assert torch.equal(cosine_matrix(image, text).argmax(dim=1), torch.arange(12))


def test_what_is_missing_is_said() -> None:
    assert build().requires == {"items", "one_vector"}
    with pytest.raises(RecipeError, match="training images"):
        DPCSettings().build(ObjectiveContext(4))
    for wrong in ({"margin": 0}, {"instance_steps": -1}):
        with pytest.raises(ValueError, match="greater than"):
            parse_objective({"name": "dpc", **wrong})
