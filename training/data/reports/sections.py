"""Clinical sections of a report: only these are kept, in the order in which they stand.

A section begins at a heading of the list in `headings`, and ends at the next heading, a signature or the end.
Headings of what identifies people end a section, too, and what stands under them is left out.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

from training.data.readers.sentences import sentence_places
from training.data.reports.headings import SIGNATURE, Kind, heading_line, heading_within, kind_of_match
from training.data.reports.identifiers import holds_identifiers, without_identifiers
from training.reports.vocabulary import has_forms


class Section(NamedTuple):
    """A clinical section.

    Attributes:
        kind: What it holds; "findings" for text without a heading.
        heading: Its heading in capitals, as one of the list; "" without one.
        text: What stands under it.
    """

    kind: Kind
    heading: str
    text: str


class SectionPlace(NamedTuple):
    """A part of a text from one heading to the next, without the heading.

    Attributes:
        kind: What it holds; "findings" before the first heading.
        heading: Its heading in capitals; "" before the first heading.
        start: Offset behind the heading.
        end: Offset of the next heading, or the end of the text.
    """

    kind: Kind
    heading: str
    start: int
    end: int


# Sections whose sentences describe the image; the others are in the text of the report alone.
DESCRIBING: Final = ("findings", "impression", "addendum")
_RULE: Final = re.compile(r"\s*[_=*\-#~]{4,}\s*")
_WORDS_OF_IMAGES: Final = re.compile(
    r"\b(?:lungs?|heart|cardiac|chest|thora\w+|pleura\w*|mediastin\w+|hil(?:ar|um|a|i|us)|diaphragm\w*|ribs?|"
    r"spine|"
    r"bon[ey]s?|osseous|abdom\w+|normal|clear|unremarkable|unchanged|stable|acute|none|views?|radiograph\w*|"
    r"film|"
    r"x-?ray|ct|herz\w*|lungen?\w*|zwerchfell\w*|röntgen\w*|aufnahme\w*|unauffällig\w*|regelrecht\w*|"
    r"altersentsprechend\w*"
    r"|kein\w*|frei|vaskul\w+|pulmon\w+|skelett\w*|wirbel\w*|tubes?|lines?|catheters?)\b",
    re.IGNORECASE,
)
_NAME_WORD: Final = re.compile(
    r"[A-ZÄÖÜ][\w.'’-]*,?|(?:von|van|de|der|den|du|la|and|und|of|for|für|&),?|(?:med|habil)\.,?"
)
_MOST_NAME_WORDS: Final = 8
_FEWEST_NAME_WORDS: Final = 2
_FEWEST_PROSE: Final = 4
_SMALL_WORD: Final = re.compile(r"(?<!\w)[a-zäöüß]{2,}")


def is_addendum(section: Section) -> bool:
    """Tell whether a section was added to a report that was finished."""
    return section.kind == "addendum"


def clinical_sections(text: str, known: Collection[str] = ()) -> tuple[Section, ...]:
    """Return the clinical sections of a report without what identifies people.

    Text before the first heading is kept where it describes an image and identifies nobody; of a text without
    any clinical heading, lines that look like names and signatures are left out.

    Args:
        text: The whole text.
        known: Names and numbers of people from elsewhere, which are taken out as well.
    """
    blocks = list(_blocks(_plain(text)))
    names = [*known, *(block.text for block in blocks if block.kind == "identifying")]
    clinical = [block for block in blocks if block.heading and block.kind != "identifying"]
    kept = [_trimmed(block) for block in clinical]
    if _describes(clinical):
        kept = [section for section in kept if section.kind != "provisional"]
    else:
        kept = [
            section._replace(kind="findings") if section.kind == "provisional" else section
            for section in kept
        ]
    loose = [block for block in blocks if not block.heading and block.kind != "identifying"]
    if clinical:
        lead = _lead(blocks)
    else:
        lead = "\n".join(filter(None, map(_described_lines, (block.text for block in loose))))
    if lead:
        kept.insert(0, Section("findings", "", lead))
    cleaned = (section._replace(text=without_identifiers(section.text, names)) for section in kept)
    return tuple(section for section in cleaned if any(map(str.isalnum, section.text)))


def _describes(sections: Collection[Section]) -> bool:
    return any(section.kind in ("findings", "impression") and section.text.strip() for section in sections)


def _plain(text: str) -> str:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").replace("\f", "\n").replace("\u00a0", " ")
    return "".join(sign for sign in lines if sign in "\n\t" or sign.isprintable())


def section_places(text: str) -> Iterator[SectionPlace]:
    """Give all parts of a text, headings apart: what stands before the first one, and under each."""
    places = [(match.start(), match.end(), match) for match in heading_line().finditer(text)]
    taken = {place for start, end, _ in places for place in range(start, end)}
    places += [
        (match.start(), match.end(), match)
        for match in heading_within().finditer(text)
        if match.start() not in taken and match.end() - 1 not in taken and _begins(text, match)
    ]
    places.sort(key=lambda place: place[:2])
    start = 0
    kind: Kind = "findings"
    heading = ""
    for begin, end, match in places:
        if begin < start:
            continue
        yield SectionPlace(kind, heading, start, begin)
        kind = kind_of_match(match)
        heading, start = " ".join(match.group(kind).upper().split()), end
    yield SectionPlace(kind, heading, start, len(text))


def place_in_report(text: str, report: str) -> int | None:
    """Return where sentences stand in a report: in a section that describes the image, if one has them.

    The same words may stand in another section, or within a longer sentence that denies them. None where no
    sentence is that text.
    """
    if text not in report:
        return None
    starts: dict[int, bool] = {}
    ends: set[int] = set()
    for section in section_places(report):
        part = report[section.start : section.end]
        for start, end in sentence_places(part):
            starts[section.start + start] = section.kind in DESCRIBING
            # The text may lack the full stop.
            ends |= {section.start + end, section.start + len(part[:end].rstrip(".!?"))}
        # The text may begin with a heading.
        starts.setdefault(section.end, False)
    places = [
        found.start()
        for found in re.finditer(f"(?={re.escape(text)})", report)
        if found.start() in starts and found.start() + len(text) in ends
    ]
    return min(places, key=lambda place: (not starts[place], place), default=None)


def _blocks(text: str) -> Iterator[Section]:
    """Give all parts of a text: those under headings, and those under none, with an empty heading."""
    for place in section_places(text):
        yield from _closed(place.kind, place.heading, text[place.start : place.end])


def _begins(text: str, found: re.Match[str]) -> bool:
    """Tell whether words within a line are a heading, not the end of a phrase such as "Chest Comparison:"."""
    heading = found.group().strip()
    gap = found.group()[: len(found.group()) - len(found.group().lstrip())]
    is_behind_end = text[found.start() - 1] in ".!?;" or len(gap) > 1
    return kind_of_match(found) == "identifying" or is_behind_end or heading.isupper()


def _closed(kind: Kind, heading: str, text: str) -> Iterator[Section]:
    """Give a block up to its end, and what stands behind it without a heading."""
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


def _lead(blocks: Sequence[Section]) -> str:
    """Return the prose before the first heading, if that is a clinical one and the prose names nobody."""
    first = blocks[0]
    if first.heading or first.kind == "identifying" or holds_identifiers(first.text):
        return ""
    paragraphs = re.split(r"\n\s*\n", first.text.strip())
    return "\n\n".join(part for part in paragraphs if _is_prose(part))


def _is_prose(text: str) -> bool:
    describes = has_forms(text) or _WORDS_OF_IMAGES.search(text) is not None
    return describes and len(_SMALL_WORD.findall(text)) >= _FEWEST_PROSE


def _described_lines(text: str) -> str:
    """Return the lines of a text without headings that may describe an image."""
    lines = [line.strip() for line in text.strip().splitlines()]
    return "\n".join(line for line in lines if not (_RULE.fullmatch(line) or _may_be_name(line))).strip()


def _trimmed(section: Section) -> Section:
    """Return a section without rules, and without lines at its end that look like names."""
    lines = [line.rstrip() for line in section.text.strip().splitlines() if not _RULE.fullmatch(line)]
    while len(lines) > 1 and (not lines[-1].strip() or _may_be_name(lines[-1].strip())):
        lines.pop()
    return section._replace(text="\n".join(lines).strip())


def _may_be_name(line: str) -> bool:
    """Tell whether a line has capitalised words alone, none of which is one of reports."""
    words = line.split()
    if not _FEWEST_NAME_WORDS <= len(words) <= _MOST_NAME_WORDS:
        return False
    if has_forms(line) or _WORDS_OF_IMAGES.search(line):
        return False
    return all(_NAME_WORD.fullmatch(word) for word in words)
