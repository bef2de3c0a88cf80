"""What objectives that write the text of an image have in common."""

from abc import ABC, abstractmethod
from typing import Final

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from training.common.distributed import mean_over_processes
from training.common.errors import RecipeError
from training.models.features import Features
from training.objectives.base import (
    ImageObjectiveConfig,
    LossOutput,
    Objective,
    ObjectiveContext,
    Requirement,
)
from training.objectives.local_entries import LocalEntries

# No word has a number below 0.
_PADDING: Final = -100


class CaptionConfig(ImageObjectiveConfig, ABC):
    """Settings of an objective that writes; the words come from `data.captions`."""

    width: int = Field(default=512, gt=0, description="Of the decoder's words and states.")


class Captioning(Objective, ABC):
    """A decoder reads an image's regions and writes its text, a word at a time (a baseline of ConVIRT).

    Each word is predicted from those before it as they truly are. The model is searched by the embedding of
    images, which learns because the regions go through its head: with a linear head and a mean over regions
    the embedding is their mean.

    Attributes:
        words: Embeddings of the words (V, W) that are read.
        output: From the decoder's states (..., W) to the logits (..., V) of the next words.
    """

    requires: frozenset[Requirement] = frozenset({"local", "shared_head", "captions"})

    def __init__(self, settings: CaptionConfig, context: ObjectiveContext) -> None:
        super().__init__()
        if context.vocabulary is None:
            raise RecipeError("An objective that writes texts needs words: give data.captions.")
        self.words = nn.Embedding(context.vocabulary, settings.width)
        self.output = nn.Linear(settings.width, context.vocabulary)

    @abstractmethod
    def states(self, regions: LocalEntries, words: Tensor) -> Tensor:
        """What the decoder knows before each next word (b, T, W).

        Args:
            regions: Of the images, (b, K, D).
            words: (b, T, W), the embeddings of the words that are read; state t has read words 0 to t.
        """

    def forward(self, features: Features) -> LossOutput:
        """The cross-entropy of the words of a batch, a mean over all of them; term: how many are right.

        Raises:
            RecipeError: The batch has no captions, or no regions.
        """
        captions = features.captions
        if captions is None:
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
