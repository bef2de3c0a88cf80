"""Words of a query, and their places in a text."""

from itertools import pairwise

import pytest
from hypothesis import given

from index.catalogue.words import (
    MAX_WORDS,
    fold,
    fold_aligned,
    matched_spans,
    parse_words,
    split_words,
    tokens,
)
from tests.index.catalogue.full_text.scripts import multilingual


@pytest.mark.parametrize(
    ("text", "words", "marked"),
    [
        ("Small effusions, no EFFUSION.", "effusion", ["effusions", "EFFUSION"]),
        ("Kein Pleuraerguss, kleine Ergüsse.", "Erguss", ["Pleuraerguss", "Ergüsse"]),
        ("右肺に浸潤影、右肺門", "右肺", ["右肺", "右肺"]),
        ("肺肺肺", "肺肺", ["肺肺肺"]),
        ("複雑CT検査", "ct 査", ["CT", "査"]),
        ("ＣＴ と Cafe\u0301 と 12 ㎝", "ct café cm", ["ＣＴ", "Cafe\u0301", "㎝"]),
        ("ｶﾞﾝ", "ガン", ["ｶﾞﾝ"]),
        ("น้ำในปอด", "น้ำ ปอด", ["น้ำ", "ปอด"]),
        ("흉수가 있음", "흉수", ["흉수"]),
        ("dogs_and cats", "dog", ["dogs"]),
        ("a dog", "", []),
        ("a dog on the sofa", "a fractured femur", []),
        ("The dog", "a DOG of the cat", ["dog"]),
        ("No mass in the lung", "no mass in it", ["No", "mass"]),
        ("Der Hund mit einem Ball", "der", ["Der"]),
        ("a dog", "cat -- ?", []),
        ("", "dog", []),
    ],
)
def test_spans_golden(text: str, words: str, marked: list[str]) -> None:
    assert [text[start:end] for start, end in matched_spans(text, words)] == marked


@given(multilingual, multilingual)
def test_spans_are_in_order_and_apart_and_there_where_a_text_matches(text: str, words: str) -> None:
    spans = matched_spans(text, words)
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert parse_words(words).matches(text) == bool(spans)
    assert bool(matched_spans(words, words)) == bool(tokens(words))


@given(multilingual)
def test_every_word_of_a_text_is_marked_in_it(text: str) -> None:
    folded = fold_aligned(text)
    for word in split_words(folded.text):
        spans = matched_spans(text, word.text)
        first, last = folded.starts[word.start], folded.ends[word.end - 1]
        assert any(start <= first and last <= end for start, end in spans)


@given(multilingual)
def test_any_part_of_a_run_is_found_in_it(text: str) -> None:
    for word in split_words(fold(text)):
        if word.unspaced:
            for part in (word.text[:1], word.text[1:3], word.text[-2:]):
                assert not part or parse_words(part).matches(text)


def test_a_run_counts_as_a_word_for_each_32_characters() -> None:
    assert parse_words("胸水 胸水 effusion").size == 2
    assert parse_words("肺" * 32).size == 1
    assert parse_words("肺" * 33).size == 2
    assert parse_words("左侧胸腔积液心影增大双肺未见明显结节" * 50).size < MAX_WORDS
