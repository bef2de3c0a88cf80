"""Interface of the posteriors of a sentence's code."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam

from training.common.distributed import gather_uneven, of_first_process
from training.language_models.config import RatioConfig, RefinementConfig
from training.objectives.similarity import full_precision

Reconstruct = Callable[[Tensor], Tensor]


@dataclass(frozen=True, slots=True)
class Latent:
    """A code of each of B sentences.

    Attributes:
        codes: (B, L), drawn.
        centres: (B, L), means of the posteriors, or codes where their mean over draws is that.
        kl: (B,), of posterior and prior in nats, or an estimate; its gradient trains the encoder.
        information: (B,), without gradient; its mean estimates the mutual information of sentence and code.
    """

    codes: Tensor
    centres: Tensor
    kl: Tensor
    information: Tensor


class Posterior(nn.Module, ABC):
    """Draws a code of each sentence; the prior is the standard normal distribution."""

    @abstractmethod
    def forward(self, state: Tensor, reconstruct: Reconstruct, kl_weight: Tensor) -> Latent:
        """Draw.

        Args:
            state: (B, W), the encoder's, behind each sentence.
            reconstruct: Gives the negative log likelihood (B,) of the sentences by codes (B, L).
            kl_weight: Scalar, of the KL divergence in the loss.
        """


@dataclass(frozen=True, slots=True)
class Gaussian:
    """Independent normal distributions: means (B, L) and the logarithms of variances (B, L)."""

    mean: Tensor
    log_variance: Tensor

    def sample(self) -> Tensor:
        """One code (B, L) of each, with gradient to both."""
        return self.mean + (self.log_variance / 2).exp() * torch.randn_like(self.mean)

    def kl(self) -> Tensor:
        """(B,), divergence from the standard normal distribution, in nats."""
        return (self.mean**2 + self.log_variance.exp() - self.log_variance - 1).sum(dim=1) / 2

    def information(self, codes: Tensor) -> Tensor:
        """(B,), the mean of `log q(z|x) - log q(z)`, with the batch's mixture for q(z) (He et al. 2019).

        Its mean over the batch is an estimate of the mutual information and never far above `log B`.

        Args:
            codes: (B, L), one of each.
        """
        distances = (codes.unsqueeze(1) - self.mean) ** 2 / self.log_variance.exp()
        scale = math.log(2 * math.pi) + self.log_variance
        densities = -(distances + scale).sum(dim=2) / 2
        mixture = densities.logsumexp(dim=1) - math.log(len(codes))
        return -(1 + scale).sum(dim=1) / 2 - mixture


class GaussianPosterior(Posterior):
    """Two linear layers give mean and log variance.

    Args:
        width: Width of the encoder's state.
        latent: Numbers of a code.
        refinement: Settings of the refinement by gradient steps; None: no refinement.
    """

    def __init__(self, width: int, latent: int, refinement: RefinementConfig | None) -> None:
        super().__init__()
        self.mean = nn.Linear(width, latent)
        self.log_variance = nn.Linear(width, latent)
        self.refinement = refinement

    def forward(self, state: Tensor, reconstruct: Reconstruct, kl_weight: Tensor) -> Latent:
        """Draw a code of each sentence."""
        found = Gaussian(full_precision(self.mean(state)), full_precision(self.log_variance(state)))
        if self.refinement is not None:
            found = refined(found, reconstruct, kl_weight, self.refinement, training=self.training)
        codes = found.sample()
        return Latent(codes, found.mean, found.kl(), found.information(codes).detach())


def refined(
    start: Gaussian,
    reconstruct: Reconstruct,
    kl_weight: Tensor,
    config: RefinementConfig,
    *,
    training: bool,
) -> Gaussian:
    """The posterior behind some steps with momentum down the negative ELBO (Kim et al. 2018, algorithm 1).

    In training the gradient goes through all the steps, exactly: each costs the memory of one more decoder.

    Args:
        start: Posterior before the first step.
        reconstruct: Negative log likelihoods (B,) of codes.
        kl_weight: Scalar.
        config: Settings of the steps.
        training: Keep what a gradient through the steps needs.
    """
    values: Sequence[Tensor] = (start.mean, start.log_variance)
    if not training:
        values = [value.detach().requires_grad_() for value in values]
    speeds: Sequence[Tensor] = [torch.zeros_like(value) for value in values]
    # The LSTM of cuDNN has no second derivative, and outside training not even a first one.
    with torch.enable_grad(), torch.backends.cudnn.flags(enabled=False):
        for _ in range(config.steps):
            found = Gaussian(*values)
            loss = (reconstruct(found.sample()) + kl_weight * found.kl()).mean()
            slopes = torch.autograd.grad(loss, list(values), create_graph=training)
            speeds = [
                config.momentum * speed - _limited(slope, config.max_grad_norm)
                for speed, slope in zip(speeds, slopes, strict=True)
            ]
            values = [value + config.rate * speed for value, speed in zip(values, speeds, strict=True)]
    return Gaussian(*values)


def _limited(slope: Tensor, max_norm: float) -> Tensor:
    """A gradient, shortened where it is too long."""
    factor = (max_norm / torch.linalg.vector_norm(slope.detach()).clamp(min=1e-12)).clamp(max=1)
    limited: Tensor = slope * factor
    return limited


class DensityRatio(nn.Sequential):
    """Estimates the logarithm of a ratio of densities, (..., 1), of points (..., D)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__(
            nn.Linear(width, hidden),
            nn.LeakyReLU(),
            nn.Linear(hidden, hidden),
            nn.LeakyReLU(),
            nn.Linear(hidden, hidden),
            nn.LeakyReLU(),
            nn.Linear(hidden, 1),
        )


