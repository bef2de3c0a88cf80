"""Labels of CheXpert from sentences of reports, by label and state."""

from collections import Counter
from typing import Final

import pytest

from tests.training.clinical.findings.measuring import read_sentences
from training.clinical.findings import CHEXPERT_LABELS, STATES, chexpert_labels

_CODES: Final = ("NF", "EC", "CM", "LL", "LO", "ED", "CO", "PN", "AT", "PX", "PE", "PO", "FX", "SD")
_LABEL: Final = dict(zip(_CODES, CHEXPERT_LABELS, strict=True))
_STATE: Final = dict(zip("+?-N", (*STATES, "present"), strict=True))
GOLDEN: Final = tuple(
    (text, {_LABEL[one[-2:]]: _STATE[one[0]] for one in answer.split(", ") if one})
    for _, text, answer in read_sentences("labels.txt")
)


@pytest.mark.parametrize(("text", "labels"), GOLDEN)
def test_a_sentence_has_the_labels_that_a_reader_gives_it(text: str, labels: dict[str, str]) -> None:
    assert chexpert_labels(text) == labels


def test_every_label_has_sentences_in_every_state() -> None:
    counts = Counter(pair for _, labels in GOLDEN for pair in labels.items())
    assert min(counts[label, state] for label in CHEXPERT_LABELS[1:] for state in STATES) >= 2, counts
    assert counts["No Finding", "present"] >= 20
    assert len({text for text, _ in GOLDEN}) == len(GOLDEN) >= 188


def test_labels_come_in_the_order_of_the_data_set() -> None:
    labels = list(chexpert_labels("Pacemaker. Effusion. No pneumothorax. Cardiomegaly."))
    assert labels == ["Cardiomegaly", "Pneumothorax", "Pleural Effusion", "Support Devices"]


@pytest.mark.parametrize("text", ["", " \n", "FINDINGS:\nIMPRESSION:", "INDICATION: Cough.", "___."])
def test_a_text_that_describes_nothing_has_no_labels(text: str) -> None:
    assert chexpert_labels(text) == {}
