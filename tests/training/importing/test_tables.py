"""Tables about images: what their columns hold, and rows as people and programs write and spoil them."""

import csv
import io
import tempfile
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, reject
from hypothesis import strategies as st
from PIL import Image

from tests.image_files import write_photo
from tests.training.importing.trees import imported, refused, touch, write
from training.common.errors import DataError
from training.common.manifest import MANIFEST_NAME, read_manifest
from training.common.record import Record
from training.common.tables import open_table
from training.common.values import is_not_known, is_without_words
from training.importing.report import ImportReport
from training.importing.tables import Columns, is_known_column, read_columns


def columns_of(folder: Path, header: str) -> Columns:
    path = folder / "t.csv"
    path.write_text(f"{header}\n")
    return read_columns(open_table(path, is_known_column))


@pytest.mark.parametrize(
    ("header", "indices", "metadata", "note"),
    [
        ("Image , TEXT, Split,place ", {"image": 0, "text": 1, "split": 2}, {3: "place"}, ""),
        (
            "File Name;Caption;label;patient_id;subset;report",
            {"image": 0, "text": 1, "labels": 2, "group": 3, "split": 4, "report": 5},
            {},
            "Took columns 'File Name' for image, 'Caption' for text, 'label' for labels, 'subset' for split "
            "and 'patient_id' for group.",
        ),
        (
            "path,caption,image,text",
            {"image": 2, "text": 3},
            {0: "path", 1: "caption"},
            "Took 'path' and 'caption' for metadata, in addition to the columns above.",
        ),
        (
            "image,age,place",
            {"image": 0},
            {1: "age", 2: "place"},
            "TABLE has no column of texts, such as 'text', 'caption' or 'report'; its other columns are "
            "'age' and 'place': rename one to 'text' or 'report'.",
        ),
        (",image,text,age,", {"image": 1, "text": 2}, {3: "age"}, ""),
    ],
)
def test_roles_of_columns(
    tmp_path: Path, header: str, indices: dict[str, int], metadata: dict[int, str], note: str
) -> None:
    columns = columns_of(tmp_path, header)
    assert (columns.indices, columns.metadata) == (indices, metadata)
    assert columns.notes == (() if not note else (note.replace("TABLE", str(tmp_path / "t.csv")),))


@pytest.mark.parametrize(
    ("header", "indices"),
    [
        ("Bildname;Beurteilung;Schlagw\xf6rter", {"image": 0, "report": 1, "labels": 2}),
        ("Foto;Diagnose", {"image": 0, "report": 1}),
        ("Bildname;Befundtext", {"image": 0, "report": 1}),
        ("Bild;Befund;Beurteilung;Diagnose", {"image": 0, "findings": 1, "impression": 2}),
        ("image,findings,impression", {"image": 0, "findings": 1, "impression": 2}),
        ("image,report,findings", {"image": 0, "report": 1, "findings": 2}),
        ("image,prompt", {"image": 0, "text": 1}),
        ("image,alt,title", {"image": 0, "text": 1}),
        ("image,title,description", {"image": 0, "text": 2}),
        ("Nom du fichier;L\xe9gende;Mots-cl\xe9s", {"image": 0, "text": 1, "labels": 2}),
        ("fichier;compte rendu", {"image": 0, "report": 1}),
        ("Archivo;Descripci\xf3n;Palabras clave", {"image": 0, "text": 1, "labels": 2}),
        ("imagen;hallazgos;impresi\xf3n", {"image": 0, "findings": 1, "impression": 2}),
        ("immagine;didascalia;etichette", {"image": 0, "text": 1, "labels": 2}),
        ("immagine;referto", {"image": 0, "report": 1}),
        ("afbeelding;bijschrift;trefwoorden", {"image": 0, "text": 1, "labels": 2}),
        ("bestandsnaam;bevindingen;conclusie", {"image": 0, "findings": 1, "impression": 2}),
        (
            "ファイル名,説明,所見,診断,患者ID",
            {"image": 0, "text": 1, "findings": 2, "impression": 3, "group": 4},
        ),
        ("画像,レポート,年齢", {"image": 0, "report": 1}),
        ("图像,描述,标签", {"image": 0, "text": 1, "labels": 2}),
        ("文件名,报告", {"image": 0, "report": 1}),
        ("影像,影像所见,诊断意见", {"image": 0, "findings": 1, "impression": 2}),
        ("파일명,설명,소견,결론", {"image": 0, "text": 1, "findings": 2, "impression": 3}),
        ("이미지;판독문", {"image": 0, "report": 1}),
        ("plik;opis;Wnioski", {"image": 0, "text": 1, "report": 2}),
        ("Zdjęcie;Opis badania", {"image": 0, "report": 1}),
        ("Файл;Описание;Заключение", {"image": 0, "text": 1, "report": 2}),
        ("Имя файла;Протокол;Пациент", {"image": 0, "report": 1, "group": 2}),
        ("arquivo;descrição;laudo", {"image": 0, "text": 1, "report": 2}),
        ("Imagem;Achados;Impressão", {"image": 0, "findings": 1, "impression": 2}),
    ],
)
def test_names_in_other_languages_and_trades(tmp_path: Path, header: str, indices: dict[str, int]) -> None:
    assert columns_of(tmp_path, header).indices == indices


