"""Tables as programs and people spoil them: what mends itself, and what the report says of the rest."""

from pathlib import Path

import pytest

from tests.image_files import write_photo
from tests.training.importing.folder.tables import import_table, texts_of
from training.common.errors import DataError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in (1, 2, 3):
        write_photo(photos / f"{number}.jpg")
    return photos


@pytest.mark.parametrize(
    ("ahead", "lines"),
    [("My photos\n\n", "1 line"), ("Report\n", "1 line"), ("Export,,\nof 2021,,\n", "2 lines")],
)
def test_titles_ahead_of_the_header_are_passed_over(folder: Path, ahead: str, lines: str) -> None:
    report, records = import_table(folder, f"{ahead}image,text,year\n1.jpg,a dog,2021\n")
    assert texts_of(records) == {"1.jpg": ("a dog",)}
    assert records[0].metadata == {"year": 2021}
    assert report.notes == [f"Passed over {lines} ahead of the header."]


def test_a_row_of_known_words_is_no_header(folder: Path) -> None:
    _, records = import_table(folder, "file,kind,source\n1.jpg,photo,file\n2.jpg,label,text\n")
    assert [record.metadata["kind"] for record in records] == ["photo", "label"]


def test_a_header_that_comes_again_is_left_out(folder: Path) -> None:
    report, records = import_table(folder, "Image,text\n1.jpg,a dog\n\ufeffImage,text \n2.jpg,a lake\n")
    assert len(records) == 2
    assert report.tallies[0].left_out == {"rows that repeat the header": 1}


@pytest.mark.parametrize(
    ("row", "hint"),
    [
        ("1.jpg,a dog,,", "it has 4 fields where the header has 2; remove every ',' at its end"),
        (
            "1.jpg,“a dog, wet”",
            "it has 3 fields where the header has 2; put a value with ',' in it into quotes of this kind: \"",
        ),
        ("\u200b2.jpg,a dog", "is it '2.jpg'"),
        ("'2.jpg',a dog", "is it '2.jpg'"),
    ],
)
def test_what_a_refused_row_needs_is_said(folder: Path, row: str, hint: str) -> None:
    report, _ = import_table(folder, f"image,text\n{row}\n3.jpg,a lake\n")
    assert hint in report.rejections.items[0].reason


def test_paths_from_the_folder_of_the_table(folder: Path) -> None:
    _, records = import_table(folder, f"image,text\n../{folder.parent.name}/photos/1.jpg,a dog\n")
    assert texts_of(records) == {"1.jpg": ("a dog",)}


def test_the_index_of_pandas_is_not_stored(folder: Path) -> None:
    report, records = import_table(folder, "Unnamed: 0,image,text\n0,1.jpg,a dog\n")
    assert records[0].metadata == {}
    assert "Column 1 has no name and is not stored, 1 values: '0' on line 2." in report.notes


def test_texts_decoded_twice_and_texts_that_come_again_are_named(folder: Path) -> None:
    report, records = import_table(folder, "image,text\n1.jpg,KÃ¶ln\n1.jpg,KÃ¶ln\n2.jpg,Köln\n2.jpg,naïve\n")
    assert records[0].texts == ("KÃ¶ln", "KÃ¶ln")
    assert report.notes == [
        "1 row repeats a text that its image has already; it is kept: 'KÃ¶ln' on line 3.",
        "2 texts read as UTF-8 that another program took for Windows-1252, such as 'Ã¶' for 'ö': "
        "'KÃ¶ln' on line 2, 'KÃ¶ln' on line 3.",
    ]


def test_a_page_of_the_web_is_no_table(folder: Path) -> None:
    with pytest.raises(DataError, match=r"t.csv is HTML or XML, not a table; save the table itself as CSV"):
        import_table(folder, "<!DOCTYPE html>\n<p>image,text</p>\n")
