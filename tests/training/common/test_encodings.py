"""Encodings of tables: byte order marks, other encodings by name, and files that are no text."""

import codecs
import gzip
from pathlib import Path

import pytest

from tests.training.cases import read_cases
from training.common.encodings import decode_text, likely_encodings, open_text, reads_as_utf8
from training.common.errors import DataError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "t.csv"


def read(path: Path, encoding: str | None = None) -> str:
    with open_text(path, encoding) as text:
        return text.read()


@pytest.mark.parametrize(
    ("mark", "code"),
    [
        *((codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"), (b"", "utf-8")),
        *((codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be"), (codecs.BOM_UTF8, "utf-8")),
    ],
)
@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_a_mark_decides(tmp_path: Path, name: str, mark: bytes, code: str) -> None:
    path = tmp_path / name
    content = mark + "image,text\r\n1.jpg,Épanchement 胸水\r\n".encode(code)
    path.write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    assert read(path) == "image,text\r\n1.jpg,Épanchement 胸水\r\n"


def test_another_encoding_is_named_with_the_line_and_the_way_out(path: Path) -> None:
    path.write_bytes("image,text\n1.jpg,a dog\n2.jpg,Épanchement à droite\n".encode("cp1252"))
    with pytest.raises(DataError) as raised:
        read(path)
    assert str(raised.value) == (
        f"{path}: line 3 is not UTF-8; it reads as Windows-1252: '2.jpg,Épanchement à droite'. "
        "Convert the file with `iconv -f WINDOWS-1252 -t UTF-8` or give `--encoding windows-1252`."
    )
    assert "2.jpg,Épanchement à droite" in read(path, "windows-1252")


def test_a_wrong_byte_far_down_is_named_by_its_line(path: Path) -> None:
    path.write_bytes(b"1.jpg,a dog\r\n" * 20_000 + b"2.jpg,caf\xe9\r\n")
    with pytest.raises(DataError, match=r"line 20001 is not UTF-8; it reads as Windows-1252: '2.jpg,café'"):
        read(path)


def test_lines_in_two_encodings_are_to_be_mended(path: Path) -> None:
    path.write_bytes("image,text\n1.jpg,café\n".encode() + b"2.jpg,caf\xe9\n")
    with pytest.raises(DataError) as raised:
        read(path)
    assert str(raised.value) == (
        f"{path}: line 3 is not UTF-8, as line 2 is; it reads as Windows-1252: '2.jpg,café'. "
        "The file has two encodings: mend line 3."
    )
    path.write_bytes(b"image,text\n" + b"2.jpg,caf\xe9\n" * 12 + "1.jpg,the dog’s café\n".encode())
    with pytest.raises(DataError, match=r"line 2 is not UTF-8, as line 14 is; .* mend line 14, then give `"):
        read(path)


def test_letters_that_are_utf_8_by_chance_belong_to_the_encoding_of_the_others(path: Path) -> None:
    lines = "image,text\n1.jpg,жив\n2.jpg,一只狗在海边奔跑\n3.jpg,右侧胸腔积液\n"
    # The two bytes of this letter in GBK are a letter of UTF-8 as well.
    path.write_bytes(lines.replace("жив", "路").encode("gbk"))
    assert "路".encode("gbk").decode("utf-8")
    with pytest.raises(DataError, match=r"line 3 is not UTF-8; it reads as GB18030: .*`--encoding gb18030`"):
        read(path)


def test_one_report_is_decoded_as_a_table_is() -> None:
    assert decode_text("a\r\nö\r".encode("utf-16"), "r.txt") == "a\nö\n"
    assert decode_text(b"caf\xe9", "r.txt", "windows-1252") == "café"
    with pytest.raises(DataError, match=r"r.txt: line 2 is not UTF-8; it reads as Windows-1252: 'café'"):
        decode_text(b"a\ncaf\xe9", "r.txt")


def test_bytes_that_are_not_of_the_encoding_given(path: Path) -> None:
    path.write_bytes(b"image,text\n1.jpg,caf\xe9\n")
    with pytest.raises(DataError, match=r"line 2 is not shift_jis; .* `--encoding`"):
        read(path, "shift_jis")


def test_utf_16_without_a_mark_is_named(path: Path) -> None:
    path.write_bytes("image\ttext\n".encode("utf-16-le"))
    with pytest.raises(DataError, match="--encoding utf-16-le"):
        read(path)
    assert read(path, "utf-16-le") == "image\ttext\n"


@pytest.mark.parametrize(
    ("start", "kind"),
    [
        (b"PK\x03\x04\x14\0", "Excel workbook"),
        (b"\xd0\xcf\x11\xe0", "Excel workbook"),
        (b"PAR1\x15", "Parquet"),
    ],
)
def test_other_files_are_named(tmp_path: Path, start: bytes, kind: str) -> None:
    path = tmp_path / "t.xlsx"
    path.write_bytes(start + bytes(100))
    with pytest.raises(DataError, match=rf"{kind}.*save it as CSV in UTF-8"):
        read(path)


@pytest.mark.parametrize("encoding", ["klingon", "rot13", "hex"])
def test_unknown_encodings(path: Path, encoding: str) -> None:
    path.write_text("image\n")
    with pytest.raises(DataError, match=f"'{encoding}' is no encoding"):
        read(path, encoding)


def test_damaged_archives_are_an_error(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"image,text\n" * 1000)[:-20])
    with pytest.raises(DataError, match="cannot be read"):
        read(path)


CASES = [
    (encoding, text, bool(few))
    for heading, text, _ in read_cases(Path(__file__).with_name("encodings.txt"))
    for few, _, encoding in [heading.rpartition(", ")]
]


@pytest.mark.parametrize(("encoding", "text", "few_letters"), CASES)
def test_encodings_that_tables_are_saved_in(encoding: str, text: str, few_letters: bool) -> None:
    guesses = likely_encodings(text.encode(encoding))
    assert len(guesses) <= 3
    if few_letters:
        assert text in [guess.text for guess in guesses]
    else:
        assert guesses[0].name == encoding


def test_several_encodings_are_shown_as_they_read(path: Path) -> None:
    path.write_bytes("image,text\r1.jpg,a dog\r2.jpg,Cœur normal – “caché”\r".encode("cp1252"))
    with pytest.raises(DataError) as raised:
        read(path)
    assert str(raised.value) == (
        f"{path}: line 3 is not UTF-8; it reads as Windows-1252: '2.jpg,Cœur normal – “caché”' or "
        "Windows-1250: '2.jpg,Cśur normal – “caché”'. Convert the file with `iconv -f ENCODING -t UTF-8` or "
        "give `--encoding windows-1252` or `--encoding windows-1250`, by the one that reads right."
    )
    assert "Cœur" in read(path, "windows-1252")


def test_bytes_of_no_encoding() -> None:
    assert not likely_encodings(bytes(range(0x80, 0x100)) * 2)


def test_a_file_in_utf8_is_noticed(path: Path) -> None:
    path.write_text("1.jpg,Épanchement\n", encoding="utf-8")
    assert reads_as_utf8(path, "windows-1252")
    assert not reads_as_utf8(path, "UTF8")
    path.write_text("1.jpg,Épanchement\n", encoding="cp1252")
    assert not reads_as_utf8(path, "windows-1252")
    path.write_text("1.jpg,a dog\n")
    assert not reads_as_utf8(path, "windows-1252")
