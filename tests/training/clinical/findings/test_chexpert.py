"""Labels of CheXpert from sentences of reports, by label and state."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from training.clinical.findings import CHEXPERT_LABELS, STATES, chexpert_labels

_CODES: Final = ("NF", "EC", "CM", "LL", "LO", "ED", "CO", "PN", "AT", "PX", "PE", "PO", "FX", "SD")
_SHORT: Final = dict(zip(_CODES, CHEXPERT_LABELS, strict=True))
_STATE: Final[dict[str, str]] = dict(zip("+?-", STATES, strict=True))


def _golden() -> Iterator[tuple[str, dict[str, str]]]:
    lines = Path(__file__).with_name("labels.txt").read_text(encoding="utf-8").splitlines()
    for line in lines:
        text, bar, answer = line.partition(" |")
        if bar:
            own = [one for one in answer.strip().split(", ") if one]
            states: dict[str, str] = {
                _SHORT[one[-2:]]: _STATE[one[0]] if len(one) > 2 else "present" for one in own
            }
            yield text.replace("\\n", "\n"), states


GOLDEN: Final = tuple(_golden())


@pytest.mark.parametrize(("text", "labels"), GOLDEN)
def test_a_sentence_has_the_labels_that_a_reader_gives_it(text: str, labels: dict[str, str]) -> None:
    assert chexpert_labels(text) == labels


def test_every_label_has_sentences_in_every_state() -> None:
    counts = Counter(pair for _, labels in GOLDEN for pair in labels.items())
    ill = CHEXPERT_LABELS[1:]
    assert min(counts[label, state] for label in ill for state in STATES) >= 2, counts
    assert counts["No Finding", "present"] >= 20
    assert len({text for text, _ in GOLDEN}) == len(GOLDEN) >= 188


def test_labels_come_in_the_order_of_the_data_set() -> None:
    text = "Pacemaker. Effusion. No pneumothorax. Cardiomegaly."
    assert list(chexpert_labels(text)) == [
        *("Cardiomegaly", "Pneumothorax", "Pleural Effusion", "Support Devices")
    ]


@pytest.mark.parametrize("text", ["", " \n", "FINDINGS:\nIMPRESSION:", "INDICATION: Cough.", "___."])
def test_a_text_that_describes_nothing_has_no_labels(text: str) -> None:
    assert chexpert_labels(text) == {}
