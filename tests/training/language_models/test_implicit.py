"""Implicit posteriors: what the networks estimate, who trains them, and what a checkpoint has of them."""

from copy import deepcopy

import torch
from torch import Tensor

from training.language_models.config import RatioConfig
from training.language_models.posterior import ImplicitPosterior

STATE = torch.zeros(512, 1)
ONE = torch.ones(())


def nothing(codes: Tensor) -> Tensor:
    return codes.new_zeros(len(codes))


def posterior(**settings: float) -> ImplicitPosterior:
    torch.manual_seed(0)
    return ImplicitPosterior(1, 1, RatioConfig.model_validate({"width": 32, "lr": 3e-3, **settings}))


def test_the_networks_find_the_divergence_of_a_known_posterior() -> None:
    """Codes are `.5 noise + state`, with states of -1 and 1 alike."""
    model = posterior(updates=300)
    with torch.no_grad():
        model.draw.weight.copy_(torch.tensor([[1.0, 0.5]]))
        model.draw.bias.zero_()
    state = torch.tensor([-1.0, 1.0]).repeat(256).unsqueeze(1)
    model.train()
    model(state, nothing, ONE)
    model.eval()
    with torch.no_grad():
        found = [model(state, nothing, ONE) for _ in range(20)]
    kl = torch.stack([latent.kl for latent in found]).mean().item()
    information = torch.stack([latent.information for latent in found]).mean().item()
    exact = (1 + 0.25 - torch.tensor(0.25).log().item() - 1) / 2
    assert abs(kl - exact) < 0.15
    # The code tells the two states apart but for their overlap: nearly one bit.
    assert 0.45 < information < 0.75


def test_the_model_s_loss_leaves_the_networks_alone_and_they_leave_the_model() -> None:
    model = posterior(updates=2).train()
    networks = [*model.of_sentence.parameters(), *model.of_all.parameters()]
    before = [parameter.clone() for parameter in networks]
    state = STATE.clone().requires_grad_()
    latent = model(state, nothing, ONE)
    assert all(parameter.grad is None for parameter in [*networks, *model.draw.parameters()])
    assert all(not torch.equal(old, new) for old, new in zip(before, networks, strict=True))
    latent.kl.mean().backward()
    assert all(parameter.grad is None for parameter in networks)
    assert all(parameter.grad is not None for parameter in model.draw.parameters())


def test_the_gradient_of_the_divergence_is_that_of_the_network_at_the_codes() -> None:
    model = posterior().eval()
    state = torch.randn(6, 1, requires_grad=True)
    torch.manual_seed(3)
    latent = model(state, nothing, ONE)
    found, of_state = torch.autograd.grad(latent.kl.sum(), [latent.codes, state])
    codes = latent.codes.detach().requires_grad_()
    (expected,) = torch.autograd.grad(
        model.of_sentence(torch.cat([codes, state.detach()], dim=1)).sum(), codes
    )
    torch.testing.assert_close(found, expected)
    # The encoder learns by the codes alone.
    torch.testing.assert_close(of_state, expected @ model.draw.weight[:, :1])


def test_outside_training_the_networks_stay() -> None:
    model = posterior().eval()
    before = {name: value.clone() for name, value in model.named_parameters()}
    model(STATE, nothing, ONE)
    assert all(torch.equal(before[name], value) for name, value in model.named_parameters())


def test_a_checkpoint_has_the_networks_optimizer() -> None:
    model, other = posterior(updates=1).train(), posterior(updates=1).train()
    model(STATE, nothing, ONE)
    other.load_state_dict(deepcopy(model.state_dict()))
    for either in (model, other):
        torch.manual_seed(5)
        either(STATE, nothing, ONE)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
