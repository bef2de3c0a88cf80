"""Tables as people have them: a row is taken, refused by its line, or left out; no value changes unsaid."""

import unicodedata
from pathlib import Path

import pytest
from PIL import Image

from tests.image_files import write_photo
from tests.training.importing.folder.tables import import_table, texts_of
from tests.training.importing.trees import touch
from training.common.errors import DataError
from training.common.manifest import read_manifest
from training.importing.run import import_data_set

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
    assert texts_of(records) == {"1.jpg": ("g",), "Photo.JPG": ("d",)}
    assert [(item.line, item.reason) for item in report.rejections.items] == [
        (2, "it names no image"),
        (3, "it names no image"),
        (4, "'a.jp2' is one of the .jp2 files, which cannot be read (convert them to JPEG or PNG)"),
        (6, f"there is no image '7.jpg' in {folder}"),
        (8, "'../t.csv' is one of the .csv files, which are no images that can be read"),
    ]
    assert dict(report.tallies[0].left_out) == {"rows without any value": 1}


def test_images_with_other_endings_are_told_by_their_content(folder: Path) -> None:
    write_photo(folder / "a.dat")
    Image.new("RGB", (8, 8)).save(folder / "b", "PNG")
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
        import_data_set("folder", folder, table=table, max_rejected=0.01)
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


def test_lists_in_quotes_are_the_texts_in_them(folder: Path) -> None:
    written = {
        1: """ "['A dog runs.', 'It\\'s wet.']" """,
        2: """ "[""one"", ""two, three""]" """,
        3: """ "['numpy' ""writes it""\n 'so']" """,
        4: """ "['a', 2]" """,
        5: "[sic] a sign",
    }
    table = "image,text,labels\n" + "".join(
        f"{number}.jpg,{text.strip()},\"['x', 'y']\"\n" for number, text in written.items()
    )
    report, records = import_table(folder, table)
    assert [record.texts for record in records] == [
        ("A dog runs.", "It's wet."), ("one", "two, three"), ("numpy", "writes it", "so"),
        ("['a', 2]",), ("[sic] a sign",),
    ]  # fmt: skip
    assert {record.labels for record in records} == {("x", "y")}
    said = [note.partition(":")[0::2] for note in report.notes if "look like" in note or "quotes" in note]
    assert [(column, words.partition(":")[0].strip()) for column, words in said] == [
        ("text", "3 values are lists in quotes, of which each item was taken"),
        ("labels", "5 values are lists in quotes, of which each item was taken"),
        ("text", "2 values look like lists or objects and stay text"),
    ]


@pytest.mark.parametrize(
    ("written", "texts"),
    [
        ("('a dog', 'a cat')", ("a dog", "a cat")),
        ("('a dog',)", ("a dog",)),
        ('{"a dog, wet","a cat"}', ("a dog, wet", "a cat")),
        ("('a dog')", ("('a dog')",)),
        ('{"text": "a dog"}', ('{"text": "a dog"}',)),
        ("(a dog, a cat)", ("(a dog, a cat)",)),
    ],
)
def test_tuples_and_arrays_of_databases_are_lists(folder: Path, written: str, texts: tuple[str, ...]) -> None:
    quoted = written.replace('"', '""')
    _, records = import_table(folder, f'image,text\n1.jpg,"{quoted}"\n')
    assert records[0].texts == texts


@pytest.mark.parametrize("odd", ["['a', 'b']", '["a"]', "{'raw': 'a'}", "b'a dog'", "('a', 'b')", "('a')"])
def test_a_few_values_like_lists_stay_and_are_named(folder: Path, odd: str) -> None:
    quoted = odd.replace('"', '""')
    report, records = import_table(
        folder, f'image,text\n1.jpg,"{quoted}"\n2.jpg,a dog\n3.jpg,a cat\n4.jpg,a lake\n'
    )
    assert records[0].texts == (odd,)
    assert [note for note in report.notes if "line 2" in note] == [
        f"text: 1 value looks like a list or an object and stays text: {odd!r} on line 2."
    ]


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
    table = f"image,text\n{written},a\n{written},b\n2.jpg,c\n"
    report, records = import_table(tmp_path / "photos", table)
    assert texts_of(records) == {there: ("a", "b"), "2.jpg": ("c",)}
    (note,) = [note for note in report.notes if "differs in" in note]
    assert note.startswith("2 rows name their images by a name that differs in ")
    assert f"{written!r} for {there!r} on line 2" in note


def test_a_loose_name_takes_no_image_that_may_be_of_another_row(tmp_path: Path) -> None:
    touch(tmp_path / "photos", "a.jpg", "A.jpg", "b.jpg", "c.jpg", "x/d.jpg", "y/d.jpg")
    rows = ("a.JPG", "b.jpg", "B.JPG", "C.jpg", "c.JPG", "/data/upload/1/01234567-d.jpg")
    lines = "".join(f"{row},{row}\n" for row in rows)
    report, records = import_table(tmp_path / "photos", f"image,text\n{lines}")
    assert texts_of(records) == {"b.jpg": ("b.jpg",)}
    assert [item.line for item in report.rejections.items] == [2, 4, 5, 6, 7]
    reasons = [item.reason for item in report.rejections.items]
    assert reasons[0].endswith("is it 'A.jpg' or 'a.jpg'?")
    assert reasons[1] == "'B.JPG' may be 'b.jpg', which another row names"
    assert reasons[2] == "'C.jpg' may be 'c.jpg', and so may another name of the table"


def test_two_files_whose_names_differ_in_composition_are_told_apart(tmp_path: Path) -> None:
    composed, other = (unicodedata.normalize(form, "é/café.jpg") for form in ("NFC", "NFD"))
    touch(tmp_path / "photos", composed, other, "1.jpg")
    mixed = unicodedata.normalize("NFD", "é/") + "café.jpg"
    report, records = import_table(
        tmp_path / "photos", f"image,text\n{composed},a\n{other},b\n{mixed},c\n1.jpg,d\n"
    )
    assert texts_of(records) == {composed: ("a",), other: ("b",), "1.jpg": ("d",)}
    assert [item.line for item in report.rejections.items] == [4]


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


@pytest.mark.parametrize(
    ("value", "stored"),
    [("2021:03:12", "2021-03-12"), ("2021:3:1 08:00", "2021-03-01T08:00:00"), ("0000-00-00", None)],
)
def test_days_with_colons(folder: Path, value: str, stored: str | None) -> None:
    _, records = import_table(folder, f"image,Taken\n1.jpg,{value}\n2.jpg,2020:01:31\n")
    assert records[0].metadata.get("Taken") == stored


def test_the_words_of_a_photograph_are_texts_in_any_table(folder: Path) -> None:
    _, records = import_table(folder, "FileName,ImageDescription,Subject\n1.jpg,a dog,patient 7\n")
    assert (records[0].texts, records[0].labels) == (("a dog",), ())
    assert records[0].metadata["Subject"] == "patient 7"
