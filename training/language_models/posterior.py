"""Interface of the posteriors of a sentence's code."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

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
