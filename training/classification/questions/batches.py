"""Images, questions and scores of answers, in batches."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from training.classification.questions.answers import soft_scores
from training.classification.questions.config import QuestionRecipe
from training.classification.questions.vqa import Question
from training.common.errors import DataError
from training.common.manifest import Manifest, Record
from training.common.rejections import Rejections
from training.data.image_source import Decoder, ImageSource, open_images
from training.models.preprocessing import ImagePreprocessing, TextPreprocessing, TokenBatch
from training.tasks.loader import ItemLoader
from training.tasks.opening import OpenRun


@dataclass(frozen=True, slots=True)
class QuestionBatch:
    """Questions of which the image could be read.

    Attributes:
        images: uint8 (B, 3, S, S).
        tokens: Token ids of the questions.
        scores: (B, A), soft scores of the answers to choose from.
        items: (B,) int64, numbers of the questions.
    """

    images: Tensor
    tokens: TokenBatch
    scores: Tensor
    items: Tensor

    def tensors(self, preprocessing: ImagePreprocessing, device: torch.device) -> tuple[Tensor, ...]:
        """Pixels, ids, mask, scores and items on a device."""
        pixels = preprocessing.normalise(preprocessing.to_unit(self.images.to(device, non_blocking=True)))
        parts = (self.tokens.input_ids, self.tokens.attention_mask, self.scores, self.items)
        return pixels, *(part.to(device, non_blocking=True) for part in parts)


@dataclass(frozen=True)
class SeenQuestions:
    """Questions whose images are open.

    Attributes:
        items: The questions of the images that can be read, as far as is known.
        images: Images of the questions.
        rows: Row in `images` of each question's image.
        broken: Images that cannot be decoded.
    """

    items: tuple[Question, ...]
    images: ImageSource
    rows: tuple[int, ...]
    broken: Rejections

    def of(self, images: Collection[str]) -> "SeenQuestions":
        """The questions about some images, by their paths.

        Raises:
            DataError: There are none.
        """
        kept = [place for place, question in enumerate(self.items) if question.image in images]
        if not kept:
            raise DataError("No image of a part of the questions can be read: mend the data.")
        return replace(
            self,
            items=tuple(self.items[place] for place in kept),
            rows=tuple(self.rows[place] for place in kept),
        )


@contextmanager
def opened(
    questions: Sequence[Question],
    folder: Path,
    recipe: QuestionRecipe,
    run: OpenRun,
) -> Iterator[SeenQuestions]:
    """Read the images of questions, or decode them as they are needed while the block runs.

    Raises:
        DataError: Too many images are broken, or there is none.
    """
    paths = list(dict.fromkeys(question.image for question in questions))
    source = f"the images of {folder}"
    broken = Rejections(len(paths), recipe.data.max_rejected, source=source, unit="image")
    records = tuple(Record(path, path, "train", line=row) for row, path in enumerate(paths, start=1))
    images = open_images(
        Decoder(Manifest(folder, records, broken), ImagePreprocessing(recipe.preprocessing)),
        broken,
        cache=recipe.data.cache_images,
        threads=recipe.data.workers,
        device=run.fabric.device,
        processes=run.processes,
        show_progress=run.show_progress,
    )
    try:
        places = {paths[row]: place for place, row in enumerate(images.readable)}
        items = tuple(question for question in questions if question.image in places)
        if not items:
            raise DataError(f"No image of {folder} can be read: mend the data.")
        yield SeenQuestions(items, images, tuple(places[question.image] for question in items), broken)
    finally:
        images.close()


@dataclass(kw_only=True)
class QuestionLoader(ItemLoader[Question, QuestionBatch]):
    """Batches of questions; without those whose streamed image turns out to be broken.

    Attributes:
        seen: The questions, with their images.
        text: Makes ids of questions.
        answers: Places of the answers to choose from.
    """

    seen: SeenQuestions
    text: TextPreprocessing
    answers: Mapping[str, int]

    def batch(self, places: Sequence[int]) -> QuestionBatch:
        """The questions at these places."""
        rows = np.array([self.seen.rows[place] for place in places], dtype=np.int64)
        images, kept = self.seen.images.load(rows)
        return self._asked(images, [places[index] for index in kept])

    def largest(self) -> QuestionBatch:
        """The longest questions, each about a black image; no file is read."""
        places = self._longest()
        return self._asked(self.seen.images.blank(len(places)), places)

    def length(self, place: int) -> int:
        """Characters of a question."""
        return len(self.items[place].text)

    def _asked(self, images: Tensor, items: Sequence[int]) -> QuestionBatch:
        """Questions with their images."""
        chosen = [self.items[place] for place in items]
        return QuestionBatch(
            images,
            self.text([question.text for question in chosen]),
            torch.stack([soft_scores(question.answers, self.answers) for question in chosen]),
            torch.tensor(items),
        )
