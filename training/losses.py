"""Losses on embeddings, for the training loops of other projects.

Each is a module that is called with two tensors of one shape and gives a scalar; others raise a ValueError.
Rows of equal number are partners.
Embeddings are not normalised beforehand. With several processes of `torch.distributed` the rows of all are
gathered. Parameters, such as a temperature, are learned with those of the model.
"""

import torch
from torch import Tensor, nn

from training.common.distributed import process_count
from training.models.features import Features, ModalityFeatures
from training.objectives.base import LossOutput, Objective, ObjectiveConfig, ObjectiveContext
from training.objectives.ifm import IFMSettings
from training.objectives.infonce import InfoNCESettings
from training.objectives.orthogonality import OrthogonalitySettings
from training.objectives.quest import QuestSettings
from training.objectives.reco import ReCoSettings
from training.objectives.sigmoid import SigmoidSettings
from training.objectives.squared_errors import Reduction
from training.objectives.vse import VSESettings


class EmbeddingLoss(nn.Module):
    """Base of losses of an image and a text embedding."""

    def __init__(self, settings: ObjectiveConfig) -> None:
        super().__init__()
        self.objective = settings.build(ObjectiveContext(dim=0))

    def forward(self, image: Tensor, text: Tensor, positive_mask: Tensor | None = None) -> Tensor:
        """Scalar loss of a batch.

        Args:
            image: (B, D), or (B, k, D) for k-blades.
            text: The same of the texts.
            positive_mask: (B, B) bool, True where text j belongs to image i, as a second caption of it does;
                such a pair is neither positive nor negative. The diagonal is True. None: the diagonal alone.

        Raises:
            ValueError: The batch is empty, shapes differ, or the mask is not of its pairs.
        """
        return _loss(self.objective, ModalityFeatures(image), ModalityFeatures(text), positive_mask)


class InfoNCELoss(EmbeddingLoss):
    """InfoNCE with a learned temperature (CLIP; ConVIRT, equations 2-4)."""

    def __init__(
        self,
        temperature: float = 0.07,
        *,
        learnable_temperature: bool = True,
        max_scale: float = 100.0,
        image_weight: float = 0.5,
    ) -> None:
        super().__init__(
            InfoNCESettings(
                temperature=temperature,
                learnable_temperature=learnable_temperature,
                max_scale=max_scale,
                image_weight=image_weight,
            )
        )


class SigmoidLoss(EmbeddingLoss):
    """SigLIP's sigmoid loss with learned temperature and bias (Zhai et al. 2023, equation 1)."""

    def __init__(
        self, temperature: float = 0.1, bias: float = -10.0, *, learnable_temperature: bool = True
    ) -> None:
        super().__init__(
            SigmoidSettings(temperature=temperature, bias=bias, learnable_temperature=learnable_temperature)
        )


class ReCoLoss(EmbeddingLoss):
    """The relaxed contrastive loss (ReCo, equation 3); `balanced` suits batches of other sizes than 64."""

    def __init__(self, negative_weight: float = 0.6, *, reduction: Reduction = "paper") -> None:
        super().__init__(ReCoSettings(negative_weight=negative_weight, reduction=reduction))


class OrthogonalityLoss(EmbeddingLoss):
    """Matching pairs to cosine 1, others to exactly 0 (ReCo, equation 6)."""

    def __init__(self, negative_weight: float = 0.15, *, reduction: Reduction = "paper") -> None:
        super().__init__(OrthogonalitySettings(negative_weight=negative_weight, reduction=reduction))


class VSELoss(EmbeddingLoss):
    """The hinge of VSE++, or of VSE0 with `hardest` false (Faghri et al. 2018, equations 5 and 6)."""

    def __init__(self, margin: float = 0.2, *, hardest: bool = True) -> None:
        super().__init__(VSESettings(margin=margin, hardest=hardest))


class IFMLoss(EmbeddingLoss):
    """InfoNCE on similarities as they are and made worse by epsilon (Robinson et al. 2021)."""

    def __init__(self, epsilon: float = 0.1, *, temperature: float = 0.07) -> None:
        super().__init__(IFMSettings(epsilon=epsilon, base=InfoNCESettings(temperature=temperature)))


class QuestLoss(nn.Module):
    """QUEST on a shared and a unique output of each modality (Song et al. 2024)."""

    def __init__(
        self, *, temperature: float = 0.07, cosine_weight: float = 1.0, penalty: float = 1.0
    ) -> None:
        super().__init__()
        settings = QuestSettings(temperature=temperature, cosine_weight=cosine_weight, penalty=penalty)
        self.objective = settings.build(ObjectiveContext(dim=0))

    def forward(
        self,
        image: tuple[Tensor, Tensor],
        text: tuple[Tensor, Tensor],
        positive_mask: Tensor | None = None,
    ) -> Tensor:
        """Scalar loss of a batch.

        Args:
            image: Shared and unique output, (B, D) each.
            text: The same of the texts.
            positive_mask: As in `EmbeddingLoss`.

        Raises:
            ValueError: As in `EmbeddingLoss`.
        """
        first, second = (ModalityFeatures(out[0], shared=out[0], unique=out[1]) for out in (image, text))
        return _loss(self.objective, first, second, positive_mask)


def _loss(
    objective: Objective, image: ModalityFeatures, text: ModalityFeatures, positive_mask: Tensor | None
) -> Tensor:
    if image.embedding.shape != text.embedding.shape:
        raise ValueError(
            f"Image embeddings {tuple(image.embedding.shape)} and text embeddings "
            f"{tuple(text.embedding.shape)} must have one shape: row i of both is a pair."
        )
    if not len(image.embedding):
        raise ValueError("The batch is empty: give a pair of an image and a text, or more.")
    if positive_mask is not None:
        _check_mask(positive_mask, image.embedding)
    output: LossOutput = objective(Features({"image": image, "text": text}, positive_mask))
    return output.total


def _check_mask(mask: Tensor, rows: Tensor) -> None:
    """Make sure that a mask is of all pairs of the batch, over all processes.

    Raises:
        ValueError: The type or the size is another.
    """
    size = len(rows) * process_count()
    if mask.dtype != torch.bool:
        raise ValueError(f"positive_mask is {mask.dtype}, and has to be torch.bool: write mask > 0.")
    if mask.shape != (size, size):
        raise ValueError(
            f"positive_mask is {tuple(mask.shape)}, and a batch of {size} pairs takes ({size}, {size}): row "
            "i is of image i, column j of text j."
        )
