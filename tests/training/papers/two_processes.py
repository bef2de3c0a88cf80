"""Two real processes that train tasks; all scenarios in one go, to start once."""

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.training.classification.samples import tiny_recipe as tiny_image_recipe
from tests.training.papers.samples import (
    tiny_language_recipe,
    tiny_language_tree,
    tiny_question_tree,
    tiny_text_recipe,
)
from tests.training.runs import before_step, terminate
from tests.training.trainer.two_processes import Scenarios, failure
from training.classification.recipe import ImageRecipe
from training.classification.run import classify_images
from training.papers.glue import TextRecipe, classify_texts
from training.papers.language_models import Gaussian, LanguageModelRecipe, train_language_model
from training.papers.vqa import QuestionRecipe, answer_questions
from training.recipes.load import parse_as
from training.trainer.loop import TrainingLoop
from training.trainer.module_task import TaskResult
from training.trainer.opening import RunOptions

IMPLICIT = tiny_language_recipe(reclaim=True, posterior="implicit")
REFINED = tiny_language_recipe(refinement={"steps": 2})


def text_recipe(negatives: str) -> TextRecipe:
    """A text classifier without dropout, whose negatives are those of the whole batch or of memory."""
    tree = tiny_text_recipe(reclaim=True, epochs=1).model_dump(mode="json")
    # Adam would make full steps of the rounding in gradients that are 0, as those of biases of keys are.
    tree["optimizer"]["eps"] = 1e-5
    tree["model"] |= {"dropout": 0.0, "options": tree["model"]["options"] | {"dropout": 0.0}}
    tree["reclaim"]["negatives"] = negatives
    return parse_as(TextRecipe, tree, "The recipe of texts")


def image_recipe() -> ImageRecipe:
    """An image classifier without batch norm; its images are decoded when they are needed."""
    options = {"hidden_sizes": [8, 8], "depths": [1, 1], "num_stages": 2, "patch_size": 2}
    model = {"architecture": "convnext", "options": options}
    changes = {"data": {"cache_images": False, "workers": 1}, "train": {"epochs": 1}, "augmentation": {}}
    return tiny_image_recipe(model=model, **changes)


def question_recipe() -> QuestionRecipe:
    """Answers to questions without dropout, the batch norm of the tower frozen; batches do not fill up."""
    tree = tiny_question_tree(reclaim=True)
    tree["model"] |= {"dropout": 0.0, "last_dropout": 0.0}
    tree["model"]["image"] = tree["model"]["image"] | {"frozen": True}
    tree["train"] |= {"batch_size": 14, "epochs": 1}
    return parse_as(QuestionRecipe, tree, "The recipe of questions")


def language_recipe() -> LanguageModelRecipe:
    """A language model without dropout; batches do not fill up."""
    tree = tiny_language_tree(reclaim=True, dropout=0.0, word_dropout=0.0)
    tree["train"] |= {"batch_size": 10, "epochs": 1}
    return parse_as(LanguageModelRecipe, tree, "The recipe of sentences")


def options(out: Path, *, resume: bool = False) -> RunOptions:
    """On a CPU, without bars."""
    return RunOptions(out, resume=resume, device="cpu", show_progress=False)


def texts(negatives: str, out: Path, data: Path) -> Any:
    """Texts with negatives of the memory or of the batch."""
    return classify_texts(text_recipe(negatives), data / "sst", options(out)).test


def images(out: Path, data: Path) -> Any:
    """Labels of images."""
    return classify_images(image_recipe(), data / "squares", options(out)).test.figures


def questions(out: Path, data: Path) -> Any:
    """Answers to questions."""
    return answer_questions(question_recipe(), data / "vqa", options(out)).test


def sentences(out: Path, data: Path) -> Any:
    """A language model whose codes are the means of its posteriors, so that processes have the same."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Gaussian, "sample", lambda posterior: posterior.mean)
        return train_language_model(language_recipe(), data / "sentences", options(out)).test


def implicit(out: Path, data: Path, *, resume: bool = False) -> TaskResult[dict[str, float]]:
    """A language model with dropout and networks beside it."""
    return train_language_model(IMPLICIT, data / "sentences", options(out, resume=resume))


def _straight(out: Path, data: Path) -> Any:
    return implicit(out, data).test


def _stopped(out: Path, data: Path) -> Any:
    """The second process alone is asked to stop in its eighth step; then both go on."""
    second = int(os.environ["RANK"]) == 1
    with before_step(TrainingLoop, 8, lambda: terminate() if second else None):
        said = failure(lambda: implicit(out, data))
    implicit(out, data, resume=True)
    return said


def _refined(out: Path, data: Path) -> Any:
    return failure(lambda: train_language_model(REFINED, data / "sentences", options(out)))


# Scenarios whose result is that of one process.
EXACT: Scenarios = {
    "texts": partial(texts, "nearest"),
    "batch_negatives": partial(texts, "batch"),
    "images": images,
    "questions": questions,
    "sentences": sentences,
}
SCENARIOS: Scenarios = {
    **EXACT,
    "straight": _straight,
    "stopped": _stopped,
    # The last: a process that fails ends.
    "refined": _refined,
}
