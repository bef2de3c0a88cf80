"""Sections of a report by their headings, and the clinical ones of these, which are kept.

A section begins at a heading of the list in `headings`, and ends at the next heading, a signature or the end.
Headings of what identifies people also end a section, and what is under them is left out. In many reports the
description of the image has no heading: `section_spans` finds it behind INDICATION, COMPARISON and the like.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from training.clinical.text.headings import (
    BRIEF,
    CONTEXT,
    OF_EARLIER_IMAGE,
    SIGNATURE,
    Kind,
    heading_line,
    heading_within,
    kind_of_match,
)
from training.clinical.text.identifiers import holds_identifiers, without_identifiers
from training.clinical.text.sentences import sentence_spans
from training.clinical.text.vocabulary import has_forms


class Section(NamedTuple):
    """A clinical section; without a heading, which is in capitals, it has "" and the kind "findings"."""

    kind: Kind
    heading: str
    text: str


class SectionSpan(NamedTuple):
    """A part of a text from one heading to the next, without the heading.

    Attributes:
        kind: What it holds; "findings" before the first heading.
        heading: Its heading in capitals; "" before the first heading, `BODY` for a body without one.
        start: Offset behind the heading.
        end: Offset of the next heading, or the end of the text.
    """

    kind: Kind
    heading: str
    start: int
    end: int


# Sections whose sentences describe the image; the others are in the text of the report alone.
DESCRIBING: Final = ("findings", "impression", "addendum")
# Heading of the description of an image that has none of its own.
BODY: Final = "REPORT"
# Headings of any text: only sentences under them tell that it describes the image.
_GENERIC: Final = re.compile(r"(?:REPORT|RESULT|NARRATIVE|DESCRIPTION|DISCUSSION|OBSERVATIONS?)(?: TEXT)?")
_BLANK_LINE: Final = re.compile(r"\n[^\S\n]*\n")
# A new line begins a sentence where the line before was not filled.
_LINE_START: Final = re.compile(r"(?:(?<=\n)|\A)[^\n]{1,60}\n(?=[^\S\n]*[A-ZÄÖÜ])")
# So do a capital behind a view, a small letter and a sign: "p.a. Erguss", "None. effusion", "None. ?mass".
_OTHER_START: Final = re.compile(
    r"\b(?:p\.\s?a|a\.\s?p)\.\s+(?=[A-ZÄÖÜ])|(?<=[^\W\d_]{3}[.!])\s+(?=[a-zäöü?;|])"
)
# "ADDENDUM  The tube ...": MIMIC-CXR writes no colon.
_BLOCK: Final = re.compile(r"^[^\S\n]*(?:FINAL (REPORT)|ADDENDUM)(?=[.\s_])[.\s_]*", re.MULTILINE)
_TITLE_WORD: Final = (
    r"(?:chest|portable|[ap]\.?\s?[ap]\.?|lat(?:eral)?\.?|and|single|one|two|three|frontal|views?|x-?rays?|cxr|xr|cr|"
    r"dx|of|radiograph(?:s|y)?|films?|digital\w{0,2}|upright|supine|erect|semi-?(?:upright|erect)|bedside|the|study|"
    r"exam|(?:(?:rö(?:ntgen)?|rx|ct)[.-]?)?thorax(?:-?(?:röntgen|übersichts?|bild))?(?:-?aufnahmen?)?|rx|ct|[ck]onv\w{0,12}\.?|"
    r"rö(?:ntgen)?(?:-?(?:bild|aufnahme|untersuchung)(?:en)?)?\.?|(?:bett-?|übersichts)?aufnahmen?|in|ein(?:er)?|zwei|drei|"
    r"eb(?:enen?)?\.?|und|im|liegen|stehen|sitzen|seitl(?:ich)?\.?|de[rs]|vom|___|\d[\d.]*)"
)
# The name of the examination above or before a body: "X-ray Chest:", "CHEST, TWO VIEWS".
_TITLE: Final = rf"[^\S\n]*{_TITLE_WORD}(?:[\s,/&+()-]+{_TITLE_WORD}){{0,12}}(?:[^\S\n]|[),])*"
_LEADING_TITLE: Final = re.compile(rf"{_TITLE}(?::(?!\d)|\.?[^\S\n]*(?=\n|\Z))\s*", re.IGNORECASE)
_BODY_START: Final = re.compile(
    rf"(?:^|(?<=[.;!?]\s)){_TITLE}:(?!\d)|(?<=\S\s)(?-i:Report|Findings?|Befund):|"
    r"^[^\S\n]*(?:lungs?|heart|cardi\w+|mediastinum|pleura\w*|bones?|lines|tubes|devices|herz|lungen?)\b[^\n:.]{0,40}:",
    re.IGNORECASE | re.MULTILINE,
)
_SAYS: Final = re.compile(
    r"\b(?:is|are|was|were|has|have|no|not|without|normal|clear|unremarkable|unchanged|stable|ist|sind|kein\w*|"
    r"unauffällig\w*|regelrecht\w*|frei)\b",
    re.IGNORECASE,
)
# Beginnings of sentences on an image, where a history may also continue.
_OPENING: Final = re.compile(
    r"(?:there (?:is|are)|(?:the |both )?(?:lungs?|heart|cardi\w+|mediastin\w+|trachea)|es (?:zeigt|besteht)|"
    r"(?:no|kein\w*) (?:focal|acute|evidence|pleura\w*|pneumothora\w+|consolidations?|effusions?|"
    r"infiltrat\w*|erguss))\b",
    re.IGNORECASE,
)
_OF_HISTORY: Final = re.compile(
    r"\b(?:concern\w*|suspicion|suspected|history|question\w*|clinical\w*|known|rule|evaluat\w+|complain\w*|"
    r"symptoms?|family|last|recent\w*|disease|failure|bypass|surgery|bekannt\w*|verdacht)\b",
    re.IGNORECASE,
)
_OF_EXAMINATION: Final = re.compile(
    r"\b(?:prior|previous|compar\w+|available|obtained|performed|acquired|taken|techni\w+|protocol|contrast|dose|"
    r"dated|reviewed|request\w*|submitted|vergleich\w*|voraufnahme\w*|angefertigt|durchgeführt)\b",
    re.IGNORECASE,
)
_RULE: Final = re.compile(r"\s*[_=*\-#~]{4,}\s*")
_WORDS_OF_IMAGES: Final = re.compile(
    r"\b(?:lungs?|heart|cardiac|chest|thora\w+|pleura\w*|mediastin\w+|hil(?:ar|um|a|i|us)|diaphragm\w*|ribs?|"
    r"spine|bon[ey]s?|osseous|abdom\w+|normal|clear|unremarkable|unchanged|stable|acute|none|views?|"
    r"radiograph\w*|film|x-?ray|ct|herz\w*|lungen?\w*|zwerchfell\w*|röntgen\w*|aufnahme\w*|unauffällig\w*|"
    r"regelrecht\w*|altersentsprechend\w*|kein\w*|frei|vaskul\w+|pulmon\w+|skelett\w*|wirbel\w*|tubes?|"
    r"lines?|catheters?)\b",
    re.IGNORECASE,
)
_NAME_WORD: Final = re.compile(
    r"[A-ZÄÖÜ][\w.'’-]*,?|(?:von|van|de|der|den|du|la|and|und|of|for|für|&),?|(?:med|habil)\.,?"
)


def clinical_sections(text: str, known: Collection[str] = ()) -> tuple[Section, ...]:
    """Return the clinical sections of a report without what identifies people.

    Text before the first heading is kept where it describes an image and identifies nobody. Where no section
    describes the image, so is other text under no heading. Of a text without any clinical heading, lines that
    look like names and signatures are left out. So are `known` names and numbers of people.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").replace("\f", "\n").replace("\u00a0", " ")
    text = "".join(sign for sign in lines if sign in "\n\t" or sign.isprintable())
    blocks = [
        block
        for span in section_spans(text)
        for block in _closed(span.kind, span.heading, text[span.start : span.end])
    ]
    names = [*known, *(block.text for block in blocks if block.kind == "identifying")]
    clinical = [block for block in blocks if block.heading and block.kind != "identifying"]
    kept = [_trimmed(block) for block in clinical]
    if any(block.kind in ("findings", "impression") and block.text.strip() for block in clinical):
        kept = [section for section in kept if section.kind != "provisional"]
    else:
        kept = [one._replace(kind="findings") if one.kind == "provisional" else one for one in kept]
    if clinical:
        is_described = any(section.kind in DESCRIBING and section.text for section in kept)
        lead = "\n\n".join(_described_paragraphs(blocks[:1] if is_described else blocks))
    else:
        loose = (block.text for block in blocks if block.kind != "identifying")
        lead = "\n".join(filter(None, map(_described_lines, loose)))
    if lead:
        kept.insert(0, Section("findings", "", lead))
    cleaned = (section._replace(text=without_identifiers(section.text, names)) for section in kept)
    return tuple(section for section in cleaned if any(map(str.isalnum, section.text)))


