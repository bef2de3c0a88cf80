"""Visual question answering on VQA v2 (Goyal et al. 2017), with RECLAIM's term if a recipe has it."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import numpy as np
import torch
from lightning_fabric import Fabric
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.nn.utils.parametrizations import weight_norm

from training.classification.recipe import ImageClassifierConfig
from training.common.errors import DataError
from training.common.frozen import Frozen
from training.common.host import keep_freed_memory
from training.common.manifest import Manifest, Record
from training.common.rejections import Rejections, Usable
from training.data.image_source import Decoder, ImageSource, open_images
from training.models.config import (
    ImagePreprocessingConfig,
    ImageTowerConfig,
    TextPreprocessingConfig,
    TextTowerConfig,
)
from training.models.image_towers import ImageTower, build_image_tower
from training.models.learned_tokenizer import build_tokenizer
from training.models.preprocessing import ImagePreprocessing, TextPreprocessing, TokenBatch
from training.models.text_input import Tokenizer
from training.models.text_towers import build_text_tower
from training.objectives.similarity import full_precision
from training.papers.items import ItemLoader, train_and_validation
from training.papers.reclaim import ReclaimTermSettings
from training.papers.reclaim_task import ReclaimTask
from training.recipes.pretrained_preprocessing import images_as_pretrained
from training.recipes.schema import ScheduleConfig, decoded_at_a_scale
from training.recipes.tasks import ChoosingDataConfig, TaskRecipe
from training.trainer.module_task import ModuleTask, TaskResult, prepare_batch_norm
from training.trainer.opening import OpenRun, RunOptions, open_run
from training.trainer.run_state.checkpoint import fingerprint

SCORE: Final = "vqa_score"


# Recipes.
class QuestionDataConfig(ChoosingDataConfig):
    """Answers and images used of a folder of VQA v2."""

    min_answer_count: int = Field(
        default=9, gt=0, description="Answers are those that as many training questions have."
    )
    workers: int = Field(
        default=0,
        ge=0,
        description="Threads that decode, and processes for DICOM files; 0: as many as there are cores.",
    )
    cache_images: bool | Literal["memory"] = Field(
        default=True, description="Decode all images before the first step and keep them resized."
    )


class QuestionEncoderConfig(Frozen):
    """Word embeddings and a GRU with random weights."""

    word_width: int = Field(default=600, gt=0)
    width: int = Field(default=1280, gt=0, description="Width of the GRU and of all layers behind it.")
    vocabulary_size: int = Field(default=20_000, ge=300, description="Upper bound; special tokens included.")
    max_tokens: int = Field(default=16, gt=2, description="Start and end included; longer questions are cut.")

    def tower(self) -> TextTowerConfig:
        """The settings of the text tower."""
        options: dict[str, Any] = {"word_width": self.word_width, "width": self.width}
        return TextTowerConfig(
            architecture="gru", options=options, pooling="eos", vocabulary_size=self.vocabulary_size
        )


class ImageRegionsConfig(ImageClassifierConfig):
    """An image tower whose local features are the regions that a question looks at."""

    frozen: bool = Field(default=True, description="The tower keeps its weights and statistics.")

    def tower(self) -> ImageTowerConfig:
        """The settings of the image tower."""
        frozen = {"frozen_layers": "all" if self.frozen else 0}
        return ImageTowerConfig.model_validate({**self.model_dump(exclude={"frozen"}), **frozen})


class AnswerModelConfig(Frozen):
    """A bilinear attention network (Kim et al. 2018) over image regions and words."""

    image: ImageRegionsConfig
    question: QuestionEncoderConfig = QuestionEncoderConfig()
    glimpses: int = Field(default=8, gt=0, description="Attention maps, each read after the one before.")
    dropout: float = Field(default=0.2, ge=0, lt=1, description="Dropout before each projection.")
    last_dropout: float = Field(default=0.5, ge=0, lt=1, description="Dropout of attention and classifier.")


class QuestionRecipe(TaskRecipe):
    """A named, complete description of a run of visual question answering."""

    task: Literal["vqa"]
    model: AnswerModelConfig
    preprocessing: ImagePreprocessingConfig = ImagePreprocessingConfig()
    data: QuestionDataConfig = QuestionDataConfig()
    reclaim: ReclaimTermSettings | None = Field(
        default=None, description="RECLAIM's term on the features of question and image."
    )
    schedule: ScheduleConfig = ScheduleConfig()

    @model_validator(mode="before")
    @classmethod
    def _decode_at_a_scale(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {**value, "preprocessing": decoded_at_a_scale(value.get("preprocessing", {}))}


# Answers: brought to one form, counted, and scored.

_ARTICLES: Final = frozenset({"a", "an", "the"})
_SMALL: Final = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_WITHIN_NUMBER: Final = re.compile(r"(?<=\d),(?=\d)")
_STOP: Final = re.compile(r"\.(?!\d)")
_PUNCTUATION: Final = re.compile(r"[;/\[\]\"{}()=+\\_\-<>@`,?!]")
# Number of people whose agreement makes an answer fully right (Antol et al. 2015).
_AGREEING: Final = 3


def normalised(answer: str) -> str:
    """An answer in lower case, without articles and punctuation, with digits for small numbers."""
    text = _WITHIN_NUMBER.sub("", answer.lower())
    words = _PUNCTUATION.sub(" ", _STOP.sub("", text)).split()
    digits = {"none": "0", **{word: str(number) for number, word in enumerate(_SMALL)}}
    return " ".join(digits.get(word, word) for word in words if word not in _ARTICLES)


def answer_vocabulary(most_frequent: Iterable[str], min_count: int) -> tuple[str, ...]:
    """The answers to choose from, most frequent first.

    Args:
        most_frequent: The most frequent answer to each training question.
        min_count: Minimum number of questions with that most frequent answer.

    Raises:
        DataError: There are fewer than two.
    """
    counts = Counter(most_frequent)
    kept = [answer for answer, count in counts.items() if count >= min_count]
    if len(kept) < 2:
        raise DataError(
            f"Fewer than two answers occur {min_count} times in the training questions: set "
            "data.min_answer_count to less."
        )
    return tuple(sorted(kept, key=lambda answer: (-counts[answer], answer)))


def soft_scores(given: Sequence[str], numbers: Mapping[str, int]) -> Tensor:
    """(A,), of each answer to choose from, `min(1, people who gave it / 3)`.

    Args:
        given: One answer of each person.
        numbers: Columns of the answers to choose from.
    """
    scores = torch.zeros(len(numbers))
    for answer, people in Counter(given).items():
        if answer in numbers:
            scores[numbers[answer]] = min(1.0, people / _AGREEING)
    return scores


# Reading.
@dataclass(frozen=True, slots=True)
class Question:
    """A question about an image.

    Attributes:
        image: Path of the image, relative to the folder.
        text: Text of the question.
        answers: Normalised answers, one of each annotator.
        answer: The most frequent one, as the annotations have it, normalised.
    """

    image: str
    text: str
    answers: tuple[str, ...]
    answer: str


def read_questions(
    folder: Path, part: Literal["train2014", "val2014"], *, max_rejected: float = 1.0
) -> Usable[Question]:
    """Read the questions of a part and their annotations, as VQA's own site has them.

    The files are `v2_OpenEnded_mscoco_PART_questions.json` and `v2_mscoco_PART_annotations.json`, the images
    `PART/COCO_PART_000000000009.jpg`. A question without text, answers or image is left out.

    Raises:
        DataError: A file cannot be read or is another one, or too many questions cannot be used.
    """
    path = folder / f"v2_OpenEnded_mscoco_{part}_questions.json"
    questions = _entries(path, "questions")
    annotations = _entries(folder / f"v2_mscoco_{part}_annotations.json", "annotations")
    answered = {entry.get("question_id"): entry for entry in annotations if isinstance(entry, Mapping)}
    images = {entry.name for entry in (folder / part).glob("*.jpg")}
    rejections = Rejections(len(questions), max_rejected, source=str(path), unit="question")
    items = []
    for number, entry in enumerate(questions, start=1):
        question = _question(entry, answered, images, part)
        if isinstance(question, Question):
            items.append(question)
        else:
            rejections.add(number, question)
    if not items:
        raise DataError(f"{path} has no question.")
    return Usable(tuple(items), rejections)


def _entries(path: Path, key: str) -> Sequence[Any]:
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path} is not JSON: download it again.") from error
    entries = content.get(key) if isinstance(content, Mapping) else None
    if not isinstance(entries, list):
        raise DataError(f"{path} has no list {key!r}: is it a file of VQA v2?")
    return entries


def _question(entry: Any, answered: Mapping[Any, Any], images: set[str], part: str) -> Question | str:
    """Return a question, or the reason why it can't be used."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("image_id"), int):
        return "it names no image"
    text = entry.get("question")
    if not isinstance(text, str) or not text.strip():
        return "it asks nothing"
    name = f"COCO_{part}_{entry['image_id']:012}.jpg"
    if name not in images:
        return f"there is no image {part}/{name}"
    annotation: Any = answered.get(entry.get("question_id"))
    try:
        answers = tuple(normalised(answer["answer"]) for answer in annotation["answers"])
        return Question(f"{part}/{name}", text, answers, normalised(annotation["multiple_choice_answer"]))
    except (AttributeError, KeyError, TypeError):
        return "its annotation has no answers"


