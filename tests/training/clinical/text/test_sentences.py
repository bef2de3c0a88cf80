"""The splitting of reports into sentences."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.clinical.reports.documents import cases
from training.clinical.text.sentences import report_sentences, sentence_spans, split_sentences


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


@pytest.mark.parametrize(("text", "sentences"), [("", ""), *cases("sentences")])
def test_sentences(text: str, sentences: str) -> None:
    assert split_sentences(text) == tuple(filter(None, sentences.split(" / ")))


@pytest.mark.parametrize("text", [text for text, _ in cases("one sentence")])
def test_abbreviations_numbers_and_names_end_no_sentence(text: str) -> None:
    assert split_sentences(text) == (text,)


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
    found = [text[start:end] for start, end in sentence_spans(text)]
    assert found == ["Small  effusion.", "No\nsmall effusion.", "OK.", "Small effusion."]
