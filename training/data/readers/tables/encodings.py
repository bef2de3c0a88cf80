"""Opens the text of a table in its encoding: no byte is replaced, and a wrong encoding is named."""

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO, Final, TextIO, cast

from training.errors import DataError

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
)
_LINE_END: Final = re.compile("\r\n|\r|\n")
_HIGH: Final = re.compile(rb"[\x80-\xff]+")
_INSIDE_WORD: Final = re.compile(rb"(?<=[A-Za-z])[\x80-\xff]+(?=[A-Za-z])")
_SAMPLE: Final = 30
_GUESSED: Final = 2**16
_LONGEST_START: Final = 2**20


@dataclass(frozen=True)
class _Candidate:
    """An encoding that tables are saved in.

    Attributes:
        name: For messages, and as `iconv` and Python call it.
        usual: The characters beyond ASCII that its texts mostly consist of.
        least: Smallest share of these characters.
    """

    name: str
    usual: re.Pattern[str]
    least: float


_WESTERN: Final = re.compile(
    "[A-Za-zÀÂÄÅÆÇÉÈÊËÍÎÑÓÔÖØÚÜßàáâãäåæçèéêëìíîïñòóôõöøùúûüœ°–—…‘’“”„«»€²³µ½·®©\xa0]"
)
_POLISH_TO_CZECH: Final = re.compile("[ąćęłńśźżĄĆĘŁŃŚŹŻáčďéěíňóřšťúůýžÁČĎÉĚÍŇÓŘŠŤÚŮÝŽőűŐŰöüäô–—„”“°]")
# Each byte beyond ASCII is a character, mostly alone among those of ASCII.
_ALONE: Final = (
    _Candidate("Windows-1252", _WESTERN, 0.9),
    _Candidate("Macintosh", _WESTERN, 0.9),
    _Candidate("Windows-1250", _POLISH_TO_CZECH, 0.9),
    _Candidate("Windows-1252", _WESTERN, 0.5),
)
# Two bytes beyond ASCII are a character.
_PAIRS: Final = (
    # Reports have few kana among their Han; texts in Chinese encodings give next to none here.
    _Candidate("Shift_JIS", re.compile("[\u3040-\u30ff]"), 0.1),
    _Candidate("EUC-JP", re.compile("[\u3040-\u30ff]"), 0.1),
    _Candidate("EUC-KR", re.compile("[\uac00-\ud7a3]"), 0.85),
)
_WORDS: Final = (
    _Candidate("Windows-1251", re.compile("[а-яё]"), 0.7),
    _Candidate("Windows-1253", re.compile("[α-ωάέήίόύώ]"), 0.7),
)
_IDEOGRAPHS: Final = (_Candidate("GB18030", re.compile("[\u4e00-\u9fff\u3000-\u303f\uff00-\uffef]"), 0.9),)


@contextmanager
def open_text(path: Path, encoding: str | None = None) -> Iterator[TextIO]:
    """Open a table as text whose lines keep their ends; a byte order mark decides and is passed over.

    Args:
        path: The table; uncompressed on the way if it ends in .gz.
        encoding: For a table without a mark; UTF-8 without it.

    Raises:
        DataError: The file cannot be read or is none of text; in the block, it has another encoding.
    """
    try:
        with open_binary(path) as raw:
            code = _encoding(path, raw.read(4096), encoding)
        with open_binary(path) as raw, io.TextIOWrapper(raw, encoding=code, newline="") as text:
            yield text
    except UnicodeError as error:
        raise DataError(_undecodable(path, code, error)) from error
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read: {error}.") from error


