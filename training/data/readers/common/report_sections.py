"""Sections of a report that is written as one text, as in MIMIC-CXR's files."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from training.data.readers.common.reports import Report, make_report

_RULE: Final = re.compile(r"[_=*\-]{5,}")
_BLOCK: Final = re.compile(r"(?:FINAL )?(?:(REPORT)|(ADDENDUM))\b[:.\s_]*(.*)")
# Headings are in capitals; the usual ones are also written otherwise.
_HEADING: Final = re.compile(r"([A-Z][A-Z0-9 /(),.&'_\-]{3,70}?)\s*:(?!\d)\s*(.*)")
_USUAL: Final = re.compile(
    r"((?:findings?|impressions?|conclusions?|indications?|history|clinical (?:history|information)"
    r"|technique|comparisons?|examination|reason for exam(?:ination)?|recommendations?)"
    r"(?: ?(?:and|/) ?impressions?)?)\s*:(?!\d)\s*(.*)",
    re.IGNORECASE,
)
_CONTEXT: Final = re.compile(
    r"EXAM|INDICATION|HISTORY|CLINICAL|COMPARISON|TECHNIQUE|REASON|WET READ|PRELIMINARY|NOTIFICATION"
    r"|RECOMMENDATION|PROCEDURE|STUDY|DATE|ACCESSION|SIGN|PHYSICIAN|NOTE"
)
_FINDINGS: Final = re.compile(r"FINDING")
_IMPRESSION: Final = re.compile(r"IMPRESSION|CONCLUSION|OPINION|SUMMARY")
_PROVISIONAL: Final = re.compile(r"WET READ|PRELIMINARY|PROVISIONAL|\(PFI\)")
_KNOWN: Final = (_CONTEXT, _FINDINGS, _IMPRESSION, _PROVISIONAL)
_FIRST: Final = ""
_ADDENDUM: Final = "ADDENDUM"


def split_sections(text: str) -> dict[str, str]:
    """Texts of a report by heading, in order; what stands before any heading under "".

    Lines under the same heading are joined. A rule of underscores and the line FINAL REPORT end a section,
    ADDENDUM begins one. Inside findings and impression, an unusual heading such as LUNGS is text.
    """
    return _joined(_parts(text))


def _joined(parts: Iterable[tuple[str, Sequence[str]]]) -> dict[str, str]:
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name, lines in parts:
        found[name] += lines
    texts = {name: "\n".join(lines).strip() for name, lines in found.items()}
    return {name: text for name, text in texts.items() if text}


def _parts(text: str) -> list[tuple[str, list[str]]]:
    """Headings with the lines under each, in the order of the text; a heading may come again."""
    parts: list[tuple[str, list[str]]] = [(_FIRST, [])]
    for line in text.splitlines():
        written = line.strip()
        if _RULE.fullmatch(written):
            parts.append((_FIRST, []))
        elif block := _BLOCK.fullmatch(written):
            parts.append((_ADDENDUM if block[2] else _FIRST, [block[3]]))
        elif heading := _heading(written, parts[-1][0]):
            parts.append((heading[0], [heading[1]]))
        else:
            parts[-1][1].append(written)
    return parts


def _heading(line: str, inside: str) -> tuple[str, str] | None:
    """The heading that a line begins with, and the rest of the line."""
    found = _HEADING.fullmatch(line) or _USUAL.fullmatch(line)
    if found is None:
        return None
    name = " ".join(found[1].upper().split())
    describing = _FINDINGS.search(inside) or _IMPRESSION.search(inside)
    if describing and not any(kind.search(name) for kind in _KNOWN):
        return None
    return name, found[2]


def read_report(text: str) -> Report:
    """Findings, impression and addenda of a report; else the last section that describes the image.

    A preliminary reading is replaced by the final one. Without any of these, the last paragraph without a
    heading counts; under a heading such as COMPARISON, all paragraphs behind its first are without one.
    """
    parts = _parts(text)
    sections = _joined(parts)
    if (report := _described(sections)) is not None:
        return report
    last, addendum = _last(sections, parts), sections.get(_ADDENDUM, "")
    return make_report({"REPORT": last, _ADDENDUM: addendum}) if addendum else make_report({}, last)


def read_report_or_text(text: str) -> Report:
    """Like `read_report` where a text has a heading for findings or impression; else all of it."""
    return described_report(text) or make_report({}, text)


def described_report(text: str) -> Report | None:
    """Findings, impression and addenda of a report; None without a heading for either of the first two."""
    return _described(split_sections(text))


def _described(sections: Mapping[str, str]) -> Report | None:
    """Findings, impression and addenda; None without the first two."""
    findings = [name for name in sections if _says(name, _FINDINGS)]
    impression = [name for name in sections if _says(name, _IMPRESSION) and name not in findings]
    if not findings and not impression:
        return None
    return make_report(
        {
            "FINDINGS": "\n".join(sections[name] for name in findings),
            "IMPRESSION": "\n".join(sections[name] for name in impression),
            _ADDENDUM: sections.get(_ADDENDUM, ""),
        }
    )


def _says(name: str, kind: re.Pattern[str]) -> bool:
    return bool(kind.search(name)) and not _PROVISIONAL.search(name)


def _last(sections: Mapping[str, str], parts: Sequence[tuple[str, Sequence[str]]]) -> str:
    describing = [
        text
        for name, text in sections.items()
        if name not in (_FIRST, _ADDENDUM) and not _CONTEXT.search(name)
    ]
    if describing:
        return describing[-1]
    return next(filter(None, (_without_heading(*part) for part in reversed(parts))), "")


def _without_heading(name: str, lines: Sequence[str]) -> str:
    """The paragraphs of a part that no heading belongs to."""
    if name == _ADDENDUM or _PROVISIONAL.search(name):
        return ""
    paragraphs = [part.strip() for part in re.split(r"\n\s*\n", "\n".join(lines).strip()) if part.strip()]
    return "".join(paragraphs[-1:]) if name == _FIRST else "\n\n".join(paragraphs[1:])
