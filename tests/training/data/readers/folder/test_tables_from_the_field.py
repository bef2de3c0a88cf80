"""Tables as people have them: a row is taken, refused by its line, or left out; no value changes unsaid."""

from pathlib import Path

import pytest

from tests.image_files import JPEG_START
from training.data.manifest import read_manifest
from training.data.readers.importing import import_data_set
from training.data.readers.report import ImportReport
from training.data.record import Record
from training.errors import DataError

TWO = "1.jpg,a dog\n2.jpg,a lake\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    photos = tmp_path / "photos"
    photos.mkdir()
    for number in range(1, 7):
        (photos / f"{number}.jpg").write_bytes(JPEG_START)
    return photos


def import_table(
    folder: Path, text: str | bytes, *, encoding: str | None = None, keep_unknown_texts: bool = False
) -> tuple[ImportReport, list[Record]]:
    """Import with any number of refused rows."""
    table = folder.parent / "t.csv"
    table.write_bytes(text if isinstance(text, bytes) else text.encode())
    report = import_data_set(
        "folder",
        folder,
        table=table,
        encoding=encoding,
        keep_unknown_texts=keep_unknown_texts,
        max_rejected=1.0,
    )
    assert all(tally.unaccounted == 0 for tally in report.tallies)
    records = list(read_manifest(folder).records)
    assert "\ufffd" not in repr(records)
    return report, records


def texts_of(records: list[Record]) -> dict[str, tuple[str, ...]]:
    return {record.image: record.texts for record in records}


def test_an_open_quote_costs_its_own_row_alone(folder: Path) -> None:
    report, records = import_table(
        folder, 'image,text\n1.jpg,"a dog\n2.jpg,a cat\n3.jpg,a bird\n4.jpg,a lake\n'
    )
    assert texts_of(records) == {"2.jpg": ("a cat",), "3.jpg": ("a bird",), "4.jpg": ("a lake",)}
    assert report.rejections.named() == [
        "Line 2: a quote opens that does not close before line 3, another row."
    ]


def test_an_open_quote_that_a_later_one_closes(folder: Path) -> None:
    rows = '1.jpg,"a dog\n2.jpg,a cat\n3.jpg,"a bird, flying"\n4.jpg,a lake\n'
    report, records = import_table(folder, f"image,text\n{rows}")
    assert [item.line for item in report.rejections.items] == [2]
    assert texts_of(records)["3.jpg"] == ("a bird, flying",)


@pytest.mark.parametrize("missing", ["7.jpg,a cat", "sub\\7.png,a cat", "7.jpg,a, cat", "7.jpg,"])
def test_an_open_quote_ahead_of_a_row_whose_image_is_missing(folder: Path, missing: str) -> None:
    report, records = import_table(folder, f'image,text\n1.jpg,"a dog\n{missing}"\n3.jpg,a bird\n')
    assert [item.line for item in report.rejections.items] == [2, 3]
    assert texts_of(records) == {"3.jpg": ("a bird",)}


def test_an_open_quote_where_the_image_is_not_the_first_column(folder: Path) -> None:
    report, records = import_table(folder, 'text;image\n"a dog;1.jpg\na cat;2.jpg\n"a bird";3.jpg\n')
    assert [item.line for item in report.rejections.items] == [2]
    assert texts_of(records) == {"2.jpg": ("a cat",), "3.jpg": ("a bird",)}


def test_texts_of_several_lines_are_texts(folder: Path) -> None:
    report, records = import_table(folder, 'image,text\n1.jpg,"a dog,\nruns"\n2.jpg,a lake\n')
    assert texts_of(records) == {"1.jpg": ("a dog, runs",), "2.jpg": ("a lake",)}
    assert not report.rejections


def test_texts_of_several_lines_ahead_of_the_image_are_texts(folder: Path) -> None:
    report, records = import_table(folder, 'text,image\n"a dog,\nruns",1.jpg\n"a\n","2.jpg"\n')
    assert texts_of(records) == {"1.jpg": ("a dog, runs",), "2.jpg": ("a",)}
    assert not report.rejections


