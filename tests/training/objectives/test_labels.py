"""Labels: the cross-entropy answer by answer."""

import math

import pytest
import torch

from tests.training.objectives.cases import DIM, LABELS, extra, random_batch, with_extras
from tests.training.objectives.reference import U
from training.common.errors import RecipeError
from training.models.features import Features, ModalityFeatures
from training.objectives import Labels

pytestmark = pytest.mark.usefixtures("one_thread")


def test_equals_the_formula_answer_by_answer() -> None:
    objective, batch = Labels(embedding_dim=DIM, labels=LABELS).double(), random_batch()
    weights, shifts = objective.classifier.weight.tolist(), objective.classifier.bias.tolist()
    costs = []
    for embedding, answers in zip(
        batch["image"].embedding.tolist(), extra(batch, "labels").tolist(), strict=True
    ):
        for row, shift, answer in zip(weights, shifts, answers, strict=True):
            logit = sum(w * x for w, x in zip(row, embedding, strict=True)) + shift
            probability = 1 / (1 + math.exp(-logit))
            costs.append(-math.log(probability if answer else 1 - probability))
    assert float(objective(batch).detach()) == pytest.approx(sum(costs) / len(costs), abs=1e-12)


def test_term_is_the_share_of_right_answers() -> None:
    objective = Labels(embedding_dim=4, labels=2).double()
    with torch.no_grad():
        objective.classifier.weight.zero_()
        objective.classifier.bias.copy_(torch.tensor([1.0, -1.0]))
    answers = torch.tensor([[True, False], [False, False], [True, True]])
    output = objective.compute(Features({"image": ModalityFeatures(U)}, extras={"labels": answers}))
    # The first label is given to all, of whom two have it; the second to none, as is right for two.
    assert float(output.terms["right"]) == pytest.approx(4 / 6)


def test_a_batch_without_labels_is_refused() -> None:
    with pytest.raises(RecipeError, match="which the batch has none of"):
        Labels(embedding_dim=DIM, labels=2)(with_extras(random_batch(), labels=None))