class ImplicitPosterior(Posterior):
    """One linear layer makes a code of state and noise; two networks estimate what its KL divergence is.

    By Fenchel duality `KL(q|p)` is the largest value of `E_q[nu] - E_p[exp nu] + 1` over functions nu, and
    the best one is `log q/p`. Of q(z|x) that is the KL divergence of the ELBO, of q(z) its share that says
    nothing about the sentence; the difference is the mutual information.

    The networks have an optimizer of their own, whose state goes into checkpoints with the weights.
    """

    def __init__(self, width: int, latent: int, config: RatioConfig) -> None:
        super().__init__()
        self.draw = nn.Linear(width + latent, latent)
        self.of_sentence = DensityRatio(latent + width, config.width)
        self.of_all = DensityRatio(latent, config.width)
        self._ratios = [*self.of_sentence.parameters(), *self.of_all.parameters()]
        self._optimizer = Adam(self._ratios, lr=config.lr)
        self._updates = config.updates
        self._learn_ratios(False)

    def forward(self, state: Tensor, reconstruct: Reconstruct, kl_weight: Tensor) -> Latent:  # noqa: ARG002
        """Draw a code of each sentence; in training, bring the networks up to these codes first."""
        noise = state.new_empty(len(state), self.draw.out_features).normal_()
        codes = full_precision(self.draw(torch.cat([state, noise], dim=1)))
        state = full_precision(state.detach())
        with torch.autocast(state.device.type, enabled=False):
            if self.training:
                self._fit(codes, state)
            prior = torch.randn_like(codes)
            kl = _divergence(self.of_sentence, torch.cat([codes, state], 1), torch.cat([prior, state], 1))
            information = (kl - _divergence(self.of_all, codes, prior)).detach()
        return Latent(codes, codes, kl, information)

    def get_extra_state(self) -> dict[str, Any]:
        """The state of the networks' optimizer."""
        return self._optimizer.state_dict()

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take the state of a checkpoint."""
        self._optimizer.load_state_dict(state)

    def _fit(self, codes: Tensor, state: Tensor) -> None:
        """Raise both divergences by some steps of the networks; those of all processes stay the same."""
        codes, state = gather_uneven(codes), gather_uneven(state)
        self._learn_ratios(True)
        for _ in range(self._updates):
            prior = of_first_process(torch.randn_like(codes))
            found = _divergence(self.of_sentence, torch.cat([codes, state], 1), torch.cat([prior, state], 1))
            loss = -(found + _divergence(self.of_all, codes, prior)).mean()
            self._optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()
        self._optimizer.zero_grad()
        self._learn_ratios(False)

    def _learn_ratios(self, wanted: bool) -> None:
        """Whether a loss has gradients of the networks; that of the model never has."""
        for parameter in self._ratios:
            parameter.requires_grad_(wanted)


def _divergence(ratio: DensityRatio, ours: Tensor, prior: Tensor) -> Tensor:
    """(B,), the dual estimate of the divergence by points (B, D) of either density."""
    found: Tensor = ratio(ours) - ratio(prior).exp() + 1
    return found.squeeze(1)
