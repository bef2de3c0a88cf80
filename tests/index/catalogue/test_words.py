"""The words of texts and queries in every script, their number, and their places in a text."""

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from index.catalogue import words
from tests.index.catalogue.scripts import multilingual


@pytest.mark.parametrize(
    ("text", "expected"),
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
def test_pieces_golden(text: str, expected: list[str]) -> None:
    assert words.pieces(text) == expected


@pytest.mark.parametrize(
    ("text", "others"),
    # Another sound, no accent.
    [("か", "が"), ("ハ", "パ"), ("가", "각"), ("ป่า", "ป้า"), ("कि", "की")],
)
def test_marks_that_make_another_word_are_kept(text: str, others: str) -> None:
    assert words.fold(text) != words.fold(others)


@given(multilingual)
def test_an_aligned_fold_is_the_fold(text: str) -> None:
    folded = words.fold_aligned(text)
    assert folded.text == words.fold(text)
    assert len(folded.starts) == len(folded.ends) == len(folded.text)
    for starts in (folded.starts, folded.ends):
        assert starts == sorted(starts)
    for number, (start, end) in enumerate(zip(folded.starts, folded.ends, strict=True)):
        assert folded.text[number] in words.fold(text[start:end])


@given(multilingual)
def test_words_do_not_depend_on_what_is_around_them(text: str) -> None:
    folded = words.fold(text)
    for word in words.split_words(folded):
        assert folded[word.start : word.end] == word.text
        assert [(result.text, result.unspaced) for result in words.split_words(f"a {word.text} b")][1:-1] == [
            (word.text, word.unspaced)
        ]


@given(multilingual)
def test_pieces_are_no_more_than_characters_and_short(text: str) -> None:
    result = words.pieces(text)
    assert len(result) <= len(words.fold(text))
    assert all(0 < len(piece) <= words.MAX_WORD_LENGTH and " " not in piece for piece in result)
    assert words.indexed_pieces(words.indexed_text(text)) == result


def test_an_image_with_too_many_different_pairs_is_cut() -> None:
    letters = "".join(chr(0x20000 + number % 50_000) for number in range(2 * words.MAX_CHARACTERS))
    assert words.indexed_text(letters) == letters[: 3 * words.MAX_CHARACTERS // 4]
    # 50,000 different pairs of 12 bytes, a place of 2 bytes for each character, and the last one by itself.
    assert words.indexed_text(letters[:199_996]) == letters[:199_996]
    assert words.indexed_text(letters[:199_997]) == letters[:149_997]
    usual = "胸水はありません。" * (words.MAX_CHARACTERS // 9)
    assert words.indexed_text(usual) == usual


def test_runs_longer_than_a_pair_are_kept_for_phrases() -> None:
    assert words.runs(words.fold("CT検査で浸潤影、胸水 ปอดบวม")) == "検査で浸潤影 ปอดบวม"


@pytest.mark.parametrize(
    ("text", "requested", "marked"),
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
def test_spans_golden(text: str, requested: str, marked: list[str]) -> None:
    assert [text[start:end] for start, end in words.matched_spans(text, requested)] == marked


@given(multilingual, multilingual)
def test_spans_are_in_order_and_apart_and_there_where_a_text_matches(text: str, asked: str) -> None:
    spans = words.matched_spans(text, asked)
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert words.parse_words(asked).matches(text) == bool(spans)
    assert bool(words.matched_spans(asked, asked)) == bool(words.tokens(asked))


@given(multilingual)
def test_every_word_of_a_text_is_marked_in_it(text: str) -> None:
    folded = words.fold_aligned(text)
    for word in words.split_words(folded.text):
        spans = words.matched_spans(text, word.text)
        first, last = folded.starts[word.start], folded.ends[word.end - 1]
        assert any(start <= first and last <= end for start, end in spans)


@given(multilingual)
def test_any_part_of_a_run_is_found_in_it(text: str) -> None:
    for word in words.split_words(words.fold(text)):
        if word.unspaced:
            for part in (word.text[:1], word.text[1:3], word.text[-2:]):
                assert not part or words.parse_words(part).matches(text)


def test_a_run_counts_as_a_word_for_each_32_characters() -> None:
    assert words.parse_words("胸水 胸水 effusion").size == 2
    assert words.parse_words("肺" * 32).size == 1
    assert words.parse_words("肺" * 33).size == 2
    assert words.parse_words("左侧胸腔积液心影增大双肺未见明显结节" * 50).size < words.MAX_WORDS


@pytest.mark.parametrize(
    "pair",
    [
        *("effusion effusions", "mass masses", "opacity opacities", "leaf leaves", "knife knives"),
        *("metastasis metastases", "bronchus bronchi", "bulla bullae", "diverticulum diverticula"),
        *("woman women", "child children", "person people", "Erguss Ergüsse", "Erguß Ergüsse"),
        *("Rundherd Rundherde", "Fraktur Frakturen", "Lunge Lungen", "Bild Bilder", "Thrombose Thrombosen"),
        *("Thrombus Thromben", "Patientin Patientinnen"),
    ],
)
def test_either_number_finds_the_other(pair: str) -> None:
    singular, plural = words.fold(pair).split()
    assert plural in words.inflections(singular)
    assert singular in words.inflections(plural)


@pytest.mark.parametrize(
    ("word", "other"),
    [("mass", "mas"), ("the", "then"), ("cat", "cate"), ("as", "a"), ("caf", "cafe"), ("normal", "abnormal")],
)
def test_other_words_are_no_inflections(word: str, other: str) -> None:
    assert other not in words.inflections(word)
    assert word not in words.inflections(other)


def test_a_word_of_a_query_is_looked_up_in_all_its_forms() -> None:
    forms = [" ".join(words.parse_words(word).words[0].inflections) for word in ("arm", "true")]
    assert forms == ["arms armes", "trues truees truee trueen trueer truen truese tru trus"]
    result = words.parse_words("as выпота лега t2").words
    assert [word.beginnings for word in result] == [("выпот",), ("лега",), ()]


@pytest.mark.parametrize(
    ("fits", "right", "wrong"),
    [
        (words.is_compound, f"herzens ct1 ct55 выпо выпот7 {'a' * 60}", f"herzen ct c55 вып 肺炎 {'a' * 61}"),
        (lambda word: words.has_beginning(word, "ctr"), "ctr55", "ctr ctrx xctr5"),
        (lambda word: words.has_beginning(word, "выпот"), "выпота выпот7 выпотабвг", "выпотабвгд"),
        (lambda word: words.has_beginning(word, "вып"), "вып7", "выпо"),
        (lambda word: words.has_part(word, "herz"), "herzens antherz nonherzherz", "herzen abherz nonherz"),
    ],
)
def test_how_long_words_have_to_be(fits: Callable[[str], bool], right: str, wrong: str) -> None:
    assert [word for word in [*right.split(), *wrong.split()] if fits(word)] == right.split()


def test_words_of_other_letters_and_numbers_have_no_endings() -> None:
    for word in ("выпот", "胸水", "2026", "t2w"):
        assert words.inflections(word) == []
        assert words.stems(word) == []


@pytest.mark.parametrize(
    ("word", "compound", "is_part"),
    [
        ("Erguss", "Pleuraerguss", True),
        ("Ergüsse", "Pleuraerguss", True),
        ("Erguss", "Pleuraergüsse", True),
        ("Erguss", "Pleuraergussbildung", True),
        ("Herz", "Herzschatten", True),
        ("Lunge", "Lungenödem", True),
        ("Fraktur", "Rippenserienfraktur", True),
        ("normal", "abnormal", False),
        ("auffällig", "unauffällig", False),
        ("specific", "nonspecific", False),
        ("heart", "hearts", False),
        ("arm", "Oberarm", False),
    ],
)
def test_parts_of_compounds(word: str, compound: str, is_part: bool) -> None:
    word, compound = words.fold(word), words.fold(compound)
    assert words.is_compound(compound) or not is_part
    assert any(words.has_part(compound, stem) for stem in words.stems(word)) is is_part


def test_the_places_of_another_spelling_are_marked() -> None:
    assert words.matched_spans("Ein Roentgen, ein Röntgen.", "Röntgen") == [(4, 12), (18, 25)]
    assert words.matched_spans("Lungenoedem", "Ödem") == [(0, 11)]


@given(st.text(alphabet="aouäöüÄÖÜeiqnrß \u0308\u0301-胸水", max_size=60))
def test_each_word_is_looked_for_in_a_few_spellings(asked: str) -> None:
    query = words.parse_words(asked)
    assert all(word.text not in word.inflections for word in query.words)
    assert all(len(word.inflections) <= 80 for word in query.words)
