"""Classifier, loss and RECLAIM's term as one module, so that a batch goes in and a loss comes out."""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss

from training.classification.texts.model import TextClassifier
from training.classification.texts.text_pairs import PairTokens
from training.models.texts.towers import TextTower
from training.objectives.reclaim import ReclaimTerm, ReclaimTermSettings
from training.tasks.problem import TaskModule


class TextTask(TaskModule):
    """Cross entropy of the classes or squared error of the score, and RECLAIM's term with its weight.

    Args:
        classifier: With one output for regression.
        reclaim: Settings of RECLAIM's term; None: no such term.
        instances: Training examples.
    """

    def __init__(
        self,
        classifier: TextClassifier,
        *,
        regression: bool,
        reclaim: ReclaimTermSettings | None,
        instances: int,
    ) -> None:
        super().__init__()
        self.classifier = classifier
        self.regression = regression
        self.weight = 0.0 if reclaim is None else reclaim.weight
        width = classifier.width
        self.term = None if reclaim is None else ReclaimTerm(width, width, instances, reclaim)

    @property
    def tower(self) -> TextTower:
        """Text tower of the classifier."""
        return self.classifier.tower

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        segments: Tensor,
        labels: Tensor,
        items: Tensor,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of a training batch and its terms.

        Args:
            input_ids: (B, T).
            attention_mask: (B, T).
            segments: (B, T).
            labels: (B,) float, numbers of classes or scores.
            items: (B,), numbers of the training examples.
        """
        output = self.classifier(PairTokens(input_ids, attention_mask, segments))
        with torch.autocast(labels.device.type, enabled=False):
            logits = output.logits.float()
            if self.regression:
                task = mse_loss(logits.squeeze(1), labels)
            else:
                task = cross_entropy(logits, labels.long())
        terms = {"task": task.detach()}
        if self.term is None:
            return task, terms
        contrast, found = self.term(output.sentence, output.words, items)
        return task + self.weight * contrast, {**terms, **found}

    def after_step(self) -> None:
        """Put the last batch into RECLAIM's memory."""
        if self.term is not None:
            self.term.after_step()
