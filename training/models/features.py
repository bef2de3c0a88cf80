"""What an encoder hands to an objective: one typed object for any number of modalities."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

Modality = Literal["image", "text", "audio"]


@dataclass(frozen=True, slots=True)
class ModalityFeatures:
    """The features of one modality for a batch; not normalised.

    Attributes:
        embedding: Global embedding (B, D).
        local: Local embeddings (B, K, D), regions of an image or tokens of a text.
        local_mask: (B, K), True where a local entry is real and not padding.
        local_weights: (B, K) attention weight of each local entry in the pooled embedding.
        shared: Output of the shared decoder (B, D).
        unique: Output of the unique decoder (B, D).
    """

    embedding: Tensor
    local: Tensor | None = None
    local_mask: Tensor | None = None
    local_weights: Tensor | None = None
    shared: Tensor | None = None
    unique: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Features:
    """The features of a batch of B aligned items, by modality.

    Attributes:
        modalities: Row i of every modality describes item i.
        positive_mask: (B, B) bool, True where item j matches item i too (a second caption of the same image,
            the same sentence twice). The diagonal is True. None: only the diagonal matches.
    """

    modalities: Mapping[Modality, ModalityFeatures]
    positive_mask: Tensor | None = None

    def __getitem__(self, modality: Modality) -> ModalityFeatures:
        """Features of one modality; KeyError when the encoder has none of it."""
        return self.modalities[modality]
