"""Local uniformity: global contrast, while the local entries of each sample are spread over the sphere."""

from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from training.models.features import Features, ModalityFeatures
from training.objectives.base import LossOutput, PairObjective, Requirement
from training.objectives.infonce import ImageWeight, info_nce
from training.objectives.local import LocalEntries, masked_scores, self_cosines
from training.objectives.similarity import similarities

UniformityKind = Literal["gauss", "xent"]


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
    """Uniformity within each sample, added to a global contrastive loss (Müller et al. 2022, equation 4).

    InfoNCE of the embeddings plus `uniformity_weight` times the uniformity of the regions (B, K, D) and of
    the sentences (B, M, D) of each sample. `gauss` is the log of the mean of `exp(cos / t')` over all
    pairs of entries, `xent` the mean over entries of the log of its sum. Call it with `Features` whose
    modalities have `local` and `local_mask`.

    Use it to pretrain encoders for segmentation or detection, for a tenth of LoVT's work. The authors share
    the projection head of local and global features. A text of one sentence adds a constant.

    >>> from training.models.features import Features, ModalityFeatures
    >>> from training.objectives import LocalUniformity
    >>> image = ModalityFeatures(torch.randn(8, 64), local=torch.randn(8, 49, 64))
    >>> text = ModalityFeatures(torch.randn(8, 64), local=torch.randn(8, 5, 64))
    >>> LocalUniformity(kind="xent")(Features({"image": image, "text": text})).shape
    torch.Size([])
    """

    requires: frozenset[Requirement] = frozenset({"local"})

    def __init__(
        self,
        kind: Annotated[UniformityKind, Field(description="Gaussian potentials or cross entropy.")] = "gauss",
        *,
        image_weight: ImageWeight = 0.75,
        temperature: Annotated[float, Field(gt=0, description="Temperature of the global loss.")] = 0.1,
        uniformity_weight: Annotated[
            float | None, Field(ge=0, description="Eta. None: .25 for gauss, .5 for xent.")
        ] = None,
        uniformity_temperature: Annotated[
            float, Field(gt=0, description="Tau'. The paper also reports .5 for gauss and .3 for xent.")
        ] = 0.2,
    ) -> None:
        super().__init__()
        self.kind, self.image_weight, self.temperature = kind, image_weight, temperature
        default = 0.5 if kind == "xent" else 0.25
        self.uniformity_weight = default if uniformity_weight is None else uniformity_weight
        self.uniformity_temperature = uniformity_temperature

    def pair_loss(self, first: ModalityFeatures, second: ModalityFeatures, features: Features) -> LossOutput:
        """The loss of one batch; terms: the global loss, and the uniformity of either modality."""
        with torch.autocast(first.embedding.device.type, enabled=False):
            pairs = similarities(first.embedding, second.embedding, features.positive_mask)
            whole, _, _ = info_nce(pairs, 1 / self.temperature, image_weight=self.image_weight)
            here, there = self._uniformity(first), self._uniformity(second)
            total = whole + self.uniformity_weight * (here + there)
        terms = {"global": whole, "first_uniformity": here, "second_uniformity": there}
        return LossOutput(total, {name: term.detach() for name, term in terms.items()})

    def _uniformity(self, features: ModalityFeatures) -> Tensor:
        entries = LocalEntries.of(features)
        return local_uniformity(
            self_cosines(entries.values),
            entries.mask,
            kind=self.kind,
            temperature=self.uniformity_temperature,
        )
