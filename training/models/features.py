"""Features that an encoder passes to an objective, for any number of modalities."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from torch import Tensor

from training.models.config import Modality

if TYPE_CHECKING:
    from training.models.preprocessing import TokenBatch


@dataclass(frozen=True, slots=True)
class PretrainedLogits:
    """A cosine is divided by the temperature; the bias of SigLIP's sigmoid is added, a softmax has none."""

    temperature: float
    bias: float | None = None


# A row for each item of a batch.
Extra: TypeAlias = "Tensor | TokenBatch"
# In addition to the modalities: a second random view of the images, and what a momentum copy of the encoder
# computes for either.
Source = Modality | Literal["view", "momentum", "momentum_view"]


@dataclass(frozen=True, slots=True)
class ModalityFeatures:
    """The features of one modality for a batch; not normalised.

    Attributes:
        embedding: Global embedding (B, D); (B, k, D) of a model whose embeddings are k-blades.
        local: Local embeddings (B, K, D), regions of an image or tokens of a text.
        local_mask: (B, K), False at padding.
        local_weights: (B, K) attention weight of each local entry in the pooled embedding.
        shared: Output of the shared decoder (B, D).
        unique: Output of the unique decoder (B, D).
        regions: Embedding (B, K, D) of each region of an image, a grid row by row; `embedding` is their mean.
        concepts: Logits (B, L) of an image's concepts.
        frame: (B, 2, 3), only of views: maps a point (x, y, 1) of a randomly changed image to the point
            (x, y) of the unchanged one; both are unit squares.
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

    With several processes these are this one's b items of the B of the batch.

    Attributes:
        modalities: Row i of every modality, and of every view, describes item i.
        positive_mask: (B, B) bool of the whole batch, on every process: True where text j belongs to item i
            (a second caption of the same image, the same sentence twice). The diagonal is True. None: only
            the diagonal matches. `of_pair` turns it for a pair of modalities.
        items: (b,) int64, the row of each item in the train split, for objectives with a memory.
        extras: By name, what an objective alone needs of each item (b, ...), as its `prepare` asks for it.
    """

    modalities: Mapping[Source, ModalityFeatures]
    positive_mask: Tensor | None = None
    items: Tensor | None = None
    extras: Mapping[str, "Extra"] = field(default_factory=dict)

    def of_pair(self, first: Modality, second: Modality) -> "Features":
        """The features, with the mask True where item j of the second modality matches item i of the first.

        Without texts among the two, only partners match: a text shared by two images says nothing about their
        sounds.
        """
        if self.positive_mask is None or (second == "text" and first != "text"):
            return self
        return replace(self, positive_mask=self.positive_mask.T if first == "text" else None)

    def __getitem__(self, source: Source) -> ModalityFeatures:
        """Features of one modality or view; KeyError if it is missing."""
        return self.modalities[source]