# Batches.
@dataclass(frozen=True)
class QuestionImages:
    """The images of some questions.

    Attributes:
        source: Images by their row.
        rows: Row of each image that can be read, as far as is known, by its path.
        broken: Images that cannot be decoded.
    """

    source: ImageSource
    rows: Mapping[str, int]
    broken: Rejections

    def readable(self, questions: Sequence[Question]) -> tuple[Question, ...]:
        """The questions whose image can be read.

        Raises:
            DataError: There is none.
        """
        kept = tuple(question for question in questions if question.image in self.rows)
        if not kept:
            raise DataError("No image of a part of the questions can be read: mend the data.")
        return kept


@contextmanager
def open_question_images(
    questions: Sequence[Question], folder: Path, recipe: QuestionRecipe, run: OpenRun
) -> Iterator[QuestionImages]:
    """Read the images of questions, or decode them as they are needed while the block runs.

    Raises:
        DataError: Too many images are broken.
    """
    paths = list(dict.fromkeys(question.image for question in questions))
    broken = Rejections(len(paths), recipe.data.max_rejected, source=f"the images of {folder}", unit="image")
    records = tuple(Record(path, path, "train", line=line) for line, path in enumerate(paths, start=1))
    source = open_images(
        Decoder(Manifest(folder, records, broken), ImagePreprocessing(recipe.preprocessing)),
        broken,
        cache=recipe.data.cache_images,
        threads=recipe.data.workers,
        device=run.fabric.device,
        processes=run.processes,
        show_progress=run.show_progress,
    )
    try:
        yield QuestionImages(source, {paths[row]: index for index, row in enumerate(source.readable)}, broken)
    finally:
        source.close()