def test_columns_of_several_texts_go_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    for names in (
        "caption1,caption2,caption3",
        "caption_1,caption_2,caption_3",
        "Caption 1,Caption 2,Caption 3",
    ):
        columns = columns_of(tmp_path, f"image,{names},place")
        assert (columns.texts, columns.metadata) == ((1, 2, 3), {4: "place"})
        one, two, three = map(repr, names.split(","))
        assert columns.notes == (f"Took columns {one}, {two} and {three} for text.",)
    assert columns_of(tmp_path, "image,caption10,caption2,caption").texts == (3, 2, 1)
    assert columns_of(tmp_path, "image,text,caption1").texts == (1,)
    assert columns_of(tmp_path, "image,place1,place2").texts == ()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of six photographs."""
    touch(tmp_path / "photos", *(f"{number}.jpg" for number in range(1, 7)))
    return tmp_path / "photos"


def import_table(folder: Path, text: str | bytes, **options: Any) -> tuple[ImportReport, list[Record]]:
    """Import the photographs of a folder with a table next to it."""
    write(folder.parent, "t.csv", text)
    options = {"most_decoded": 0, **options}
    report = imported("folder", folder, table=folder.parent / "t.csv", **options)
    records = list(read_manifest(folder).records)
    return report, records


def texts_of(records: list[Record]) -> dict[str, tuple[str, ...]]:
    return {record.image: record.texts for record in records}


def _doubled(value: str) -> str:
    return value.replace('"', '""')


class Case(NamedTuple):
    """A table, the texts of each image that is taken, and how what is said of rows and in notes begins."""

    table: str | bytes
    texts: dict[str, tuple[str, ...]]
    refused: Sequence[tuple[int, str]] = ()
    notes: Sequence[str] = ()


CASES = {
    "an open quote costs its own row alone": Case(
        'image,text\n1.jpg,"a dog\n2.jpg,a cat\n3.jpg,a bird\n4.jpg,a lake\n',
        {"2.jpg": ("a cat",), "3.jpg": ("a bird",), "4.jpg": ("a lake",)},
        [(2, "a quote opens that does not close before line 3, another row")],
    ),
    "an open quote that a later one closes": Case(
        'image,text\n1.jpg,"a dog\n2.jpg,a cat\n3.jpg,"a bird, flying"\n4.jpg,a lake\n',
        {"2.jpg": ("a cat",), "3.jpg": ("a bird, flying",), "4.jpg": ("a lake",)},
        [(2, "a quote opens")],
    ),
    **{
        f"an open quote ahead of {missing}": Case(
            f'image,text\n1.jpg,"a dog\n{missing}"\n3.jpg,a bird\n',
            {"3.jpg": ("a bird",)},
            [(2, "a quote opens"), (3, "")],
            ["1 row names its image by a path that begins with 'sub/'"] if missing.startswith("sub") else [],
        )
        for missing in ("7.jpg,a cat", "sub\\7.png,a cat", "7.jpg,a, cat", "7.jpg,")
    },
    "an open quote where the image is not the first column": Case(
        'text;image\n"a dog;1.jpg\na cat;2.jpg\n"a bird";3.jpg\n',
        {"2.jpg": ("a cat",), "3.jpg": ("a bird",)},
        [(2, "a quote opens")],
    ),
    "texts of several lines": Case(
        'image,text\n1.jpg,"a dog,\nruns"\n2.jpg,a lake\n',
        {"1.jpg": ("a dog, runs",), "2.jpg": ("a lake",)},
    ),
    "texts of several lines ahead of the image": Case(
        'text,image\n"a dog,\nruns",1.jpg\n"a\n","2.jpg"\n',
        {"1.jpg": ("a dog, runs",), "2.jpg": ("a",)},
    ),
    "too many and too few fields": Case(
        "image,text\n1.jpg,A dog, a cat and a bird.\n2.jpg\n3.jpg,a lake\n",
        {"3.jpg": ("a lake",)},
        [
            (2, "it has 3 fields where the header has 2; put a value with ',' in it into quotes"),
            (3, "it has 1 field where the header has 2"),
        ],
    ),
    "what a refused row needs": Case(
        "image,text\n1.jpg,a dog,,\n1.jpg,“a dog, wet”\n\u200b2.jpg,a dog\n'2.jpg',a dog\n3.jpg,a lake\n",
        {"3.jpg": ("a lake",)},
        [
            (2, "it has 4 fields where the header has 2; remove every ',' at its end"),
            (3, "it has 3 fields where the header has 2; put a value with ',' in it into quotes of this"),
            (4, "there is no image '\\u200b2.jpg' in FOLDER; is it '2.jpg'?"),
            (5, "there is no image \"'2.jpg'\" in FOLDER; is it '2.jpg'?"),
        ],
    ),
    "captions of Kaggle's Flickr8k": Case(
        b'image,caption\n1.jpg,A dog runs .\n1.jpg,"Two dogs , one ball ."\n2.jpg,A child sits .\n',
        {"1.jpg": ("A dog runs .", "Two dogs , one ball ."), "2.jpg": ("A child sits .",)},
        notes=["Took column 'caption' for text."],
    ),
    "captions of Kaggle's Flickr30k, with a row that lacks a bar": Case(
        "image_name| comment_number| comment\n1.jpg| 10| last\n1.jpg| 2| second\n1.jpg| 0| first\n"
        "2.jpg| 1| b\n2.jpg| | a\n3.jpg| 4   A child sits .\n",
        {"1.jpg": ("first", "second", "last"), "2.jpg": ("b", "a")},
        [(7, "it has 2 fields where the header has 3")],
        [
            "Took columns 'image_name' for image, 'comment' for text and 'comment_number' for the order of "
            "texts."
        ],
    ),
    "Flickr's own captions, without header and quotes": Case(
        '1.jpg#0\t"Old Ben" , a dog\r\n1.jpg#1\ta brown dog, wet\r\n2.jpg.1#0\tgone\r\n\r\n3.jpg#10\ta lake',
        {"1.jpg": ('"Old Ben" , a dog', "a brown dog, wet"), "3.jpg": ("a lake",)},
        [(3, "there is no image '2.jpg.1' in FOLDER")],
        ["Took TABLE for lines of a name, # and a number, a tab, and a caption."],
    ),
    "a line that is no caption": Case(
        "1.jpg#0\ta dog\n" * 60 + "2.jpg a lake\n",
        {"1.jpg": ("a dog",) * 60},
        [(61, "it is not a name, # and a number, a tab, and a caption, as other lines are")],
        ["Took TABLE for lines of a name", "59 rows repeat a text that its image has already; it is kept"],
    ),
    "a byte order mark": Case(
        "image,text\r\n1.jpg,a dog\r\n2.jpg,é\r\n".encode("utf-8-sig"),
        {"1.jpg": ("a dog",), "2.jpg": ("é",)},
    ),
    "UTF-16": Case(
        "image\ttext\n1.jpg\té\n".encode("utf-16"),
        {"1.jpg": ("é",)},
    ),
    "spaces around names": Case(
        "Image , Text\n1.jpg,a dog\n",
        {"1.jpg": ("a dog",)},
    ),
    "Excel's line ahead": Case(
        "sep=;\rimage;text\r1.jpg;a dog\r",
        {"1.jpg": ("a dog",)},
    ),
    "a field of any length": Case(
        f'image,text\n1.jpg,"{"word " * 40_000}"\n2.jpg,a lake\n,\n3.jpg\n',
        {"1.jpg": ("word " * 39_999 + "word",), "2.jpg": ("a lake",)},
        [(5, "it has 1 field where the header has 2")],
    ),
    "images alone": Case(
        "image\n1.jpg\n2.jpg\n",
        {"1.jpg": (), "2.jpg": ()},
        notes=["TABLE has no column of texts, such as 'text', 'caption' or 'report'."],
    ),
    "a title ahead": Case(
        "My photos\n\nimage,text\n1.jpg,a dog\n",
        {"1.jpg": ("a dog",)},
        notes=["Passed over 1 line ahead of the header."],
    ),
    "titles with empty fields ahead": Case(
        "Export,,\nof 2021,,\nimage,text,year\n1.jpg,a dog,2021\n",
        {"1.jpg": ("a dog",)},
        notes=["Passed over 2 lines ahead of the header."],
    ),
    "a row of known words is no header": Case(
        "file,kind,source\n1.jpg,photo,file\n2.jpg,label,text\n",
        {"1.jpg": (), "2.jpg": ()},
        notes=["Took column 'file' for image.", "TABLE has no column of texts"],
    ),
    "a header again": Case(
        "Image,text\n1.jpg,a dog\n\ufeffImage,text \n2.jpg,a lake\n",
        {"1.jpg": ("a dog",), "2.jpg": ("a lake",)},
    ),
    "a report and its sentences": Case(
        'image,report,text\n1.jpg,"Small left effusion. Heart size is normal.",an image\n'
        '1.jpg,"Small left effusion. Heart size is normal.",Heart size is normal.\n'
        "2.jpg,Normal.,\n3.jpg,___,dog\n",
        {
            "1.jpg": ("an image", "Heart size is normal.", "Small left effusion."),
            "2.jpg": ("Normal.",),
            "3.jpg": ("dog",),
        },
        notes=["1 text has neither letters nor digits: left out as empty: '___' on line 5."],
    ),
    "splits in other words": Case(
        "image,split\n1.jpg,Training\n2.jpg,validation\n3.jpg,TEST\n3.jpg,test\n4.jpg,odd\n",
        {"1.jpg": (), "2.jpg": (), "3.jpg": ()},
        [(6, "the split 'odd' is not one of train, val, test")],
        [
            "TABLE has no column of texts",
            "The split 'Training' is taken for train (line 2).",
            "The split 'validation' is taken for val (line 3).",
        ],
    ),
    "rows without an image or with one that cannot be read": Case(
        "image,text\n,a\nnan,b\na.jp2,c\nphoto.jpg,d\n7.jpg,e\n,\n../t.csv,f\na.dat,g\nb,h\n",
        {"Photo.JPG": ("d",), "a.dat": ("g",), "b": ("h",)},
        [
            (2, "it names no image"),
            (3, "it names no image"),
            (4, "'a.jp2' is one of the .jp2 files, which cannot be read (convert them to JPEG or PNG)"),
            (6, "there is no image '7.jpg' in FOLDER"),
            (8, "'../t.csv' is one of the .csv files, which are no images that can be read"),
        ],
        ["1 row names its image by a name that differs in upper and lower case alone: 'photo.jpg'"],
    ),
    "all rows of an image go with it": Case(
        f"image,text,labels\n1.jpg,a,{'x' * 2001}\n1.jpg,b,\n2.jpg,c,\n",
        {"2.jpg": ("c",)},
        [(2, "'labels[0]' has 2,001 bytes in UTF-8; the limit is 2,000")],
    ),
    "characters that were lost before": Case(
        "image,text\n1.jpg,caf\ufffd\n",
        {"1.jpg": ("caf\ufffd",)},
        notes=["1 row holds U+FFFD, which another program wrote for characters that it lost (line 2)."],
    ),
    "texts decoded twice, and texts that come again": Case(
        "image,text\n1.jpg,KÃ¶ln\n1.jpg,KÃ¶ln\n2.jpg,Köln\n2.jpg,naïve\n",
        {"1.jpg": ("KÃ¶ln", "KÃ¶ln"), "2.jpg": ("Köln", "naïve")},
        notes=[
            "1 row repeats a text that its image has already; it is kept: 'KÃ¶ln' on line 3.",
            "2 texts read as UTF-8 that another program took for Windows-1252, such as 'Ã¶' for 'ö': "
            "'KÃ¶ln' on line 2, 'KÃ¶ln' on line 3.",
        ],
    ),
    "a null character": Case(
        "image,text\n1.jpg,a dog\n1.jpg,a\0cat\n2.jpg,a lake\n",
        {"1.jpg": ("a dog",), "2.jpg": ("a lake",)},
        [(3, "it holds a null character")],
    ),
    "texts without words": Case(
        "image,text\n1.jpg,\u200b\n2.jpg,___\n3.jpg,...\n4.jpg,\U0001f436\n",
        {"1.jpg": (), "2.jpg": (), "3.jpg": (), "4.jpg": ("\U0001f436",)},
        notes=[
            "3 texts have neither letters nor digits: left out as empty: "
            "'\\u200b' on line 2, '___' on line 3, '...' on line 4."
        ],
    ),
    # As in tables of Kaggle, under a name that says nothing.
    "images without their ending": Case(
        "image_id,caption\n1,a dog\n6,a cat\n7,a cow\n",
        {"1.jpg": ("a dog",), "6.jpg": ("a cat",)},
        [(4, "there is no image '7' in FOLDER")],
        [
            "Took columns 'caption' for text and 'image_id' for image.",
            "2 rows name their images without the ending: '1' for '1.jpg' on line 2, '6' for '6.jpg' on line",
        ],
    ),
    "captions next to one another": Case(
        "image,caption_1,caption_2\n1.jpg,a dog,a beach\n2.jpg,,a lake\n",
        {"1.jpg": ("a dog", "a beach"), "2.jpg": ("a lake",)},
        notes=["Took columns 'caption_1' and 'caption_2' for text."],
    ),
    "the column of images is told by its values": Case(
        "Nummer;Kurztext;Beschreibung\n7;2.jpg;ein Hund\n8;1.jpg;ein See\n9;gone.jpg;ein Berg\n",
        {"2.jpg": ("ein Hund",), "1.jpg": ("ein See",)},
        [(4, "there is no image 'gone.jpg' in FOLDER")],
        ["Took columns 'Beschreibung' for text and 'Kurztext' for image."],
    ),
    "columns without a name": Case(
        ",image,text,\n0,1.jpg,a,\n1,2.jpg,b,\n",
        {"1.jpg": ("a",), "2.jpg": ("b",)},
        notes=["Column 1 has no name and is not stored, 2 values: '0' on line 2, '1' on line 3."],
    ),
    "the index of pandas": Case(
        "Unnamed: 0,image,text\n0,1.jpg,a dog\n",
        {"1.jpg": ("a dog",)},
        notes=["Column 1 has no name and is not stored, 1 values: '0' on line 2."],
    ),
    "paths from the folder of the table": Case(
        "image,text\n../FOLDERS-PARENT/photos/1.jpg,a dog\n",
        {"1.jpg": ("a dog",)},
    ),
    "paths of another computer": Case(
        "image,text\n" + "".join(f"C:\\Users\\x\\img\\{number}.jpg,text\n" for number in range(5, 9)),
        {"5.jpg": ("text",), "6.jpg": ("text",)},
        [
            (line, f"there is no image 'C:\\\\Users\\\\x\\\\img\\\\{line + 3}.jpg' in FOLDER")
            for line in (4, 5)
        ],
        [
            "Looked for images whose paths begin with 'C:/Users/x/img/' in FOLDER, by the rest of them.",
            "2 rows name their images by paths that begin with 'C:/Users/x/img/', which is not in FOLDER "
            "(lines 4, 5): give the folder that has the images with --images.",
        ],
    ),
    "lists in quotes": Case(
        "image,text,labels\n1.jpg,\"['A dog runs.', 'It\\'s wet.']\",\"['x', 'y']\"\n"
        '2.jpg,"[""one"", ""two, three""]",\n3.jpg,"[\'numpy\' ""writes it""\n \'so\']",\n'
        "4.jpg,\"['a', 2]\",\n5.jpg,[sic] a sign,\n",
        {
            "1.jpg": ("A dog runs.", "It's wet."),
            "2.jpg": ("one", "two, three"),
            "3.jpg": ("numpy", "writes it", "so"),
            "4.jpg": ("['a', 2]",),
            "5.jpg": ("[sic] a sign",),
        },
        notes=[
            "text: 3 values are lists in quotes, of which each item was taken: ",
            "labels: 1 value is a list in quotes, of which each item was taken: \"['x', 'y']\" on line 2.",
            "text: 2 values look like lists or objects and stay text: ",
        ],
    ),
    # Tuples, and arrays of databases.
    **{
        f"most values are lists such as {written}": Case(
            f'image,text\n1.jpg,"{_doubled(written)}"\n',
            {"1.jpg": texts},
            notes=["text: 1 value is a list in quotes, of which each item was taken: "],
        )
        for written, texts in {
            "('a dog', 'a cat')": ("a dog", "a cat"),
            "('a dog',)": ("a dog",),
            '{"a dog, wet","a cat"}': ("a dog, wet", "a cat"),
        }.items()
    },
    **{
        f"a value like a list among texts: {odd}": Case(
            f'image,text\n1.jpg,"{_doubled(odd)}"\n{others}',
            {"1.jpg": (odd,), **({"2.jpg": ("a dog",), "3.jpg": ("a cat",)} if others else {})},
            notes=[f"text: 1 value looks like a list or an object and stays text: {odd!r} on line 2."],
        )
        for others, odds in {
            "2.jpg,a dog\n3.jpg,a cat\n": (
                "['a', 'b']",
                '["a"]',
                "{'raw': 'a'}",
                "b'a dog'",
                "('a', 'b')",
                "('a')",
            ),
            "": ("('a dog')", '{"text": "a dog"}'),
        }.items()
        for odd in odds
    },
    "a value in parentheses": Case('image,text\n1.jpg,"(a dog, a cat)"\n', {"1.jpg": ("(a dog, a cat)",)}),
}


@pytest.mark.parametrize("name", CASES)
def test_tables_from_the_field(folder: Path, name: str) -> None:
    """Every row is taken, refused by its line, or left out; no value changes unsaid."""
    table, texts, lines, notes = CASES[name]
    touch(folder, "Photo.JPG")
    write_photo(folder / "a.dat")
    Image.new("RGB", (8, 8)).save(folder / "b", "PNG")
    write(folder, "a.jp2", "")
    if isinstance(table, str):
        table = table.replace("FOLDERS-PARENT", folder.parent.name)
    report, records = import_table(folder, table)
    assert texts_of(records) == texts
    found = [(line, reason.replace(str(folder), "FOLDER")) for line, reason in refused(report)]
    assert [line for line, _ in found] == [line for line, _ in lines]
    assert all(reason.startswith(start) for (_, reason), (_, start) in zip(found, lines, strict=True)), found
    said = [
        note.replace(str(folder.parent / "t.csv"), "TABLE").replace(str(folder), "FOLDER")
        for note in report.notes
    ]
    assert len(said) == len(notes), said
    assert all(note.startswith(start) for note, start in zip(said, notes, strict=True)), said


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ("image,text\n", "has no rows below its header"),
        ("1.jpg,a dog\n2.jpg,a lake\n", "begins with the image '1.jpg'; put a line with the names"),
        ("a;b;text\n1.jpg;2.jpg;x\n3.jpg;4.jpg;y\n", "no column 'image'"),
        ("age,size\n5,6\n", "(or such as 'file_name', 'path'); its first line has 'age', 'size'. Name"),
        (
            "<!DOCTYPE html>\n<p>image,text</p>\n",
            "t.csv is HTML or XML, not a table; save the table itself as",
        ),
        (
            "image;größe\n1.jpg;65,5\n".encode("cp1252"),
            "line 1 is not UTF-8; it reads as Windows-1252: 'image;größe",
        ),
    ],
)
def test_tables_that_cannot_be_read(folder: Path, table: str | bytes, reason: str) -> None:
    with pytest.raises(DataError) as raised:
        import_table(folder, table)
    assert reason in str(raised.value)


def test_two_values_for_one_image_are_named_by_line(folder: Path) -> None:
    table = (
        "image,text,place,labels,split\n1.jpg,a,Rome,dog,train\n1.jpg,b,Nice,cat,train\n./1.jpg,c,Rome,dog,test\n"
        "1.jpg,d,,cat;dog,\n"
    )
    report, (record,) = import_table(folder, table)
    assert record.texts == ("a", "b", "d")
    assert (record.metadata, record.labels, record.split) == ({"place": "Rome"}, ("dog", "cat"), "train")
    assert refused(report) == [(4, "the split of the image '1.jpg' is 'test' and 'train' on line 2")]
    assert report.notes == [
        "place: 1 row differs from an earlier row of the same image, whose value is kept: "
        "'Nice' on line 3 after 'Rome' on line 2.",
        "1 row adds labels to those of an earlier row of the same image: 'cat' on line 3.",
    ]


def test_a_download_with_its_table_next_to_the_folder_of_images(tmp_path: Path) -> None:
    touch(tmp_path, "Images/1.jpg", "Images/2.jpg")
    table = "image,text\n1.jpg,a dog\n2.jpg,a lake\n3.jpg,a cat\n"
    write(tmp_path, "captions.txt", table)
    report = imported("folder", tmp_path, table=tmp_path / "captions.txt")
    found = {record.image: record.texts for record in read_manifest(tmp_path).records}
    assert found == {"Images/1.jpg": ("a dog",), "Images/2.jpg": ("a lake",)}
    assert report.notes == ["Looked for the images in the folder 'Images' as well."]
    assert [line for line, _ in refused(report)] == [4]
    for other in ("b/1.jpg", "2.jpg"):
        # A folder that does not have all images is not guessed.
        photos = tmp_path / other.replace("/", "-")
        touch(photos, "a/1.jpg", other)
        report, records = import_table(photos, "image,text\n1.jpg,a dog\na/1.jpg,a lake\n")
        assert (texts_of(records), refused(report)[0][0]) == ({"a/1.jpg": ("a lake",)}, 2)


@pytest.mark.parametrize(
    ("written", "there"),
    [
        ("IMG 1.JPEG", "img 1.jpeg"),
        ("TRIP/é.jpg", "Trip/É.JPG"),
        ("trip\\b.jpg", "Trip/B.jpg"),
        ("my%20photo.jpg", "my photo.jpg"),
        ("Trip%2FCaf%C3%A9.jpg", "Trip/Café.jpg"),
        ("MY%20Photo.jpg", "my photo.jpg"),
        ("/data/upload/3/0a1b2c3d-dog.jpg", "deep/er/dog.jpg"),
        ("/data/local-files/?d=Trip/dog%201.jpg", "Trip/dog 1.jpg"),
        ("http://localhost:8080/data/local-files/?d=/srv/all/dog.jpg", "deep/dog.jpg"),
        ("upload/3/deadbeef-Dog.JPG", "dog.jpg"),
    ],
)
def test_names_that_differ_in_their_spelling_alone(tmp_path: Path, written: str, there: str) -> None:
    touch(tmp_path / "photos", there, "other/1.jpg", "2.jpg")
    report, records = import_table(tmp_path / "photos", f"image,text\n{written},a\n{written},b\n2.jpg,c\n")
    assert texts_of(records) == {there: ("a", "b"), "2.jpg": ("c",)}
    (note,) = [note for note in report.notes if "differs in" in note]
    assert note.startswith("2 rows name their images by a name that differs in ")
    assert f"{written!r} for {there!r} on line 2" in note


def test_a_loose_name_takes_no_image_that_may_be_of_another_row(tmp_path: Path) -> None:
    composed, other = (unicodedata.normalize(form, "é/café.jpg") for form in ("NFC", "NFD"))
    mixed = unicodedata.normalize("NFD", "é/") + "café.jpg"
    touch(tmp_path / "photos", "a.jpg", "A.jpg", "b.jpg", "c.jpg", "x/d.jpg", "y/d.jpg", composed, other)
    rows = ("a.JPG", "b.jpg", "B.JPG", "C.jpg", "c.JPG", "/data/upload/1/01234567-d.jpg")
    table = "image,text\n" + "".join(
        f"{row},{number}\n" for number, row in enumerate((*rows, composed, other, mixed))
    )
    report, records = import_table(tmp_path / "photos", table)
    assert texts_of(records) == {"b.jpg": ("1",), composed: ("6",), other: ("7",)}
    reasons = dict(refused(report))
    assert list(reasons) == [2, 4, 5, 6, 7, 10]
    assert reasons[2].endswith("is it 'A.jpg' or 'a.jpg'?")
    assert reasons[4] == "'B.JPG' may be 'b.jpg', which another row names"
    assert reasons[5] == "'C.jpg' may be 'c.jpg', and so may another name of the table"


def test_a_table_of_exiftool(folder: Path) -> None:
    table = (
        "SourceFile,FileName,EXIF:DateTimeOriginal,EXIF:ImageDescription,IPTC:Caption-Abstract,XMP:Headline,"
        "IPTC:Keywords,XMP:Subject\n"
        './photos/1.jpg,1.jpg,2021:03:12 10:15:00,a dog,a dog,Dogs,"dog, beach","dog, sea"\n'
        "./photos/2.jpg,2.jpg,0000:00:00 00:00:00,,a lake,,,\n"
        "./photos/3.jpg,3.jpg,2022:12:31 22:10:00.5+02:00,,,,,night\n"
        "./photos/4.jpg,4.jpg,    :  :     :  :  ,,,,,\n"
    )
    report, records = import_table(folder, table)
    assert [(record.texts, record.labels) for record in records] == [
        (("a dog", "Dogs"), ("dog", "beach", "sea")), (("a lake",), ()), ((), ("night",)), ((), ()),
    ]  # fmt: skip
    days = [record.metadata.get("EXIF:DateTimeOriginal") for record in records]
    assert days == ["2021-03-12T10:15:00", None, "2022-12-31T22:10:00+02:00", None]
    assert any("2 values stand for 'not known'" in note for note in report.notes)
    # In any other table a subject is somebody's.
    _, records = import_table(
        folder, "FileName,ImageDescription,Subject,Taken\n1.jpg,a dog,patient 7,2021:3:1\n"
    )
    assert (records[0].texts, records[0].labels) == (("a dog",), ())
    assert dict(records[0].metadata) == {"Subject": "patient 7", "Taken": "2021-03-01"}


def test_a_table_of_a_german_excel(folder: Path) -> None:
    rows = "1.jpg;Ein Hund läuft.;65,5;k. A.\r\n2.jpg;Bäume;#NV;Hund\r\n3.jpg;;?;keine Angabe\r\n"
    table = f"image;text;größe;labels\r\n{rows}".encode("cp1252")
    report, records = import_table(folder, table, encoding="windows-1252")
    assert texts_of(records) == {"1.jpg": ("Ein Hund läuft.",), "2.jpg": ("Bäume",), "3.jpg": ()}
    assert [(dict(record.metadata), record.labels) for record in records] == [
        ({"größe": 65.5}, ()), ({}, ("Hund",)), ({}, ()),
    ]  # fmt: skip
    assert report.notes == [
        "größe: 2 values stand for 'not known', not stored: '#NV' on line 3, '?' on line 4.",
        "labels: 2 values stand for 'not known', not stored: 'k. A.' on line 2, 'keine Angabe' on line 4.",
        "größe: a comma is the decimal mark: '65,5' on line 2.",
    ]
    report, _ = import_table(folder, "image,text\n1.jpg,café\n", encoding="windows-1252")
    assert "reads as UTF-8 as well" in report.notes[0]


def test_values_that_stand_for_not_known(folder: Path) -> None:
    table = (
        "image,text,labels,age,height\n1.jpg,a dog,dog,65,170\n2.jpg,nan,nan,N/A,1e2\n3.jpg,None,NULL,058Y,\n"
        "4.jpg,a lake,lake;water,013M,171.5\n5.jpg,null and void,,nan,+5\n6.jpg,,NA;dog,70,-\n"
    )
    report, records = import_table(folder, table)
    assert [record.texts for record in records] == [("a dog",), (), (), ("a lake",), ("null and void",), ()]
    assert [record.labels for record in records] == [("dog",), (), (), ("lake", "water"), (), ("dog",)]
    assert [record.metadata.get("age") for record in records] == [65, None, 58, 1.083, None, 70]
    assert [record.metadata.get("height") for record in records] == [170, 100.0, None, 171.5, 5, None]
    assert report.notes == [
        "1 text is 'nan' (line 3): left out as not known; `--keep-unknown-texts` keeps such texts.",
        "1 text is 'None' (line 4): left out as not known; `--keep-unknown-texts` keeps such texts.",
        "labels: 3 values stand for 'not known', not stored: "
        "'nan' on line 3, 'NULL' on line 4, 'NA' on line 7.",
        "age: 2 values stand for 'not known', not stored: 'N/A' on line 3, 'nan' on line 6.",
        "height: 1 value stands for 'not known', not stored: '-' on line 7.",
        "age: DICOM ages are numbers of years: '058Y' on line 4, '013M' on line 5.",
    ]
    assert report.sentences()[-2:] == [
        "3 texts, for 3 of 6 images.",
        "3 labels; the most frequent is 'dog', of 2 of 6 images.",
    ]
    _, records = import_table(folder, "image,id,group,split\n1.jpg,nan,NULL,N/A\n2.jpg,-,NULL,train\n")
    assert [(record.id, record.group) for record in records] == [("1.jpg", None), ("2.jpg", None)]


def test_texts_that_stand_for_not_known_are_kept_on_demand(folder: Path) -> None:
    table = "image,text,report\n1.jpg,nan,NULL\n" + "2.jpg,None,\n" * 12
    report, records = import_table(folder, table, keep_unknown_texts=True)
    assert texts_of(records) == {"1.jpg": ("nan", "NULL"), "2.jpg": ("None",) * 12}
    assert records[0].report == "NULL"
    assert report.notes == [
        "1 text is 'NULL' (line 2): kept as it is written.",
        "1 text is 'nan' (line 2): kept as it is written.",
        "12 texts are 'None' (lines 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 2 more): kept as it is written.",
    ]
    with pytest.raises(DataError, match=r"belong to a table; give it as well with --table"):
        imported("folder", folder, keep_unknown_texts=True)


def test_findings_and_impression_become_one_report_in_order(folder: Path) -> None:
    table = (
        "image;Beurteilung;Befund\n1.jpg;Kein Erguss.;Das Herz ist groß.\n2.jpg;;Das Herz ist klein.\n"
        "3.jpg;Pneumonie;\n4.jpg;;k. A.\n"
    )
    report, records = import_table(folder, table)
    assert [(record.report, record.texts) for record in records] == [
        ("FINDINGS: Das Herz ist groß.\n\nIMPRESSION: Kein Erguss.", ("Das Herz ist groß.", "Kein Erguss.")),
        ("FINDINGS: Das Herz ist klein.", ("Das Herz ist klein.",)),
        ("IMPRESSION: Pneumonie", ("Pneumonie",)),
        (None, ()),
    ]
    assert report.notes[0] == "Took columns 'Befund' for findings and 'Beurteilung' for impression."


NAMES = ("1.jpg", "2.jpg", "sub/3.png", "é.jpg")
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-be", "utf-32", "windows-1252")
VALUES = st.text(alphabet='ab é,;|\t"\n5.', max_size=12) | st.sampled_from(
    [
        *("nan", "None", "5", "1,5", "058Y", "007", "a dog", "dog;cat", '"', '""', "1.jpg", "k. A.", "?"),
        *("unbekannt", "___", "...", "Normal.", "1.4.21", "11. März 2021", "2021-03-11T10:00Z", "12 mm"),
        *("3 cm", "5%", "1.234", "March 11, 2021"),
    ]
)
IMAGES = st.sampled_from([*NAMES * 3, "./1.jpg", "sub\\3.png", "gone.jpg", "", "a.heic", "nan"])
MOVED = st.sampled_from(
    ["C:\\x\\1.jpg", "C:\\x\\sub\\3.png", "/home/y/2.jpg", "file:///z/%C3%A9.jpg", "//", "a:"]
)
ROLES = ("image", "text", "labels", "age", "group")
SYNONYMS = {
    "image": ["Bildname", "Foto", "Nom du fichier", "archivo", "immagine"],
    "text": ["Beschreibung", "caption_1", "prompt", "alt", "Titre", "didascalia"],
    "labels": ["Schlagwörter", "mots-clés", "tags"],
    "age": ["Datum", "size", "comment_number", "findings", "Beurteilung"],
    "group": ["Patienten-ID", "Befund", "caption_2", "paciente"],
}


@pytest.fixture(scope="module")
def photos() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        touch(Path(folder) / "photos", *NAMES, "a.heic", "@eaDir/x.jpg", "notes.txt")
        yield Path(folder) / "photos"


def import_text(photos: Path, text: str, encoding: str) -> ImportReport:
    """Import a table, of which something can be used; each of its rows and all files are accounted for."""
    marked = encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32")
    try:
        report, _ = import_table(photos, text.encode(encoding), encoding=None if marked else encoding)
    except DataError as error:
        assert str(error).endswith("can be used, so no manifest is written.")
        reject()
    table, files = report.tallies
    assert table.found == table.listed + table.refused + sum(table.left_out.values())
    assert files.found == len(NAMES) + 3 == files.listed + sum(files.left_out.values())
    assert files.listed == report.records
    assert "\ufffd" not in (photos / MANIFEST_NAME).read_text(encoding="utf-8")
    assert all(item.line >= 2 for item in report.rejections.items)
    assert all(note.endswith(".") and "\n" not in note for note in report.notes)
    return report


@pytest.mark.slow
@pytest.mark.parametrize("plain", [True, False])
@given(data=st.data(), header=st.permutations(ROLES), delimiter=st.sampled_from([",", ";", "\t", "|"]))
def test_rows_that_a_program_wrote_are_all_accounted_for(
    photos: Path, plain: bool, data: st.DataObject, header: list[str], delimiter: str
) -> None:
    """With plain names, or with synonyms and paths of another computer."""
    cells = st.tuples(IMAGES if plain else IMAGES | MOVED, VALUES, VALUES, VALUES, VALUES)
    rows = data.draw(st.lists(cells, min_size=1, max_size=8))
    names = header if plain else [data.draw(st.sampled_from([role, *SYNONYMS[role]])) for role in header]
    encoding = data.draw(st.sampled_from(ENCODINGS if plain else ENCODINGS[:-1]))
    place = header.index("image")
    written = [[*row[1 : place + 1], row[0], *row[place + 1 :]] for row in rows]
    file = io.StringIO(newline="")
    end = data.draw(st.sampled_from(["\n", "\r\n"]))
    csv.writer(file, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL).writerows(
        [names, *written]
    )
    report = import_text(photos, file.getvalue(), encoding)
    assert report.tallies[0].found == len(rows)
    records = read_manifest(photos).records
    kept = [text for record in records for text in record.texts]
    assert not any(map(is_without_words, kept))
    assert not any(is_not_known(label) for record in records for label in record.labels)
    assert {record.image for record in records} <= {*NAMES, "a.heic"}
    if plain:
        texts = [" ".join(row[header.index("text")].split()) for row in written]
        said = sorted(text for text in texts if not is_not_known(text) and not is_without_words(text))
        assert {*kept} <= {*said}
        assert report.rejections or sorted(kept) == said


@pytest.mark.slow
@given(
    lines=st.lists(st.text(alphabet="ab é,;|\t5.", max_size=20), max_size=12),
    header=st.sampled_from(["image,text", "image;text;age", "text\timage", "image|text", "image"]),
    encoding=st.sampled_from(ENCODINGS),
)
def test_lines_without_quotes_are_rows_each(
    photos: Path, lines: list[str], header: str, encoding: str
) -> None:
    lines = ["1.jpg", *lines]
    report = import_text(photos, "\n".join([header, *lines]) + "\n", encoding)
    assert report.tallies[0].found == sum(1 for line in lines if line.strip(" "))


@pytest.mark.slow
@given(
    lines=st.lists(st.text(alphabet='ab",', max_size=9), max_size=12),
    names=st.lists(IMAGES, min_size=12, max_size=12),
)
def test_lines_with_quotes_anywhere_lose_no_row(photos: Path, lines: list[str], names: list[str]) -> None:
    written = [f"{name},{line}" for name, line in zip(names, lines, strict=False)]
    report = import_text(photos, "\n".join(["image,text", "1.jpg,a", *written]) + "\n", "utf-8")
    # A field may go over several lines of which none is a row with an image.
    found = report.tallies[0].found
    assert 1 + sum(name not in ("", "nan") for name in names[: len(written)]) <= found <= len(written) + 1
