"""A model that answers questions about images, and its training loss."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.utils.parametrizations import weight_norm

from training.classification.questions.config import AnswerModelConfig
from training.models.image_towers import ImageTower, build_image_tower
from training.models.preprocessing import TokenBatch
from training.models.text_input import Tokenizer
from training.models.text_towers import build_text_tower
from training.objectives.reclaim import ReclaimTermSettings
from training.objectives.similarity import full_precision
from training.tasks.problem import ReclaimTask

_RANK = 3


def normed_linear(inside: int, outside: int, *, bias: bool = True) -> nn.Module:
    """A linear layer whose weight is a direction and one length."""
    layer: nn.Module = weight_norm(nn.Linear(inside, outside, bias=bias), dim=-1)
    return layer


class _Projection(nn.Sequential):
    """Dropout, a linear layer and ReLU."""

    def __init__(self, inside: int, outside: int, dropout: float) -> None:
        super().__init__(nn.Dropout(dropout), normed_linear(inside, outside), nn.ReLU())


class AttentionMaps(nn.Module):
    """Several maps of weights over pairs, each of a low-rank bilinear form (equation 6)."""

    def __init__(self, regions: int, words: int, glimpses: int, dropout: float, last_dropout: float) -> None:
        super().__init__()
        rank = _RANK * words
        self.region = nn.Sequential(_Projection(regions, rank, dropout), nn.Dropout(last_dropout))
        self.word = _Projection(words, rank, dropout)
        self.form = normed_linear(rank, glimpses, bias=False)

    def forward(self, regions: Tensor, words: Tensor, mask: Tensor) -> Tensor:
        """Weights (B, G, R, T) that sum to 1 over pairs; those of padding are 0.

        Args:
            regions: (B, R, C).
            words: (B, T, W).
            mask: (B, T), True where a word is real.
        """
        left = self.region(regions)
        logits = torch.einsum("brk,gk,btk->bgrt", left, self.form.weight, self.word(words))
        logits = logits.masked_fill(~mask[:, None, None, :], -torch.inf)
        return logits.flatten(2).softmax(dim=2).view_as(logits)


class BilinearAttention(nn.Module):
    """Reads regions by words in several glimpses, each added to the words (equations 8 and 9).

    Args:
        regions: C, numbers of a region.
        words: W, numbers of a word and of the result.
        glimpses: G.
        dropout: Dropout rate before each projection.
        last_dropout: Dropout rate of the attention maps' region features.
    """

    def __init__(
        self, regions: int, words: int, glimpses: int, *, dropout: float, last_dropout: float
    ) -> None:
        super().__init__()
        self.maps = AttentionMaps(regions, words, glimpses, dropout, last_dropout)
        self.regions = nn.ModuleList(_Projection(regions, words, dropout) for _ in range(glimpses))
        self.words = nn.ModuleList(_Projection(words, words, dropout) for _ in range(glimpses))
        self.joined = nn.ModuleList(
            nn.Sequential(nn.Dropout(dropout), normed_linear(words, words)) for _ in range(glimpses)
        )

    def forward(self, regions: Tensor, words: Tensor, mask: Tensor) -> Tensor:
        """The sum (B, W) of the words behind the last glimpse; arguments are those of `AttentionMaps`."""
        maps = self.maps(regions, words, mask)
        for glimpse, (of_region, of_word, joined) in enumerate(
            zip(self.regions, self.words, self.joined, strict=True)
        ):
            read = torch.einsum("brk,brt,btk->bk", of_region(regions), maps[:, glimpse], of_word(words))
            words = words + joined(read).unsqueeze(1)
        return (words * mask.unsqueeze(-1)).sum(dim=1)


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


class AnswerTask(ReclaimTask):
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
        self.set_term(reclaim, (model.question.width, model.image.width), len(images), images)

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
        return self.with_term(task, {"task": task.detach()}, output.question, output.image, items)
