import math
from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from tests.training.objectives.cases import LABELS, random_batch
from tests.training.objectives.reference import U
from training.common.errors import RecipeError
from training.models.features import Features, ModalityFeatures
from training.objectives.base import ObjectiveContext
from training.objectives.labels import Labels, LabelsSettings

pytestmark = pytest.mark.usefixtures("one_thread")

# Worked out by the slow reference below.
GOLDEN = 0.808547675359
ANSWERS = torch.tensor([[True, False], [False, False], [True, True]])


def build(dim: int = 4, labels: int = 2) -> Labels:
    """The objective with weights that are plain numbers."""
    objective = LabelsSettings().build(ObjectiveContext(dim, labels=labels)).double()
    with torch.no_grad():
        for number, parameter in enumerate(objective.parameters(), start=1):
            values = torch.arange(parameter.numel(), dtype=torch.float64)
            parameter.copy_(((values * 7 + number) % 5 - 2).view_as(parameter) / 4)
    return objective


def slow_loss(objective: Labels, embeddings: Tensor, labels: Tensor) -> float:
    """-log p of each answer, one after another."""
    costs = []
    for embedding, answers in zip(embeddings.tolist(), labels.tolist(), strict=True):
        weights, shifts = objective.classifier.weight.tolist(), objective.classifier.bias.tolist()
        for row, shift, answer in zip(weights, shifts, answers, strict=True):
            logit = sum(w * x for w, x in zip(row, embedding, strict=True)) + shift
            probability = 1 / (1 + math.exp(-logit))
            costs.append(-math.log(probability if answer else 1 - probability))
    return sum(costs) / len(costs)


def test_golden_value() -> None:
    objective, batch = build(), Features({"image": ModalityFeatures(U)}, labels=ANSWERS)
    assert slow_loss(objective, U, ANSWERS) == pytest.approx(GOLDEN, abs=1e-11)
    assert float(objective(batch).total.detach()) == pytest.approx(GOLDEN, abs=1e-11)


def test_equals_the_slow_reference() -> None:
    batch = random_batch()
    assert batch.labels is not None
    objective = build(9, LABELS)
    expected = slow_loss(objective, batch["image"].embedding, batch.labels)
    assert float(objective(batch).total.detach()) == pytest.approx(expected, abs=1e-12)


def test_term_is_the_share_of_right_answers() -> None:
    objective = build()
    with torch.no_grad():
        objective.classifier.weight.zero_()
        objective.classifier.bias.copy_(torch.tensor([1.0, -1.0]))
    output = objective(Features({"image": ModalityFeatures(U)}, labels=ANSWERS))
    # The first label is given to all, of whom two have it; the second to none, as is right for two.
    assert float(output.terms["right"]) == pytest.approx(4 / 6)


def test_embeddings_come_to_tell_the_labels() -> None:
    torch.manual_seed(0)
    batch = random_batch(12)
    embedding = batch["image"].embedding.clone().requires_grad_()
    objective = LabelsSettings().build(ObjectiveContext(9, labels=LABELS)).double()
    optimizer = torch.optim.Adam([embedding, *objective.parameters()], lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        output = objective(replace(batch, modalities={"image": ModalityFeatures(embedding)}))
        torch.autograd.backward(output.total)
        optimizer.step()
    assert float(output.terms["right"]) == 1


def test_what_is_missing_is_said() -> None:
    with pytest.raises(RecipeError, match="add `labels`"):
        LabelsSettings().build(ObjectiveContext(4))
    with pytest.raises(RecipeError, match="none of"):
        build()(Features({"image": ModalityFeatures(U)}))
    with pytest.raises(ValidationError, match="images alone"):
        LabelsSettings(pairs=(("image", "text"),))
