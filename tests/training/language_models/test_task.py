"""The loss: what it is made of, by how much, and what RECLAIM's term sees."""

import pytest
import torch

from tests.training.language_models.samples import tiny_tree
from training.language_models.config import AnnealingConfig, SentenceVaeConfig
from training.language_models.model import SentenceVae
from training.language_models.run import LanguageModelTask
from training.papers.reclaim import ReclaimTerm, ReclaimTermSettings

IDS = torch.tensor([[2, 5, 6, 3], [2, 7, 3, 0]])
LENGTHS, ITEMS = torch.tensor([4, 3]), torch.tensor([4, 1])
CONFIG = SentenceVaeConfig.model_validate({**tiny_tree()["model"], "dropout": 0, "word_dropout": 0})


def build(reclaim: ReclaimTermSettings | None = None) -> LanguageModelTask:
    torch.manual_seed(0)
    return LanguageModelTask(SentenceVae(CONFIG, 8), CONFIG, reclaim, instances=6)


@pytest.mark.parametrize("weight", [0.0, 0.25, 1.0])
def test_the_loss_is_the_mean_over_sentences_with_a_weight_on_the_divergence(weight: float) -> None:
    task = build()
    torch.manual_seed(1)
    output = task.vae(IDS, LENGTHS, torch.tensor(weight))
    torch.manual_seed(1)
    loss, terms = task(IDS, LENGTHS, ITEMS, torch.tensor(weight))
    expected = (
        sum((output.reconstruction[row] + weight * output.latent.kl[row]).item() for row in range(2)) / 2
    )
    assert loss.item() == pytest.approx(expected, rel=1e-6)
    assert terms["kl_weight"].item() == weight
    assert terms["reconstruction"].item() == pytest.approx(output.reconstruction.mean().item())
    assert not any(value.requires_grad for value in terms.values())


def test_reclaim_s_term_is_that_of_codes_and_mean_words() -> None:
    settings = ReclaimTermSettings(weight=0.3, neighbours=3, critic_width=4)
    task = build(settings)
    assert isinstance(task.term, ReclaimTerm)
    torch.manual_seed(1)
    output = task.vae(IDS, LENGTHS, torch.ones(()))
    contrast, _ = task.term(output.latent.codes, output.words, ITEMS)
    torch.manual_seed(1)
    loss, terms = task(IDS, LENGTHS, ITEMS, torch.ones(()))
    elbo = (output.reconstruction + output.latent.kl).mean()
    torch.testing.assert_close(loss, elbo + 0.3 * contrast)
    torch.testing.assert_close(terms["reclaim"], contrast.detach())


def test_the_memory_has_the_last_batch_after_a_step() -> None:
    task = build(ReclaimTermSettings(neighbours=3, critic_width=4, momentum=1.0))
    assert isinstance(task.term, ReclaimTerm)
    before = task.term.second_bank.rows.clone()
    task(IDS, LENGTHS, ITEMS, torch.ones(()))
    task.after_step()
    torch.testing.assert_close(task.term.second_bank.rows[ITEMS], task.vae.encoder(IDS, LENGTHS)[1])
    others = [0, 2, 3, 5]
    assert torch.equal(task.term.second_bank.rows[others], before[others])


def test_the_weight_rises_to_its_end_and_stays() -> None:
    annealing = AnnealingConfig(start=0.1, epochs=2, final=0.8)
    weights = [annealing.weight(step, batches_per_epoch=5) for step in range(12)]
    assert weights[0] == pytest.approx(0.2)
    assert weights[5] == pytest.approx(0.7)
    assert weights[6:] == pytest.approx([0.8] * 6)
    assert max(weights) == 0.8


def test_the_weight_begins_again_after_a_cycle() -> None:
    annealing = AnnealingConfig(start=0.1, epochs=2, cycle_epochs=3)
    weights = [annealing.weight(step, batches_per_epoch=5) for step in range(30)]
    assert weights[:15] == weights[15:]
    assert weights[14] == 1.0
    assert weights[15] == pytest.approx(0.2)
