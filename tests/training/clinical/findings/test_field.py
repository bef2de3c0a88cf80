"""Findings in sentences of everyday reports: abbreviations, misspelt words, sides, templates and denials."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

import pytest

from tests.training.clinical.findings.measuring import EVERY, KINDS, golden, read_sentences
from training.clinical.findings import chexpert_labels, find_findings, image_states, unread_words

Pairs = set[tuple[str, str]]


class Sentence(NamedTuple):
    """A sentence of field.txt; `part` is who wrote it when, `normal` whether "No Finding" is said."""

    part: str
    kind: str
    text: str
    pairs: Pairs
    normal: bool


def _sentences() -> Iterator[Sentence]:
    for heading, text, answer in read_sentences("field.txt"):
        kind, _, part = heading.rpartition(", ")
        pairs = golden(answer.removesuffix("NF").rstrip(", "))
        yield Sentence(part, kind, text, pairs, answer.endswith("NF"))


FIELD: Final = tuple(_sentences())
PARTS: Final = (
    "first held own later second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth"
)


def _said(text: str) -> Pairs:
    return set(image_states(find_findings(text)).items())


def _wrong(sentences: tuple[Sentence, ...]) -> str:
    return "\n".join(
        f"{one.text!r}: {_said(one.text) ^ one.pairs}" for one in sentences if _said(one.text) != one.pairs
    )


@pytest.mark.parametrize("part", PARTS.split())
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


def test_there_are_twelve_sentences_of_each_kind() -> None:
    counts = Counter(one.kind for one in FIELD)
    assert len(counts) == 15
    assert min(counts.values()) >= 12, counts
    assert len({one.text for one in FIELD}) == len(FIELD) > 650
    german = re.compile(r"\b(?:und|kein\w*|links|rechts|nicht|ein\w*|der|im)\b", re.IGNORECASE)
    assert len([one for one in FIELD if german.search(one.text)]) > 120


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
