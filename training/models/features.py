"""What an encoder hands to an objective: one typed object for any number of modalities."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from torch import Tensor

from training.models.config import Modality

if TYPE_CHECKING:
    from training.models.preprocessing import TokenBatch

# Beside the modalities: the same images changed at random in another way, and what a slow copy of the
# encoder, which learns by no gradient, says of either.
Source = Modality | Literal["view", "momentum", "momentum_view"]


@dataclass(frozen=True, slots=True)
class ModalityFeatures:
    """The features of one modality for a batch; not normalised.

    Attributes:
        embedding: Global embedding (B, D); (B, k, D) of a model whose embeddings are k-blades.
        local: Local embeddings (B, K, D), regions of an image or tokens of a text.
        local_mask: (B, K), True where a local entry is real and not padding.
        local_weights: (B, K) attention weight of each local entry in the pooled embedding.
        shared: Output of the shared decoder (B, D).
        unique: Output of the unique decoder (B, D).
        regions: Embedding (B, K, D) of each region of an image, a grid row by row; `embedding` is their mean.
        concepts: Logits (B, L) of the concepts that the embedding of an image is made of.
        frame: (B, 2, 3), takes a point (x, y, 1) of an image that was changed at random to the point (x, y)
            of the unchanged one that it shows; both are squares from 0 to 1. Of views only.
    """

    embedding: Tensor
    local: Tensor | None = None
    local_mask: Tensor | None = None
    local_weights: Tensor | None = None
    shared: Tensor | None = None
    unique: Tensor | None = None
    regions: Tensor | None = None
    concepts: Tensor | None = None
    frame: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Features:
    """The features of a batch of aligned items, by modality.

    With several processes these are the b items of this one; the whole batch has B.

    Attributes:
        modalities: Row i of every modality, and of every view, describes item i.
        positive_mask: (B, B) bool of the whole batch, on every process: True where text j belongs to item i
            (a second caption of the same image, the same sentence twice). The diagonal is True. None: only
            the diagonal matches. `of_pair` turns it for a pair of modalities.
        items: (b,) int64, the row of each item in the train split, for objectives with a memory.
        targets: (b, T), a frozen sentence embedding of each item's text, for objectives that predict it.
        captions: Each item's text as ids, with a start and an end, for objectives that write it.
        labels: (b, L) bool, which labels each item has, for objectives that predict them.
    """

    modalities: Mapping[Source, ModalityFeatures]
    positive_mask: Tensor | None = None
    items: Tensor | None = None
    targets: Tensor | None = None
    captions: "TokenBatch | None" = None
    labels: Tensor | None = None

    def of_pair(self, first: Modality, second: Modality) -> "Features":
        """The same with a mask that is True where item j of the second modality matches item i of the first.

        Of two modalities without texts only partners match: a text that belongs to two images says nothing
        of what their sounds have in common.
        """
        if self.positive_mask is None or (second == "text" and first != "text"):
            return self
        return replace(self, positive_mask=self.positive_mask.T if first == "text" else None)

    def __getitem__(self, source: Source) -> ModalityFeatures:
        """Features of one modality or view; KeyError when there are none of it."""
        return self.modalities[source]
