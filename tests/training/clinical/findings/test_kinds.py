"""Findings of sentences by kind, of languages that are not read, and of sections of reports."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.training.clinical.findings.measuring import golden, predicted
from training.clinical.findings import find_findings, is_read


def _kinds() -> Iterator[tuple[str, str]]:
    lines = Path(__file__).with_name("kinds.txt").read_text(encoding="utf-8").splitlines()
    for line in lines:
        text, bar, answer = line.partition(" |")
        if bar:
            yield text.replace("\\n", "\n"), answer.strip()


KINDS = tuple(_kinds())


@pytest.mark.parametrize(("text", "answer"), KINDS)
def test_a_sentence_says_what_a_reader_takes_from_it(text: str, answer: str) -> None:
    assert predicted(text) == golden(answer)
    # In capitals, "VA." is no suspicion.
    assert text.startswith("Va.") or predicted(text.upper()) == golden(answer)


def test_the_sentences_differ() -> None:
    texts = [text for text, _ in KINDS]
    assert len(texts) == len(set(texts)) > 600


@pytest.mark.parametrize(
    "text",
    [
        "Pas de pneumothorax.",
        "PAS DE PNEUMOTHORAX",
        "Petit pneumothorax apical gauche.",
        "Coeur de taille normale. Absence d'épanchement pleural. Pas de pneumothorax, de nodule.",
        "Sans pneumothorax ni consolidation.",
        "Nessun pneumothorax.",
        "Non evidenti fractures. Pneumothorax assente a destra.",
        "No se observa neumotórax ni atelectasis.",
        "Sin atelectasis ni consolidation.",
        "Atelectasis basal izquierda, derrame pleural derecho.",
        "Sem pneumothorax.",
        "Er is geen pneumothorax of infiltraat.",
        "Ingen pneumothorax, ingen infiltrat.",
        "Ikke pneumothorax.",
        "Bez pneumothorax.",
        "Pneumothorax yok.",
        "Nincs pneumothorax.",
        "Пневмоторакс не выявлен. Pneumothorax нет.",
        "両側に pneumothorax なし。",
        "未见 pneumothorax 。",
        "기흉 없음 pneumothorax.",
        "Δεν υπάρχει pneumothorax.",
        "لا يوجد pneumothorax",
    ],
)
def test_a_text_in_another_language_is_not_read(text: str) -> None:
    assert not is_read(text)
    assert find_findings(text) == ()


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("LA enlargement, no pneumothorax.", "-pneumothorax"),
        ("ET tube in place. Pneumothorax.", "+support device, +pneumothorax"),
        ("Pleuraerguss sin., Herz vergrößert.", "+pleural effusion, +cardiomegaly"),
        ("Pneumothorax", "+pneumothorax"),
        ("No pneumothorax. Emphysema in α1-antitrypsin deficiency.", "-pneumothorax, +emphysema"),
        ("Zhang Wei 张伟: there has been no pneumothorax.", "-pneumothorax"),
        (
            "Per Dr. du Bois there is no pneumothorax, and the effusion is small.",
            "-pneumothorax, +pleural effusion",
        ),
    ],
)
def test_names_and_abbreviations_make_no_other_language(text: str, answer: str) -> None:
    assert is_read(text)
    assert predicted(text) == golden(answer)


def test_every_recorded_sentence_is_read() -> None:
    assert [text for text, answer in KINDS if answer and not is_read(text)] == []


def test_a_month_is_no_doubt() -> None:
    assert predicted("Since 3 May the effusion has increased.") == golden("+pleural effusion")
    assert predicted("In May 2024 an effusion was drained; no effusion.") >= golden("-pleural effusion")
    assert predicted("Opacity may be pneumonia.") == golden("+lung opacity, ?pneumonia")


def test_a_sentence_in_another_script_leaves_the_others_as_they_are() -> None:
    assert predicted("No pleural effusion. Lungenaufnahme, 右肺3番") == golden("-pleural effusion")
    assert predicted("Mass. 両側に pneumothorax なし。") == golden("+mass")
