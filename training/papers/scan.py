"""SCAN: the hinge of VSE++ on similarities that attend from words to regions, or back."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from training.common.distributed import process_count
from training.models.config import PairAttentionConfig
from training.models.features import Features, ModalityFeatures
from training.models.pair_attention import pair_similarities
from training.objectives.base import LossOutput, PairObjective, Requirement
from training.objectives.local import LocalEntries
from training.objectives.similarity import Similarities, over_processes
from training.objectives.vse import Hardest, Margin, hinge_loss


class SCAN(PairObjective):
    """Stacked cross attention (Lee et al. 2018): pairs are as alike as words and the regions they attend to.

    `sum_i max_j max(0, m - S_ii + S_ij)` plus the same from texts to images, with m the margin and S (B, B)
    the similarities of words (B, T, D) and the mixtures of regions (B, K, D) that they attend to, or of
    regions and mixtures of words. Without `hardest` it sums over j. Call it with `Features` whose modalities
    have `local` and `local_mask`.

    Use it if recall counts more than search: no vector represents an image or a text, so the model is
    measured pair by pair and fills no index. Two images are compared by the embedding, which learns because
    regions go through its head.

    >>> from training.models.config import PairAttentionConfig
    >>> from training.models.features import Features, ModalityFeatures
    >>> from training.papers.scan import SCAN
    >>> image = ModalityFeatures(torch.randn(8, 64), local=torch.randn(8, 36, 64))
    >>> text = ModalityFeatures(torch.randn(8, 64), local=torch.randn(8, 12, 64))
    >>> loss = SCAN(pair_attention=PairAttentionConfig(queries="words"))
    >>> loss(Features({"image": image, "text": text})).shape
    torch.Size([])
    """

    requires: frozenset[Requirement] = frozenset({"local", "one_vector"})
    needs: Mapping[str, str] = {
        "model.share_local_head": "local features that train the embedding: set "
        "model.share_local_head to true",
        "model.pair_attention": "a way to compare pairs: give model.pair_attention, such as {queries: words}",
    }

    def __init__(
        self, *, pair_attention: PairAttentionConfig, margin: Margin = 0.2, hardest: Hardest = True
    ) -> None:
        super().__init__()
        self.attention = pair_attention
        self.margin, self.hardest = margin, hardest

    @classmethod
    def check(cls, settings: Any) -> None:
        """Check that images and texts meet."""
        if settings.pairs != (("image", "text"),):
            raise ValueError("scan compares regions of images with words of texts: leave objective.pairs out")

    def pair_loss(self, first: ModalityFeatures, second: ModalityFeatures, features: Features) -> LossOutput:
        """The loss of a batch, a sum over items; terms: both directions and mean similarities."""
        with torch.autocast(first.embedding.device.type, enabled=False):
            images, texts = LocalEntries.of(first), LocalEntries.of(second)
            pairs = self._pairs(images, texts, features.positive_mask)
            return hinge_loss(pairs, margin=self.margin, hardest=self.hardest)

    def _pairs(self, images: LocalEntries, texts: LocalEntries, positive_mask: Tensor | None) -> Similarities:
        if process_count() == 1:
            return Similarities.of_square(self._similarities(images, texts), positive_mask)
        rows = self._similarities(images, texts.of_all_processes())
        columns = self._similarities(images.of_all_processes(), texts).T
        return over_processes(rows, columns, positive_mask)

    def _similarities(self, images: LocalEntries, texts: LocalEntries) -> Tensor:
        return pair_similarities(images.values, images.mask, texts.values, texts.mask, self.attention)
