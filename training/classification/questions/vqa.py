"""Reads questions and annotations of VQA v2 (Goyal et al. 2017) as its own site hands them out."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from training.classification.questions.answers import normalised
from training.common.errors import DataError
from training.common.rejections import Rejections, Usable

Part = Literal["train2014", "val2014"]


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


class _BrokenQuestionError(Exception):
    """A question that cannot be used, and why."""


def read_questions(folder: Path, part: Part, *, max_rejected: float = 1.0) -> Usable[Question]:
    """Read a part: its questions, its annotations, and where its images lie.

    The files are `v2_OpenEnded_mscoco_PART_questions.json` and `v2_mscoco_PART_annotations.json`, the images
    `PART/COCO_PART_000000000009.jpg`. A question is left out where its text, its answers or its image is
    missing.

    Args:
        folder: Folder of the files.
        part: Part of the data set.
        max_rejected: Largest share of questions that may be left out.

    Raises:
        DataError: A file cannot be read or is another one, or too many questions cannot be used.
    """
    path = folder / f"v2_OpenEnded_mscoco_{part}_questions.json"
    asked = _entries(path, "questions")
    annotations = _entries(folder / f"v2_mscoco_{part}_annotations.json", "annotations")
    answered = {entry.get("question_id"): entry for entry in annotations if isinstance(entry, Mapping)}
    images = {entry.name for entry in (folder / part).glob("*.jpg")}
    rejections = Rejections(len(asked), max_rejected, source=str(path), unit="question")
    items = []
    for number, entry in enumerate(asked, start=1):
        try:
            items.append(_question(entry, answered, images, part))
        except _BrokenQuestionError as error:
            rejections.add(number, str(error))
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


def _question(entry: Any, answered: Mapping[Any, Any], images: set[str], part: Part) -> Question:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("image_id"), int):
        raise _BrokenQuestionError("it names no image")
    text = entry.get("question")
    if not isinstance(text, str) or not text.strip():
        raise _BrokenQuestionError("it asks nothing")
    name = f"COCO_{part}_{entry['image_id']:012}.jpg"
    if name not in images:
        raise _BrokenQuestionError(f"there is no image {part}/{name}")
    annotation: Any = answered.get(entry.get("question_id"))
    try:
        given = tuple(normalised(answer["answer"]) for answer in annotation["answers"])
        most_frequent = normalised(annotation["multiple_choice_answer"])
    except (AttributeError, KeyError, TypeError):
        raise _BrokenQuestionError("its annotation has no answers") from None
    return Question(f"{part}/{name}", text, given, most_frequent)
