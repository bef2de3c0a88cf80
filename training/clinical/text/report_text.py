"""Radiology reports by sections: the text that describes the image, and its sentences."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from training.clinical.text.sections import SectionSpan, is_generic, section_spans, without_titles
from training.clinical.text.sentences import report_sentences

# MIMIC-CXR and CheXpert Plus write ___, Indiana University XXXX; a word may be glued to either. Bounded
# repeats keep a search over a million letters linear.
_MARKS: Final = re.compile(r",?\s{0,8}(?:[\w/]{1,40}[-/])?(?:_{2,}|X{4,})(?:[-/]\w+)*")
_RULE: Final = re.compile(r"[_=*\-]{5,}")
_PARAGRAPHS: Final = re.compile(r"\n\s*\n")
# A caption may begin with "Summary:" or "Description:" as well.
_OF_REPORTS: Final = re.compile(r"FINDING|IMPRESSION|CONCLUSION|BEFUND|BEURTEILUNG")
_ADDENDUM: Final = "ADDENDUM"


@dataclass(frozen=True)
class Report:
    """A report: the text of its sections, if any, and its sentences without marks of removed words."""

    text: str | None = None
    sentences: tuple[str, ...] = ()


def make_report(sections: Mapping[str, str], otherwise: str = "") -> Report:
    """Join the sections that have a text, under headings such as FINDINGS; without one, use `otherwise`."""
    written = {name: text.strip() for name, text in sections.items() if text.strip()}
    if not written:
        text = otherwise.strip()
        return Report(text or None, _sentences([text]))
    joined = "\n\n".join(f"{name}: {text}" for name, text in written.items())
    return Report(joined, _sentences(written.values()))


def _sentences(sections: Iterable[str]) -> tuple[str, ...]:
    """Sentences without marks; the whole text shows where they begin, as a mark may be a first word.

    The name of the examination before them is none: "X-ray chest: No effusion."
    """
    written = report_sentences(without_titles(section) or section for section in sections)
    plain = [without_marks(sentence) for sentence in written]
    # "___ effusion." may have been "No effusion."
    whole = [
        own
        for own, before in zip(plain, written, strict=True)
        if own == before or not own.islower() or len(own.split()) != 1
    ]
    return report_sentences(whole) or report_sentences(plain)


def without_marks(text: str) -> str:
    """Take out the marks of words that were removed for privacy."""
    return _MARKS.sub("", text)


def read_report(text: str) -> Report:
    """Findings, impression and addenda of a report; otherwise the body that `section_spans` finds.

    A preliminary reading is replaced by the final one. Of a text under no heading, or under REPORT alone, the
    last paragraph counts.
    """
    spans = section_spans(text)
    if (report := _described(text, spans)) is not None:
        return report
    paragraphs = [(span.kind, _PARAGRAPHS.split(_lines(text, span))) for span in reversed(spans)]
    bodies = (
        _body(text, spans),
        *(without_titles(own[-1]) for kind, own in paragraphs if kind == "findings"),
        *(without_titles("\n\n".join(own[1:])) for kind, own in paragraphs if kind == "identifying"),
    )
    body = next(filter(None, bodies), "")
    if addendum := _joined(text, spans, "addendum"):
        return make_report({"REPORT": body, _ADDENDUM: addendum})
    return make_report({}, body)


def read_report_or_text(text: str) -> Report:
    """Like `read_report` where a text has a heading of a report's section, otherwise all of it."""
    spans = section_spans(text)
    return _described(text, spans) or make_report({}, _body(text, spans) or text)


def described_report(text: str) -> Report | None:
    """Findings, impression and addenda of a report; None without a heading for either of the first two."""
    spans = section_spans(text)
    return _described(text, spans) if any(_OF_REPORTS.search(span.heading) for span in spans) else None


def _described(text: str, spans: Sequence[SectionSpan]) -> Report | None:
    findings, impression = _joined(text, spans, "findings"), _joined(text, spans, "impression")
    if not findings and not impression:
        return None
    sections = {"FINDINGS": findings, "REPORT": _body(text, spans), "IMPRESSION": impression}
    return make_report({**sections, _ADDENDUM: _joined(text, spans, "addendum")})


def _joined(text: str, spans: Sequence[SectionSpan], kind: str) -> str:
    named = [span for span in spans if span.heading and not is_generic(span.heading)]
    return "\n".join(filter(None, (_lines(text, span) for span in named if span.kind == kind)))


def _body(text: str, spans: Sequence[SectionSpan]) -> str:
    """The body without a heading: it begins where the section before it ends."""
    bodies = (after for before, after in pairwise(spans) if before.end == after.start)
    return "\n".join(without_titles(_lines(text, span)) for span in bodies)


def _lines(text: str, span: SectionSpan) -> str:
    lines = (line.strip() for line in text[span.start : span.end].splitlines())
    return "\n".join(line for line in lines if not _RULE.fullmatch(line)).strip()
