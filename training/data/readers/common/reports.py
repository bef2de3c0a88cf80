"""Radiology reports by sections: the whole text, and the sentences that train and are searched."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from training.data.readers.sentences import report_sentences

# MIMIC-CXR and CheXpert Plus write ___, Indiana University XXXX; a word may be glued to either. Bounded
# repeats keep a search over a million letters linear.
_MARKS: Final = re.compile(r",?\s{0,8}(?:[\w/]{1,40}[-/])?(?:_{2,}|X{4,})(?:[-/]\w+)*")


@dataclass(frozen=True)
class Report:
    """A report of a study.

    Attributes:
        text: Its sections; None where nothing was written.
        sentences: Its sentences, without marks of removed words.
    """

    text: str | None = None
    sentences: tuple[str, ...] = ()


def make_report(sections: Mapping[str, str], otherwise: str = "") -> Report:
    """Join the sections that have a text, under their names.

    Args:
        sections: Texts by heading, such as FINDINGS.
        otherwise: The text where no section has one, without a heading.
    """
    written = {name: text.strip() for name, text in sections.items() if text.strip()}
    if not written:
        text = otherwise.strip()
        return Report(text or None, _sentences([text]))
    joined = "\n\n".join(f"{name}: {text}" for name, text in written.items())
    return Report(joined, _sentences(written.values()))


def _sentences(sections: Iterable[str]) -> tuple[str, ...]:
    """Sentences without marks; where they begin is told by the whole text, as a mark may be a first word."""
    written = report_sentences(sections)
    plain = [without_marks(sentence) for sentence in written]
    # "___ effusion." may have been "No effusion."
    whole = [own for own, before in zip(plain, written, strict=True) if own == before or not _is_rest(own)]
    return report_sentences(whole) or report_sentences(plain)


def _is_rest(text: str) -> bool:
    return text.islower() and len(text.split()) == 1


def without_marks(text: str) -> str:
    """Take out the marks that stand for words removed for privacy."""
    return _MARKS.sub("", text)
