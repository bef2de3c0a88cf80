"""Headers and values as people write them: their role is told, and what stands for not known is not there."""

from pathlib import Path

import pytest

from tests.image_files import write_photo
from tests.training.importing.folder.tables import import_table, texts_of
from training.common.errors import DataError


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
    assert texts_of(records) == {
        "1.jpg": ("Normal.",),
        "2.jpg": ("Normal.", "No effusion."),
        "3.jpg": ("dog",),
    }


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


def test_images_named_without_their_ending(folder: Path) -> None:
    # As in tables of Kaggle, under a name that says nothing; a file has the name of a column.
    write_photo(folder / "image_id.jpg")
    report, records = import_table(folder, "image_id,caption\n1,a dog\n6,a cat\n7,a cow\n")
    assert texts_of(records) == {"1.jpg": ("a dog",), "6.jpg": ("a cat",)}
    assert [item.line for item in report.rejections.items] == [4]
    assert report.notes == [
        "Took columns 'caption' for text and 'image_id' for image.",
        "2 rows name their images without the ending: '1' for '1.jpg' on line 2, '6' for '6.jpg' on line 3.",
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


def test_columns_without_a_name_are_counted(folder: Path) -> None:
    report, records = import_table(folder, ",image,text,\n0,1.jpg,a,\n1,2.jpg,b,\n")
    assert [dict(record.metadata) for record in records] == [{}, {}]
    assert report.notes == ["Column 1 has no name and is not stored, 2 values: '0' on line 2, '1' on line 3."]


def test_a_table_without_a_header(folder: Path) -> None:
    with pytest.raises(DataError, match=r"begins with the image '1.jpg'; put a line with the names"):
        import_table(folder, "1.jpg,a dog\n2.jpg,a lake\n")


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


def test_the_column_of_images_is_told_by_its_values(folder: Path) -> None:
    table = "Nummer;Kurztext;Beschreibung\n7;2.jpg;ein Hund\n8;1.jpg;ein See\n9;gone.jpg;ein Berg\n"
    report, records = import_table(folder, table)
    assert texts_of(records) == {"2.jpg": ("ein Hund",), "1.jpg": ("ein See",)}
    assert report.notes[0] == "Took columns 'Beschreibung' for text and 'Kurztext' for image."
    assert [item.line for item in report.rejections.items] == [4]
    with pytest.raises(DataError, match="no column 'image'"):
        import_table(folder, "a;b;text\n1.jpg;2.jpg;x\n3.jpg;4.jpg;y\n")
