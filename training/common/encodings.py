"""Opens the text of a table or a report in its encoding: no byte is replaced, a wrong encoding is named.

Bytes beyond ASCII are read in each encoding, and the readings are scored by the logarithm of the probability
of their characters: usual letters of the languages that the encoding is for, in positions where such letters
are. A capital behind a small letter or a sign within a word is a mark of the wrong encoding.
"""

import codecs
import gzip
import io
import re
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import log
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, TextIO, cast

from training.common.errors import DataError

_MARKS: Final = (
    # The mark of UTF-32 begins with that of UTF-16.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_OTHER_FILES: Final = (
    (b"PK\x03\x04", "a ZIP archive or an Excel workbook (.xlsx)"),
    (b"\xd0\xcf\x11\xe0", "an Excel workbook (.xls)"),
    (b"PAR1", "a Parquet file"),
    (b"%PDF", "a PDF file"),
    (b"\x1f\x8b", "compressed by gzip (its name has to end in .gz)"),
)
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_TEXT_LINE_END: Final = re.compile("\r\n|\r|\n")
_SAMPLE: Final = 30
_GUESSED: Final = 2**13
_LONGEST_START: Final = 2**20
_NAMED: Final = 10

# Readings that are so much less probable than the best are not named.
_MARGIN: Final = 3.0
_MOST: Final = 3
# A mean below this over the characters beyond ASCII is no text.
_LEAST_MEAN: Final = -6.2
_OTHER, _CONTROL = log(1 / 3_000), log(1 / 1_000_000)
_SIGN_IN_WORD, _CASE_IN_WORD = log(0.005), log(0.02)
_MIXED_SCRIPTS, _ADJACENT, _WITHIN_CAPITALS = log(0.0005), log(0.15), log(0.85)
_NEXT_TO_SMALL, _NEXT_TO_CAPITAL, _ISOLATED = log(0.01), log(0.3), log(0.1)
_FINAL_FORMS: Final = frozenset("ךםןףץ")
_IN_WORDS: Final = frozenset("’'-\u00ad")


@contextmanager
def open_text(path: Path, encoding: str | None = None, *, offered: bool = True) -> Iterator[TextIO]:
    """Open a table as text whose lines keep their ends; a byte order mark decides and is passed over.

    Args:
        path: The table; uncompressed on the way if it ends in .gz.
        encoding: For a table without a mark; UTF-8 without it.
        offered: Whether the user can give the encoding, for messages.

    Raises:
        DataError: The file cannot be read or is none of text; in the block, it has another encoding.
    """
    try:
        with open_binary(path) as raw:
            code = _encoding(str(path), raw.read(4096), encoding)
        with open_binary(path) as raw, io.TextIOWrapper(raw, encoding=code, newline="") as text:
            yield text
    except UnicodeError as error:
        with open_binary(path) as raw:
            content = raw.read()
        raise DataError(_undecodable(str(path), content, code, error, offered=offered)) from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}.") from error


def decode_text(content: bytes, name: str, encoding: str | None = None) -> str:
    """The text of a file, such as one report, its lines ending as in Unix; a byte order mark decides.

    `name` is that of the file, for messages; a file without a mark has the `encoding`, UTF-8 by default.

    Raises:
        DataError: The file is none of text or has another encoding.
    """
    code = _encoding(name, content[:4096], encoding)
    try:
        return _TEXT_LINE_END.sub("\n", content.decode(code))
    except UnicodeError as error:
        raise DataError(_undecodable(name, content, code, error, offered=True)) from error


def read_text(path: Path, name: str, encoding: str | None = None, most: int = 1 << 20) -> str:
    """The text of a file of at most `most` bytes, as `decode_text` gives it.

    Raises:
        DataError: The file is larger, cannot be read, is none of text or has another encoding.
    """
    try:
        if path.stat().st_size > most:
            raise DataError(f"{name} has over {most >> 20} MiB")
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"{name} cannot be read: {error.strerror or error}") from error
    return decode_text(content, name, encoding)


def open_binary(path: Path) -> BinaryIO:
    """Open a file that may be compressed, by its ending."""
    return cast("BinaryIO", gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def reads_as_utf8(path: Path, encoding: str) -> bool:
    """Whether a file that is given another encoding begins with letters beyond ASCII, all in UTF-8.

    A file whose given encoding is UTF-8 is none of these.

    Raises:
        DataError: The file cannot be read.
    """
    if codecs.lookup(encoding).name in ("utf-8", "utf-8-sig"):
        return False
    try:
        with open_binary(path) as file:
            start = file.read(_LONGEST_START)
        text = codecs.getincrementaldecoder("utf-8")().decode(start)
    except UnicodeDecodeError:
        return False
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}.") from error
    return not text.isascii() and "\0" not in text


