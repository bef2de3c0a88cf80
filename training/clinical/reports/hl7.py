"""HL7 v2: messages ORU^R01 with the text of reports, as files and as one message of a connection.

Kept is the text of OBX-5; the fields of names and numbers of people are read to take these out of it.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from training.clinical.reports.markup import RTF
from training.clinical.reports.study_report import (
    FIELD_MISSING,
    ReportError,
    SourceReport,
    Status,
    named_value,
    parse_status,
    parse_time,
)
from training.clinical.text.headings import SECTION_CODES, kind_of
from training.clinical.text.vocabulary import has_forms

# Segments of a message, and characters of one.
MOST_SEGMENTS: Final = 20_000
_USUAL_SIGNS: Final = "^~\\&"
_BATCH: Final = ("FHS", "BHS", "BTS", "FTS")
_CHARSETS: Final = {
    **{f"8859/{part}": f"iso-8859-{part}" for part in (*range(1, 10), 15)},
    **dict.fromkeys(("", "ASCII"), ""),
    **dict.fromkeys(("UNICODE", "UNICODE UTF-8", "UTF-8"), "utf-8"),
    **{"UNICODE UTF-16": "utf-16", "ISO IR87": "iso2022_jp", "ISO IR159": "iso2022_jp_2", "BIG-5": "big5"},
    **{"GB 18030-2000": "gb18030", "KS X 1001": "euc_kr", "WINDOWS-1252": "windows-1252"},
}
# Encoding of many senders that declare no character set, tried after UTF-8.
_USUAL: Final = "windows-1252"
_TEXT_TYPES: Final = ("TX", "FT", "ST", "CE", "CWE")
_NUMBER_TYPES: Final = ("NM", "SN")
_WITHDRAWN: Final = ("D", "W", "X")
_STUDY_CODES: Final = ("113014", "110180")
# Names of the escape sequences (HL7 v2.5, 2.7); anything else between two signs is text.
_ESCAPES: Final = (
    r"([FSTREPHN]|(?i:\.(?:br|ce|sp|in|ti|sk|fi|nf))[+-]?[^\Wa-zA-Z_]{0,4}|X(?:[0-9A-Fa-f]{2})+|C[0-9A-Fa-f]{4}|"
    r"M[0-9A-Fa-f]{4}(?:[0-9A-Fa-f]{2})?|Z[0-9A-F]{2,20})"
)
_MOST_LINES: Final = 50
_BRACE: Final = re.compile(r"(?<!\\)[{}]")


Segment = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Message:
    """A message by its segments, each a list of fields, MSH-1 the separator."""

    segments: tuple[Segment, ...]
    component: str
    repetition: str
    escape: str
    subcomponent: str

    @property
    def head(self) -> Segment:
        """The segment MSH."""
        return self.segments[0]

    @property
    def kind(self) -> str:
        """Type and event, such as "ORU^R01"."""
        return "^".join(field(self.head, 9).split(self.component)[:2])

    @property
    def control_id(self) -> str:
        """MSH-10, by which an acknowledgement names the message."""
        return field(self.head, 10)

    def components(self, value: str) -> list[str]:
        """Return the components of the first repetition of a field."""
        return [
            self.plain(part.split(self.subcomponent)[0])
            for part in value.split(self.repetition)[0].split(self.component)
        ]

    def first(self, value: str) -> str:
        """Return the first component of a field."""
        return self.components(value)[0].strip()

    def words(self, value: str) -> list[str]:
        """Return all parts of a field."""
        signs = "".join(map(re.escape, (self.repetition, self.component, self.subcomponent)))
        return [self.plain(part) for part in re.split(f"[{signs}]", value) if part]

    def plain(self, value: str) -> str:
        """Return a value with what its escape sequences stand for."""
        sign = re.escape(self.escape)
        return re.sub(f"{sign}{_ESCAPES}{sign}", self._escaped, value)

    def _escaped(self, match: re.Match[str]) -> str:
        name = match[1].lower() if match[1][0] == "." else match[1]
        signs = {"F": self.head[1], "S": self.component, "T": self.subcomponent, "R": self.repetition}
        signs |= {"E": self.escape, "P": "#"}
        if name in signs:
            return signs[name]
        if name.startswith((".br", ".ce", ".sp")):
            count = name[3:].lstrip("+")
            return "\n" * min(int(count) if count.isdecimal() else 1, _MOST_LINES)
        if name.startswith((".in", ".ti", ".sk")):
            return " "
        if name[0] == "X":
            content = bytes.fromhex(name[1:])
            try:
                return content.decode().replace("\r", "\n")
            except UnicodeDecodeError:
                return content.decode("latin-1").replace("\r", "\n")
        # Highlighting, character sets and forms of a printer.
        return ""


def field(segment: Sequence[str], number: int) -> str:
    """Return a field of a segment by its number; "" where it is missing or deleted."""
    value = segment[number] if number < len(segment) else ""
    return "" if value == '""' else value


def split_messages(content: bytes) -> list[bytes]:
    """Return the messages of a file, which may be framed as on a connection or be a batch."""
    plain = content.replace(b"\x0b", b"\r").replace(b"\x1c", b"\r").removeprefix(b"\xef\xbb\xbf")
    starts = [match.start() for match in re.finditer(rb"(?:(?<=[\r\n])|\A)\s*MSH(?=[^\w\s])", plain)]
    return [plain[start:end] for start, end in pairwise([*starts, len(plain)])]


def parse_message(content: bytes) -> Message:
    """Read a message.

    Raises:
        ReportError: It is none of HL7 v2, or not in its character set.
    """
    content = content.strip(b"\x0b\x1c\r\n \t")
    head = re.match(rb"MSH([^\w\s])", content)
    if head is None:
        raise ReportError("it does not begin with MSH and its separators")
    text = _decoded(content, head[1])
    lines = [line for line in re.split(r"[\r\n]+", text.strip("\x0b\x1c\ufeff")) if line.strip()]
    if len(lines) > MOST_SEGMENTS:
        raise ReportError(f"it has more than {MOST_SEGMENTS:,} segments")
    separator, signs = lines[0][3], lines[0][4:].split(lines[0][3], 1)[0]
    if len(signs) < 2 or separator in signs or len(set(signs)) < len(signs):
        raise ReportError("MSH-2 does not name the encoding characters, such as ^~\\&")
    segments: list[list[str]] = []
    for line in lines:
        fields = line.split(separator)
        name = fields[0].strip()
        if name in _BATCH:
            continue
        if not re.fullmatch(r"[A-Z][A-Z0-9]{2}", name):
            # A line of text that was broken with the end of a segment.
            if segments and segments[-1][0] == "OBX" and len(segments[-1]) > 5:
                last = segments[-1]
                last[5 if len(last) == 6 else len(last) - 1] += "\n" + line
                continue
            raise ReportError(f"segment {len(segments) + 1} has no name of three letters")
        segments.append([name, separator, *fields[1:]] if name == "MSH" else [name, *fields[1:]])
    padded = signs + _USUAL_SIGNS[len(signs) :]
    return Message(tuple(map(tuple, segments)), padded[0], padded[1], padded[2], padded[3])


def _decoded(content: bytes, separator: bytes) -> str:
    fields = re.split(rb"[\r\n]", content, maxsplit=1)[0].split(separator)
    declared = fields[17].split(b"~")[0].decode("ascii", "replace").strip().upper() if fields[17:] else ""
    if declared not in _CHARSETS:
        reason = "MSH-18 names a character set that is not known; send UNICODE UTF-8 or 8859/1"
        raise ReportError(reason, "103^Table value not found")
    codes = [_CHARSETS[declared]] if _CHARSETS[declared] else ["utf-8", _USUAL, "iso-8859-1"]
    for code in codes:
        with suppress(UnicodeError):
            return content.decode(code)
    raise ReportError(f"it is not in the character set of its MSH-18, {declared}")


def read_message(message: Message) -> Iterator[SourceReport]:
    """Give the reports of a message, one for each OBR with a text.

    Raises:
        ReportError: It is no ORU^R01, or has no report.
    """
    if message.kind.split("^")[0] != "ORU":
        raise ReportError("it is no message with a report (ORU^R01)", "200^Unsupported message type")
    patients, names = _patients(message), _names(message)
    # Each OBR with the ORC before it, and the segments behind it.
    groups: list[list[Segment]] = []
    common: Segment = ()
    for segment in message.segments:
        if segment[0] == "ORC":
            common = segment
        elif segment[0] == "OBR":
            groups.append([common, segment])
            common = ()
        elif segment[0] in ("OBX", "ZDS") and groups:
            groups[-1].append(segment)
    reports = list(filter(None, (_report(message, group, patients, names) for group in groups)))
    if not reports:
        pictures = any(field(one, 2) in ("ED", "RP") for one in message.segments if one[0] == "OBX")
        kind = "only documents such as PDF" if pictures else "no text in OBX-5"
        raise ReportError(f"it has {kind}; text is sent as TX, FT or ST", FIELD_MISSING)
    yield from reports


def _report(
    message: Message, group: Sequence[Segment], patients: tuple[str, ...], names: tuple[str, ...]
) -> SourceReport | None:
    common, order, *others = group
    results = [segment for segment in others if segment[0] == "OBX"]
    status, text = _status(order, results), _text(message, results)
    if not text.strip() and status != "withdrawn":
        return None
    named = [one for one in (*others, *message.segments) if one[0] == "ZDS"]
    coded = [one for one in results if message.first(field(one, 3)) in _STUDY_CODES]
    studies = (*(field(one, 1) for one in named), *(field(one, 5) for one in coded))
    numbers = (field(order, 18), field(order, 3), field(order, 2), field(common, 3), field(common, 2))
    times = (field(order, 22), *(field(one, 14) for one in results), field(order, 7), field(message.head, 7))
    return SourceReport(
        text=text,
        studies=tuple(map(message.first, studies)),
        accessions=tuple(filter(None, map(message.first, numbers))),
        patients=patients,
        identity=message.first(field(order, 3)) or message.first(field(common, 3)),
        status=status,
        issued=next(filter(None, (parse_time(message.first(one)) for one in times)), None),
        names=names,
    )


def _status(order: Sequence[str], results: Sequence[Sequence[str]]) -> Status:
    given = field(order, 25).strip().upper()[:1]
    if not given:
        own = {field(one, 11).strip().upper()[:1] for one in results} - {""}
        given = next((sign for sign in "PRSICF" if sign in own), min(own, default=""))
    # Here "A" is a part of the results; elsewhere it is an amended report.
    return "preliminary" if given == "A" else parse_status(given) or "final"


def _text(message: Message, results: Sequence[Sequence[str]]) -> str:
    """Return the lines of all texts, under a heading where OBX-3 names another section than before."""
    lines: list[str] = []
    section = ""
    # Braces of an RTF document that are open: its backslashes are its own where they are not escaped.
    open_braces = 0
    for one in results:
        kind, identifier, value = field(one, 2), field(one, 3), field(one, 5)
        name = next(iter(message.components(identifier)[1:]), "")
        is_number = kind in _NUMBER_TYPES and has_forms(name)
        if not (is_number or kind in _TEXT_TYPES) or field(one, 11).strip().upper()[:1] in _WITHDRAWN:
            continue
        if message.first(identifier) in _STUDY_CODES:
            continue
        own = _section(message, identifier)
        if own and own != section:
            lines.append(f"\n{own}:")
            section = own
        if open_braces or value.lstrip().startswith(RTF):
            open_braces += sum(1 if brace == "{" else -1 for brace in _BRACE.findall(value))
            lines.append(value.replace("\\.br\\", "\n"))
            continue
        if is_number:
            said = [" ".join((*message.words(value), message.first(field(one, 6))))]
        elif kind in ("CE", "CWE"):
            parts = message.components(value)
            said = [parts[1] if len(parts) > 1 else parts[0]]
        else:
            said = [message.plain(part) for part in value.split(message.repetition)]
        # The name of a finding belongs to its value: "Pneumothorax", "Absent".
        is_named = len(said) == 1 and has_forms(name)
        lines += [named_value(name, said[0], is_number=is_number)] if is_named else said
    return "\n".join(lines)


def _section(message: Message, identifier: str) -> str:
    """Return the heading of what OBX-3 names; "" for the whole report."""
    codes = [code.strip().upper() for code in message.words(identifier)]
    coded = filter(None, map(SECTION_CODES.get, codes))
    named = (code for code in codes if kind_of(code) not in (None, "identifying", "examination"))
    heading = next(coded, None) or next(named, "")
    whole = ("REPORT", "REPORT TEXT", "NARRATIVE", "RESULT", "BEFUND", "DESCRIPTION", "RADIOLOGY REPORT")
    return "" if heading in whole else heading


def _patients(message: Message) -> tuple[str, ...]:
    """Return all ids of the patient: the repetitions of PID-3, then the external and the alternate id."""
    person = next((segment for segment in message.segments if segment[0] == "PID"), ())
    given = [one for number in (3, 2, 4) for one in field(person, number).split(message.repetition)]
    ids = (message.first(one) for one in given)
    return tuple(one for one in ids if one not in ("", '""'))


def _names(message: Message) -> tuple[str, ...]:
    fields_by_segment = {
        "PID": (2, 3, 4, 5, 6, 7, 9, 11, 13, 14, 18, 19, 20),
        "PD1": (4,),
        "NK1": (2, 4, 5, 6),
        "PV1": (5, 7, 8, 9, 17, 19, 50, 52),
        "ORC": (2, 3, 10, 11, 12, 14),
        "OBR": (2, 3, 10, 14, 16, 17, 18, 19, 28, 32, 33, 34, 35),
        "OBX": (16,),
    }
    fields = (field(one, number) for one in message.segments for number in fields_by_segment.get(one[0], ()))
    return tuple(dict.fromkeys(word for value in fields for word in message.words(value)))
