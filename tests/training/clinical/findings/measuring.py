"""Sentences with their findings, and precision and recall on them as tables of docs/research/findings.md.

`python -m tests.training.clinical.findings.measuring` prints them, and on standard error the sentences that
are wrong.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.training.cases import read_cases
from training.clinical.findings import STATES, find_findings

Sentences = Sequence[tuple[str, str]]
_STATE: Final = dict(zip("+?-", STATES, strict=True))


def read_sentences(name: str) -> Iterator[tuple[str, str, str]]:
    """Give the heading, the text and the answer of each sentence in a file next to this one."""
    return read_cases(Path(__file__).with_name(name))


def _part(name: str) -> Sentences:
    return tuple((text, answer) for part, text, answer in read_sentences("written.txt") if part == name)


PARTS: Final = {
    "140, on which the rules were tuned": _part("tuned"),
    "60, written together with them and held out": _part("held out"),
    "40, chosen to be hard and written later": _part("second"),
    "26 in German": _part("german"),
}
EVERY: Final = tuple(sentence for part in PARTS.values() for sentence in part)
CASES: Final = tuple(read_sentences("kinds.txt"))
KINDS: Final = tuple((text, answer) for _, text, answer in CASES)


def golden(answer: str) -> set[tuple[str, str]]:
    """Return finding and state of an answer such as "+nodule, -mass"."""
    return {(one[1:], _STATE[one[0]]) for one in answer.split(", ") if one}


def predicted(text: str) -> set[tuple[str, str]]:
    return {(finding.name, finding.state) for finding in find_findings(text)}


def precision_and_recall(sentences: Sentences) -> dict[str, tuple[float, float]]:
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


def by_state() -> str:
    """Return the figures of each part as rows of Markdown."""
    rows = []
    for name, sentences in PARTS.items():
        figures = precision_and_recall(sentences).values()
        rows.append(f"| {name} | precision |" + "".join(f" {own[0]:.2f} |" for own in figures))
        rows.append("| | recall |" + "".join(f" {own[1]:.2f} |" for own in figures))
    return "\n".join(rows)


def by_finding() -> str:
    """Return how often each finding is wanted in each state, said and right, as rows of Markdown."""
    wanted = [pair for _, answer in EVERY for pair in golden(answer)]
    said = [pair for text, _ in EVERY for pair in predicted(text)]
    right = [pair for text, answer in EVERY for pair in golden(answer) & predicted(text)]
    rows = []
    for finding in sorted({name for name, _ in (*wanted, *said)}, key=str.lower):
        states = "".join(f" {wanted.count((finding, state))} |" for state in STATES)
        ours, theirs, both = (sum(name == finding for name, _ in pairs) for pairs in (said, wanted, right))
        precision = f"{both / ours:.2f}" if ours else ""
        recall = f"{both / theirs:.2f}" if theirs else ""
        rows.append(f"| {finding} |{states} {precision} | {recall} |")
    return "\n".join(rows)


def wrong(sentences: Sentences) -> str:
    """Return the sentences that are wrong, one a line."""
    return "\n".join(text for text, answer in sentences if predicted(text) != golden(answer))


if __name__ == "__main__":
    sys.stdout.write(f"{by_state()}\n\n{by_finding()}\n")
    sys.stderr.write(f"{wrong(EVERY)}\n")
