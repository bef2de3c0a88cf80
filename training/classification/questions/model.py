"""A model that answers questions about images, and its training loss."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from training.classification.questions.bilinear_attention import BilinearAttention, normed_linear
from training.classification.questions.config import AnswerModelConfig
from training.models.images.towers import ImageTower, build_image_tower
from training.models.inputs.tokenizer import Tokenizer
from training.models.preprocessing import TokenBatch
from training.models.texts.towers import build_text_tower
from training.objectives.reclaim import ReclaimTerm, ReclaimTermSettings
from training.objectives.similarity import full_precision
from training.tasks.problem import TaskModule


@dataclass(frozen=True, slots=True)
class AnswerOutput:
    """Output of the model for B images and questions.

    Attributes:
        logits: (B, A), one independent logit for each answer.
        question: (B, W), the state behind each question: RECLAIM's u.
        image: (B, C), the pooled feature of each image: RECLAIM's v.
    """

    logits: Tensor
    question: Tensor
    image: Tensor


class AnswerModel(nn.Module):
    """Regions, words, attention between them, and a classifier of answers.

    Args:
        config: Settings of the model.
        tokenizer: Tokenizer of questions.
        answers: A, to choose from.
        load: Load the pretrained weights that are named; False: only the architecture.
    """

    def __init__(self, config: AnswerModelConfig, tokenizer: Tokenizer, answers: int, *, load: bool) -> None:
        super().__init__()
        self.image = build_image_tower(config.image.tower(), load_pretrained=load)
        self.question = build_text_tower(config.question.tower(), tokenizer, load_pretrained=load)
        width = self.question.width
        self.attention = BilinearAttention(
            self.image.local_width,
            width,
            config.glimpses,
            dropout=config.dropout,
            last_dropout=config.last_dropout,
        )
        self.classifier = nn.Sequential(
            normed_linear(width, 2 * width),
            nn.ReLU(),
            nn.Dropout(config.last_dropout),
            normed_linear(2 * width, answers),
        )

    def forward(self, pixels: Tensor, tokens: TokenBatch) -> AnswerOutput:
        """Score the answers to questions about images (B, 3, S, S), normalised."""
        seen, asked = self.image(pixels), self.question(tokens)
        found = self.attention(seen.local, asked.local, tokens.attention_mask.bool())
        return AnswerOutput(self.classifier(found), asked.pooled, seen.pooled)


class AnswerTask(TaskModule):
    """Binary cross entropy of all answers by their soft scores, and RECLAIM's term with its weight.

    Args:
        model: Model to train.
        reclaim: Settings of RECLAIM's term; None: no such term.
        images: The number of each training question's image.
    """

    def __init__(
        self, model: AnswerModel, reclaim: ReclaimTermSettings | None, images: tuple[int, ...]
    ) -> None:
        super().__init__()
        self.model = model
        self.weight = 0.0 if reclaim is None else reclaim.weight
        self.term = None
        if reclaim is not None:
            widths = model.question.width, model.image.width
            self.term = ReclaimTerm(*widths, len(images), reclaim, images)

    @property
    def tower(self) -> ImageTower:
        """The image tower."""
        return self.model.image

    def forward(
        self, pixels: Tensor, input_ids: Tensor, attention_mask: Tensor, scores: Tensor, items: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of a training batch and its terms: summed over answers, the mean over questions.

        Args:
            pixels: (B, 3, S, S), normalised.
            input_ids: (B, T).
            attention_mask: (B, T).
            scores: (B, A), soft scores of answers, from 0 to 1.
            items: (B,), numbers of the training questions.
        """
        output = self.model(pixels, TokenBatch(input_ids, attention_mask, ()))
        with torch.autocast(pixels.device.type, enabled=False):
            losses = binary_cross_entropy_with_logits(full_precision(output.logits), scores, reduction="sum")
        task = losses / len(scores)
        terms = {"task": task.detach()}
        if self.term is None:
            return task, terms
        contrast, found = self.term(output.question, output.image, items)
        return task + self.weight * contrast, {**terms, **found}

    def after_step(self) -> None:
        """Put the last batch into RECLAIM's memory."""
        if self.term is not None:
            self.term.after_step()