class Batch(NamedTuple):
    """Questions whose image could be read.

    Attributes:
        images: uint8 (B, 3, S, S).
        input_ids: (B, T) int64.
        attention_mask: (B, T) int64.
        scores: (B, A), soft scores of the answers to choose from.
        items: (B,) int64, numbers of the questions.
    """

    images: Tensor
    input_ids: Tensor
    attention_mask: Tensor
    scores: Tensor
    items: Tensor

    def tensors(self, preprocessing: ImagePreprocessing, device: torch.device) -> tuple[Tensor, ...]:
        """The same on a device, with normalised pixels instead of the images."""
        images, *others = (part.to(device, non_blocking=True) for part in self)
        return preprocessing.normalise(preprocessing.to_unit(images)), *others


@dataclass(kw_only=True)
class QuestionLoader(ItemLoader[Question, Batch]):
    """Batches of questions; without those whose streamed image turns out to be broken.

    Attributes:
        images: Images of the questions.
        text: Makes ids of questions.
        answers: Columns of the answers to choose from.
    """

    images: QuestionImages
    text: TextPreprocessing
    answers: Mapping[str, int]

    def batch(self, indices: Sequence[int]) -> Batch:
        """The questions at these indices."""
        rows = np.array([self.images.rows[self.items[index].image] for index in indices], dtype=np.int64)
        images, kept = self.images.source.load(rows)
        return self._batch(images, [indices[row] for row in kept])

    def largest(self) -> Batch:
        """The longest questions, each about a black image; no file is read."""
        indices = self._longest()
        return self._batch(self.images.source.blank(len(indices)), indices)

    def length(self, index: int) -> int:
        """Characters of a question."""
        return len(self.items[index].text)

    def _batch(self, images: Tensor, indices: Sequence[int]) -> Batch:
        chosen = [self.items[index] for index in indices]
        tokens = self.text([question.text for question in chosen])
        scores = torch.stack([soft_scores(question.answers, self.answers) for question in chosen])
        return Batch(images, tokens.input_ids, tokens.attention_mask, scores, torch.tensor(indices))


