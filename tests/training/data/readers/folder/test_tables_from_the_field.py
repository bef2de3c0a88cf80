"""Tables as people have them: a row is taken, refused by its line, or left out; no value changes unsaid."""

from pathlib import Path

import pytest

from tests.image_files import write_photo
from tests.training.data.readers.folder.tables import import_table, texts_of
from training.data.manifest import read_manifest
from training.data.readers.importing import import_data_set
from training.errors import DataError

TWO = "1.jpg,a dog\n2.jpg,a lake\n"


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


def test_letters_that_look_wrong_are_noticed(folder: Path) -> None:
    report, _ = import_table(folder, "image,text\n1.jpg,café\n", encoding="windows-1252")
    assert "reads as UTF-8 as well" in report.notes[0]


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
    write_photo(folder / "Photo.JPG")
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
        write_photo(archive / "Images" / f"{number}.jpg")
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
        write_photo(path)
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


def test_characters_that_were_lost_before_are_said(folder: Path) -> None:
    table = folder.parent / "t.csv"
    table.write_text("image,text\n1.jpg,caf\ufffd\n", encoding="utf-8")
    report = import_data_set("folder", folder, table=table)
    assert report.notes == [
        "1 row holds U+FFFD, which another program wrote for characters that it lost (line 2)."
    ]


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
