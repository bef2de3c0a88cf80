"""An implicit posterior: it draws codes and knows no densities (iVAE, Fang et al. 2019)."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam

from training.distributed import gather_uneven, of_first_process
from training.language_models.config import RatioConfig
from training.language_models.posterior import Latent, Posterior, Reconstruct
from training.objectives.similarity import full_precision


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

    Args:
        width: Width of the encoder's state.
        latent: Numbers of a code.
        config: Settings of the networks.
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
