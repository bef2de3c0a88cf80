"""Answers in one form, those to choose from, and their soft scores."""

import pytest

from training.classification.questions.answers import answer_vocabulary, normalised, soft_scores


@pytest.mark.parametrize(
    ("answer", "form"),
    [
        ("The Dog.", "dog"),
        ("two", "2"),
        ("None", "0"),
        ("a red, blue and white flag", "red blue and white flag"),
        ("1,000", "1000"),
        ("3.5 feet", "3.5 feet"),
        ("t-shirt/jeans", "t shirt jeans"),
        ("one-way", "1 way"),
        ("don't know", "don't know"),
        ("  ", ""),
    ],
)
def test_answers_are_brought_to_one_form(answer: str, form: str) -> None:
    assert normalised(answer) == form
    assert normalised(form) == form


def test_usual_answers_are_those_of_enough_questions_the_most_usual_first() -> None:
    most_frequent = ["yes"] * 4 + ["no"] * 3 + ["2"] * 3 + ["blue"] * 2
    assert answer_vocabulary(most_frequent, 3) == ("yes", "2", "no")
    assert answer_vocabulary(most_frequent, 5) == ()


def test_three_people_make_an_answer_right() -> None:
    given = ["yes"] * 5 + ["no"] * 2 + ["maybe"] + ["unusual"] * 2
    scores = soft_scores(given, {"no": 0, "yes": 1, "maybe": 2, "never": 3})
    assert scores.tolist() == pytest.approx([2 / 3, 1, 1 / 3, 0])