def section_spans(text: str) -> list[SectionSpan]:
    """Return all parts of a text without headings: the one before the first heading, and those under each.

    Without a section of findings, the paragraphs behind the first one of INDICATION, COMPARISON and the like
    are a part of their own, under the heading `BODY`. So is what follows the first sentence of EXAMINATION,
    COMPARISON or TECHNIQUE, from the first sentence that describes an image.
    """
    spans = list(_headed(text))
    described = {at: span.kind for at, span in enumerate(spans) if _describes_image(text, span)}
    if "findings" in described.values():
        return spans
    if "impression" in described.values():
        before = next(at for at, kind in described.items() if kind == "impression") - 1
        candidates = [at for at, span in enumerate(spans) if at >= before and span.kind in BRIEF]
    else:
        candidates = [at for at, span in enumerate(spans) if span.kind in CONTEXT]
    for at in reversed(candidates):
        if (start := _body_start(text, spans[at])) is not None:
            body = SectionSpan("findings", BODY, start, spans[at].end)
            return [*spans[:at], spans[at]._replace(end=start), body, *spans[at + 1 :]]
    return spans


def is_generic(heading: str) -> bool:
    """Tell whether a heading may be that of any text, such as "REPORT"."""
    return _GENERIC.fullmatch(heading) is not None