def open_binary(path: Path) -> BinaryIO:
    """Open a file that may be compressed, by its ending."""
    return cast("BinaryIO", gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def reads_as_utf8(path: Path, encoding: str) -> bool:
    """Whether a file that is given another encoding begins with letters beyond ASCII, all in UTF-8.

    Args:
        path: The file.
        encoding: Name of that encoding; a file in UTF-8 that is given it is none of these.

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


def _encoding(path: Path, start: bytes, encoding: str | None) -> str:
    for mark, code in _MARKS:
        if start.startswith(mark):
            return code
    for signature, kind in _OTHER_FILES:
        if start.startswith(signature):
            raise DataError(f"{path} is {kind}, not a table of text; save it as CSV in UTF-8.")
    if encoding is not None:
        return _checked(encoding)
    if b"\0" in start:
        code = "utf-16-le" if start[1:2] == b"\0" else "utf-16-be" if start[:1] == b"\0" else ""
        if code:
            raise DataError(f"{path} reads as UTF-16 without a byte order mark; give `--encoding {code}`.")
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


def _undecodable(path: Path, code: str, error: UnicodeError) -> str:
    """One sentence with the first line that is wrong, and the way out."""
    with open_binary(path) as raw:
        content = raw.read()
    try:
        content.decode(code)
    except UnicodeDecodeError as first:
        return _first_wrong_line(path, code, first)
    except UnicodeError as other:
        # UTF-16 without its mark, for one, is wrong at no byte.
        error = other
    return f"{path} cannot be read as {code}: {error}; give its `--encoding`."


def _first_wrong_line(path: Path, code: str, first: UnicodeDecodeError) -> str:
    before = bytes(first.object[: first.start])
    line = len(_LINE_END.findall(before.decode(code, "ignore"))) + 1
    name = "UTF-8" if code.startswith("utf-8") else code
    sentence = f"{path}: line {line} is not {name}"
    start, rest = before.rpartition(b"\n")[2], bytes(first.object[first.start :])
    guess = guess_encoding(_whole_lines(start + rest)) if name == "UTF-8" else None
    if guess is None:
        return f"{sentence}; convert the file to UTF-8 or give its `--encoding`."
    shown = (
        start.decode(guess, "ignore")[-_SAMPLE:] + rest.partition(b"\n")[0].decode(guess, "ignore")[:_SAMPLE]
    )
    if not before.isascii():
        return (
            f"{sentence}, as the lines before are; it reads as {guess}: {shown.strip()!r}. "
            "Mend the lines that another program added."
        )
    return (
        f"{sentence}; it reads as {guess}: {shown.strip()!r}. Convert the file with "
        f"`iconv -f {guess.upper()} -t UTF-8` or give `--encoding {guess.lower()}`."
    )


def _whole_lines(content: bytes) -> bytes:
    """The beginning of the content, up to the end of a line, so that no character is cut."""
    start = content[:_GUESSED]
    return start[: start.rfind(b"\n") + 1] or start if len(content) > _GUESSED else start


def guess_encoding(content: bytes) -> str | None:
    """The encoding that lines not in UTF-8 are most probably in; None for bytes of no known one."""
    runs = _HIGH.findall(content)
    alone = next((candidate.name for candidate in _ALONE if _share(content, candidate)), None)
    if sum(map(len, runs)) < 2 * len(runs):
        return alone
    # "Größe" has two of them side by side.
    if alone is not None and 2 * len(_INSIDE_WORD.findall(content)) >= len(runs):
        return alone
    for candidates in (_PAIRS, _WORDS, _IDEOGRAPHS, _ALONE):
        shares = [(_share(content, candidate), candidate.name) for candidate in candidates]
        share, name = max(shares, key=itemgetter(0))
        if share:
            return name
    return None


def _share(content: bytes, candidate: _Candidate) -> float:
    """Share of the candidate's usual characters beyond ASCII; 0 where there are too few, or other bytes."""
    try:
        text = content.decode(candidate.name)
    except UnicodeDecodeError:
        return 0.0
    beyond = [character for character in text if not character.isascii()]
    share = sum(candidate.usual.match(character) is not None for character in beyond) / max(1, len(beyond))
    return share if share >= candidate.least else 0.0
