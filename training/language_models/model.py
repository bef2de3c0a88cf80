"""A variational autoencoder of sentences (Bowman et al. 2016)."""

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from training.language_models.config import SentenceVaeConfig
from training.language_models.corpus import UNKNOWN
from training.language_models.posterior import GaussianPosterior, ImplicitPosterior, Latent, Posterior
from training.models.pooling import Pooling, masked_mean
from training.objectives.similarity import full_precision


@dataclass(frozen=True, slots=True)
class VaeOutput:
    """Output of the model for B sentences.

    Attributes:
        reconstruction: (B,), negative log likelihood of each sentence by its code, in nats.
        latent: The codes.
        words: (B, E), the mean embedding of each sentence's words: RECLAIM's other feature.
    """

    reconstruction: Tensor
    latent: Latent
    words: Tensor


class SentenceVae(nn.Module):
    """Encoder, posterior and decoder."""

    def __init__(self, config: SentenceVaeConfig, vocabulary: int) -> None:
        super().__init__()
        self.encoder = SentenceEncoder(config, vocabulary)
        self.decoder = SentenceDecoder(config, vocabulary)
        self.posterior = _posterior(config)
        for parameter in self.parameters():
            # The networks that estimate densities take no gradients here, and begin as usual.
            if parameter.requires_grad:
                nn.init.uniform_(parameter, -config.init_range, config.init_range)

    def forward(self, ids: Tensor, lengths: Tensor, kl_weight: Tensor) -> VaeOutput:
        """Read sentences and write them again.

        Args:
            ids: (B, T), of start, words, end and padding.
            lengths: (B,), how many are no padding; on the CPU.
            kl_weight: Scalar.
        """
        state, words = self.encoder(ids, lengths)
        reconstruct = partial(self.decoder, ids=ids, lengths=lengths)
        latent: Latent = self.posterior(state, reconstruct, kl_weight)
        return VaeOutput(reconstruct(latent.codes), latent, words)


class SentenceEncoder(nn.Module):
    """Reads a sentence from its first word to its last."""

    def __init__(self, config: SentenceVaeConfig, vocabulary: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, config.word_width)
        self.lstm = nn.LSTM(config.word_width, config.width, batch_first=True)
        self.last = Pooling("eos", config.width)

    def forward(self, ids: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """The state (B, W) behind each sentence, and the mean embedding (B, E) of its words."""
        embedded, real = self.words(ids), _real(lengths, ids)
        # Padding comes last, so no real word has read it. Packing copies an order to a GPU, and waits for it.
        states, _ = self.lstm(embedded)
        state, _ = self.last(states, real)
        return state, masked_mean(embedded, real)


class SentenceDecoder(nn.Module):
    """Writes a sentence word by word; it sees the code at the start and beside every word."""

    def __init__(self, config: SentenceVaeConfig, vocabulary: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, config.word_width)
        self.start = nn.Linear(config.latent, config.width)
        self.lstm = nn.LSTM(config.word_width + config.latent, config.width, batch_first=True)
        self.output = nn.Linear(config.width, vocabulary)
        self.dropout = nn.Dropout(config.dropout)
        self.word_dropout = config.word_dropout

    def forward(self, codes: Tensor, ids: Tensor, lengths: Tensor) -> Tensor:
        """Negative log likelihood (B,) of sentences (B, T) by codes (B, L), the end included."""
        embedded = self.dropout(self.words(self._seen(ids[:, :-1])))
        beside = codes.to(embedded.dtype).unsqueeze(1).expand(-1, embedded.shape[1], -1)
        first = self.start(codes).unsqueeze(0)
        states, _ = self.lstm(torch.cat([embedded, beside], dim=2), (first, torch.zeros_like(first)))
        # Counted on the CPU: a GPU would be waited for to learn how many words are real.
        count = int(lengths.sum()) - len(lengths)
        row, place = torch.nonzero_static(_real(lengths - 1, ids[:, 1:]), size=count).unbind(dim=1)
        logits = self.output(self.dropout(states[row, place]))
        with torch.autocast(logits.device.type, enabled=False):
            losses = cross_entropy(full_precision(logits), ids[row, place + 1], reduction="none")
        return losses.new_zeros(len(ids)).index_add(0, row, losses)

    def _seen(self, ids: Tensor) -> Tensor:
        """Decoder inputs; in training, word dropout makes some unknown tokens (Bowman et al. 2016)."""
        if not self.training or not self.word_dropout:
            return ids
        hidden = torch.rand(ids.shape, device=ids.device) < self.word_dropout
        hidden[:, 0] = False
        return ids.masked_fill(hidden, UNKNOWN)


def _posterior(config: SentenceVaeConfig) -> Posterior:
    if config.posterior == "implicit":
        return ImplicitPosterior(config.width, config.latent, config.ratio)
    return GaussianPosterior(config.width, config.latent, config.refinement)


def _real(lengths: Tensor, ids: Tensor) -> Tensor:
    """(B, T), True where one of the first `lengths` (B,) ids (B, T) of a row stands."""
    here = lengths.to(ids.device, non_blocking=True)
    return torch.arange(ids.shape[1], device=ids.device) < here.unsqueeze(1)
