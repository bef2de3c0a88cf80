"""A text classifier: a backbone, its pooling, and two layers behind it."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from training.classification.texts.config import TextClassifierConfig
from training.classification.texts.text_pairs import PairTokens
from training.common.errors import RecipeError
from training.models.pooling import masked_mean
from training.models.text_input import Tokenizer
from training.models.text_towers import TextTower, build_text_tower
from training.models.transformers_backbones import TransformersTextBackbone
from training.objectives.reclaim import ReclaimTermSettings
from training.tasks.problem import ReclaimTask


@dataclass(frozen=True, slots=True)
class ClassifierOutput:
    """Output of a classifier for B rows.

    Attributes:
        logits: (B, classes), or (B, 1) scores.
        words: (B, C), the mean word embedding of the real tokens: RECLAIM's v.
        sentence: (B, C), the pooled feature: RECLAIM's u.
    """

    logits: Tensor
    words: Tensor
    sentence: Tensor


class TextClassifier(nn.Module):
    """A text tower, and a dense layer with tanh before the last one, with dropout around it.

    BERT's own dense layer, which was trained to tell following sentences, is not used: all backbones are
    treated alike.

    Attributes:
        width: Width of the sentence's feature and of word embeddings.
    """

    def __init__(
        self, config: TextClassifierConfig, tokenizer: Tokenizer, outputs: int, *, load: bool
    ) -> None:
        """Build the tower and the classifier.

        Args:
            config: Settings of the classifier.
            tokenizer: Tokenizer of its input ids.
            outputs: Number of outputs: classes, or 1 for regression.
            load: Load the pretrained weights that are named; False: only the architecture.

        Raises:
            RecipeError: Settings and backbone do not fit.
        """
        super().__init__()
        self.tower = build_text_tower(config.tower(), tokenizer, load_pretrained=load)
        if config.max_tokens > self.tower.backbone.max_tokens:
            raise RecipeError(
                f"max_tokens is {config.max_tokens}, but {config.architecture} reads only "
                f"{self.tower.backbone.max_tokens}: set model.max_tokens to that or less."
            )
        self.width = self.tower.width
        self.head = nn.Sequential(
            nn.Dropout(config.dropout),
            nn.Linear(self.width, self.width),
            nn.Tanh(),
            nn.Dropout(config.dropout),
            nn.Linear(self.width, outputs),
        )
        self._embedded: Tensor | None = None
        self.tower.backbone.stem()[0].register_forward_hook(self._keep_embedded)

    def forward(self, tokens: PairTokens) -> ClassifierOutput:
        """Classify rows."""
        mask = tokens.attention_mask.bool()
        backbone, pooling = self.tower.backbone, self.tower.pooling
        if isinstance(backbone, TransformersTextBackbone):
            features = backbone.forward_pairs(tokens.input_ids, tokens.attention_mask, tokens.segments)
        else:
            features = backbone(tokens.input_ids, tokens.attention_mask)
        embedded, self._embedded = self._embedded, None
        assert embedded is not None
        assert pooling is not None
        sentence, _ = pooling(features.local, mask)
        return ClassifierOutput(self.head(sentence), masked_mean(embedded, mask), sentence)

    def _keep_embedded(self, _module: nn.Module, _inputs: Any, output: Tensor) -> None:
        self._embedded = output


class TextTask(ReclaimTask):
    """Cross entropy of the classes or squared error of the score, and RECLAIM's term with its weight."""

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
        self.set_term(reclaim, (classifier.width, classifier.width), instances)

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
        return self.with_term(task, {"task": task.detach()}, output.sentence, output.words, items)
