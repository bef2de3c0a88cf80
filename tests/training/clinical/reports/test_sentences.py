"""The splitting of reports into sentences."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.clinical.reports.documents import cases
from training.clinical.reports.sentences import report_sentences, sentence_places, split_sentences


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", ()),
        ("The heart is\n normal.  No effusion.", ("The heart is normal.", "No effusion.")),
        ("Nodule of 3.5 cm. Stable.", ("Nodule of 3.5 cm.", "Stable.")),
        ("Cardiomegaly. Normal.", ("Cardiomegaly.", "Normal.")),
        ("Effusion. Pneumonia. Heart size is normal.", ("Effusion.", "Pneumonia.", "Heart size is normal.")),
        ("Ödem. V. a. Pneumonie. Z. n. OP.", ("Ödem.", "V. a. Pneumonie.", "Z. n. OP.")),
        ("FINDINGS. Effusion. Befund:", ("Effusion.",)),
        ("1. Edema is present. 2. Small effusion.", ("Edema is present.", "Small effusion.")),
        ("Seen by Dr. Who at 3 p.m. No change seen.", ("Seen by Dr. Who at 3 p.m. No change seen.",)),
        (
            "Edema vs. Pneumonia. Is it worse? Yes it is!",
            ("Edema vs. Pneumonia.", "Is it worse?", "Yes it is!"),
        ),
        ("Compared to ___. ___ is clear now.", ("Compared to ___.", "___ is clear now.")),
        ("- Right effusion. - Left nodule.", ("Right effusion.", "Left nodule.")),
        ("no full stop at all", ("no full stop at all",)),
        ("___. 12. OK.", ()),
        ("PTX. No eff. PNA.", ("PTX.", "No eff.", "PNA.")),
        ("흉수는 없습니다. 심장은 정상입니다.", ("흉수는 없습니다.", "심장은 정상입니다.")),
        ("Плеврального выпота нет. Отёка нет.", ("Плеврального выпота нет.", "Отёка нет.")),
        ("Δεν υπάρχει συλλογή. Η καρδιά.", ("Δεν υπάρχει συλλογή.", "Η καρδιά.")),
        # A unit, and a number where no ordinal can be, end a sentence.
        ("Contrast after 5 min. No leak is seen.", ("Contrast after 5 min.", "No leak is seen.")),
        ("Unchanged since day 3. No effusion is seen.", ("Unchanged since day 3.", "No effusion is seen.")),
    ],
)
def test_sentences(text: str, sentences: tuple[str, ...]) -> None:
    assert split_sentences(text) == sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["両肺に結節を認めます。", "胸水はありません！", "心拡大は？", "所見なし。"],
        # Full and half width.
        ["右侧气胸\uff0e", "左肺清晰\uff61", "心影增大"],
        ["サイズは１\uff0e５ｃｍです\uff0e", "増大なし\uff0e"],
        ["右肺积液.", "心影增大.", "双肺清晰."],
        # A mark in quotes ends what is quoted.
        ["「胸水なし。」と記載あり。", "変化なし。"],
        ["फेफड़े साफ़ हैं।", "हृदय सामान्य है।"],
    ],
)
@pytest.mark.parametrize("between", ["", " "])
def test_marks_of_other_scripts_need_no_space(sentences: list[str], between: str) -> None:
    assert split_sentences(between.join(sentences)) == tuple(sentences)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Small effusion on the left.IMPRESSION: Edema of both lungs.", 2),
        ("no effusion.heart size is normal.lungs are clear.", 3),
        ("Kein Erguss links.Herz nicht vergrößert.", 2),
        ("Kein Erguss.Herz normal.Kein Infiltrat, z.B.Pneumonie, d.h.Lunge frei.", 3),
    ],
)
def test_a_full_stop_between_words_ends_a_sentence(text: str, sentences: int) -> None:
    found = split_sentences(text)
    assert len(found) == sentences
    assert "".join(found) == text


@pytest.mark.parametrize("text", [text for text, _ in cases("one sentence")])
def test_abbreviations_numbers_and_names_end_no_sentence(text: str) -> None:
    assert split_sentences(text) == (text,)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("1. No acute process\n2. Stable nodule", ("No acute process", "Stable nodule")),
        ("1.右肺結節\n2、左胸水\n③心拡大", ("右肺結節", "左胸水", "心拡大")),
        ("(1) Right effusion\n(2) Left nodule", ("Right effusion", "Left nodule")),
        ("No effusion seen\n\nThe heart is normal", ("No effusion seen", "The heart is normal")),
        ("胸水は\n  認めません。", ("胸水は認めません。",)),
        ("Fraktur der\n3. Rippe links", ("Fraktur der 3. Rippe links",)),
        ("measured at\n1.5 cm before", ("measured at 1.5 cm before",)),
    ],
)
def test_items_and_paragraphs_are_apart_and_lines_are_joined(text: str, sentences: tuple[str, ...]) -> None:
    assert split_sentences(text) == sentences


@pytest.mark.parametrize(
    ("text", "is_kept"),
    [
        *(("肺炎。", True), ("흉수", True), ("ปอด", True), ("Норма.", True), ("Кардиомегалия.", True)),
        *(("無。", False), ("Да.", False)),
    ],
)
def test_two_letters_say_something_where_words_have_no_spaces(text: str, is_kept: bool) -> None:
    assert split_sentences(text) == ((text,) if is_kept else ())


@given(st.text(alphabet="aAé1 .!?\n胸水。．ก()-", max_size=60) | st.text(max_size=60))
def test_sentences_of_any_text_are_parts_of_it_in_order(text: str) -> None:
    signs = iter("".join(text.split()))
    for sentence in split_sentences(text):
        assert sentence == sentence.strip()
        # Takes from `signs` up to each sign that is found.
        assert all(sign in signs for sign in "".join(sentence.split()))


@pytest.mark.slow
@pytest.mark.parametrize(
    "piece", ["aa.", "aA.", "\n", "\n1. ", "。", "．1", "胸\n", "a_.", "der 3. ", "1.胸"]
)
def test_takes_no_more_than_linear_time(piece: str) -> None:
    text = piece * (200_000 // len(piece))
    begin = time.process_time()
    split_sentences(text)
    assert time.process_time() - begin < 4.0


def test_sections_are_joined_without_repeats() -> None:
    sections = ["Clear lungs. No effusion.", "No effusion. Stable heart."]
    assert report_sentences(sections) == ("Clear lungs.", "No effusion.", "Stable heart.")


def test_sentences_have_places_whatever_is_between_them_and_their_words() -> None:
    text = "1. Small  effusion.\n2. No\nsmall effusion. OK.\n\nSmall effusion."
    found = [text[start:end] for start, end in sentence_places(text)]
    assert found == ["Small  effusion.", "No\nsmall effusion.", "OK.", "Small effusion."]
