"""The words of texts in every script."""

import pytest
from hypothesis import given

from index.catalogue.words import (
    MAX_CHARACTERS,
    MAX_WORD_LENGTH,
    fold,
    fold_aligned,
    indexed_pieces,
    indexed_text,
    pieces,
    runs,
    split_words,
)
from tests.index.catalogue.full_text.scripts import multilingual


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Kein Pleuraerguß, 3.5 cm", ["kein", "pleuraerguss", "3", "5", "cm"]),
        ("複雑CT検査", ["複雑", "雑", "ct", "検査", "査"]),
        ("肺", ["肺"]),
        ("浸潤影を", ["浸潤", "潤影", "影を", "を"]),
        ("レントゲン・ｶﾞﾝ", ["レン", "ント", "トゲ", "ゲン", "ン", "ガン", "ン"]),
        ("흉수가 있음", ["흉수", "수가", "가", "있음", "음"]),
        ("ปอด2ข้าง", ["ปอ", "อด", "ด", "2", "ข้", "้า", "าง", "ง"]),
        ("二〇二六年1月", ["二〇", "〇二", "二六", "六年", "年", "1", "月"]),
        ("हृदय सामान्य है।", ["हृदय", "सामान्य", "है"]),
        ("Лёгкие чистые", ["легкие", "чистые"]),
        ("قَلْب", ["قلب"]),
        ("ＰＡ　㎝ ﬁlm café CAFE\u0301 İ", ["pa", "cm", "film", "cafe", "cafe", "i"]),
        ("Pleura\u00aderguss", ["pleuraerguss"]),
        ("snake_case a/b x.Y", ["snake", "case", "a", "b", "x", "y"]),
        ("*-。、\u200b", []),
    ],
)
def test_pieces_golden(text: str, found: list[str]) -> None:
    assert pieces(text) == found


@pytest.mark.parametrize(
    ("text", "others"),
    [
        ("か", "が"),  # Another sound, no accent.
        ("ハ", "パ"),
        ("가", "각"),
        ("ป่า", "ป้า"),
        ("कि", "की"),
    ],
)
def test_marks_that_make_another_word_are_kept(text: str, others: str) -> None:
    assert fold(text) != fold(others)


@given(multilingual)
def test_an_aligned_fold_is_the_fold(text: str) -> None:
    folded = fold_aligned(text)
    assert folded.text == fold(text)
    assert len(folded.starts) == len(folded.ends) == len(folded.text)
    for starts in (folded.starts, folded.ends):
        assert starts == sorted(starts)
    for number, (start, end) in enumerate(zip(folded.starts, folded.ends, strict=True)):
        assert folded.text[number] in fold(text[start:end])


@given(multilingual)
def test_words_do_not_depend_on_what_is_around_them(text: str) -> None:
    folded = fold(text)
    for word in split_words(folded):
        assert folded[word.start : word.end] == word.text
        assert [(found.text, found.unspaced) for found in split_words(f"a {word.text} b")][1:-1] == [
            (word.text, word.unspaced)
        ]


@given(multilingual)
def test_pieces_are_no_more_than_characters_and_short(text: str) -> None:
    found = pieces(text)
    assert len(found) <= len(fold(text))
    assert all(0 < len(piece) <= MAX_WORD_LENGTH and " " not in piece for piece in found)
    assert indexed_pieces(indexed_text(text)) == found


def test_an_image_with_too_many_different_pairs_is_cut() -> None:
    letters = "".join(chr(0x20000 + number % 50_000) for number in range(2 * MAX_CHARACTERS))
    kept = indexed_text(letters)
    assert letters.startswith(kept)
    assert 50_000 < len(kept) < MAX_CHARACTERS
    usual = "胸水はありません。" * (MAX_CHARACTERS // 9)
    assert indexed_text(usual) == usual


def test_runs_longer_than_a_pair_are_kept_for_phrases() -> None:
    assert runs(fold("CT検査で浸潤影、胸水 ปอดบวม")) == "検査で浸潤影 ปอดบวม"