def without_titles(text: str) -> str:
    """Return a text without the names of examinations that it begins with, such as "CHEST, TWO VIEWS:"."""
    text = text.lstrip()
    while (title := _LEADING_TITLE.match(text)) is not None:
        text = text[title.end() :]
    return text


def _describes_image(text: str, span: SectionSpan) -> bool:
    part = text[span.start : span.end]
    if span.kind not in ("findings", "impression") or not span.heading:
        return False
    if is_generic(span.heading):
        return any(_states(part[start:end]) for start, end in _statements(part))
    return any(map(str.isalnum, without_titles(part)))


def _body_start(text: str, span: SectionSpan) -> int | None:
    """Return where the description of an image begins in a section with another heading; None without one."""
    part = text[span.start : span.end]
    begin = len(part) - len(part.lstrip())
    blank = _BLANK_LINE.search(part, begin)
    end = len(part) if blank is None else blank.start()
    starts = [match.start() for match in _BODY_START.finditer(part, begin + 1, end)][:1]
    behind = list(_statements(part[:end]))[1:]
    opens = _states if span.kind in BRIEF else _opens_body
    first = next((at for at, span in enumerate(behind) if opens(part[slice(*span)])), None)
    if span.kind in BRIEF:
        while first and _may_begin(part[slice(*behind[first - 1])]):
            first -= 1
    starts += [] if first is None else [behind[first][0]]
    if blank is not None and any(map(str.isalpha, part[blank.end() :])):
        starts.append(blank.end())
    return span.start + min(starts) if starts else None


def _statements(text: str) -> Iterator[tuple[int, int]]:
    """Give where sentences begin and end; short lines and views are sentences of their own."""
    starts = {start for start, _ in sentence_spans(text)}
    starts |= {match.end() for match in _LINE_START.finditer(text)}
    starts |= {match.end() for match in _OTHER_START.finditer(text)}
    return pairwise([*sorted(starts), len(text)])


def _opens_body(sentence: str) -> bool:
    """Tell whether a sentence behind a history is of an image, by how it begins."""
    return _OPENING.match(sentence) is not None and _OF_HISTORY.search(sentence) is None and _states(sentence)


def _may_begin(sentence: str) -> bool:
    """Tell whether a sentence before one that describes an image may describe it as well."""
    is_other = _OF_EXAMINATION.search(sentence) or OF_EARLIER_IMAGE.search(sentence)
    return not is_other and without_titles(sentence) != ""


def _states(sentence: str) -> bool:
    """Tell whether a sentence says something of an image, and not how or when it was made."""
    if has_forms(sentence):
        return OF_EARLIER_IMAGE.search(sentence) is None
    says = _WORDS_OF_IMAGES.search(sentence) is not None and _SAYS.search(sentence) is not None
    return says and _OF_EXAMINATION.search(sentence) is None


