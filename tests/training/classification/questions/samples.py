"""A folder of VQA v2 whose answers are easy to see, and a recipe so small that a run takes a second."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.training.classification.images.samples import RESNET, SIZE
from training.classification.questions.config import QuestionRecipe
from training.recipes.load import parse_as

_QUESTIONS = {"Is it bright?": ("no", "Yes."), "What colour is it?": ("green", "red")}


def write_vqa(folder: Path, *, train: int = 32, val: int = 8) -> Path:
    """Squares, bright or dark and red or green, with two questions each; three of four people agree."""
    generator = np.random.default_rng(8)
    for part, count in (("train2014", train), ("val2014", val)):
        (folder / part).mkdir(parents=True)
        questions, annotations = [], []
        for image in range(count):
            truths = bright, red = image % 2, image // 2 % 2
            base = np.array([200 if red else 40, 40 if red else 200, 40]) // (1 if bright else 3)
            pixels = np.clip(base + generator.integers(-10, 10, size=(SIZE, SIZE, 3)), 0, 255)
            path = folder / part / f"COCO_{part}_{image:012}.jpg"
            Image.fromarray(pixels.astype(np.uint8)).save(path)
            for kind, (question, answers) in enumerate(_QUESTIONS.items()):
                number = 2 * image + kind
                truth = answers[truths[kind]]
                questions.append({"image_id": image, "question": question, "question_id": number})
                annotations.append(annotation(number, [truth] * 3 + ["a strange answer"]))
        write_part(folder, part, questions, annotations)
    return folder


def annotation(question: int, answers: Sequence[str]) -> dict[str, Any]:
    """What people answered; the first one is taken for the most frequent."""
    return {
        "question_id": question,
        "multiple_choice_answer": answers[0],
        "answers": [{"answer": answer, "answer_id": place} for place, answer in enumerate(answers)],
    }


def write_part(
    folder: Path, part: str, questions: Sequence[dict[str, Any]], annotations: Sequence[dict[str, Any]]
) -> None:
    """Write the two files of a part as the site of VQA has them."""
    asked = folder / f"v2_OpenEnded_mscoco_{part}_questions.json"
    asked.write_text(json.dumps({"info": {}, "questions": list(questions)}))
    answered = folder / f"v2_mscoco_{part}_annotations.json"
    answered.write_text(json.dumps({"info": {}, "annotations": list(annotations)}))


def tiny_tree(*, reclaim: bool = False, cache: bool = True) -> dict[str, Any]:
    """The settings of a ResNet and a GRU of a few numbers."""
    return {
        "name": "tiny",
        "description": "For tests.",
        "task": "vqa",
        "model": {
            "image": {"architecture": "resnet", "options": RESNET, "frozen": False},
            "question": {"word_width": 8, "width": 12, "vocabulary_size": 300},
            "glimpses": 2,
            "dropout": 0.1,
            "last_dropout": 0.1,
        },
        "preprocessing": {"size": SIZE},
        "data": {"min_answer_count": 3, "cache_images": cache, "workers": 1, "validation_share": 0.25},
        "reclaim": {"neighbours": 5, "critic_width": 8} if reclaim else None,
        "optimizer": {"lr": 2e-2, "max_grad_norm": 1.0},
        "train": {"batch_size": 12, "epochs": 2, "log_every_steps": 1, "precision": "fp32"},
    }


def tiny_recipe(*, epochs: int = 2, **settings: bool) -> QuestionRecipe:
    """A recipe of `tiny_tree`."""
    tree = tiny_tree(**settings)
    tree["train"]["epochs"] = epochs
    return parse_as(QuestionRecipe, tree, "The tiny recipe")
