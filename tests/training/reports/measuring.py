"""Precision and recall of findings by state: `python -m tests.training.reports.measuring` prints them."""

import sys
from collections.abc import Sequence
from typing import Final

from tests.training.reports.sentences import GERMAN, HELD_OUT, SECOND, TUNED
from training.reports import STATES, find_findings

_STATE: Final = {"+": "present", "-": "absent", "?": "uncertain"}


def golden(answer: str) -> set[tuple[str, str]]:
    """Return finding and state of an answer such as "+nodule, -mass"."""
    return {(one[1:], _STATE[one[0]]) for one in answer.split(", ") if one}


def predicted(text: str) -> set[tuple[str, str]]:
    return {(finding.name, finding.state) for finding in find_findings(text)}


def precision_and_recall(sentences: Sequence[tuple[str, str]]) -> dict[str, tuple[float, float]]:
    """Return precision and recall by state, of pairs of finding and state in each sentence."""
    figures: dict[str, tuple[float, float]] = {}
    for state in STATES:
        right = said = wanted = 0
        for text, answer in sentences:
            ours = {pair for pair in predicted(text) if pair[1] == state}
            theirs = {pair for pair in golden(answer) if pair[1] == state}
            right, said, wanted = right + len(ours & theirs), said + len(ours), wanted + len(theirs)
        figures[state] = (right / said, right / wanted)
    return figures


def table(sentences: Sequence[tuple[str, str]]) -> str:
    """Return the figures as lines of text, with the sentences that are wrong."""
    figures = precision_and_recall(sentences).items()
    lines = [f"{state:9}  precision {own[0]:.3f}  recall {own[1]:.3f}" for state, own in figures]
    wrong = [text for text, answer in sentences if predicted(text) != golden(answer)]
    return "\n".join([f"{len(sentences)} sentences", *lines, *(f"wrong: {text}" for text in wrong), ""])


if __name__ == "__main__":
    for part in (TUNED, HELD_OUT, SECOND, GERMAN):
        sys.stdout.write(table(part))
