"""Local uniformity: global contrast, while the local entries of each sample are spread over the sphere."""

from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from training.models.features import Features, ModalityFeatures
from training.objectives.base import LossOutput, ObjectiveConfig, ObjectiveContext, PairObjective, Requirement
from training.objectives.infonce import info_nce
from training.objectives.local_cosines import self_cosines
from training.objectives.local_entries import LocalEntries, masked_scores
from training.objectives.similarity import similarities

UniformityKind = Literal["gauss", "xent"]


class LocalUniformitySettings(ObjectiveConfig):
    """ConVIRT's global loss plus uniformity of the regions and of the sentences of each sample."""

    name: Literal["local_uniformity"] = "local_uniformity"
    kind: UniformityKind = Field(default="gauss", description="Gaussian potentials or cross entropy.")
    image_weight: float = Field(
        default=0.75, ge=0, le=1, description="Weight of image-to-text in the global loss."
    )
    temperature: float = Field(default=0.1, gt=0, description="Of the global loss.")
    uniformity_weight: float = Field(default=0.25, ge=0, description="Eta; .5 for xent unless it is set.")
    uniformity_temperature: float = Field(
        default=0.2, gt=0, description="Tau'. The paper also reports .5 for gauss and .3 for xent."
    )

    @model_validator(mode="before")
    @classmethod
    def _weight_of_the_kind(cls, data: object) -> object:
        if isinstance(data, dict) and data.get("kind") == "xent":
            return {"uniformity_weight": 0.5, **data}
        return data

    def build(self, context: ObjectiveContext) -> "LocalUniformity":
        """The objective with these settings."""
        return LocalUniformity(self)


def local_uniformity(
    cosines: Tensor, mask: Tensor, *, kind: UniformityKind = "gauss", temperature: float = 0.2
) -> Tensor:
    """How close the entries of each sample lie together; least when they are spread over the sphere.

    uni-gauss is the log of the mean of exp(cos / tau') over the pairs of a sample (equations 2 and 3),
    uni-xent the mean over entries of the log of its sum (equations 45 and 46). The paper prints -cos: to
    minimise that draws all entries to one point.

    Args:
        cosines: (B, K, K) of the entries of each sample with each other.
        mask: (B, K) bool, True where an entry is real.
        kind: See above.
        temperature: Tau'.

    Returns:
        Scalar, the mean over samples; a sample with one entry adds the constant 1 / tau'.
    """
    closeness = masked_scores(cosines / temperature, mask).logsumexp(dim=2)
    count = mask.sum(dim=1).clamp(min=1).to(closeness.dtype)
    if kind == "gauss":
        per_sample = masked_scores(closeness.unsqueeze(1), mask).squeeze(1).logsumexp(dim=1) - 2 * count.log()
    else:
        per_sample = (closeness * mask).sum(dim=1) / count
    return per_sample.masked_fill(~mask.any(dim=1), 0).mean()


class LocalUniformity(PairObjective):
    """Uniformity within each sample beside a global contrastive loss (Müller et al. 2022, equation 4).

    For pretraining that serves localised tasks, without LoVT's cross attention. The authors share the
    projection head of local and global features. A text of one sentence adds a constant.
    """

    requires: frozenset[Requirement] = frozenset({"local"})

    def __init__(self, settings: LocalUniformitySettings) -> None:
        super().__init__(settings)
        self.settings = settings

    def pair_loss(self, first: ModalityFeatures, second: ModalityFeatures, features: Features) -> LossOutput:
        """The loss of one batch; terms: the global loss, and the uniformity of either modality."""
        settings = self.settings
        with torch.autocast(first.embedding.device.type, enabled=False):
            pairs = similarities(first.embedding, second.embedding, features.positive_mask)
            whole, _, _ = info_nce(pairs, 1 / settings.temperature, image_weight=settings.image_weight)
            here, there = self._uniformity(first), self._uniformity(second)
            total = whole + settings.uniformity_weight * (here + there)
        terms = {"global": whole, "first_uniformity": here, "second_uniformity": there}
        return LossOutput(total, {name: term.detach() for name, term in terms.items()})

    def _uniformity(self, features: ModalityFeatures) -> Tensor:
        entries = LocalEntries.of(features)
        return local_uniformity(
            self_cosines(entries.values),
            entries.mask,
            kind=self.settings.kind,
            temperature=self.settings.uniformity_temperature,
        )