# The model.

_RANK: Final = 3


def _linear(inside: int, outside: int, *, bias: bool = True) -> nn.Module:
    """A linear layer whose weight is a direction and one length."""
    layer: nn.Module = weight_norm(nn.Linear(inside, outside, bias=bias), dim=-1)
    return layer


def _projection(inside: int, outside: int, dropout: float) -> nn.Sequential:
    return nn.Sequential(nn.Dropout(dropout), _linear(inside, outside), nn.ReLU())


class AttentionMaps(nn.Module):
    """Several maps of weights over pairs, each of a low-rank bilinear form (equation 6)."""

    def __init__(self, regions: int, words: int, glimpses: int, dropout: float, last_dropout: float) -> None:
        super().__init__()
        rank = _RANK * words
        self.region = nn.Sequential(_projection(regions, rank, dropout), nn.Dropout(last_dropout))
        self.word = _projection(words, rank, dropout)
        self.form = _linear(rank, glimpses, bias=False)

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

    Regions and words have C and W numbers; `dropout` is the rate before each projection, and `last_dropout`
    that of the attention maps' region features.
    """

    def __init__(
        self, regions: int, words: int, glimpses: int, *, dropout: float, last_dropout: float
    ) -> None:
        super().__init__()
        self.maps = AttentionMaps(regions, words, glimpses, dropout, last_dropout)
        self.regions = nn.ModuleList(_projection(regions, words, dropout) for _ in range(glimpses))
        self.words = nn.ModuleList(_projection(words, words, dropout) for _ in range(glimpses))
        self.joined = nn.ModuleList(
            nn.Sequential(nn.Dropout(dropout), _linear(words, words)) for _ in range(glimpses)
        )

    def forward(self, regions: Tensor, words: Tensor, mask: Tensor) -> Tensor:
        """The sum (B, W) of the words behind the last glimpse; arguments are those of `AttentionMaps`."""
        maps = self.maps(regions, words, mask)
        for glimpse, (region, word, joined) in enumerate(
            zip(self.regions, self.words, self.joined, strict=True)
        ):
            read = torch.einsum("brk,brt,btk->bk", region(regions), maps[:, glimpse], word(words))
            words = words + joined(read).unsqueeze(1)
        return (words * mask.unsqueeze(-1)).sum(dim=1)


class AnswerOutput(NamedTuple):
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

    Of A answers; `load` loads the pretrained weights that the settings name.
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
            _linear(width, 2 * width),
            nn.ReLU(),
            nn.Dropout(config.last_dropout),
            _linear(2 * width, answers),
        )

    def forward(self, pixels: Tensor, input_ids: Tensor, attention_mask: Tensor) -> AnswerOutput:
        """Score the answers to questions (B, T) about images (B, 3, S, S), normalised."""
        image, question = self.image(pixels), self.question(TokenBatch(input_ids, attention_mask, ()))
        read = self.attention(image.local, question.local, attention_mask.bool())
        return AnswerOutput(self.classifier(read), question.pooled, image.pooled)


class AnswerTask(ReclaimTask):
    """Binary cross entropy of all answers by their soft scores, and RECLAIM's term with its weight.

    `images` has the number of each training question's image.
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

        The arguments are those of `Batch`, with normalised pixels (B, 3, S, S) instead of the images.
        """
        output = self.model(pixels, input_ids, attention_mask)
        with torch.autocast(pixels.device.type, enabled=False):
            losses = binary_cross_entropy_with_logits(full_precision(output.logits), scores, reduction="sum")
        task = losses / len(scores)
        return self.with_term(task, {"task": task.detach()}, output.question, output.image, items)


# A run.
def answer_questions(recipe: QuestionRecipe, data: Path, options: RunOptions) -> TaskResult[dict[str, float]]:
    """Train a model that answers questions about images, and score it once (RECLAIM, appendix B.4).

    All questions about some training images are held out and choose the checkpoint. The global random
    generators are seeded.

    `data` has the questions, annotations and images of train2014 and val2014.

    Raises:
        RecoquestError: Something that the user can mend; the message says what.
    """
    keep_freed_memory()
    images = images_as_pretrained(recipe.preprocessing, recipe.model.image.pretrained, "preprocessing")
    recipe = recipe.model_copy(update={"preprocessing": images})
    with ExitStack() as resources:
        run = resources.enter_context(open_run(recipe, options))
        whole, val = (
            read_questions(data, part, max_rejected=recipe.data.max_rejected)
            for part in ("train2014", "val2014")
        )
        train, validation = train_and_validation(whole.items, lambda question: question.image, recipe.data)
        answers = answer_vocabulary((question.answer for question in train), recipe.data.min_answer_count)
        ours, theirs = (
            resources.enter_context(open_question_images(questions, data, recipe, run))
            for questions in ((*train, *validation), val.items)
        )
        train, validation, reported = (
            ours.readable(train),
            ours.readable(validation),
            theirs.readable(val.items),
        )
        config, pixels = recipe.model.question, ImagePreprocessing(recipe.preprocessing)
        tokenizer = build_tokenizer(config.tower(), (question.text for question in train))
        model = AnswerModel(recipe.model, tokenizer, len(answers), load=run.checkpoint is None)
        loader = partial(
            QuestionLoader,
            batch_size=recipe.train.batch_size,
            text=TextPreprocessing(TextPreprocessingConfig(max_tokens=config.max_tokens), tokenizer),
            answers={answer: column for column, answer in enumerate(answers)},
        )
        batches = loader(train, images=ours, seed=recipe.train.seed, processes=run.processes)
        prepare_batch_norm(run, model, smallest=batches.smallest_share)
        measured = partial(score, model, pixels, run.fabric)
        run_task = ModuleTask(
            run=run,
            recipe=recipe,
            module=AnswerTask(model, recipe.reclaim, tuple(ours.rows[question.image] for question in train)),
            batches=batches,
            inputs=lambda batch, _: batch.tensors(pixels, run.fabric.device),
            validate=lambda: measured(loader(validation, images=ours)),
            chosen_by=SCORE,
            fingerprint=fingerprint((*train, *validation)),
            largest=batches.largest,
        )
        loop = run_task.fit()
        metrics = run_task.measured(lambda: measured(loader(reported, images=theirs)))
        rejected = len(run.report(whole.rejections, val.rejections, ours.broken, theirs.broken))
        examples = {"train": len(train), "validation": len(validation), "val2014": len(reported)}
        counts = {"answers": len(answers), "examples": examples}
        return run_task.finish(loop, metrics, {"task": recipe.task, "metrics": metrics}, counts, rejected)


def score(
    model: AnswerModel, preprocessing: ImagePreprocessing, fabric: Fabric, loader: QuestionLoader
) -> dict[str, float]:
    """Mean soft score of the answers with the highest logit, from 0 to 1, and its attainable maximum."""
    reached, best, questions = 0.0, 0.0, 0
    for batch in loader.in_order():
        pixels, ids, mask, scores, _ = batch.tensors(preprocessing, fabric.device)
        with torch.inference_mode(), fabric.autocast():
            chosen = model(pixels, ids, mask).logits.argmax(dim=1, keepdim=True)
        reached += float(scores.gather(1, chosen).double().sum())
        best += float(scores.amax(dim=1).double().sum())
        questions += len(scores)
    return {SCORE: reached / questions, "attainable": best / questions}


def published(recipe: QuestionRecipe) -> dict[str, float]:
    """The score of each row of RECLAIM's table 11, in percent; none for a tower from random weights."""
    return {} if recipe.model.image.pretrained is None else {"BAN": 66.06, "BAN + RECLAIM": 66.36}
