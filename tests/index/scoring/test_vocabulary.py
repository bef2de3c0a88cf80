"""Which texts an encoder can read that knows no words but those of the collection's texts."""

import pytest

from index.scoring.vocabulary import Vocabulary

REPORTS = [
    [f"A {size} effusion on the {side} of a man.", f"The heart of a man is {state}."]
    for size in ("large", "small")
    for side in ("left", "right")
    for state in ("enlarged", "normal", "of normal size")
]
CHINESE = [["左侧少量胸腔积液"], ["心脏增大"], ["双肺清晰"], ["右侧大量气胸"]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("large effusion", True),
        ("The enlarged HEART of a man", True),
        ("a photograph of a dog", False),
        ("dog", False),
        ("the man of the match", False),
        ("\N{DOG FACE}", False),
        ("big right effusion", None),
    ],
)
def test_a_text_is_read_by_its_words_and_rare_words_count_more(text: str, expected: bool | None) -> None:
    assert Vocabulary.of(REPORTS).readable(text) is expected


def test_words_are_unread_only_beyond_what_own_texts_have() -> None:
    """Every second own text has a word of its own, so that a query may have one."""
    texts = [[f"a heart of size{number}" if number % 2 else "a heart of normal size"] for number in range(40)]
    vocabulary = Vocabulary.of(texts)
    assert vocabulary.readable("a heart of marble") is True
    assert vocabulary.readable("marble") is False


@pytest.mark.parametrize("texts", [CHINESE, [["words"], ["none", "alike"]], [[], []], []])
def test_texts_without_words_in_common_say_nothing(texts: list[list[str]]) -> None:
    assert Vocabulary.of(texts).readable("a dog") is True
