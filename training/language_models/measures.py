"""Metrics of a language model: the ELBO, and the mutual information of sentences and codes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import torch
from lightning_fabric import Fabric
from torch import Tensor

from training.language_models.corpus import SentenceLoader
from training.language_models.model import SentenceVae, VaeOutput
from training.progress import progress_bar

ELBO: Final = "elbo"
_ACTIVE_VARIANCE: Final = 0.01
# Beyond it a perplexity is no number that a file of metrics can hold.
_LARGEST: Final = 700.0


@dataclass
class Measures:
    """Sums over the sentences of a split.

    Attributes:
        reconstruction: Negative log likelihood, in nats.
        kl: Divergence of posterior and prior, in nats.
        information: Mutual information of sentence and code, in nats.
        tokens: Words and ends.
        centres: (B, L) of each batch, means of the posteriors.
    """

    reconstruction: float = 0.0
    kl: float = 0.0
    information: float = 0.0
    tokens: int = 0
    centres: list[Tensor] = field(default_factory=list)

    def add(self, draws: Sequence[VaeOutput], lengths: Tensor) -> None:
        """Add the sentences of a batch, the mean of one draw or more.

        Args:
            draws: Several draws for the same B sentences.
            lengths: (B,), their ids with start and end.
        """
        self.reconstruction += _sum([draw.reconstruction for draw in draws])
        self.kl += _sum([draw.latent.kl for draw in draws])
        self.information += _sum([draw.latent.information for draw in draws])
        self.tokens += int((lengths - 1).sum())
        self.centres.append(torch.stack([draw.latent.centres for draw in draws]).mean(dim=0).cpu())

    def figures(self) -> dict[str, float]:
        """By sentence, in nats: ELBO, reconstruction, KL and mutual information; perplexity; active units.

        A unit is active where the means of its posteriors vary by at least 0.01 (Burda et al. 2016).
        """
        centres = torch.cat(self.centres).double()
        number, loss = len(centres), self.reconstruction + self.kl
        return {
            ELBO: -loss / number,
            "reconstruction": self.reconstruction / number,
            "kl": self.kl / number,
            "perplexity": math.exp(min(loss / self.tokens, _LARGEST)),
            "mutual_information": self.information / number,
            "active_units": float((centres.var(dim=0, correction=0) >= _ACTIVE_VARIANCE).sum()),
        }


def measure(
    vae: SentenceVae,
    fabric: Fabric,
    loader: SentenceLoader,
    *,
    draws: int,
    seed: int,
    show_progress: bool = False,
) -> dict[str, float]:
    """The figures of all sentences; the global generators are as before.

    Args:
        vae: Model in evaluation mode.
        fabric: Device and precision.
        loader: Batches of the sentences.
        draws: Codes of each sentence.
        seed: Seed of the codes' noise, set anew in each call.
        show_progress: Show a bar on standard error.
    """
    found, device = Measures(), fabric.device
    weight = torch.ones((), device=device)
    with (
        torch.random.fork_rng([device] if device.type == "cuda" else []),
        torch.no_grad(),
        fabric.autocast(),
        progress_bar("measuring", len(loader), shown=show_progress) as bar,
    ):
        torch.manual_seed(seed)
        for batch in loader.in_order():
            ids, lengths, _ = batch.tensors(device)
            found.add([vae(ids, lengths, weight) for _ in range(draws)], lengths)
            bar.advance(len(ids))
    return found.figures()


def _sum(draws: Sequence[Tensor]) -> float:
    """The sum over sentences (B,) of the mean over draws."""
    return float(torch.stack(list(draws)).double().mean(dim=0).sum())
