"""Gaussian posteriors: read off a sentence's state, and refined by steps downhill."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from training.language_models.config import RefinementConfig
from training.language_models.posterior import Latent, Posterior, Reconstruct
from training.objectives.similarity import full_precision


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
