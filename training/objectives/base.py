"""The contract of every objective: Features in, LossOutput out."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Self

import torch
from pydantic import BaseModel, ConfigDict, field_validator
from torch import Tensor, nn

from training.models.config import Modality, PairAttentionConfig, Retrieval
from training.models.features import Features, ModalityFeatures, PretrainedLogits
from training.objectives.similarity import Similarities, similarities

Requirement = Literal[
    "local",
    "pair_attention",
    "concepts",
    "shared_head",
    "branches",
    "items",
    "targets",
    "captions",
    "labels",
    "views",
    "momentum",
    "one_vector",
]


@dataclass(frozen=True, slots=True)
class LossOutput:
    """A loss and what it is made of.

    Attributes:
        total: Scalar to minimise, with gradient.
        terms: Detached scalars to report, by name; of the type and on the device of `total`, whatever was
            given, since a report stacks them.
    """

    total: Tensor
    terms: Mapping[str, Tensor]

    def __post_init__(self) -> None:
        """Bring all terms to the device of the total."""
        terms = {name: term.to(self.total, non_blocking=True) for name, term in self.terms.items()}
        object.__setattr__(self, "terms", terms)


@dataclass(frozen=True, slots=True)
class ObjectiveContext:
    """What an objective may need to know of the model and the data to size its own parts.

    Attributes:
        dim: Width D of the model's space, and of its local features.
        instances: How many items the train split has.
        groups: For each of them, the number of its image; None: every item is an image of its own.
        target_dim: Width of `Features.targets`, if the batches carry them.
        vocabulary: How many ids `Features.captions` may have, if the batches carry them.
        labels: Width of `Features.labels`; 0: no item has any.
        pair_attention: How the model compares images and texts by their local features, if it does.
        embedding_dim: Width of the embeddings where it is another, as where two branches are searched by.
    """

    dim: int
    instances: int = 0
    groups: tuple[int, ...] | None = None
    target_dim: int | None = None
    embedding_dim: int | None = None
    vocabulary: int | None = None
    labels: int = 0
    pair_attention: PairAttentionConfig | None = None

    @property
    def embedding_width(self) -> int:
        """Width of the embeddings."""
        return self.dim if self.embedding_dim is None else self.embedding_dim


class ObjectiveConfig(BaseModel, ABC):
    """Settings of an objective; a subclass adds its own and a literal `name`.

    Attributes:
        pairs: Which modalities are brought together; the loss is the mean over these pairs.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    pairs: tuple[tuple[Modality, Modality], ...] = (("image", "text"),)

    @field_validator("pairs")
    @classmethod
    def _pairs_of_two(
        cls, pairs: tuple[tuple[Modality, Modality], ...]
    ) -> tuple[tuple[Modality, Modality], ...]:
        if not pairs or len(set(pairs)) < len(pairs) or any(first == second for first, second in pairs):
            raise ValueError("pairs holds one pair of two modalities or more, none of them twice")
        return pairs

    @property
    def modalities(self) -> frozenset[Modality]:
        """What the encoder has towers for; images always."""
        return frozenset(modality for pair in self.pairs for modality in pair)

    @property
    def compares_items(self) -> bool:
        """Whether the loss tells an item from others, so that a single one says nothing."""
        return bool(self.pairs)

    def with_temperature(self, read: Callable[[], PretrainedLogits | None]) -> Self:
        """Settings with numbers in place of a temperature and a bias that pretrained towers bring.

        Args:
            read: Gives what the towers were trained with, or None; called where it is asked.

        Raises:
            RecipeError: The settings ask for what the towers do not bring.
        """
        return self

    @abstractmethod
    def build(self, context: ObjectiveContext) -> "Objective":
        """The objective with these settings."""


class ImageObjectiveConfig(ObjectiveConfig, ABC):
    """Settings of an objective that encodes images alone, and has no pairs."""

    pairs: tuple[tuple[Modality, Modality], ...] = ()

    @field_validator("pairs")
    @classmethod
    def _pairs_of_two(
        cls, pairs: tuple[tuple[Modality, Modality], ...]
    ) -> tuple[tuple[Modality, Modality], ...]:
        if pairs:
            raise ValueError("this objective encodes images alone: leave objective.pairs out")
        return pairs

    @property
    def modalities(self) -> frozenset[Modality]:
        """Images."""
        return frozenset({"image"})


class Objective(nn.Module, ABC):
    """A loss over Features. It owns no input or output, no device and no encoder.

    Its own parameters (a logit scale, a critic) are trained and saved with the model's. With several
    processes it sees the local rows and gathers what it compares them with; after the usual averaging of
    gradients they are those of one process that has the whole batch.

    Attributes:
        requires: What Features must have besides embeddings; `one_vector`: embeddings are no k-blades;
            `shared_head`: local features go through the head of the embedding, which learns by them.
        momentum: With `momentum` among these, how much of itself the copy of the encoder keeps at a step.
        retrievals: By what the trained model may be searched; a loss of cosines does not suit normals, whose
            sign is free.
    """

    requires: frozenset[Requirement] = frozenset()
    momentum: float = 0.0
    retrievals: frozenset[Retrieval] = frozenset({"shared", "unique", "concat"})

    @abstractmethod
    def forward(self, features: Features) -> LossOutput:
        """The loss of one batch, computed in float32 outside autocast."""

    def check_regions(self, count: int) -> None:
        """Make sure that images of so many local features fit; called before any image is read.

        Raises:
            RecipeError: They do not.
        """

    def after_step(self) -> None:
        """Update what is not learned by gradient; called once after every step of the optimizer.

        What it changes is kept in buffers, so that a checkpoint has it.
        """


class PairObjective(Objective):
    """An objective of two modalities at a time; the loss is the mean over the pairs of its settings."""

    def __init__(self, settings: ObjectiveConfig) -> None:
        super().__init__()
        self.pairs = settings.pairs

    @abstractmethod
    def pair_loss(self, first: ModalityFeatures, second: ModalityFeatures, features: Features) -> LossOutput:
        """The loss of one pair of modalities of a batch, whose mask is that of the pair."""

    def forward(self, features: Features) -> LossOutput:
        """The mean loss over the pairs; terms carry the pair's name when there are several."""
        losses = {
            (first, second): self.pair_loss(
                features[first], features[second], features.of_pair(first, second)
            )
            for first, second in self.pairs
        }
        if len(losses) == 1:
            return next(iter(losses.values()))
        terms = {
            f"{first}-{second}/{name}": value
            for (first, second), loss in losses.items()
            for name, value in loss.terms.items()
        }
        return LossOutput(torch.stack([loss.total for loss in losses.values()]).mean(), terms)


class SimilarityObjective(PairObjective):
    """An objective of the similarities of the global embeddings alone: cosines, or those of k-blades."""

    @abstractmethod
    def of_similarities(self, pairs: Similarities) -> LossOutput:
        """The loss of the similarities of one pair of modalities."""

    def pair_loss(self, first: ModalityFeatures, second: ModalityFeatures, features: Features) -> LossOutput:
        """The loss of the similarities of the embeddings, in full precision."""
        with torch.autocast(first.embedding.device.type, enabled=False):
            return self.of_similarities(
                similarities(first.embedding, second.embedding, features.positive_mask)
            )
