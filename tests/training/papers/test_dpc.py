import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.training.objectives.cases import DIM, INSTANCES, random_batch
from tests.training.objectives.local_reference import set_plain_weights
from tests.training.objectives.reference import U, V, features
from training.common.errors import RecipeError
from training.models.features import Features
from training.objectives.base import ObjectiveContext, parse_objective
from training.objectives.similarity import cosine_matrix
from training.papers.dpc import DPC

pytestmark = pytest.mark.usefixtures("one_thread")

ITEMS = torch.tensor([2, 0, 1])


@torch.no_grad()
def slow_loss(objective: DPC, batch: Features, classes: list[int] | None, margin: float = 1.0) -> float:
    """-log p of each item's class from either side, and what its other pairs miss to the margin."""
    image, text = batch["image"].embedding, batch["text"].embedding
    size = len(image)
    mask = torch.eye(size).bool() if batch.positive_mask is None else batch.positive_mask
    cosines = cosine_matrix(image, text).tolist()
    total = 0.0
    for i in range(size):
        for scores, matches in ((cosines[i], mask[i]), ([row[i] for row in cosines], mask[:, i])):
            costs = [max(0.0, margin - scores[i] + scores[j]) for j in range(size) if not matches[j]]
            total += sum(costs) / max(1, len(costs)) / size
    for embedding in (image, text) if classes is not None else ():
        for row, own in zip(embedding, classes or (), strict=True):
            logits = objective.classifier(row).tolist()
            total += (math.log(sum(map(math.exp, logits))) - logits[own]) / size
    return total


def build(**settings: Any) -> DPC:
    """The objective of `U` and `V` with weights that are plain numbers."""
    objective = DPC(embedding_dim=4, instances=3, **settings).double()
    set_plain_weights(objective)
    return objective


# Worked out by the slow reference above, of both losses and of the ranking loss alone.
@pytest.mark.parametrize(("items", "golden"), [(ITEMS, 3.221919082947), (None, 0.983158146095)])
def test_golden_values(items: torch.Tensor | None, golden: float) -> None:
    objective, batch = build(), replace(features(U, V), items=items)
    assert slow_loss(objective, batch, None if items is None else items.tolist()) == pytest.approx(
        golden, abs=1e-11
    )
    assert float(objective(batch).detach()) == pytest.approx(golden, abs=1e-11)
    two = features(U[:2], V[:2])
    assert float(objective(two).detach()) == pytest.approx(slow_loss(objective, two, None))


@pytest.mark.parametrize("margin", [0.2, 1.0])
def test_equals_the_slow_reference(margin: float) -> None:
    batch, groups = random_batch(), tuple(number // 2 for number in range(INSTANCES))
    assert batch.items is not None
    objective = DPC(embedding_dim=DIM, instances=INSTANCES, groups=groups, margin=margin).double()
    assert objective.classifier.out_features == INSTANCES // 2
    expected = slow_loss(objective, batch, [groups[item] for item in batch.items.tolist()], margin)
    assert float(objective(batch).detach()) == pytest.approx(expected, abs=1e-11)


def test_ranking_joins_after_so_many_steps() -> None:
    objective, batch = build(instance_steps=2), replace(features(U, V), items=ITEMS)
    for steps in range(4):
        output = objective.compute(batch)
        ranking = output.terms["ranking"] if steps >= 2 else 0
        torch.testing.assert_close(output.total.detach(), output.terms["instance"] + ranking)
        objective.after_step()
    assert "steps" in objective.state_dict()
    assert "classes" not in objective.state_dict()


def test_what_does_not_fit_is_refused() -> None:
    assert build().requires == {"one_vector"}
    with pytest.raises(RecipeError, match="dpc needs training items"):
        parse_objective("dpc").build(ObjectiveContext(dim=4, embedding_dim=4))
    with pytest.raises(ValueError, match="instances is 0, and must be 1 or more"):
        DPC(embedding_dim=4, instances=0)
    wrong = {
        "margin\n  Input should be greater than 0": {"margin": 0},
        "instance_steps\n  Input should be greater than or equal to 0": {"instance_steps": -1},
    }
    for sentence, settings in wrong.items():
        with pytest.raises(ValueError, match=sentence):
            parse_objective({"name": "dpc", **settings})
