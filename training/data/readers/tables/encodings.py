"""Opens the text of a table in its encoding: no byte is replaced, and a wrong encoding is named."""

import codecs
import gzip
import io
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, TextIO, cast

from training.data.readers.tables.guesses import likely_encodings
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
_LAST_LINE: Final = re.compile(rb"[\r\n]")
_SAMPLE: Final = 30
_GUESSED: Final = 2**13
_LONGEST_START: Final = 2**20


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
    start, rest = _LAST_LINE.split(before)[-1][-_GUESSED // 2 :], bytes(first.object[first.start :])
    guesses = likely_encodings(_whole_lines(start + rest)) if name == "UTF-8" else []
    if not guesses:
        return f"{sentence}; convert the file to UTF-8 or give its `--encoding`."
    readings = [f"{guess.title}: {_shown(guess.name, start, rest)!r}" for guess in guesses]
    reads = f"it reads as {_either(readings)}"
    if not before.isascii():
        return f"{sentence}, as the lines before are; {reads}. Mend the lines that another program added."
    first_guess = guesses[0].name
    if len(guesses) == 1:
        return (
            f"{sentence}; {reads}. Convert the file with `iconv -f {first_guess.upper()} -t UTF-8` or give "
            f"`--encoding {first_guess.lower()}`."
        )
    options = _either([f"`--encoding {guess.name.lower()}`" for guess in guesses])
    return (
        f"{sentence}; {reads}. Give the one that reads right, {options}, or convert the file with "
        "`iconv -f ENCODING -t UTF-8`."
    )


def _whole_lines(content: bytes) -> bytes:
    """The beginning of the content, up to the end of a line, so that no character is cut."""
    start = content[:_GUESSED]
    end = max(start.rfind(b"\n"), start.rfind(b"\r")) + 1
    return start[:end] or start if len(content) > _GUESSED else start


def _shown(name: str, start: bytes, rest: bytes) -> str:
    """The place of the first wrong byte as it reads in an encoding."""
    line = _LAST_LINE.split(rest, 1)[0].decode(name, "ignore")
    return (start.decode(name, "ignore")[-_SAMPLE:] + line[:_SAMPLE]).strip()


def _either(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} or {parts[-1]}"
