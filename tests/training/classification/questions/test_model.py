"""The loss, what RECLAIM's term sees, and what is frozen."""

from typing import Any

import pytest
import torch

from tests.training.classification.questions.samples import tiny_tree
from tests.training.models.tiny import tiny_tokenizer
from training.classification.questions.config import AnswerModelConfig
from training.classification.questions.model import AnswerModel, AnswerTask
from training.models.preprocessing import TokenBatch
from training.papers.reclaim import ReclaimTerm, ReclaimTermSettings

PIXELS = torch.randn(3, 3, 16, 16, generator=torch.Generator().manual_seed(2))
IDS, MASK = torch.tensor([[1, 9, 2], [1, 8, 2], [1, 2, 0]]), torch.tensor([[1, 1, 1], [1, 1, 1], [1, 1, 0]])
SCORES = torch.tensor([[1.0, 0.0, 0.3], [0.0, 0.0, 0.0], [0.0, 1.0, 0.6]])
ITEMS = torch.tensor([4, 0, 2])
IMAGES = (0, 0, 1, 1, 2)


def build(reclaim: ReclaimTermSettings | None = None, **image: Any) -> AnswerTask:
    torch.manual_seed(0)
    tree = tiny_tree()["model"] | {"dropout": 0, "last_dropout": 0}
    tree["image"] = {**tree["image"], **image}
    model = AnswerModel(AnswerModelConfig.model_validate(tree), tiny_tokenizer(), 3, load=False)
    return AnswerTask(model, reclaim, IMAGES).eval()


def test_the_loss_is_summed_over_answers_and_the_mean_over_questions() -> None:
    task = build()
    logits = task.model(PIXELS, TokenBatch(IDS, MASK, ())).logits
    chances = logits.double().sigmoid()
    expected = -(SCORES * chances.log() + (1 - SCORES) * (1 - chances).log()).sum().item() / 3
    loss, terms = task(PIXELS, IDS, MASK, SCORES, ITEMS)
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert terms["task"].item() == loss.item()


def test_reclaim_s_term_is_that_of_question_and_image() -> None:
    task = build(ReclaimTermSettings(weight=0.5, neighbours=2, critic_width=4))
    assert isinstance(task.term, ReclaimTerm)
    output = task.model(PIXELS, TokenBatch(IDS, MASK, ()))
    assert output.question.shape == (3, 12)
    assert output.image.shape == (3, 16)
    contrast, _ = task.term(output.question, output.image, ITEMS)
    loss, terms = task(PIXELS, IDS, MASK, SCORES, ITEMS)
    torch.testing.assert_close(loss, terms["task"] + 0.5 * contrast)
    assert task.term.first_bank.groups.tolist() == list(IMAGES)


def test_a_padded_question_is_the_same_question() -> None:
    task = build()
    alone = task.model(PIXELS[2:], TokenBatch(IDS[2:, :2], MASK[2:, :2], ())).logits
    torch.testing.assert_close(task.model(PIXELS, TokenBatch(IDS, MASK, ())).logits[2:], alone)


@pytest.mark.parametrize("frozen", [True, False])
def test_a_frozen_tower_keeps_weights_and_statistics(frozen: bool) -> None:
    task = build(ReclaimTermSettings(neighbours=2, critic_width=4), frozen=frozen).train()
    before = {name: value.clone() for name, value in task.tower.state_dict().items()}
    loss, _ = task(PIXELS, IDS, MASK, SCORES, ITEMS)
    loss.backward()
    after = task.tower.state_dict()
    assert all(torch.equal(before[name], value) for name, value in after.items()) is frozen
    assert all(parameter.grad is None for parameter in task.tower.parameters()) is frozen
    assert all(parameter.grad is not None for parameter in task.model.attention.parameters())
