"""Folders of VQA v2: what is read, and what is said of broken ones."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.training.classification.questions.samples import annotation, write_part, write_vqa
from training.classification.questions.vqa import Question, read_questions
from training.common.errors import DataError


def test_questions_have_their_image_and_answers(tmp_path: Path) -> None:
    found = read_questions(write_vqa(tmp_path, train=2, val=1), "train2014")
    assert len(found.items) == 4
    assert found.items[3] == Question(
        "train2014/COCO_train2014_000000000001.jpg",
        "What colour is it?",
        ("green", "green", "green", "strange answer"),
        "green",
    )
    assert found.items[2].answer == "yes"


def test_broken_questions_are_left_out_by_number(tmp_path: Path) -> None:
    write_vqa(tmp_path, train=2)
    good = {"image_id": 0, "question": "Is it bright?", "question_id": 0}
    changes: list[dict[str, Any]] = [{"question": " "}, {"image_id": 9}, {"question_id": 5}]
    broken: list[Any] = [*({**good, **change} for change in changes), {}, 7]
    write_part(tmp_path, "train2014", [good, *broken], [annotation(0, ["yes"]), {"question_id": 5}])
    found = read_questions(tmp_path, "train2014", max_rejected=1)
    assert len(found.items) == 1
    assert [(item.line, item.reason) for item in found.rejections.items] == [
        (2, "it asks nothing"),
        (3, "there is no image train2014/COCO_train2014_000000000009.jpg"),
        (4, "its annotation has no answers"),
        (5, "it names no image"),
        (6, "it names no image"),
    ]
    with pytest.raises(DataError, match="Too much"):
        read_questions(tmp_path, "train2014", max_rejected=0.01)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        ("{", "is not JSON"),
        ("[]", "no list 'annotations'"),
        ('{"annotations": 3}', "no list 'annotations'"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, content: str | None, message: str) -> None:
    write_vqa(tmp_path, val=1)
    path = tmp_path / "v2_mscoco_val2014_annotations.json"
    path.unlink()
    if content is not None:
        path.write_text(content)
    with pytest.raises(DataError, match=rf"v2_mscoco_val2014_annotations\.json.*{message}"):
        read_questions(tmp_path, "val2014")


def test_a_part_without_questions_is_named(tmp_path: Path) -> None:
    write_vqa(tmp_path, val=1)
    path = tmp_path / "v2_OpenEnded_mscoco_val2014_questions.json"
    path.write_text(json.dumps({"questions": []}))
    with pytest.raises(DataError, match="has no question"):
        read_questions(tmp_path, "val2014")
