"""Which texts are of the words of a collection's texts and labels."""

import pytest

from index.scoring import Vocabulary

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
        ("big right effusion", False),
    ],
)
def test_a_text_is_known_by_its_words_and_rare_words_count_more(text: str, expected: bool) -> None:
    assert Vocabulary.of(REPORTS).knows(text) is expected


def test_words_are_unknown_only_beyond_what_own_texts_have() -> None:
    """Every second own text has a word of its own, so that a query may have one."""
    texts = [[f"a heart of size{number}" if number % 2 else "a heart of normal size"] for number in range(40)]
    vocabulary = Vocabulary.of(texts)
    assert vocabulary.knows("a heart of marble") is True
    assert vocabulary.knows("marble") is False


@pytest.mark.parametrize("texts", [CHINESE, [["words"], ["none", "alike"]], [[], []], []])
def test_texts_without_words_in_common_say_nothing(texts: list[list[str]]) -> None:
    assert Vocabulary.of(texts).knows("a dog") is True