def test_too_many_and_too_few_fields(folder: Path) -> None:
    report, records = import_table(
        folder, "image,text\n1.jpg,A dog, a cat and a bird.\n2.jpg\n3.jpg,a lake\n"
    )
    assert [item.line for item in report.rejections.items] == [2, 3]
    assert texts_of(records) == {"3.jpg": ("a lake",)}
    assert report.sentences()[:2] == [
        f"Found 3 rows in {folder.parent / 't.csv'}: 1 taken, 2 refused, 0 left out.",
        f"Found 6 files in {folder}: 1 taken, 0 refused, 5 left out.",
    ]


def test_a_field_of_any_length(folder: Path) -> None:
    _, records = import_table(folder, 'image,text\n1.jpg,"' + "word " * 40_000 + '"\n2.jpg,a lake\n')
    assert len(texts_of(records)["1.jpg"][0]) == 199_999
    assert texts_of(records)["2.jpg"] == ("a lake",)


@pytest.mark.parametrize(
    ("table", "texts"),
    [
        (
            b'image,caption\n1.jpg,A dog runs .\n1.jpg,"Two dogs , one ball ."\n2.jpg,A child sits .\n',
            [("A dog runs .", "Two dogs , one ball ."), ("A child sits .",)],
        ),
        (
            b"image_name| comment_number| comment\n1.jpg| 0| A dog runs .\n2.jpg| 0| A child sits .\n",
            [("A dog runs .",), ("A child sits .",)],
        ),
        (
            b"image;text;age\r\n1.jpg;Ein Hund, nass.;65,5\r\n2.jpg;Ein Kind.;70\r\n",
            [("Ein Hund, nass.",), ("Ein Kind.",)],
        ),
        ("image,text\r\n1.jpg,a dog\r\n2.jpg,é\r\n".encode("utf-8-sig"), [("a dog",), ("é",)]),
        ("image\ttext\n1.jpg\ta dog\n2.jpg\té\n".encode("utf-16"), [("a dog",), ("é",)]),
        (b"Image , Text\n1.jpg,a dog\n2.jpg,a child\n", [("a dog",), ("a child",)]),
        (b"sep=;\rimage;text\r1.jpg;a dog\r2.jpg;a child\r", [("a dog",), ("a child",)]),
        (b"image\n1.jpg\n2.jpg\n", [(), ()]),
    ],
)
def test_tables_as_they_are_downloaded_or_saved(
    folder: Path, table: bytes, texts: list[tuple[str, ...]]
) -> None:
    report, records = import_table(folder, table)
    assert [record.texts for record in records] == texts
    assert not report.rejections


def test_a_row_of_kaggle_that_lacks_a_bar_is_named(folder: Path) -> None:
    rows = "1.jpg| 0| A dog runs .\n1.jpg| 1| Two dogs , one ball .\n2.jpg| 4   A child sits .\n"
    report, records = import_table(folder, f"image_name| comment_number| comment\n{rows}")
    assert texts_of(records) == {"1.jpg": ("A dog runs .", "Two dogs , one ball .")}
    assert report.rejections.named() == ["Line 4: it has 2 fields where the header has 3."]
    assert report.notes == [
        "Took columns 'image_name' for image, 'comment' for text and 'comment_number' for the order of "
        "texts.",
    ]


def test_numbers_of_captions_order_them(folder: Path) -> None:
    rows = "1.jpg| 10| last\n1.jpg| 2| second\n1.jpg| 0| first\n2.jpg| 1| b\n2.jpg| | a\n"
    _, records = import_table(folder, f"image_name| comment_number| comment\n{rows}")
    assert texts_of(records) == {"1.jpg": ("first", "second", "last"), "2.jpg": ("b", "a")}
    assert all(not record.metadata for record in records)


