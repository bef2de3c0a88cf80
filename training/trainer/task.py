"""Model and objective as one module, so that the loop sees a batch go in and a loss come out."""

from torch import Tensor, nn

from training.models.dual_encoder import DualEncoder
from training.models.features import Features
from training.models.preprocessing import TokenBatch
from training.objectives.base import Objective


class TrainingTask(nn.Module):
    """Computes the loss of a batch of aligned images and texts.

    Takes and gives plain tensors: Fabric converts precision in lists and mappings but not in frozen objects.
    """

    def __init__(self, model: DualEncoder, objective: Objective) -> None:
        super().__init__()
        self.model = model
        self.objective = objective

    def forward(
        self, pixels: Tensor, input_ids: Tensor, attention_mask: Tensor, positive_mask: Tensor | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss and its terms.

        Args:
            pixels: (B, 3, S, S), normalised.
            input_ids: (B, T).
            attention_mask: (B, T).
            positive_mask: (B, B) as in `Features`.
        """
        features = self.model(pixels, TokenBatch(input_ids, attention_mask, (None,) * len(input_ids)))
        output = self.objective(Features(features.modalities, positive_mask))
        return output.total, dict(output.terms)
