"""Data of the papers' tasks with easy rules, and recipes so small that a run takes a second."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.training.classification.samples import RESNET, SIZE
from training.papers.glue import TextRecipe
from training.papers.language_models import LanguageModelRecipe
from training.papers.load import load_classification_recipe
from training.papers.vqa import QuestionRecipe
from training.recipes.load import parse_as

_GOOD = ("good", "lovely", "bright", "warm")
_BAD = ("bad", "awful", "dark", "cold")
_FILLER = ("film", "story", "the", "a", "day", "music", "very", "of")
_NOUNS = ("cat", "dog", "bird", "fish")
_VERBS = ("sees", "hears", "likes")
_QUESTIONS = {"Is it bright?": ("no", "Yes."), "What colour is it?": ("green", "red")}


def _write_glue(
    folder: Path, seed: int, header: str, row: Callable[[np.random.Generator, int], str], **counts: int
) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(seed)
    for name, count in counts.items():
        lines = [header.replace(" ", "\t"), *(row(generator, number) for number in range(count))]
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    return folder


def write_sst(folder: Path, *, train: int = 64, dev: int = 16) -> Path:
    """A sentence is positive when its one word of judgement is."""

    def row(generator: np.random.Generator, number: int) -> str:
        label = number % 2
        words = list(generator.choice(_FILLER, size=int(generator.integers(2, 6))))
        words.insert(int(generator.integers(len(words) + 1)), str(generator.choice((_BAD, _GOOD)[label])))
        return f"{' '.join(words)}\t{label}"

    return _write_glue(folder, 3, "sentence label", row, train=train, dev=dev)


def write_sts(folder: Path, *, train: int = 64, dev: int = 16) -> Path:
    """The score of two sentences is 2.5 for each of the two that has a word of praise."""

    def row(generator: np.random.Generator, number: int) -> str:
        kinds = generator.integers(2, size=2)
        first, second = (str(generator.choice((_BAD, _GOOD)[kind])) for kind in kinds)
        first = f"{first} {generator.choice(_FILLER)}"
        return f"{number}\tg\tf\t2012\t1\ts\ts\t{first}\t{second}\t{2.5 * kinds.sum()}"

    header = "index genre filename year old_index source1 source2 sentence1 sentence2 score"
    return _write_glue(folder, 4, header, row, train=train, dev=dev)


def text_recipe(name: str, overrides: Sequence[str] = ()) -> TextRecipe:
    """A recipe of texts that comes with the project."""
    recipe = load_classification_recipe(name, overrides)
    assert isinstance(recipe, TextRecipe)
    return recipe


def tiny_text_recipe(task: str = "sst-2", *, reclaim: bool = False, **train: Any) -> TextRecipe:
    """A transformer of 16 numbers with dropout."""
    tree = {
        "name": "tiny",
        "description": "For tests.",
        "task": task,
        "model": {
            "architecture": "small_transformer",
            "options": {"width": 16, "layers": 1, "heads": 2, "dropout": 0.1},
            "vocabulary_size": 320,
            "max_tokens": 24,
        },
        "data": {"validation_share": 0.25},
        "reclaim": {"neighbours": 5, "critic_width": 8} if reclaim else None,
        "optimizer": {"lr": 5e-3, "weight_decay": 0.01, "max_grad_norm": 1.0},
        "schedule": {"name": "linear", "warmup_steps": 2},
        "train": {"batch_size": 8, "epochs": 2, "log_every_steps": 1, "precision": "fp32", **train},
    }
    return parse_as(TextRecipe, tree, "The tiny recipe")


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
        "answers": [{"answer": answer, "answer_id": index} for index, answer in enumerate(answers)],
    }


def write_part(folder: Path, part: str, questions: Sequence[Any], annotations: Sequence[Any]) -> None:
    """Write the two files of a part as the site of VQA has them."""
    for name, key, entries in (
        (f"v2_OpenEnded_mscoco_{part}_questions.json", "questions", questions),
        (f"v2_mscoco_{part}_annotations.json", "annotations", annotations),
    ):
        (folder / name).write_text(json.dumps({"info": {}, key: list(entries)}))


def tiny_question_tree(*, reclaim: bool = False, cache: bool = True) -> dict[str, Any]:
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


def tiny_question_recipe(*, epochs: int = 2, **settings: bool) -> QuestionRecipe:
    """A recipe of `tiny_question_tree`."""
    tree = tiny_question_tree(**settings)
    tree["train"]["epochs"] = epochs
    return parse_as(QuestionRecipe, tree, "The tiny recipe")


def write_sentences(folder: Path, *, train: int = 48, valid: int = 16, test: int = 16) -> Path:
    """The animal that begins a sentence ends it too, so a code helps."""

    def sentences(count: int) -> Iterator[str]:
        for _ in range(count):
            noun, other = (str(word) for word in generator.choice(_NOUNS, size=2))
            middle = " ".join(["very"] * int(generator.integers(0, 4)))
            yield " ".join(f"the {noun} {generator.choice(_VERBS)} {middle} {other} {noun}".split())

    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(6)
    for name, count in (("train", train), ("valid", valid), ("test", test)):
        (folder / f"{name}.txt").write_text("\n".join(sentences(count)) + "\n")
    return folder


def tiny_language_tree(*, reclaim: bool = False, **model: Any) -> dict[str, Any]:
    """The settings of a model of a few numbers with dropout and annealing: all that a resume may lose."""
    return {
        "name": "tiny",
        "description": "For tests.",
        "task": "language-model",
        "model": {
            "word_width": 8,
            "width": 12,
            "latent": 4,
            "dropout": 0.1,
            "word_dropout": 0.1,
            "ratio": {"width": 8, "updates": 2, "lr": 1e-3},
            **model,
        },
        "kl": {"epochs": 2},
        "reclaim": {"neighbours": 5, "critic_width": 8} if reclaim else None,
        "optimizer": {"name": "adam", "lr": 2e-2, "weight_decay": 0.0, "max_grad_norm": 5.0},
        "train": {"batch_size": 8, "epochs": 2, "log_every_steps": 1, "precision": "fp32"},
    }


def tiny_language_recipe(*, reclaim: bool = False, epochs: int = 2, **model: Any) -> LanguageModelRecipe:
    """A recipe of `tiny_language_tree`."""
    tree = tiny_language_tree(reclaim=reclaim, **model)
    tree["train"]["epochs"] = epochs
    return parse_as(LanguageModelRecipe, tree, "The tiny recipe")