def test_texts_without_words_are_empty(folder: Path) -> None:
    report, records = import_table(
        folder, "image,text\n1.jpg,\u200b\n2.jpg,___\n3.jpg,...\n4.jpg,\U0001f436\n"
    )
    assert [record.texts for record in records] == [(), (), (), ("\U0001f436",)]
    assert report.notes == [
        "3 texts have neither letters nor digits: left out as empty: "
        "'\\u200b' on line 2, '___' on line 3, '...' on line 4."
    ]


def test_reports_and_captions_of_one_word_are_texts(folder: Path) -> None:
    table = "image,report,caption\n1.jpg,Normal.,\n2.jpg,Normal. No effusion.,\n3.jpg,___,dog\n"
    _, records = import_table(folder, table)
    assert texts_of(records) == {"1.jpg": ("Normal.",), "2.jpg": ("No effusion.",), "3.jpg": ("dog",)}


def test_not_known_in_the_words_of_people(folder: Path) -> None:
    rows = "1.jpg;k. A.;12\n2.jpg;Hund;?\n3.jpg;keine Angabe;unbekannt\n4.jpg;inconnu;13\n"
    report, records = import_table(folder, f"image;labels;alter\n{rows}")
    assert [record.labels for record in records] == [(), ("Hund",), (), ()]
    assert [record.metadata.get("alter") for record in records] == [12, None, None, 13]
    assert report.notes[-2:] == [
        "labels: 3 values stand for 'not known', not stored: "
        "'k. A.' on line 2, 'keine Angabe' on line 4, 'inconnu' on line 5.",
        "alter: 2 values stand for 'not known', not stored: '?' on line 3, 'unbekannt' on line 4.",
    ]


def test_a_table_of_a_german_excel(folder: Path) -> None:
    table = "image;text;größe\r\n1.jpg;Ein Hund läuft.;65,5\r\n2.jpg;Bäume;#NV\r\n".encode("cp1252")
    with pytest.raises(DataError, match=r"line 1 is not UTF-8; it reads as Windows-1252: .*größe"):
        import_table(folder, table)
    report, records = import_table(folder, table, encoding="windows-1252")
    assert texts_of(records) == {"1.jpg": ("Ein Hund läuft.",), "2.jpg": ("Bäume",)}
    assert [dict(record.metadata) for record in records] == [{"größe": 65.5}, {}]
    assert report.notes == [
        "größe: 1 value stands for 'not known', not stored: '#NV' on line 3.",
        "größe: a comma is the decimal mark: '65,5' on line 2.",
    ]


def test_letters_that_look_wrong_are_noticed(folder: Path) -> None:
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


def test_groups_ids_and_splits_that_are_not_known_are_none(folder: Path) -> None:
    _, records = import_table(folder, "image,id,group,split\n1.jpg,nan,NULL,N/A\n2.jpg,-,NULL,train\n")
    assert [(record.id, record.group) for record in records] == [("1.jpg", None), ("2.jpg", None)]


def test_a_report_is_stored_and_its_sentences_are_texts(folder: Path) -> None:
    table = (
        "image,report,text\n"
        '1.jpg,"Small left effusion. Heart size is normal.",an image\n'
        '1.jpg,"Small left effusion. Heart size is normal.",Heart size is normal.\n'
    )
    report, (record,) = import_table(folder, table)
    assert record.report == "Small left effusion. Heart size is normal."
    assert record.texts == ("an image", "Heart size is normal.", "Small left effusion.")
    assert not report.notes