def _encoding(name: str, start: bytes, encoding: str | None) -> str:
    for mark, code in _MARKS:
        if start.startswith(mark):
            return code
    for signature, kind in _OTHER_FILES:
        if start.startswith(signature):
            raise DataError(f"{name} is {kind}, not a table of text; save it as CSV in UTF-8.")
    if encoding is not None:
        return _checked(encoding)
    if b"\0" in start:
        code = "utf-16-le" if start[1:2] == b"\0" else "utf-16-be" if start[:1] == b"\0" else ""
        if code:
            raise DataError(f"{name} reads as UTF-16 without a byte order mark; give `--encoding {code}`.")
    return "utf-8"


def _checked(encoding: str) -> str:
    try:
        # Some codecs of Python turn bytes into bytes.
        "a".encode(encoding)
        b"a".decode(encoding, "ignore")
    except (LookupError, UnicodeError) as error:
        raise DataError(
            f"{encoding!r} is no encoding of texts that is known; such are utf-8, windows-1252 and utf-16-le."
        ) from error
    return encoding


def _undecodable(name: str, content: bytes, code: str, error: UnicodeError, *, offered: bool) -> str:
    """One sentence or two with the first line that is wrong, and the way out."""
    try:
        content.decode(code)
    except UnicodeDecodeError as first:
        if code.startswith("utf-8"):
            return _not_utf8(name, content, first.start, offered=offered)
        line = len(_TEXT_LINE_END.findall(content[: first.start].decode(code, "ignore"))) + 1
        return f"{name}: line {line} is not {code}; convert the file to UTF-8 or give its `--encoding`."
    except UnicodeError as other:
        # UTF-16 without its mark, for one, is wrong at no byte.
        error = other
    return f"{name} cannot be read as {code}: {error}; give its `--encoding`."


