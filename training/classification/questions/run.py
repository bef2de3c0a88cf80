"""One run of visual question answering, from a recipe and a folder of VQA v2 to its score."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

import torch
from lightning_fabric import Fabric

from training.classification.questions.answers import answer_vocabulary
from training.classification.questions.batches import QuestionLoader, opened
from training.classification.questions.config import QuestionRecipe
from training.classification.questions.model import AnswerModel, AnswerTask
from training.classification.questions.vqa import Question, read_questions
from training.common.errors import DataError
from training.common.host import keep_freed_memory
from training.models.config import TextPreprocessingConfig
from training.models.learned_tokenizer import build_tokenizer
from training.models.preprocessing import ImagePreprocessing, TextPreprocessing, TokenBatch
from training.recipes.pretrained_preprocessing import images_as_pretrained
from training.tasks.held_out import train_and_validation
from training.tasks.opening import RunOptions, TaskResult, open_run
from training.tasks.problem import TaskProblem

_ROWS: Mapping[str, float] = MappingProxyType({"BAN": 66.06, "BAN + RECLAIM": 66.36})
SCORE: Final = "vqa_score"


def answer_questions(recipe: QuestionRecipe, data: Path, options: RunOptions) -> TaskResult[dict[str, float]]:
    """Train a model that answers questions about images, and score it once (RECLAIM, appendix B.4).

    All questions about some training images are held out and choose the checkpoint. The global random
    generators are seeded.

    Args:
        recipe: Settings of the model and its training.
        data: Folder of VQA v2 with the questions, annotations and images of train2014 and val2014.
        options: Folder, device and output of the run.

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
        train, chosen = train_and_validation(whole.items, lambda question: question.image, recipe.data)
        answers = _answers(train, recipe)
        seen, reported = (
            resources.enter_context(opened(questions, data, recipe, run))
            for questions in ((*train, *chosen), val.items)
        )
        training, validation = (seen.of({question.image for question in part}) for part in (train, chosen))
        config, pixels = recipe.model.question, ImagePreprocessing(recipe.preprocessing)
        tokenizer = build_tokenizer(config.tower(), (question.text for question in training.items))
        model = AnswerModel(recipe.model, tokenizer, len(answers), load=run.checkpoint is None)
        loader = partial(
            QuestionLoader,
            batch_size=recipe.train.batch_size,
            text=TextPreprocessing(TextPreprocessingConfig(max_tokens=config.max_tokens), tokenizer),
            answers={answer: place for place, answer in enumerate(answers)},
        )
        measured = partial(score, model, pixels, run.fabric)
        batches = loader(training.items, seen=training, seed=recipe.train.seed, processes=run.processes)
        run.handle_batch_norm(model, smallest=batches.smallest_share)
        problem = TaskProblem(
            module=AnswerTask(model, recipe.reclaim, training.rows),
            batches=batches,
            inputs=lambda batch, _: batch.tensors(pixels, run.fabric.device),
            validate=lambda: measured(loader(validation.items, seen=validation)),
            chosen_by=SCORE,
            fingerprint=fingerprint((*training.items, *validation.items)),
            fabric=run.fabric,
            processes=run.processes,
            largest=batches.largest,
        )
        loop = run.fit(problem)
        metrics = problem.measured(lambda: measured(loader(reported.items, seen=reported)))
        rejected = run.report(whole.rejections, val.rejections, seen.broken, reported.broken)
        parts = {"train": training, "validation": validation, "val2014": reported}
        examples = {name: len(part.items) for name, part in parts.items()}
        counts = {"answers": len(answers), "examples": examples}
        return run.finish(loop, metrics, {"task": recipe.task, "metrics": metrics}, counts, rejected)


def _answers(questions: Iterable[Question], recipe: QuestionRecipe) -> tuple[str, ...]:
    """The answers to choose from."""
    least = recipe.data.min_answer_count
    answers = answer_vocabulary((question.answer for question in questions), least)
    if len(answers) < 2:
        raise DataError(
            f"Fewer than two answers occur {least} times in the training questions: set "
            "data.min_answer_count to less."
        )
    return answers


def score(
    model: AnswerModel, preprocessing: ImagePreprocessing, fabric: Fabric, loader: QuestionLoader
) -> dict[str, float]:
    """Mean soft score of the answers with the highest logit, from 0 to 1, and its attainable maximum."""
    reached, best, questions = 0.0, 0.0, 0
    for batch in loader.in_order():
        pixels, ids, mask, scores, _ = batch.tensors(preprocessing, fabric.device)
        with torch.inference_mode(), fabric.autocast():
            chosen = model(pixels, TokenBatch(ids, mask, ())).logits.argmax(dim=1, keepdim=True)
        reached += float(scores.gather(1, chosen).double().sum())
        best += float(scores.amax(dim=1).double().sum())
        questions += len(scores)
    return {SCORE: reached / questions, "attainable": best / questions}


def fingerprint(questions: Iterable[Question]) -> str:
    """SHA-256 over questions, images and answers in their order."""
    digest = hashlib.sha256()
    for question in questions:
        digest.update(json.dumps([question.image, question.text, question.answers]).encode())
    return digest.hexdigest()


def published(recipe: QuestionRecipe) -> Mapping[str, float]:
    """The score of each row; of a tower from random weights there are none."""
    return _ROWS if recipe.model.image.pretrained is not None else {}
