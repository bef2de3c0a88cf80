"""Gaussian posteriors against densities written out, and refinement against one worked by hand."""

import math

import pytest
import torch
from torch import Tensor
from torch.distributions import Independent, Normal, kl_divergence

from training.language_models.config import RefinementConfig
from training.language_models.posterior import Gaussian, GaussianPosterior, Reconstruct, refined

ONE = torch.ones((), dtype=torch.float64)


def gaussian(seed: int = 0, batch: int = 3, latent: int = 2) -> Gaussian:
    generator = torch.Generator().manual_seed(seed)
    mean, log_variance = torch.randn((2, batch, latent), generator=generator, dtype=torch.float64)
    return Gaussian(mean, log_variance)


def test_divergence_is_that_of_the_densities() -> None:
    found = gaussian()
    for row, kl in enumerate(found.kl()):
        ours = Independent(Normal(found.mean[row], (found.log_variance[row] / 2).exp()), 1)
        prior = Independent(Normal(torch.zeros_like(found.mean[row]), 1.0), 1)
        assert kl.item() == pytest.approx(kl_divergence(ours, prior).item(), abs=1e-12)


def test_golden_divergence() -> None:
    one = Gaussian(torch.tensor([[1.0, -2.0]]).double(), torch.tensor([[1.0, 4.0]]).double().log())
    assert one.kl().item() == pytest.approx((1 + (4 + 4 - math.log(4) - 1)) / 2, abs=1e-12)


def density(code: Tensor, mean: Tensor, log_variance: Tensor) -> float:
    """Of independent normal distributions, number by number."""
    found = 1.0
    for place, centre, logarithm in zip(code.tolist(), mean.tolist(), log_variance.tolist(), strict=True):
        variance = math.exp(logarithm)
        found *= math.exp(-((place - centre) ** 2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)
    return found


def test_information_is_that_of_the_mixture_of_the_batch() -> None:
    found, codes = gaussian(), gaussian(1).mean
    expected = []
    for row, code in enumerate(codes):
        own = found.log_variance[row].sum().item()
        entropy = (2 * (1 + math.log(2 * math.pi)) + own) / 2
        densities = [density(code, found.mean[other], found.log_variance[other]) for other in range(3)]
        expected.append(-entropy - math.log(sum(densities) / 3))
    assert found.information(codes).tolist() == pytest.approx(expected, abs=1e-10)


def test_information_of_distant_posteriors_is_the_logarithm_of_the_batch() -> None:
    torch.manual_seed(0)
    apart = Gaussian(100.0 * torch.arange(400).unsqueeze(1).double(), torch.zeros(400, 1).double())
    assert apart.information(apart.sample()).mean().item() == pytest.approx(math.log(400), abs=0.1)
    same = Gaussian(torch.zeros(400, 1).double(), torch.zeros(400, 1).double())
    assert same.information(same.sample()).mean().item() == pytest.approx(0, abs=0.1)


def test_samples_have_mean_and_variance() -> None:
    torch.manual_seed(0)
    one = gaussian(batch=1)
    samples = Gaussian(one.mean.expand(20_000, -1), one.log_variance.expand(20_000, -1)).sample()
    torch.testing.assert_close(samples.mean(dim=0), one.mean[0], atol=0.05, rtol=0)
    torch.testing.assert_close(samples.var(dim=0), one.log_variance[0].exp(), atol=0.1, rtol=0.05)


def far_from(target: Tensor) -> Reconstruct:
    """A loss with a curvature, so that steps depend on where they begin."""
    return lambda codes: ((codes - target) ** 4).sum(dim=1)


def test_refinement_is_steps_with_momentum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "randn_like", torch.zeros_like)
    start = gaussian(batch=2)
    config = RefinementConfig(steps=2, rate=0.05, momentum=0.5, max_grad_norm=100.0)
    target = torch.ones(2, 2, dtype=torch.float64)
    mean, speed = start.mean.clone(), torch.zeros_like(start.mean)
    for _ in range(2):
        slope = (4 * (mean - target) ** 3 + 0.3 * mean) / 2  # the mean over two sentences
        speed = 0.5 * speed - slope
        mean = mean + 0.05 * speed
    found = refined(start, far_from(target), 0.3 * ONE, config, training=False)
    torch.testing.assert_close(found.mean, mean)


def test_a_long_gradient_is_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "randn_like", torch.zeros_like)
    start = gaussian()
    config = RefinementConfig(steps=1, rate=1.0, max_grad_norm=0.01)
    found = refined(start, far_from(torch.full_like(start.mean, 9.0)), ONE, config, training=False)
    assert (found.mean - start.mean).norm().item() == pytest.approx(0.01)


def test_refinement_lowers_the_loss_and_needs_no_gradients_around_it() -> None:
    torch.manual_seed(0)
    start, reconstruct = gaussian(batch=16), far_from(torch.full((16, 2), 2.0, dtype=torch.float64))

    def loss(posterior: Gaussian) -> float:
        draws = [(reconstruct(posterior.sample()) + posterior.kl()).mean().item() for _ in range(50)]
        return sum(draws) / len(draws)

    config = RefinementConfig(steps=30, rate=0.1)
    with torch.no_grad():
        found = refined(start, reconstruct, ONE, config, training=False)
    assert loss(found) < loss(start) / 2


def test_the_gradient_goes_through_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = gaussian(2).mean
    monkeypatch.setattr(torch, "randn_like", lambda _: noise)
    config = RefinementConfig(steps=3, rate=0.05, max_grad_norm=1e9)

    def steps(mean: Tensor, log_variance: Tensor, target: Tensor) -> Tensor:
        found = refined(Gaussian(mean, log_variance), far_from(target), ONE, config, training=True)
        return torch.cat([found.mean, found.log_variance])

    start = gaussian()
    values = [start.mean, start.log_variance, torch.ones_like(start.mean)]
    assert torch.autograd.gradcheck(steps, [value.requires_grad_() for value in values])


@pytest.mark.parametrize("refinement", [None, RefinementConfig(steps=2)])
def test_posterior_gives_what_its_layers_say(refinement: RefinementConfig | None) -> None:
    torch.manual_seed(0)
    posterior = GaussianPosterior(5, 2, refinement).double()
    state = torch.randn(3, 5, dtype=torch.float64)
    latent = posterior(state, far_from(torch.ones(3, 2, dtype=torch.float64)), ONE)
    assert not latent.information.requires_grad
    latent.kl.sum().backward()
    assert all(parameter.grad is not None for parameter in posterior.parameters())
    if refinement is None:
        torch.testing.assert_close(latent.centres, posterior.mean(state))
