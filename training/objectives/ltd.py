"""LTD: embeddings of texts must still tell what the texts say, as a frozen sentence encoder sees it."""

from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, normalize

from training.common.distributed import mean_over_processes
from training.common.errors import RecipeError
from training.models.features import Features
from training.objectives.base import LossOutput, ObjectiveContext, Requirement
from training.objectives.composed import ComposedConfig, ComposedObjective, check_one_vector
from training.objectives.similarity import NORM_EPS, full_precision


class LTDSettings(ComposedConfig):
    """Latent target decoding with a base objective; targets come from `data.target_encoder`.

    `dual` adds the reconstruction with a weight; `constrained` asks for a bound, and finds the weight itself.
    """

    name: Literal["ltd"] = "ltd"
    mode: Literal["dual", "constrained"] = "constrained"
    hidden: int = Field(default=1024, gt=0, description="Width of the decoder's two hidden layers.")
    weight: float = Field(default=1.0, ge=0, description="Of `dual`: beta.")
    bound: float = Field(
        default=0.2, gt=0, description="Of `constrained`: eta, the largest reconstruction loss."
    )
    multiplier_rate: float = Field(default=5e-3, gt=0, description="Of `constrained`: the ascent's rate.")
    multiplier_momentum: float = Field(default=0.9, ge=0, lt=1, description="Of `constrained`: its momentum.")
    multiplier_dampening: float = Field(
        default=0.9,
        ge=0,
        lt=1,
        description="Of `constrained`: share of each violation that its momentum leaves out.",
    )
    max_multiplier: float = Field(default=100.0, gt=0, description="Of `constrained`.")

    @model_validator(mode="after")
    def _has_texts(self) -> Self:
        if not any("text" in pair for pair in self.pairs):
            raise ValueError("ltd decodes texts: name text in objective.pairs")
        return self

    def build(self, context: ObjectiveContext) -> "LTD":
        """The objective with these settings.

        Raises:
            RecipeError: There are no targets.
        """
        if context.target_dim is None:
            raise RecipeError(
                "ltd decodes the embedding of a frozen sentence encoder: name one in data.target_encoder."
            )
        return LTD(self, context, context.target_dim)


class Multiplier(nn.Module):
    """A Lagrange multiplier that ascends by SGD with momentum, within [0, limit].

    The velocity begins with the first violation, undampened, as in `torch.optim.SGD`.
    """

    value: Tensor
    velocity: Tensor
    moving: Tensor

    def __init__(self, *, rate: float, momentum: float, dampening: float, limit: float) -> None:
        super().__init__()
        self.rate, self.momentum, self.dampening, self.limit = rate, momentum, dampening, limit
        self.register_buffer("value", torch.tensor(min(1.0, limit)))
        self.register_buffer("velocity", torch.tensor(0.0))
        self.register_buffer("moving", torch.tensor(False))

    def ascend(self, violation: Tensor) -> None:
        """One step: up where the constraint is violated, down where there is room.

        Args:
            violation: Scalar, above 0 when the constraint does not hold.
        """
        later = self.momentum * self.velocity + (1 - self.dampening) * violation
        self.velocity.copy_(torch.where(self.moving, later, violation))
        self.moving.fill_(True)
        self.value.add_(self.rate * self.velocity).clamp_(0, self.limit)


class LTD(ComposedObjective):
    """Latent target decoding (Bleeker et al. 2023) added to a base objective.

    For captions with shortcuts: what a caption says beyond its shortcut must stay in the embedding. A decoder
    reads the direction of the caption's embedding, which is all that a search by cosine sees.
    """

    requires: frozenset[Requirement] = frozenset({"targets", "one_vector"})

    def __init__(self, settings: LTDSettings, context: ObjectiveContext, target_dim: int) -> None:
        super().__init__(settings, context)
        self.settings = settings
        self.decoder = nn.Sequential(
            nn.Linear(context.embedding_width, settings.hidden),
            nn.ReLU(),
            nn.Linear(settings.hidden, settings.hidden),
            nn.ReLU(),
            nn.Linear(settings.hidden, target_dim),
        )
        self.multiplier = Multiplier(
            rate=settings.multiplier_rate,
            momentum=settings.multiplier_momentum,
            dampening=settings.multiplier_dampening,
            limit=settings.max_multiplier,
        )
        self._seen: Tensor | None = None

    def forward(self, features: Features) -> LossOutput:
        """The loss of a batch; terms: the base's, the reconstruction loss, the multiplier if there is one.

        Raises:
            RecipeError: The batch has no targets, or its embeddings are k-blades.
        """
        base = self.base_loss(features)
        reconstruction = self._reconstruction(features)
        terms = {**base.terms, "reconstruction": reconstruction.detach()}
        if self.settings.mode == "dual":
            return LossOutput(base.total + self.settings.weight * reconstruction, terms)
        if self.training:
            self._seen = reconstruction.detach()
        multiplier = self.multiplier.value.clone()
        total = base.total + multiplier * (reconstruction / self.settings.bound - 1)
        return LossOutput(total, {**terms, "multiplier": multiplier})

    def after_step(self) -> None:
        """Move the multiplier by the reconstruction loss of the last training batch, and update the base."""
        super().after_step()
        if self._seen is not None:
            self.multiplier.ascend(mean_over_processes(self._seen) / self.settings.bound - 1)
            self._seen = None

    def _reconstruction(self, features: Features) -> Tensor:
        """R = mean(1 - cos) of decoded captions and targets, over local rows."""
        if features.targets is None:
            raise RecipeError("ltd needs targets: name a sentence encoder in data.target_encoder.")
        check_one_vector(features, "text", "ltd")
        embedding = features["text"].embedding
        with torch.autocast(embedding.device.type, enabled=False):
            decoded = self.decoder(normalize(full_precision(embedding), dim=1, eps=NORM_EPS))
            cosines = cosine_similarity(decoded, features.targets.detach().to(decoded.dtype), eps=NORM_EPS)
            return (1 - cosines).mean()