def _not_utf8(name: str, content: bytes, position: int, *, offered: bool) -> str:
    wrong: list[tuple[int, bytes]] = []
    right: list[tuple[int, bytes]] = []
    for number, line in enumerate(_LINE_END.split(content), 1):
        if not line.isascii():
            (right if _decoded(line, "utf-8") is not None else wrong).append((number, line))
    sentence = f"{name}: line {wrong[0][0]} is not UTF-8"
    guesses = likely_encodings(_some_lines(line for _, line in wrong))
    start = _LINE_END.split(content[max(0, position - _GUESSED // 2) : position])[-1]
    rest = _LINE_END.split(content[position : position + _GUESSED], maxsplit=1)[0]

    def shown(code: str) -> str:
        """What is around the first wrong byte."""
        return (start.decode(code, "ignore")[-_SAMPLE:] + rest.decode(code, "ignore")[:_SAMPLE]).strip()

    readings = [f"{one.title}: {shown(one.name)!r}" for one in guesses]
    reads = f"; it reads as {_either(readings)}" if readings else ""
    if right and not (guesses and reads_by_chance([line for _, line in right], guesses[0].name)):
        fewer = min(wrong, right, key=len)
        option = f", then give `--encoding {guesses[0].name.lower()}`" if guesses and offered else ""
        return (
            f"{sentence}, as line {right[0][0]} is{reads}. The file has two encodings: "
            f"mend {_numbered([number for number, _ in fewer])}{option if fewer is right else ''}."
        )
    if not guesses:
        return f"{sentence}; convert the file to UTF-8{' or give its `--encoding`' if offered else ''}."
    code = guesses[0].name.upper() if len(guesses) == 1 else "ENCODING"
    options = _either([f"`--encoding {guess.name.lower()}`" for guess in guesses])
    convert = f"Convert the file with `iconv -f {code} -t UTF-8`{f' or give {options}' if offered else ''}"
    return f"{sentence}{reads}. {convert}{', by the one that reads right' if len(guesses) > 1 else ''}."


def _some_lines(lines: Iterable[bytes]) -> bytes:
    """The first lines, whole so that no character is cut, but for a first one that is too long."""
    some = b""
    for line in lines:
        if some and len(some) + len(line) > _GUESSED:
            break
        some += line[:_LONGEST_START] + b"\n"
    return some


def _numbered(lines: Sequence[int]) -> str:
    shown = ", ".join(map(str, lines[:_NAMED]))
    more = f" and {len(lines) - _NAMED:,} more" if len(lines) > _NAMED else ""
    return f"line {shown}" if len(lines) == 1 else f"lines {shown}{more}"


def _either(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} or {parts[-1]}"


class Guess(NamedTuple):
    """An encoding in which bytes read as text: its name as Python and `iconv` call it, and for messages."""

    name: str
    text: str
    title: str


class _Alphabet(NamedTuple):
    """Characters beyond ASCII in texts of some languages; `sparse` ones stand among Latin letters."""

    usual: str
    common: str
    rare: str = ""
    sparse: bool = True

    def weights(self) -> dict[str, float]:
        groups = ((self.rare, 0.03), (self.common, 0.2), (self.usual, 0.77))
        return {sign: log(share / len(signs)) for signs, share in groups for sign in signs}


def _span(first: int, last: int) -> str:
    return "".join(map(chr, range(first, last + 1)))


_SIGNS: Final = "’“”„–…«»"
_RARE: Final = "°—‘€²³µ½·®©§±×\xa0‚›‹"
_WESTERN: Final = _Alphabet(
    "éèàäöüßáíóñçãêâôøåæ°", "úïîûùëõœÄÖÜÉÀÅØÊÇÓÁ¿¡µ±²" + _SIGNS, "ìòÈÂÎÔÛÍÚÑÃÕËÏÌÒÙÆŒÿ" + _RARE
)
_CENTRAL: Final = _Alphabet(
    "ąćęłńśźżáéíóěščřžýůúőűöüťňď", "ĄĆĘŁŃŚŹŻÁÉÍÓĚŠČŘŽÝŮÚŐŰÖÜŤŇĎäôľăâîşţßđ" + _SIGNS, "ÄÔĽĂÂÎŞŢĐŕĺŔĹ" + _RARE
)
_TURKISH: Final = _Alphabet("ıüöçşğ", "İÇŞĞÖÜâîû" + _SIGNS, _RARE)
_BALTIC: Final = _Alphabet("šžėąųūįęčāēīļņģķõäöü", "ŠŽĖĄŲŪĮĘČĀĒĪĻŅĢĶÕÄÖÜ" + _SIGNS, _RARE)
_CAPITALS: Final = _span(0x410, 0x42F)
_CYRILLIC: Final = _Alphabet(
    "оеаинтсрвлкмдпу", f"яыьгзбчйхжшюцщэфъё{_CAPITALS}Ё№іїєґ{_SIGNS}", f"ІЇЄҐ{_RARE}", sparse=False
)
_GREEK_CAPITALS: Final = _span(0x391, 0x3A1) + _span(0x3A3, 0x3A9)
_GREEK: Final = _Alphabet(
    f"{_span(0x3B1, 0x3C9)}άέήίόύώ", f"{_GREEK_CAPITALS}ΆΈΉΊΌΎΏ{_SIGNS}", _RARE, sparse=False
)
_HEBREW: Final = _Alphabet(_span(0x5D0, 0x5EA), f"־׳״₪{_SIGNS}", _RARE, sparse=False)
_ARABIC: Final = _Alphabet(
    _span(0x621, 0x63A) + _span(0x641, 0x64A),
    f"،؛؟ـپچژگکی{_SIGNS}",
    _span(0x64B, 0x652) + _RARE,
    sparse=False,
)
_THAI_LETTERS: Final = _span(0xE01, 0xE39) + _span(0xE40, 0xE4E)
_THAI: Final = _Alphabet(
    "านรกอเงมยลวดทสตปค่้ัีิะ", _THAI_LETTERS, f"{_span(0xE50, 0xE59)}฿“”‘’…\xa0", sparse=False
)

# The logarithm of how usual an encoding is compared with the others.
_SINGLE: Final = (
    ("Windows-1252", "", _WESTERN, 0.0), ("Windows-1250", "", _CENTRAL, -1.5),
    ("Macintosh", "", _WESTERN, -2.0), ("CP850", "DOS", _WESTERN, -2.0), ("CP437", "DOS", _WESTERN, -3.0),
    ("ISO-8859-2", "", _CENTRAL, -2.5), ("ISO-8859-15", "", _WESTERN, -3.0), ("CP852", "DOS", _CENTRAL, -3.5),
    ("Windows-1254", "Turkish", _TURKISH, -2.0), ("Windows-1257", "Baltic", _BALTIC, -2.5),
    ("Windows-1251", "", _CYRILLIC, -1.0), ("KOI8-R", "", _CYRILLIC, -2.5), ("CP866", "DOS", _CYRILLIC, -2.5),
    ("Windows-1253", "", _GREEK, -1.0), ("Windows-1255", "Hebrew", _HEBREW, -2.0),
    ("Windows-1256", "Arabic", _ARABIC, -2.0), ("CP874", "Thai, TIS-620", _THAI, -1.5),
)  # fmt: skip

_PUNCTUATION, _KANA, _HANGUL, _FREQUENT, _INFREQUENT = map(
    log, (1 / 60, 1 / 80, 1 / 800, 1 / 1_500, 1 / 40_000)
)
_UNUSUAL: Final = log(1 / 300_000)
_HALF_WIDTH, _MISPLACED = log(1 / 55), log(0.02)
_KANA_SMALL: Final = frozenset("ｧｨｩｪｫｬｭｮｯｰ｡｣､･")
_KANA_VOICED: Final = frozenset("ｳｶｷｸｹｺｻｼｽｾｿﾀﾁﾂﾃﾄﾊﾋﾌﾍﾎ")
_KANA_HALF: Final = frozenset(_span(0xFF61, 0xFF9F))


def _weight_of(*rows: tuple[int, int, float], first: int = 0x40) -> Callable[[bytes], float]:
    """Weights of characters by ranges of their first byte; with a second below `first` they are unusual."""
    by_lead = {lead: weight for start, end, weight in reversed(rows) for lead in range(start, end)}
    return lambda code: by_lead.get(code[0], _UNUSUAL) if code[1] >= first else _UNUSUAL


def _japanese(code: bytes) -> float:
    return _HALF_WIDTH if len(code) == 1 else _SHIFT_JIS(code)


# Standards order ideographs by how frequent they are: level 1 has those of daily use.
_SHIFT_JIS: Final = _weight_of(
    (0x81, 0x82, _PUNCTUATION), (0x82, 0x84, _KANA), (0x88, 0x98, _FREQUENT), (0x98, 0xEB, _INFREQUENT)
)
_EUC_JP: Final = _weight_of(
    (0xA1, 0xA2, _PUNCTUATION), (0xA3, 0xA6, _KANA), (0xB0, 0xD0, _FREQUENT), (0xD0, 0xF5, _INFREQUENT)
)
_GB: Final = _weight_of(
    *((0xA1, 0xA2, _PUNCTUATION), (0xA3, 0xA4, _PUNCTUATION)),
    *((0xB0, 0xD8, _FREQUENT), (0xD8, 0xF8, _INFREQUENT)),
    first=0xA1,
)
_BIG5: Final = _weight_of((0xA1, 0xA4, _PUNCTUATION), (0xA4, 0xC7, _FREQUENT), (0xC9, 0xFA, _INFREQUENT))
_KOREAN: Final = _weight_of(
    (0xA1, 0xA2, _PUNCTUATION), (0xB0, 0xC9, _HANGUL), (0xCA, 0xFE, _INFREQUENT), first=0xA1
)
_DOUBLE: Final = (
    *(("Shift_JIS", _japanese, 0.0), ("CP932", _japanese, -1.0), ("EUC-JP", _EUC_JP, -1.0)),
    *(("GB18030", _GB, 0.0), ("Big5", _BIG5, 0.0), ("CP950", _BIG5, -1.0)),
    *(("EUC-KR", _KOREAN, 0.0), ("CP949", _KOREAN, -1.0)),
)
# Characters of UTF-8; so many in one line are there by no chance, nor is a long one of single bytes.
_SEQUENCE: Final = re.compile(rb"[\xc2-\xf4][\x80-\xbf]+")
_LONG_SEQUENCE: Final = re.compile(rb"[\xe0-\xf4][\x80-\xbf]{2}")
_SURE: Final = 4
_SOME_LINES: Final = 100
_LETTER, _NO_LETTER = log(1 / 40), log(1 / 60)


def likely_encodings(content: bytes) -> list[Guess]:
    """The encodings that lines not in UTF-8 are probably in, the likeliest first, none twice for one text.

    Args:
        content: Lines, the first of them not in UTF-8; no character is cut at its end.

    Returns:
        One where the letters leave no doubt, else up to three; none for bytes that read as no text.
    """
    scored = sorted(_readings(content), key=lambda item: -item[0])
    by_text: dict[str, Guess] = {}
    for score, guess in scored:
        if score >= scored[0][0] - _MARGIN:
            by_text.setdefault(guess.text, guess)
    return list(by_text.values())[:_MOST]


def reads_by_chance(lines: Sequence[bytes], name: str) -> bool:
    """Whether lines that decode as UTF-8 are in another encoding, whose letters form UTF-8 by chance.

    Args:
        lines: With bytes beyond ASCII, all valid UTF-8.
        name: The encoding of the other lines of the file.
    """
    several = any(len(_SEQUENCE.findall(line)) >= _SURE for line in lines)
    single = any(name == other for other, *_ in _SINGLE)
    if several or (single and any(_LONG_SEQUENCE.search(line) for line in lines)):
        return False
    joined = b"\n".join(lines[:_SOME_LINES])
    return any(guess.name == name for _, guess in _readings(joined))


def _readings(content: bytes) -> Iterator[tuple[float, Guess]]:
    """Give the score of each encoding in which bytes read as text."""
    for name, about, alphabet, prior in _SINGLE:
        text = _decoded(content, name)
        if text is not None and (score := _score_letters(text, alphabet)) is not None:
            yield score + prior, Guess(name, text, f"{name} ({about})" if about else name)
    for name, weight, prior in _DOUBLE:
        text = _decoded(content, name)
        if text is not None and (score := _score_codes(text, name, weight)) is not None:
            yield score + prior, Guess(name, text, name)


def _decoded(content: bytes, name: str) -> str | None:
    try:
        return content.decode(name)
    except UnicodeDecodeError:
        return None


def _ascii_score(text: str) -> float:
    """Letters are weighed, as an encoding of two bytes takes some of them for second halves."""
    letters = sum(sign.isalpha() for sign in text if sign.isascii())
    others = sum(sign.isascii() for sign in text) - letters
    return letters * _LETTER + others * _NO_LETTER


def _score_letters(text: str, alphabet: _Alphabet) -> float | None:
    weights = alphabet.weights()
    total, count = 0.0, 0
    around = f" {text} "
    for position, sign in enumerate(text):
        if not sign.isascii():
            total += _weigh_letter(
                around[position], sign, around[position + 2], weights, sparse=alphabet.sparse
            )
            count += 1
    return None if not count or total < _LEAST_MEAN * count else total + _ascii_score(text)


def _weigh_letter(before: str, sign: str, after: str, weights: Mapping[str, float], *, sparse: bool) -> float:
    weight = weights.get(sign, _OTHER if sign.isprintable() else _CONTROL)
    is_mark = unicodedata.category(sign) == "Mn"
    if not sign.isalpha() and not is_mark:
        within = sparse and before.isalpha() and after.isalpha() and sign not in _IN_WORDS
        return weight + (_SIGN_IN_WORD if within else 0)
    if sign.isupper() and (before.isupper() or after.isupper()):
        weight = weights.get(sign.lower(), weight) + _WITHIN_CAPITALS
    capitals_within = (sign.isupper() and before.islower()) or (sign.islower() and after.isupper())
    if capitals_within or (sign in _FINAL_FORMS and after.isalpha()):
        weight += _CASE_IN_WORD
    if sparse:
        return weight + (_ADJACENT if before.isalpha() and not before.isascii() else 0)
    mixed = any(other.isascii() and other.isalpha() for other in (before, after))
    # A mark of Thai or Arabic has its letter before it.
    mixed = mixed or (is_mark and before.isascii())
    weight += _ISOLATED if before.isascii() and after.isascii() else 0
    return weight + (_MIXED_SCRIPTS if mixed else 0)


def _score_codes(text: str, name: str, weight: Callable[[bytes], float]) -> float | None:
    total, size = 0.0, 0
    around = f" {text} "
    for position, sign in enumerate(text):
        if sign.isascii():
            continue
        code = sign.encode(name)
        adjacent = (around[position], around[position + 2])
        small = any("a" <= other <= "z" or (len(code) == 1 and "A" <= other <= "Z") for other in adjacent)
        capital = any("A" <= other <= "Z" for other in adjacent)
        total += weight(code) + (_NEXT_TO_SMALL if small else _NEXT_TO_CAPITAL if capital else 0)
        if len(code) == 1 and not _is_half_width_kana(sign, *adjacent):
            total += _MISPLACED
        total += _ISOLATED if all(other.isascii() for other in adjacent) else 0
        size += len(code)
    return None if not size or total < _LEAST_MEAN * size else total + _ascii_score(text)


def _is_half_width_kana(sign: str, before: str, after: str) -> bool:
    """Whether one may stand here: none among ideographs, marks behind the letters that have them."""
    if any(not other.isascii() and other not in _KANA_HALF for other in (before, after)):
        return False
    if sign in "ﾞﾟ":
        return before in _KANA_VOICED
    return sign not in _KANA_SMALL or before in _KANA_HALF
