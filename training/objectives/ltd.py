"""LTD: embeddings of texts must still tell what the texts say, as a frozen sentence encoder sees it."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, normalize

from training.common.distributed import mean_over_processes
from training.common.errors import RecipeError
from training.models.features import Features
from training.objectives.base import Extras, LossOutput, ObjectiveData, Requirement
from training.objectives.composed import Base, ComposedObjective, check_one_vector
from training.objectives.similarity import NORM_EPS, full_precision


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

    R is the mean of `1 - cos(decoder(text embedding), target)`, where the target is a frozen sentence
    encoder's embedding of the text. `dual` is `base + weight R`; `constrained` is `base + m (R / bound - 1)`
    with a multiplier m that ascends as long as R is above the bound. Call it with `Features` that have
    `targets` (B, T). The decoder reads the direction of the embedding, which is all that a search by cosine
    sees.

    Use it for captions with shortcuts: what a caption says in addition to its shortcut must stay in the
    embedding.

    >>> from training.models.features import Features, ModalityFeatures
    >>> from training.objectives import LTD, InfoNCE
    >>> modalities = {name: ModalityFeatures(torch.randn(8, 64)) for name in ("image", "text")}
    >>> loss = LTD(InfoNCE(), embedding_dim=64, target_dim=384)
    >>> loss(Features(modalities, extras={"targets": torch.randn(8, 384)})).shape
    torch.Size([])
    """

    requires: frozenset[Requirement] = frozenset({"one_vector"})
    needs: Mapping[str, str] = {
        "data.target_encoder": "embeddings of a frozen sentence encoder: give its folder as "
        "data.target_encoder"
    }

    def __init__(
        self,
        base: Base = None,
        *,
        embedding_dim: int,
        target_dim: int,
        mode: Literal["dual", "constrained"] = "constrained",
        hidden: Annotated[int, Field(gt=0, description="Width of the decoder's two hidden layers.")] = 1024,
        weight: Annotated[
            float, Field(ge=0, description="Weight of the reconstruction with `dual` (beta).")
        ] = 1.0,
        bound: Annotated[
            float, Field(gt=0, description="Largest reconstruction loss with `constrained` (eta).")
        ] = 0.2,
        multiplier_rate: Annotated[
            float, Field(gt=0, description="Rate of the ascent with `constrained`.")
        ] = 5e-3,
        multiplier_momentum: Annotated[
            float, Field(ge=0, lt=1, description="Momentum of the ascent with `constrained`.")
        ] = 0.9,
        multiplier_dampening: Annotated[
            float,
            Field(
                ge=0,
                lt=1,
                description="Share of each violation that the momentum of `constrained` leaves out.",
            ),
        ] = 0.9,
        max_multiplier: Annotated[
            float, Field(gt=0, description="Upper limit of the multiplier with `constrained`.")
        ] = 100.0,
    ) -> None:
        super().__init__(base)
        self.mode, self.weight, self.bound = mode, weight, bound
        self.decoder = nn.Sequential(
            nn.Linear(embedding_dim, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, target_dim),
        )
        self.multiplier = Multiplier(
            rate=multiplier_rate,
            momentum=multiplier_momentum,
            dampening=multiplier_dampening,
            limit=max_multiplier,
        )
        self._seen: Tensor | None = None

    @classmethod
    def check(cls, settings: Any) -> None:
        """Check that there are texts."""
        if not any("text" in pair for pair in settings.pairs):
            raise ValueError("ltd decodes texts: name text in objective.pairs")

    def prepare(self, data: ObjectiveData) -> Extras:
        """Return what makes the targets of the texts of a batch, as `targets`."""
        return super().prepare(data) | Extras(texts={} if data.targets is None else {"targets": data.targets})

    def compute(self, features: Features) -> LossOutput:
        """Return the loss of a batch; terms: the base's, the reconstruction loss, the multiplier if any.

        Raises:
            RecipeError: The batch has no targets, or its embeddings are k-blades.
        """
        base = self.base.compute(features)
        reconstruction = self._reconstruction(features)
        terms = {**base.terms, "reconstruction": reconstruction.detach()}
        if self.mode == "dual":
            return LossOutput(base.total + self.weight * reconstruction, terms)
        if self.training:
            self._seen = reconstruction.detach()
        multiplier = self.multiplier.value.clone()
        total = base.total + multiplier * (reconstruction / self.bound - 1)
        return LossOutput(total, {**terms, "multiplier": multiplier})

    def after_step(self) -> None:
        """Move the multiplier by the reconstruction loss of the last training batch, and update the base."""
        super().after_step()
        if self._seen is not None:
            self.multiplier.ascend(mean_over_processes(self._seen) / self.bound - 1)
            self._seen = None

    def _reconstruction(self, features: Features) -> Tensor:
        """R = mean(1 - cos) of decoded captions and targets, over local rows."""
        targets = features.extras.get("targets")
        if not isinstance(targets, Tensor):
            raise RecipeError("ltd needs targets: name a sentence encoder in data.target_encoder.")
        check_one_vector(features, "text", "ltd")
        embedding = features["text"].embedding
        with torch.autocast(embedding.device.type, enabled=False):
            decoded = self.decoder(normalize(full_precision(embedding), dim=1, eps=NORM_EPS))
            cosines = cosine_similarity(decoded, targets.detach().to(decoded.dtype), eps=NORM_EPS)
            return (1 - cosines).mean()