def test_two_values_for_one_image_are_named_by_line(folder: Path) -> None:
    table = (
        "image,text,place,labels,split\n1.jpg,a,Rome,dog,train\n1.jpg,b,Nice,cat,train\n./1.jpg,c,Rome,dog,test\n"
        "1.jpg,d,,cat;dog,\n"
    )
    report, (record,) = import_table(folder, table)
    assert record.texts == ("a", "b", "d")
    assert (record.metadata, record.labels, record.split) == ({"place": "Rome"}, ("dog", "cat"), "train")
    assert report.rejections.named() == [
        "Line 4: the split of the image '1.jpg' is 'test' and 'train' on line 2."
    ]
    assert report.notes == [
        "place: 1 row differs from an earlier row of the same image, whose value is kept: "
        "'Nice' on line 3 after 'Rome' on line 2.",
        "1 row adds labels to those of an earlier row of the same image: 'cat' on line 3.",
    ]


def test_images_without_a_split_follow_their_group(folder: Path) -> None:
    rows = "".join(f"{number}.jpg,{number % 2},{'test' if number == 5 else ''}\n" for number in range(1, 7))
    report, records = import_table(folder, f"image,patient_id,split\n{rows}1.jpg,1,\n")
    assert {record.image: record.split for record in records if record.group == "1"} == {
        "1.jpg": "test",
        "3.jpg": "test",
        "5.jpg": "test",
    }
    assert len({record.split for record in records if record.group == "0"}) == 1
    assert not report.rejections


def test_splits_in_other_words_are_said(folder: Path) -> None:
    rows = "1.jpg,Training\n2.jpg,validation\n3.jpg,TEST\n3.jpg,test\n"
    report, records = import_table(folder, f"image,split\n{rows}")
    assert [record.split for record in records] == ["train", "val", "test"]
    assert "The split 'validation' is taken for val (line 3)." in report.notes


def test_rows_without_an_image_or_with_one_that_cannot_be_read(folder: Path) -> None:
    (folder / "a.jp2").touch()
    (folder / "Photo.JPG").write_bytes(JPEG_START)
    report, records = import_table(
        folder, "image,text\n,a\nnan,b\na.jp2,c\nphoto.jpg,d\n7.jpg,e\n,\n../t.csv,f\n1.jpg,g\n"
    )
    assert texts_of(records) == {"1.jpg": ("g",)}
    assert [(item.line, item.reason) for item in report.rejections.items] == [
        (2, "it names no image"),
        (3, "it names no image"),
        (4, "'a.jp2' is one of the .jp2 files, which cannot be read (convert them to JPEG or PNG)"),
        (5, f"there is no image 'photo.jpg' in {folder}; is it 'Photo.JPG'?"),
        (6, f"there is no image '7.jpg' in {folder}"),
        (8, "'../t.csv' is one of the .csv files, which are no images that can be read"),
    ]
    assert dict(report.tallies[0].left_out) == {"rows without any value": 1}


def test_images_with_other_endings_are_told_by_their_content(folder: Path) -> None:
    (folder / "a.dat").write_bytes(b"\xff\xd8\xff\xe0")
    (folder / "b").write_bytes(b"\x89PNG\r\n\x1a\n")
    (folder / "c").write_bytes(b"words")
    report, records = import_table(folder, "image,text\na.dat,a\nb,b\nc,c\n")
    assert texts_of(records) == {"a.dat": ("a",), "b": ("b",)}
    assert report.rejections.named() == ["Line 4: 'c' is one of the files without an ending."]


def test_a_folder_of_links_alone_says_so(tmp_path: Path) -> None:
    for name in ("there", "here"):
        (tmp_path / name).mkdir()
    (tmp_path / "here" / "link").symlink_to(tmp_path / "there", target_is_directory=True)
    with pytest.raises(DataError, match="has no images") as raised:
        import_data_set("folder", tmp_path / "here")
    assert raised.value.__notes__ == [
        "The folder 'link' is a link and was not followed; import it by itself."
    ]


