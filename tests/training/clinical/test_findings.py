"""Findings and labels of reports by the rules: figures on written sentences, offsets, and any text."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.training.clinical.findings import measuring
from tests.training.clinical.findings.measuring import (
    CASES,
    EVERY,
    KINDS,
    PARTS,
    golden,
    predicted,
    read_sentences,
)
from training.clinical.findings import (
    CHEXPERT_LABELS,
    MAX_CHARACTERS,
    STATES,
    Finding,
    are_prior,
    chexpert_labels,
    find_findings,
    image_states,
    unread_words,
)
from training.clinical.text.language import is_read
from training.clinical.text.vocabulary import FINDINGS, finding_called

DOCUMENTED = Path(__file__).resolve().parents[3] / "docs" / "research" / "findings.md"
# Words of the rules, and others, in any order.
_WORDS: Final = (
    ", . ; : ? İ ſ FINDINGS: INDICATION: a no not or and but with of is seen effusion pneumothorax possible "
    "heart enlarged size normal history resolved"
)
WORDS: Final = st.sampled_from(["\n", *_WORDS.split()])


@pytest.mark.parametrize(("part", "least"), list(zip(PARTS, (0.97, 0.95, 0.9, 0.9), strict=True)))
def test_states_are_right_on_written_sentences(part: str, least: float) -> None:
    figures = measuring.precision_and_recall(PARTS[part])
    assert list(figures) == list(STATES)
    assert min(min(pair) for pair in figures.values()) >= least, measuring.wrong(PARTS[part])


def test_the_documented_figures_are_those_of_the_rules() -> None:
    documented = DOCUMENTED.read_text(encoding="utf-8")
    for rows in (measuring.by_state(), measuring.by_finding()):
        assert f"|---|\n{rows}\n" in documented


def test_a_mention_has_the_offsets_of_its_words() -> None:
    text = "No pneumothorax, but a small\npleural effusion. Heart size is normal."
    assert find_findings(text) == (
        Finding("pneumothorax", "absent", 3, 15),
        Finding("pleural effusion", "present", 29, 45),
        Finding("cardiomegaly", "absent", 47, 67),
    )


@pytest.mark.parametrize("text", [text for text, _ in EVERY])
def test_a_sentence_says_the_same_in_capitals_and_beside_others(text: str) -> None:
    assert predicted(text.upper()) == predicted(text)
    # A question mark or a stop ends it; what follows is no part of it.
    before, after = "There is a mass. ", " No hernia."
    if ":" not in text and text[-1] in ".?":
        expected = predicted(text) | {("mass", "present"), ("hernia", "absent")}
        assert predicted(before + text + after) == expected


@given(st.lists(WORDS, max_size=30).map(" ".join) | st.text(max_size=60))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_any_text_has_findings_at_places_in_it(text: str) -> None:
    found = find_findings(text)
    assert [finding.start for finding in found] == sorted(finding.start for finding in found)
    for name, state, start, end in found:
        assert name in FINDINGS
        assert state in STATES
        assert 0 <= start < end <= len(text)
        assert text[start:end] == text[start:end].strip()


@pytest.mark.parametrize("name", FINDINGS)
def test_each_finding_is_called_by_its_name(name: str) -> None:
    assert (name, "present") in predicted(f"There is {name}.")
    assert (name, "absent") in predicted(f"No evidence of {name}.")
    assert (name, "uncertain") in predicted(f"Possible {name}.")
    assert finding_called(f" {name.upper()} ") == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("effusions", "pleural effusion"),
        ("Oedema", "pulmonary edema"),
        ("enlarged heart", "cardiomegaly"),
        ("no effusion", None),
        ("giraffe", None),
        ("", None),
    ],
)
def test_forms_are_other_names(text: str, name: str | None) -> None:
    assert finding_called(text) == name


@pytest.mark.parametrize(
    ("text", "prior"),
    [
        ("No effusion. Unchanged since the last film: a mass. Nodule.", [False, True, False]),
        ("COMPARISON: Prior film.\n\nFINDINGS: Small effusion.", [False]),
        ("Kein Erguss. Im Vergleich zur Voruntersuchung Infiltrat.", [False, True]),
        ("Two dogs.", []),
    ],
)
def test_sentences_on_an_earlier_examination_are_told(text: str, prior: list[bool]) -> None:
    assert are_prior(text, [finding.start for finding in find_findings(text)]) == prior


def test_present_counts_before_uncertain_before_absent() -> None:
    text = "No effusion. Possible effusion. Possible mass. No mass. No hernia. There is effusion."
    states = image_states(find_findings(text))
    assert states == {"pleural effusion": "present", "mass": "uncertain", "hernia": "absent"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("COMPARISON: None. There is a large right effusion.", {"pleural effusion"}),
        ("HISTORY: Fall. TECHNIQUE: AP. Left rib fracture. Mass.", {"fracture", "mass"}),
        ("INDICATION: Pneumonia.\n\nSmall nodule. No mass.", {"nodule", "mass"}),
        ("Technik: p.a. Erguss links.", {"pleural effusion"}),
        ("INDICATION:\n\nPneumonia.\n\nIMPRESSION: Nodule.", {"nodule"}),
        ("INDICATION: Fever. Pneumonia.", set()),
        ("COMPARISON: Film of May. It showed a mass.", set()),
        ("INDICATION: Cough.\n\nPneumonia last year.\n\nFINDINGS: Nodule.", {"nodule"}),
        ("COMPARISON: Film of May. Effusion then. REPORT: Nodule.", {"nodule"}),
    ],
)
def test_a_body_without_a_heading_describes(text: str, found: set[str]) -> None:
    assert {finding.name for finding in find_findings(text)} == found


def test_a_heading_of_history_ends_at_the_next() -> None:
    text = "HISTORY: Cough. Pneumonia in May.\nFINDINGS: No mass. Effusion.\nCOMPARISON: A chest with hernia."
    assert predicted(text) == {("mass", "absent"), ("pleural effusion", "present")}


def test_a_long_text_is_read_up_to_a_limit() -> None:
    one = "no effusion and "
    text = one * (2 * MAX_CHARACTERS // len(one))
    found = find_findings(text)
    assert len(found) == MAX_CHARACTERS // len(one)
    assert {text[finding.start : finding.end] for finding in found} == {"effusion"}


def test_captions_of_photographs_state_nothing() -> None:
    captions = (
        "A mass of people at a port, waiting for the line to move.",
        "Two dogs run through shallow water; a tube lies on the beach.",
        "A drain in a street, with leads, wires and clips.",
    )
    assert [find_findings(caption) for caption in captions] == [()] * 3


def test_no_sentence_is_cut_where_a_number_has_a_point() -> None:
    assert predicted("No nodule above 1.5 cm or mass.") == {("nodule", "absent"), ("mass", "absent")}
    assert predicted("No effusion.Mass.") == {("pleural effusion", "absent"), ("mass", "present")}


@pytest.mark.parametrize(("text", "answer"), KINDS)
def test_a_sentence_says_what_a_reader_takes_from_it(text: str, answer: str) -> None:
    assert predicted(text) == golden(answer)
    # In capitals, "VA." is no suspicion.
    assert text.startswith("Va.") or predicted(text.upper()) == golden(answer)


@pytest.mark.parametrize("text", [text for kind, text, _ in CASES if kind == "Other languages"])
def test_a_text_in_another_language_is_not_read(text: str) -> None:
    assert not is_read(text)
    assert find_findings(text) == ()


def test_every_other_recorded_sentence_is_read() -> None:
    assert [text for text, answer in KINDS if answer and not is_read(text)] == []


def test_a_month_is_no_doubt() -> None:
    assert predicted("Since 3 May the effusion has increased.") == golden("+pleural effusion")
    assert predicted("In May 2024 an effusion was drained; no effusion.") >= golden("-pleural effusion")
    assert predicted("Opacity may be pneumonia.") == golden("+lung opacity, ?pneumonia")


def test_a_sentence_in_another_script_leaves_the_others_as_they_are() -> None:
    assert predicted("No pleural effusion. Lungenaufnahme, 右肺3番") == golden("-pleural effusion")
    assert predicted("Mass. 両側に pneumothorax なし。") == golden("+mass")


# Everyday reports: abbreviations, misspelt words, sides, templates and denials.

Pairs = set[tuple[str, str]]


class Sentence(NamedTuple):
    """A sentence of field.txt; `part` is who wrote it when, `normal` whether "No Finding" is said."""

    part: str
    text: str
    pairs: Pairs
    normal: bool


def _sentences() -> Iterator[Sentence]:
    for heading, text, answer in read_sentences("field.txt"):
        part = heading.rpartition(", ")[2]
        pairs = golden(answer.removesuffix("NF").rstrip(", "))
        yield Sentence(part, text, pairs, answer.endswith("NF"))


FIELD: Final = tuple(_sentences())


def _said(text: str) -> Pairs:
    return set(image_states(find_findings(text)).items())


def _wrong(sentences: tuple[Sentence, ...]) -> str:
    return "\n".join(
        f"{one.text!r}: {_said(one.text) ^ one.pairs}" for one in sentences if _said(one.text) != one.pairs
    )


@pytest.mark.parametrize("part", sorted({one.part for one in FIELD}))
def test_states_are_right_in_nineteen_of_twenty(part: str) -> None:
    own = tuple(one for one in FIELD if one.part == part)
    right = sum(len(_said(one.text) & one.pairs) for one in own)
    assert right >= 0.95 * sum(len(_said(one.text)) for one in own), _wrong(own)
    assert right >= 0.95 * sum(len(one.pairs) for one in own), _wrong(own)


def test_present_and_absent_are_not_exchanged() -> None:
    other = {"present": "absent", "absent": "present"}
    exchanged = [
        (one.text, name)
        for one in FIELD
        for name, state in _said(one.text)
        if (name, other.get(state)) in one.pairs
    ]
    assert len(exchanged) <= 1, exchanged


@pytest.mark.slow
def test_no_finding_is_never_said_where_something_is_there() -> None:
    written = [(text, golden(answer)) for text, answer in (*KINDS, *EVERY)]
    wrong = [
        text
        for text, pairs in (*((one.text, one.pairs) for one in FIELD), *written)
        if "No Finding" in chexpert_labels(text) and any(state != "absent" for _, state in pairs)
    ]
    assert wrong == []


def test_no_finding_is_said_where_the_text_says_so_and_nowhere_else() -> None:
    said = {one.text: "No Finding" in chexpert_labels(one.text) for one in FIELD}
    assert [one.text for one in FIELD if said[one.text] != one.normal] == []
    # What is left out is not denied.
    for text in (
        "Patient with effusion. No pneumothorax.",
        "Lungs are clear. CT to exclude a nodule.",
        "No change.",
    ):
        assert "No Finding" not in chexpert_labels(text)


@pytest.mark.parametrize(
    "text",
    [
        "Perfusion, infusion, transfusion, suffusion and diffusion.",
        "The lungs are hypoinflated; the left hemithorax is small.",
        "Specification, clarification and pacification of a peacemaker.",
        "Verwaltung, Verpackung, Aufforderung und Verschrottung.",
        "In 2.5 CM steps; 12 cm of PE foil, and 3 PPM of lead.",
        "Atelectasia basal.",
    ],
)
def test_words_that_are_only_alike_are_no_findings(text: str) -> None:
    assert find_findings(text) == ()


def test_offsets_are_those_of_the_text_as_it_is_typed() -> None:
    text = "[ ] PTX [x] Effussion\nHeart: enlarged, w/o focalconsolidation."
    found = {finding.name: text[finding.start : finding.end] for finding in find_findings(text)}
    assert found == {
        "pneumothorax": "PTX",
        "pleural effusion": "Effussion",
        "cardiomegaly": "Heart: enlarged",
        "consolidation": "focalconsolidation",
    }


def test_words_that_no_rule_knows_are_named_once() -> None:
    assert unread_words("Blorf, and a glibber. No PTX, small blorf.") == ("Blorf", "glibber", "blorf")
    assert unread_words("INDICATION: blorf\nFINDINGS: The lungs are clear. No effusion.") == ()
    assert unread_words("The lungs are not clear.") == ("not clear",)


# Labels of CheXpert.

_CODES: Final = ("NF", "EC", "CM", "LL", "LO", "ED", "CO", "PN", "AT", "PX", "PE", "PO", "FX", "SD")
_LABEL: Final = dict(zip(_CODES, CHEXPERT_LABELS, strict=True))
_LABEL_STATE: Final = dict(zip("+?-N", (*STATES, "present"), strict=True))
LABELS: Final = tuple(
    (text, {_LABEL[one[-2:]]: _LABEL_STATE[one[0]] for one in answer.split(", ") if one})
    for _, text, answer in read_sentences("labels.txt")
)


@pytest.mark.parametrize(("text", "labels"), LABELS)
def test_a_sentence_has_the_labels_that_a_reader_gives_it(text: str, labels: dict[str, str]) -> None:
    assert chexpert_labels(text) == labels


def test_labels_come_in_the_order_of_the_data_set() -> None:
    labels = list(chexpert_labels("Pacemaker. Effusion. No pneumothorax. Cardiomegaly."))
    assert labels == ["Cardiomegaly", "Pneumothorax", "Pleural Effusion", "Support Devices"]


@pytest.mark.parametrize("text", ["", " \n", "FINDINGS:\nIMPRESSION:", "INDICATION: Cough.", "___."])
def test_a_text_that_describes_nothing_has_no_labels(text: str) -> None:
    assert chexpert_labels(text) == {}
