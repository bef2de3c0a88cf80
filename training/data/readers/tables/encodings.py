"""Opens the text of a table or a report in its encoding: no byte is replaced, a wrong encoding is named."""

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, TextIO, cast

from training.data.readers.tables.guesses import likely_encodings, reads_by_chance
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
    (b"\x1f\x8b", "compressed by gzip (its name has to end in .gz)"),
)
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_TEXT_LINE_END: Final = re.compile("\r\n|\r|\n")
_SAMPLE: Final = 30
_GUESSED: Final = 2**13
_LONGEST_START: Final = 2**20
_NAMED: Final = 10


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

    Args:
        content: The whole file.
        name: Of the file, for messages.
        encoding: For a file without a mark; UTF-8 without it.

    Raises:
        DataError: The file is none of text or has another encoding.
    """
    code = _encoding(name, content[:4096], encoding)
    try:
        return _TEXT_LINE_END.sub("\n", content.decode(code))
    except UnicodeError as error:
        raise DataError(_undecodable(name, content, code, error, offered=True)) from error


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


def _not_utf8(name: str, content: bytes, place: int, *, offered: bool) -> str:
    wrong: list[tuple[int, bytes]] = []
    right: list[tuple[int, bytes]] = []
    for number, line in enumerate(_LINE_END.split(content), 1):
        if not line.isascii():
            (right if _is_utf8(line) else wrong).append((number, line))
    sentence = f"{name}: line {wrong[0][0]} is not UTF-8"
    guesses = likely_encodings(_some_lines(line for _, line in wrong))
    start = _LINE_END.split(content[max(0, place - _GUESSED // 2) : place])[-1]
    readings = [
        f"{guess.title}: {_shown(guess.name, start, content[place : place + _GUESSED])!r}"
        for guess in guesses
    ]
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
    first = guesses[0].name
    if len(guesses) == 1:
        option = f" or give `--encoding {first.lower()}`" if offered else ""
        return f"{sentence}{reads}. Convert the file with `iconv -f {first.upper()} -t UTF-8`{option}."
    options = _either([f"`--encoding {guess.name.lower()}`" for guess in guesses])
    convert = "onvert the file with `iconv -f ENCODING -t UTF-8`"
    if not offered:
        return f"{sentence}{reads}. C{convert} and the one that reads right."
    return f"{sentence}{reads}. Give the one that reads right, {options}, or c{convert}."


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


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


def _shown(name: str, start: bytes, rest: bytes) -> str:
    """The place of the first wrong byte as it reads in an encoding."""
    line = _LINE_END.split(rest, maxsplit=1)[0].decode(name, "ignore")
    return (start.decode(name, "ignore")[-_SAMPLE:] + line[:_SAMPLE]).strip()


def _either(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} or {parts[-1]}"
