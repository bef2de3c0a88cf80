"""The figures of a split, against an example worked by hand."""

import math
from collections.abc import Sequence

import pytest
import torch
from lightning_fabric import Fabric
from torch import Tensor

from tests.training.language_models.samples import tiny_tree
from training.language_models.config import SentenceVaeConfig
from training.language_models.corpus import SentenceLoader, Vocabulary
from training.language_models.model import SentenceVae, VaeOutput
from training.language_models.posterior import Latent
from training.language_models.run import Measures, measure

SENTENCES = ("a b", "b", "a a c", "c b", "b b b b")


def output(reconstruction: Sequence[float], kl: Sequence[float], centres: Tensor) -> VaeOutput:
    information = torch.tensor(kl) / 2
    latent = Latent(centres, centres, torch.tensor(kl), information)
    return VaeOutput(torch.tensor(reconstruction), latent, torch.zeros(len(kl), 1))


def test_figures_worked_by_hand() -> None:
    found = Measures()
    # Two draws of two sentences with 2 and 3 words and ends; then one of one with 4.
    centres = torch.tensor([[0.0, 0.0], [0.0, 0.1]])
    draws = [output([4, 6], [1, 2], centres), output([6, 8], [3, 2], centres + torch.tensor([2.0, 0.0]))]
    found.add(draws, torch.tensor([3, 4]))
    found.add([output([9], [1], torch.tensor([[1.1, 0.0]]))], torch.tensor([5]))
    figures = found.figures()
    assert figures["reconstruction"] == pytest.approx((5 + 7 + 9) / 3)
    assert figures["kl"] == pytest.approx((2 + 2 + 1) / 3)
    assert figures["elbo"] == pytest.approx(-(21 + 5) / 3)
    assert figures["perplexity"] == pytest.approx(math.exp((21 + 5) / (2 + 3 + 4)))
    assert figures["mutual_information"] == pytest.approx((1 + 1 + 0.5) / 3)
    # Means over draws: 1, 1, 1.1 and 0, .1, 0, whose variance is .0022 and .0022.
    assert figures["active_units"] == 0


def test_a_unit_is_active_where_means_vary() -> None:
    found = Measures()
    centres = torch.tensor([[0.0, 0.0, 1.0], [0.21, 0.19, 1.0]])
    found.add([output([1, 1], [1, 1], centres)], torch.tensor([3, 3]))
    assert found.figures()["active_units"] == 1


def test_a_perplexity_beyond_numbers_is_a_number() -> None:
    found = Measures()
    found.add([output([1e9], [0], torch.zeros(1, 1))], torch.tensor([3]))
    assert math.isfinite(found.figures()["perplexity"])


@pytest.mark.slow
@pytest.mark.parametrize("posterior", [pytest.param("gaussian", marks=pytest.mark.slow), "implicit"])
def test_a_split_is_measured_alike_each_time_and_whatever_the_batches(posterior: str) -> None:
    config = SentenceVaeConfig.model_validate({**tiny_tree()["model"], "posterior": posterior})
    vocabulary = Vocabulary.learned(SENTENCES, 100)
    torch.manual_seed(0)
    vae = SentenceVae(config, len(vocabulary)).eval()
    fabric = Fabric(accelerator="cpu", devices=1)

    def found(batch_size: int, draws: int) -> dict[str, float]:
        loader = SentenceLoader(SENTENCES, batch_size, vocabulary=vocabulary, max_words=10)
        return measure(vae, fabric, loader, draws=draws, seed=4)

    torch.manual_seed(7)
    once = found(2, 1)
    following = torch.rand(())
    torch.manual_seed(7)
    assert torch.equal(following, torch.rand(()))
    assert found(2, 1) == once
    many, others = found(5, 200), found(2, 200)
    for name in ("elbo", "perplexity", "kl"):
        assert many[name] == pytest.approx(others[name], rel=0.02, abs=0.02)