def test_a_download_with_its_table_beside_the_folder_of_images(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    (archive / "Images").mkdir(parents=True)
    for number in (1, 2):
        (archive / "Images" / f"{number}.jpg").write_bytes(JPEG_START)
    (archive / "captions.txt").write_text("image,caption\n1.jpg,a dog\n2.jpg,a lake\n3.jpg,a cat\n")
    report = import_data_set("folder", archive, table=archive / "captions.txt", max_rejected=0.5)
    assert texts_of(list(read_manifest(archive).records)) == {
        "Images/1.jpg": ("a dog",),
        "Images/2.jpg": ("a lake",),
    }
    assert report.notes == [
        "Took column 'caption' for text.",
        "Looked for the images in the folder 'Images' as well.",
    ]
    assert [item.line for item in report.rejections.items] == [4]


@pytest.mark.parametrize("other", ["b/1.jpg", "2.jpg"])
def test_a_folder_that_has_not_all_images_is_not_guessed(tmp_path: Path, other: str) -> None:
    for name in ("a/1.jpg", other):
        path = tmp_path / "photos" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(JPEG_START)
    report, records = import_table(tmp_path / "photos", "image,text\n1.jpg,a dog\na/1.jpg,a lake\n")
    assert texts_of(records) == {"a/1.jpg": ("a lake",)}
    assert [item.line for item in report.rejections.items] == [2]


def test_all_rows_of_an_image_go_with_it(folder: Path) -> None:
    long = "x" * 2001
    report, records = import_table(folder, f"image,text,labels\n1.jpg,a,{long}\n1.jpg,b,\n2.jpg,c,\n")
    assert len(records) == 1
    assert len(report.rejections) == 2
    assert report.rejections.named() == [
        "Line 2: 'labels[0]' has 2,001 bytes in UTF-8; the limit is 2,000 (2 rows)."
    ]
    assert (report.tallies[0].taken, report.tallies[0].refused) == (1, 2)


def test_columns_without_a_name_are_counted(folder: Path) -> None:
    report, records = import_table(folder, ",image,text,\n0,1.jpg,a,\n1,2.jpg,b,\n")
    assert [dict(record.metadata) for record in records] == [{}, {}]
    assert report.notes == ["Column 1 has no name and is not stored, 2 values: '0' on line 2, '1' on line 3."]


def test_characters_that_were_lost_before_are_said(folder: Path) -> None:
    table = folder.parent / "t.csv"
    table.write_text("image,text\n1.jpg,caf\ufffd\n", encoding="utf-8")
    report = import_data_set("folder", folder, table=table)
    assert report.notes == [
        "1 row holds U+FFFD, which another program wrote for characters that it lost (line 2)."
    ]


def test_a_table_without_a_header(folder: Path) -> None:
    with pytest.raises(DataError, match=r"begins with the image '1.jpg'; put a line with the names"):
        import_table(folder, TWO)


@pytest.mark.parametrize("table", ["image,text\n", "image,text\n\n"])
def test_a_table_without_rows(folder: Path, table: str) -> None:
    with pytest.raises(DataError, match="has no rows below its header"):
        import_table(folder, table)


def test_every_broken_row_is_named_before_the_run_ends(folder: Path) -> None:
    table = folder.parent / "t.csv"
    table.write_text("image,caption\n1.jpg,a\n2.jpg\n7.jpg,b\n")
    with pytest.raises(DataError, match=r"2 of 3 lines, more than the share of 0\.01") as raised:
        import_data_set("folder", folder, table=table)
    assert raised.value.__notes__ == [
        "Line 3: it has 1 field where the header has 2.",
        f"Line 4: there is no image '7.jpg' in {folder}.",
        "Took column 'caption' for text.",
    ]
    assert not (folder / "manifest.jsonl").exists()


def test_an_encoding_without_a_table(folder: Path) -> None:
    with pytest.raises(DataError, match=r"belongs to a folder's --table or to the reports of mimic-cxr"):
        import_data_set("folder", folder, encoding="utf-8")
    with pytest.raises(DataError, match=r"belong to a table; give it as well with --table"):
        import_data_set("folder", folder, keep_unknown_texts=True)


def test_a_null_character_costs_its_own_row_alone(folder: Path) -> None:
    report, records = import_table(folder, "image,text\n1.jpg,a dog\n1.jpg,a\0cat\n2.jpg,a lake\n")
    assert texts_of(records) == {"1.jpg": ("a dog",), "2.jpg": ("a lake",)}
    assert report.rejections.named() == ["Line 3: it holds a null character."]


def test_findings_and_impression_become_one_report_in_order(folder: Path) -> None:
    table = (
        "image;Beurteilung;Befund\n1.jpg;Kein Erguss.;Das Herz ist gro\xdf.\n2.jpg;;Das Herz ist klein.\n"
        "3.jpg;Pneumonie;\n4.jpg;;k. A.\n"
    )
    report, records = import_table(folder, table)
    assert [record.report for record in records] == [
        "FINDINGS: Das Herz ist gro\xdf.\n\nIMPRESSION: Kein Erguss.",
        "FINDINGS: Das Herz ist klein.",
        "IMPRESSION: Pneumonie",
        None,
    ]
    assert [record.texts for record in records] == [
        ("Das Herz ist gro\xdf.", "Kein Erguss."),
        ("Das Herz ist klein.",),
        ("Pneumonie",),
        (),
    ]
    assert report.notes[0] == "Took columns 'Befund' for findings and 'Beurteilung' for impression."


def test_captions_beside_one_another(folder: Path) -> None:
    _, records = import_table(folder, "image,caption_1,caption_2\n1.jpg,a dog,a beach\n2.jpg,,a lake\n")
    assert texts_of(records) == {"1.jpg": ("a dog", "a beach"), "2.jpg": ("a lake",)}


def test_paths_of_another_computer_are_said_once(folder: Path) -> None:
    rows = "".join(f"C:\\Users\\x\\img\\{number}.jpg,text\n" for number in range(1, 9))
    report, records = import_table(folder, f"image,text\n{rows}")
    assert [record.image for record in records] == [f"{number}.jpg" for number in range(1, 7)]
    assert report.rejections.named() == [
        f"Line {number + 1}: there is no image 'C:\\\\Users\\\\x\\\\img\\\\{number}.jpg' in {folder}."
        for number in (7, 8)
    ]
    assert report.notes == [
        f"Looked for images whose paths begin with 'C:/Users/x/img/' in {folder}, by the rest of them.",
        f"2 rows name their images by paths that begin with 'C:/Users/x/img/', which is not in {folder} "
        "(lines 8, 9): give the folder that has the images with --images.",
    ]


def test_paths_of_another_computer_without_any_image_here(folder: Path) -> None:
    table = folder.parent / "t.csv"
    table.write_text("image,text\n/data/a/x.jpg,a\n/data/b/y.jpg,b\n")
    with pytest.raises(DataError) as raised:
        import_data_set("folder", folder, table=table)
    assert raised.value.__notes__ == [
        f"Line 2: there is no image '/data/a/x.jpg' in {folder}.",
        f"Line 3: there is no image '/data/b/y.jpg' in {folder}.",
        f"2 rows name their images by paths that begin with '/data/', which is not in {folder} (lines 2, 3): "
        "give the folder that has the images with --images.",
    ]


def test_the_column_of_images_is_told_by_its_values(folder: Path) -> None:
    table = "Nummer;Kurztext;Beschreibung\n7;2.jpg;ein Hund\n8;1.jpg;ein See\n9;gone.jpg;ein Berg\n"
    report, records = import_table(folder, table)
    assert texts_of(records) == {"2.jpg": ("ein Hund",), "1.jpg": ("ein See",)}
    assert report.notes[0] == "Took columns 'Beschreibung' for text and 'Kurztext' for image."
    assert [item.line for item in report.rejections.items] == [4]
    with pytest.raises(DataError, match="no column 'image'"):
        import_table(folder, "a;b;text\n1.jpg;2.jpg;x\n3.jpg;4.jpg;y\n")
