"""Objectives that write the text of an image, a word at a time: ConVIRT's baselines, and SCO.

The words come from `data.captions`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Final

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from training.common.distributed import mean_over_processes
from training.common.errors import RecipeError
from training.models.features import Features, ModalityFeatures
from training.objectives.base import (
    Extras,
    ImageObjective,
    LossOutput,
    ObjectiveData,
    PairObjective,
    Requirement,
)
from training.objectives.local import LocalEntries
from training.objectives.similarity import full_precision, similarities
from training.objectives.vse import Hardest, Margin, hinge_loss

# No word has a number below 0.
_PADDING: Final = -100
_NEEDS: Final = {
    "data.captions": "texts as words: give data.captions, such as {vocabulary: words}",
    "model.share_local_head": "local features that train the embedding: set model.share_local_head to true",
}
Width = Annotated[int, Field(gt=0, description="Width of the decoder's words and states.")]


class Captioning(ImageObjective, ABC):
    """A decoder reads an image's regions and writes its text, a word at a time (a baseline of ConVIRT).

    The mean over all words w_t of a batch of `-log p(w_t | w_1 .. w_(t-1), regions)`, with regions (B, K, D)
    and words (B, T) as ids. The model is searched by the embedding of images, which learns because the
    regions go through its head: with a linear head and a mean over regions the embedding is their mean.

    Attributes:
        words: Embeddings of the words (V, W) that are read.
        output: From the decoder's states (..., W) to the logits (..., V) of the next words.
    """

    requires: frozenset[Requirement] = frozenset({"local"})
    needs: Mapping[str, str] = _NEEDS

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.output = nn.Linear(width, vocabulary)

    @abstractmethod
    def states(self, regions: LocalEntries, words: Tensor) -> Tensor:
        """What the decoder knows before each next word (b, T, W).

        Args:
            regions: Regions of the images, (b, K, D).
            words: (b, T, W), the embeddings of the words that are read; state t has read words 0 to t.
        """

    def prepare(self, data: ObjectiveData) -> Extras:
        """Return what makes the ids of the texts of a batch, as `captions`."""
        return Extras(texts={} if data.captions is None else {"captions": data.captions})

    def compute(self, features: Features) -> LossOutput:
        """Return the mean cross-entropy of the words of a batch; term: the share that is right.

        Raises:
            RecipeError: The batch has no captions, or no regions.
        """
        captions = features.extras.get("captions")
        if captions is None or isinstance(captions, Tensor):
            raise RecipeError("An objective that writes texts needs them in its batches: give data.captions.")
        image = features["image"]
        with torch.autocast(image.embedding.device.type, enabled=False):
            read, written = captions.input_ids[:, :-1], captions.input_ids[:, 1:]
            real = captions.attention_mask[:, 1:].bool()
            states = self.states(LocalEntries.of(image), self.words(read))
            # Padding has logits as well, no more than texts of the longest length would have: a GPU would be
            # waited for to learn how many words are real.
            logits = self.output(states).flatten(0, 1)
            targets = written.masked_fill(~real, _PADDING).flatten()
            # Processes have different numbers of words, and all words count alike.
            words = mean_over_processes(real.sum().to(logits.dtype))
            total = cross_entropy(logits, targets, ignore_index=_PADDING, reduction="sum") / words
        right = (logits.detach().argmax(dim=1) == targets).sum() / words
        return LossOutput(total, {"words_right": right})


class CaptionLSTM(Captioning):
    """An LSTM with soft attention of Show, Attend and Tell (Xu et al. 2015, equations 1-7 and 13, gate beta).

    The mean over words of the cross entropy of the next word, without the penalty on regions that are never
    attended to (equation 14). Call it with `Features` whose images have `local` (B, K, D) and which have
    `captions` (B, T).

    Use it if only images are searched by, and each has a text that describes it.

    >>> from training.models.features import Features, ModalityFeatures
    >>> from training.models.preprocessing import TokenBatch
    >>> from training.papers.captioning import CaptionLSTM
    >>> image = ModalityFeatures(torch.randn(8, 64), local=torch.randn(8, 49, 64))
    >>> words = TokenBatch(torch.randint(100, (8, 12)), torch.ones(8, 12), truncations=(None,) * 8)
    >>> CaptionLSTM(dim=64, vocabulary=100)(Features({"image": image}, extras={"captions": words})).shape
    torch.Size([])
    """

    def __init__(self, *, dim: int, vocabulary: int, width: Width = 512) -> None:
        super().__init__(vocabulary, width)
        self.first_state = nn.Linear(dim, width)
        self.first_cell = nn.Linear(dim, width)
        self.of_region = nn.Linear(dim, width)
        self.of_state = nn.Linear(width, width, bias=False)
        self.score = nn.Linear(width, 1, bias=False)
        self.gate = nn.Linear(width, 1)
        self.cell = nn.LSTMCell(width + dim, width)
        self.state_out = nn.Linear(width, width, bias=False)
        self.region_out = nn.Linear(dim, width, bias=False)

    def states(self, regions: LocalEntries, words: Tensor) -> Tensor:
        """What is known before each next word, from the word before, the state and what was looked at."""
        kept = regions.mask.unsqueeze(2)
        mean = regions.values.sum(dim=1) / kept.sum(dim=1).clamp(min=1)
        hidden, cell = torch.tanh(self.first_state(mean)), torch.tanh(self.first_cell(mean))
        keys = self.of_region(regions.values)
        known = []
        for word in words.unbind(dim=1):
            scores = self.score(torch.tanh(keys + self.of_state(hidden).unsqueeze(1)))
            weights = scores.masked_fill(~kept, torch.finfo(scores.dtype).min).softmax(dim=1)
            seen = torch.sigmoid(self.gate(hidden)) * (weights * regions.values).sum(dim=1)
            hidden, cell = self.cell(torch.cat((word, seen), dim=1), (hidden, cell))
            known.append(word + self.state_out(hidden) + self.region_out(seen))
        return torch.stack(known, dim=1)


class CaptionTransformer(Captioning):
    """A transformer decoder (Vaswani et al. 2017) over words, with attention to regions in every layer.

    The mean over words of the cross entropy of the next word. ConVIRT's decoder is that of Cornia et al.
    2020, which also has memory and an encoder of regions; this one is the plain decoder, normalized before
    each step, with the same sizes. Call it with `Features` whose images have `local` (B, K, D) and which have
    `captions` (B, T).

    Use it like `CaptionLSTM`, on a GPU: it reads all words of a text at once.

    >>> from training.models.features import Features, ModalityFeatures
    >>> from training.models.preprocessing import TokenBatch
    >>> from training.papers.captioning import CaptionTransformer
    >>> image = ModalityFeatures(torch.randn(8, 64), local=torch.randn(8, 49, 64))
    >>> words = TokenBatch(torch.randint(100, (8, 12)), torch.ones(8, 12), truncations=(None,) * 8)
    >>> loss = CaptionTransformer(dim=64, vocabulary=100)
    >>> loss(Features({"image": image}, extras={"captions": words})).shape
    torch.Size([])
    """

    def __init__(
        self,
        *,
        dim: int,
        vocabulary: int,
        width: Width = 512,
        layers: Annotated[int, Field(gt=0)] = 3,
        heads: Annotated[int, Field(gt=0, description="A divisor of the width.")] = 8,
        dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1,
    ) -> None:
        super().__init__(vocabulary, width)
        self.regions = nn.Linear(dim, width)
        self.dropout = nn.Dropout(dropout)
        self.layers = nn.ModuleList(
            nn.TransformerDecoderLayer(
                width,
                heads,
                dim_feedforward=4 * width,
                dropout=dropout,
                activation="gelu",
                batch_first=True,
                norm_first=True,
            )
            for _ in range(layers)
        )
        self.norm = nn.LayerNorm(width)

    @classmethod
    def check(cls, settings: Any) -> None:
        """Check that the heads divide the width."""
        if settings.width % settings.heads or settings.width % 2:
            raise ValueError("width is an even number that the heads divide")

    def states(self, regions: LocalEntries, words: Tensor) -> Tensor:
        """What is known before each next word, from the words so far and the regions."""
        length, width = words.shape[1:]
        later = torch.ones((length, length), dtype=torch.bool, device=words.device).triu(1)
        hidden = self.dropout(words + positions(length, width).to(words, non_blocking=True))
        seen = self.regions(regions.values)
        for layer in self.layers:
            hidden = layer(hidden, seen, tgt_mask=later, memory_key_padding_mask=~regions.mask)
        normed: Tensor = self.norm(hidden)
        return normed


class SCO(PairObjective):
    """Semantic concepts and order (Huang et al. 2018): matching, concepts and writing, each a mean.

    `hinge + concept_weight * BCE(concepts, labels) + order_weight * CE(words)`: the hinge of `VSE` on the
    embeddings (B, D), the binary cross entropy of an image's concepts (B, L), and the cross entropy of an
    LSTM that writes the text from the embedding of the image alone. The embedding fuses the concepts with the
    pooled feature (`model.concepts`). Call it with `Features` whose images have `concepts`, and which have
    `labels` (B, L), the words of the image's texts, and `captions` (B, T).

    Use it if texts are captions that name what is seen.

    >>> from training.models.features import Features, ModalityFeatures
    >>> from training.models.preprocessing import TokenBatch
    >>> from training.papers.captioning import SCO
    >>> image = ModalityFeatures(torch.randn(8, 64), concepts=torch.randn(8, 5))
    >>> words = TokenBatch(torch.randint(100, (8, 12)), torch.ones(8, 12), truncations=(None,) * 8)
    >>> batch = {"image": image, "text": ModalityFeatures(torch.randn(8, 64))}
    >>> loss = SCO(embedding_dim=64, vocabulary=100)
    >>> loss(Features(batch, extras={"labels": torch.rand(8, 5) > 0.5, "captions": words})).shape
    torch.Size([])
    """

    requires: frozenset[Requirement] = frozenset({"one_vector"})
    needs: Mapping[str, str] = {
        "data.captions": _NEEDS["data.captions"],
        "model.concepts": "concepts of images: give model.concepts, such as 256",
    }

    def __init__(
        self,
        *,
        embedding_dim: int,
        vocabulary: int,
        margin: Margin = 0.2,
        hardest: Hardest = True,
        width: Annotated[
            int, Field(gt=0, description="Width of the words and states that write texts.")
        ] = 512,
        concept_weight: Annotated[float, Field(ge=0)] = 1.0,
        order_weight: Annotated[float, Field(ge=0)] = 1.0,
    ) -> None:
        super().__init__()
        self.margin, self.hardest = margin, hardest
        self.concept_weight, self.order_weight = concept_weight, order_weight
        self.writer = CaptionLSTM(dim=embedding_dim, vocabulary=vocabulary, width=width)

    @classmethod
    def check(cls, settings: Any) -> None:
        """Check that images and texts meet."""
        if settings.pairs != (("image", "text"),):
            raise ValueError("sco matches images with texts: leave objective.pairs out")

    def prepare(self, data: ObjectiveData) -> Extras:
        """Return the concepts of each record, and what makes the ids of texts."""
        return self.writer.prepare(data) | Extras(rows=data.labels())

    def pair_loss(self, first: ModalityFeatures, second: ModalityFeatures, features: Features) -> LossOutput:
        """The loss of a batch; terms: matching, concepts and order, and those of the first and the last.

        Raises:
            RecipeError: The batch has no concepts, no labels or no captions.
        """
        labels = features.extras.get("labels")
        if first.concepts is None or not isinstance(labels, Tensor):
            raise RecipeError("sco predicts concepts of images: give model.concepts, such as 256.")
        with torch.autocast(first.embedding.device.type, enabled=False):
            pairs = similarities(first.embedding, second.embedding, features.positive_mask)
            hinge = hinge_loss(pairs, margin=self.margin, hardest=self.hardest)
            matching = hinge.total / pairs.rows.values.shape[1]
            logits = full_precision(first.concepts)
            concepts = binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
        # One region, so that all the writer can look at is the embedding.
        image = ModalityFeatures(first.embedding, local=first.embedding.unsqueeze(1))
        order = self.writer.compute(replace(features, modalities={"image": image}))
        total = matching + self.concept_weight * concepts + self.order_weight * order.total
        terms = {"matching": matching, "concepts": concepts, "order": order.total}
        detached = {name: term.detach() for name, term in terms.items()}
        return LossOutput(total, {**detached, **order.terms, **pairs.mean_terms()})


def positions(length: int, width: int) -> Tensor:
    """Sines and cosines (T, W) that distinguish positions (Vaswani et al. 2017, section 3.5), float64."""
    rates = torch.exp(-math.log(10_000) * torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.arange(length, dtype=torch.float64).unsqueeze(1) * rates
    return torch.stack((angles.sin(), angles.cos()), dim=2).flatten(1)