def _headed(text: str) -> Iterator[SectionSpan]:
    matches = list(heading_line().finditer(text))
    taken = {offset for match in matches for offset in range(*match.span())}
    matches += [
        match
        for match in heading_within().finditer(text)
        if match.start() not in taken and match.end() - 1 not in taken and _begins(text, match)
    ]
    headings = [(*match.span(), kind_of_match(match), match[kind_of_match(match)]) for match in matches]
    begun = {begin for begin, *_ in headings}
    headings += [
        (*block.span(), "findings" if block[1] else "addendum", block[1] or "ADDENDUM")
        for block in _BLOCK.finditer(text)
        if block.start() not in begun
    ]
    start, heading = 0, ""
    kind: Kind = "findings"
    for begin, end, own, name in sorted(headings, key=lambda heading: heading[:2]):
        if begin >= start:
            yield SectionSpan(kind, heading, start, begin)
            kind, heading, start = own, " ".join(name.upper().split()), end
    yield SectionSpan(kind, heading, start, len(text))


def span_in_report(text: str, report: str) -> int | None:
    """Return the offset of whole sentences in a report, if possible in a section that describes the image.

    Another section may have the same words, and so may a longer sentence that denies them. None where no
    sentence is that text.
    """
    if text not in report:
        return None
    starts: dict[int, bool] = {}
    ends: set[int] = set()
    for section in section_spans(report):
        part = report[section.start : section.end]
        for start, end in sentence_spans(part):
            starts[section.start + start] = section.kind in DESCRIBING
            # The text may lack the full stop.
            ends |= {section.start + end, section.start + len(part[:end].rstrip(".!?"))}
        # The text may begin with a heading, or behind a title.
        starts.setdefault(section.end, False)
        starts.setdefault(section.end - len(without_titles(part)), section.kind in DESCRIBING)
    spans = [
        match.start()
        for match in re.finditer(f"(?={re.escape(text)})", report)
        if match.start() in starts and match.start() + len(text) in ends
    ]
    return min(spans, key=lambda span: (not starts[span], span), default=None)


def _begins(text: str, match: re.Match[str]) -> bool:
    """Tell whether words within a line are a heading, not the end of a phrase such as "Chest Comparison:"."""
    heading = match.group().lstrip()
    is_behind_end = text[match.start() - 1] in ".!?;" or len(match.group()) - len(heading) > 1
    return kind_of_match(match) == "identifying" or is_behind_end or heading.isupper()


def _closed(kind: Kind, heading: str, text: str) -> Iterator[Section]:
    """Give a block up to its end, and what follows it without a heading."""
    end = SIGNATURE.search(text)
    if end is not None and kind != "identifying":
        yield Section(kind, heading, text[: end.start()])
        yield Section("identifying", "SIGNATURE", text[end.start() :])
    elif kind == "identifying":
        # The value is on the line of its heading, or on the next one.
        value, line_end, rest = text.partition("\n")
        if not value.strip():
            more, line_end, rest = rest.partition("\n")
            value = f"{value}\n{more}"
        yield Section(kind, heading, value)
        if line_end:
            yield Section("findings", "", rest)
    elif heading or text.strip():
        yield Section(kind, heading, text)


def _described_paragraphs(blocks: Sequence[Section]) -> Iterator[str]:
    """Give the paragraphs under no heading that describe an image; a first block with names has none."""
    for index, block in enumerate(blocks):
        if not block.heading and (index or not holds_identifiers(block.text)):
            yield from filter(_states, map(_described_lines, _BLANK_LINE.split(block.text)))


def _described_lines(text: str) -> str:
    lines = [line.strip() for line in text.strip().splitlines()]
    return "\n".join(line for line in lines if not (_RULE.fullmatch(line) or _may_be_name(line))).strip()


def _trimmed(section: Section) -> Section:
    """Return a section without rules, and without lines at its end that look like names."""
    lines = [line.rstrip() for line in section.text.strip().splitlines() if not _RULE.fullmatch(line)]
    while len(lines) > 1 and (not lines[-1].strip() or _may_be_name(lines[-1].strip())):
        lines.pop()
    text = "\n".join(lines).strip()
    untitled = without_titles(text)
    if is_generic(section.heading):
        return section._replace(text=untitled)
    # "FINDINGS: PA and lateral views." describes nothing.
    is_title = section.kind in DESCRIBING and not untitled
    return section._replace(kind="examination" if is_title else section.kind, text=text)


def _may_be_name(line: str) -> bool:
    words = line.split()
    if not 2 <= len(words) <= 8 or has_forms(line) or _WORDS_OF_IMAGES.search(line):
        return False
    return all(_NAME_WORD.fullmatch(word) for word in words)
