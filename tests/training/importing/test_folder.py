"""Folders of images of one's own: texts in files, tables of their own, and the commands that read more."""

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.importing.trees import imported, left_out, records_of, refused, touch, write
from training.common.errors import DataError
from training.common.manifest import read_manifest
from training.common.values import is_without_words


def texts_in(folder: Path) -> dict[str, tuple[str, ...]]:
    return {record.image: record.texts for record in records_of(folder).values()}


def test_all_images_are_found_and_nothing_else(tmp_path: Path) -> None:
    photos = tmp_path / "photos"
    with pytest.raises(DataError, match=r"There is no .*photos"):
        imported("folder", photos)
    touch(photos, "a.jpg", "beach/b.PNG", "beach/c.webp", "notes.txt", ".cache/d.jpg")
    assert imported("folder", photos).records == 3
    records = read_manifest(photos).records
    assert [(record.id, record.image, dict(record.metadata)) for record in records] == [
        ("a.jpg", "a.jpg", {}),
        ("beach-b.PNG", "beach/b.PNG", {"folder": "beach"}),
        ("beach-c.webp", "beach/c.webp", {"folder": "beach"}),
    ]
    assert all(record.texts == () for record in records)
    imported("folder", photos, tmp_path / "out")
    again = read_manifest(tmp_path / "out").records
    assert [(one.id, one.split) for one in again] == [(one.id, one.split) for one in records]
    assert again[1].image == "images/beach/b.PNG"


def test_a_table_says_what_images_show(tmp_path: Path) -> None:
    touch(tmp_path, "a.jpg", "beach/b.PNG", "c.jpg")
    long, short = "900719925474099", "90071992547409"
    write(
        tmp_path,
        "table.csv",
        "image,id,text,labels,split,group,year,place,film,study,series\n"
        f'a.jpg,first,"Two  dogs, running",dog; grass,test,g1,2019,,007,{long}2,{short}2\n'
        f"beach/b.PNG,,A wave,,train,,2020.5,Rimini,12,{long}3,{short}3\n"
        "a.jpg,,A meadow,,,,,7,,,\nc.jpg,,,,other,,,,,,\nlost.jpg,,,,train,,,,,,\n",
    )
    report = imported("folder", tmp_path, table=tmp_path / "table.csv")
    assert [line for line, _ in refused(report)] == [5, 6]
    first, second = read_manifest(tmp_path).records
    assert (first.id, second.id) == ("first", "beach-b.PNG")
    assert (first.texts, first.labels) == (("Two dogs, running", "A meadow"), ("dog", "grass"))
    assert (first.split, first.group) == ("test", "g1")
    # Whole numbers that a double does not tell apart stay texts.
    numbers = {"study": f"{long}2", "series": int(f"{short}2")}
    assert dict(first.metadata) == {"year": 2019, "place": "7", "film": "007", **numbers}
    numbers = {"study": f"{long}3", "series": int(f"{short}3")}
    assert dict(second.metadata) == {
        "folder": "beach", "year": 2020.5, "place": "Rimini", "film": "12", **numbers,
    }  # fmt: skip


def test_tables_of_an_image_folder_are_read_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for split, texts in {"train": ("a dog", "a cat"), "validation": ("a lake",), "test": ("a tree",)}.items():
        touch(tmp_path, *(f"{split}/{number}.jpg" for number, _ in enumerate(texts)))
        rows = [{"file_name": f"{number}.jpg", "text": text} for number, text in enumerate(texts)]
        write(tmp_path, f"{split}/metadata.jsonl", "\n".join(map(json.dumps, rows)))
    write(tmp_path, "other/metadata.jsonl", "{}\n")
    monkeypatch.chdir(tmp_path.parent)
    relative = Path(tmp_path.name) / "train" / "metadata.jsonl"
    for table in (None, tmp_path / "train" / "metadata.jsonl", relative):
        report = imported("folder", tmp_path, table=table)
        assert {one.image: (one.split, *one.texts) for one in records_of(tmp_path).values()} == {
            "train/0.jpg": ("train", "a dog"),
            "train/1.jpg": ("train", "a cat"),
            "validation/0.jpg": ("val", "a lake"),
            "test/0.jpg": ("test", "a tree"),
        }
        assert report.notes[0].startswith("Read 3 tables such as ")


def test_an_image_in_two_tables_is_refused_by_the_second(tmp_path: Path) -> None:
    touch(tmp_path, "a/1.jpg", "b/2.jpg")
    write(tmp_path, "a/metadata.csv", "file_name,text,age\n1.jpg,one,7\n")
    write(tmp_path, "b/metadata.csv", "file_name,text,age\n2.jpg,two,8\n../a/1.jpg,other,9\n")
    report = imported("folder", tmp_path)
    assert {one.image: (one.texts, one.metadata["age"]) for one in records_of(tmp_path).values()} == {
        "a/1.jpg": (("one",), 7),
        "b/2.jpg": (("two",), 8),
    }
    (reason,) = report.rejections.named()
    assert reason == "Line 3 of b/metadata.csv: 'a/1.jpg' is also in a/metadata.csv."


@pytest.mark.parametrize(
    ("written", "texts", "report"),
    [
        ("Two dogs run.\n", ("Two dogs run.",), None),
        ("Pneumonia", ("Pneumonia",), None),
        ("a dog on a beach\na brown dog runs\n\n", ("a dog on a beach", "a brown dog runs"), None),
        ("FINDINGS: Clear lungs.\nIMPRESSION: No change.", ("Clear lungs.", "No change."), "FINDINGS: Clear"),
        (
            "The heart is\nlarge. No effusion.",
            ("The heart is large.", "No effusion."),
            "The heart is\nlarge.",
        ),
        ("\ufeffEin Hund läuft.", ("Ein Hund läuft.",), None),
        ("", (), None),
        ("\u200b\n", (), None),
        ("___", (), None),
        # Boxes of objects.
        ("0 0.51 0.43 0.2 1e-2\n3 0.1 0.2 0.3 0.4\n", (), None),
    ],
)
def test_captions_and_reports(
    tmp_path: Path, written: str, texts: tuple[str, ...], report: str | None
) -> None:
    touch(tmp_path, "1.jpg")
    write(tmp_path, "1.txt", written)
    said = imported("folder", tmp_path)
    (record,) = records_of(tmp_path).values()
    assert record.texts == texts
    assert record.report is None if report is None else (record.report or "").startswith(report)
    assert "Took the texts of 1 image from files of the same name, such as '1.txt' for '1.jpg'." in said.notes
    empty = {} if texts else {"texts next to images that are empty or without words": 1}
    assert (said.tallies[0].found, said.tallies[0].taken, left_out(said)) == (2, 1 + bool(texts), empty)


def test_names_that_differ_in_their_ending_case_or_accents_alone(tmp_path: Path) -> None:
    images = ("B.JPG", "a.jpg", "c.png", "d.jpg", "d.png", "e\u0301.jpg", "sub/a.jpg", "x.jpg")
    texts = ("a.jpg.txt", "b.TXT", "c.caption", "c.txt", "\xe9.txt", "d.txt", "x.txt", "X.txt")
    touch(tmp_path, *images, "X.jpg", "Yy.jpg")
    for name in (*texts, "yY.txt", "YY.txt"):
        write(tmp_path, name, f"text of {name}")
    write(tmp_path, "lonely.txt", "of none")
    report = imported("folder", tmp_path)
    assert texts_in(tmp_path) == {
        "B.JPG": ("text of b.TXT",),
        "X.jpg": ("text of X.txt",),
        "Yy.jpg": (),
        "a.jpg": ("text of a.jpg.txt",),
        "c.png": ("text of c.caption",),
        "d.jpg": ("text of d.txt",),
        "d.png": ("text of d.txt",),
        "e\u0301.jpg": ("text of \xe9.txt",),
        "sub/a.jpg": (),
        "x.jpg": ("text of x.txt",),
    }
    assert left_out(report) == {".txt files, which are no images that can be read": 4}
    note = "1 text is not read, since the image has another: 'c.txt' next to 'c.caption'."
    assert note in report.notes


def test_texts_in_another_encoding_are_refused_and_read_by_its_name(tmp_path: Path) -> None:
    touch(tmp_path, "1.jpg", "2.jpg")
    with pytest.raises(DataError, match="An encoding belongs to a table or to texts"):
        imported("folder", tmp_path, encoding="windows-1252")
    write(tmp_path, "1.txt", "Ein Hund läuft.".encode("cp1252"))
    (reason,) = imported("folder", tmp_path).rejections.named()
    assert reason.startswith(
        "File 1: '1.jpg' has a text that cannot be used: the text '1.txt': line 1 is not UTF-8; it reads as "
        "Windows-1252: 'Ein Hund läuft.'."
    )
    assert reason.endswith("or give `--encoding windows-1252` (2 files).")
    imported("folder", tmp_path, encoding="windows-1252")
    assert records_of(tmp_path)["1.jpg"].texts == ("Ein Hund läuft.",)


def test_texts_in_a_folder_of_their_own(tmp_path: Path) -> None:
    touch(tmp_path, "images/1.jpg", "images/2.jpg", "images/3.jpg", "images/a/4.jpg", "images/b/4.jpg")
    for name in ("1", "2", "4"):
        write(tmp_path, f"reports/{name}.txt", f"A large heart in {name}.")
    report = imported("folder", tmp_path)
    assert {image: texts for image, texts in texts_in(tmp_path).items() if texts} == {
        "images/1.jpg": ("A large heart in 1.",),
        "images/2.jpg": ("A large heart in 2.",),
    }
    assert report.notes[-1].endswith("such as 'reports/1.txt' for 'images/1.jpg'.")
    assert left_out(report) == {".txt files, which are no images that can be read": 1}
    # A readme of the name of an image is no text of it.
    other = tmp_path / "other"
    touch(other, "images/about.jpg", "images/2.jpg")
    for name in ("about", "licence"):
        write(other, f"{name}.txt", "Photographs of 2019.")
    imported("folder", other)
    assert set(texts_in(other).values()) == {()}


def test_the_only_report_in_a_folder_is_that_of_all_its_images(tmp_path: Path) -> None:
    touch(tmp_path, "A1/1.png", "A1/2.png", "A2/1.png", "B/1.png", "B/2.png", "C/1.png", "C/2.png", "1.png")
    write(tmp_path, "A1/report.txt", "FINDINGS: Clear lungs.\nIMPRESSION: No change.")
    write(tmp_path, "A2/Befund.txt", "Effusion")
    write(tmp_path, "B/report.txt", "Both are clear.")
    write(tmp_path, "B/1.txt", "A heart.")
    write(tmp_path, "C/dictated.txt", "Clear lungs.")
    write(tmp_path, "README.txt", "All about it.")
    report = imported("folder", tmp_path)
    found = records_of(tmp_path).values()
    assert {record.image: (record.texts, record.group) for record in found if record.texts} == {
        "A1/1.png": (("Clear lungs.", "No change."), "A1"),
        "A1/2.png": (("Clear lungs.", "No change."), "A1"),
        "A2/1.png": (("Effusion",), "A2"),
        "B/1.png": (("A heart.",), None),
    }
    assert len({record.split for record in found if record.group == "A1"}) == 1
    assert [note for note in report.notes if "Took" not in note or "group" in note] == [
        "'C/dictated.txt' is the only text in the folder of 2 images: name it report.txt to have it taken "
        "as the report of all images there.",
        "Took 2 texts such as 'A1/report.txt' for the report of all images in its folder, which are one "
        "group.",
    ]
    assert (report.tallies[0].found, report.tallies[0].taken) == (14, 11)


@pytest.mark.slow
@given(
    texts=st.dictionaries(
        st.sampled_from(["1.txt", "2.TXT", "1.jpg.txt", "sub/3.txt", "e\u0301.txt", "gone.txt", "a.caption"]),
        st.text(alphabet='ab \xe9.\n_\u200b,A"', max_size=30) | st.just("FINDINGS: Clear."),
        max_size=5,
    ),
    encoding=st.sampled_from(["utf-8", "utf-16", "windows-1252"]),
)
def test_texts_of_images_are_all_accounted_for(texts: dict[str, str], encoding: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        touch(folder, "1.jpg", "2.jpg", "2.png", "sub/3.png", "\xe9.jpg", "@eaDir/1.jpg")
        for name, text in texts.items():
            write(folder, name, text.encode(encoding, "replace"))
        report = imported("folder", folder, most_decoded=0)
        assert report.tallies[0].found == 6 + len(texts)
        assert report.records <= 5
        assert not any(is_without_words(text) for own in texts_in(folder).values() for text in own)


@pytest.mark.parametrize(
    ("file", "command"),
    [
        ("files/p10/p10000032/s50414267.txt", "import mimic-cxr {}`"),
        ("P10000032/S50414267/S50414267.TXT", "import mimic-cxr {}`"),
        ("Data_Entry_2017.csv", "import nih-cxr14 {}`"),
        ("df_chexpert_plus_240401.csv", "import chexpert-plus {}`"),
        ("indiana_reports.csv", "import iu-xray {}`"),
        ("dataset_flickr8k.json", "import karpathy {}`"),
        ("annotations/captions_val2017.json", "import coco {}`"),
        ("data/train-0001.parquet", "import huggingface {} OUT`"),
        ("00000.tar", "import webdataset {} OUT`"),
    ],
)
def test_a_published_layout_is_told_its_command(tmp_path: Path, file: str, command: str) -> None:
    write(tmp_path, file, "a,b\n")
    with pytest.raises(DataError, match="has no images") as raised:
        imported("folder", tmp_path)
    touch(tmp_path, "images/1.jpg")
    for notes in (raised.value.__notes__, imported("folder", tmp_path).notes):
        assert any(f"`recoquest {command.format(tmp_path)}" in note for note in notes)


def test_a_table_among_the_images_is_told(tmp_path: Path) -> None:
    touch(tmp_path, "Images/1.jpg")
    write(tmp_path, "captions.txt", "image,caption\n1.jpg,a dog\n")
    write(tmp_path, "readme.txt", "Photographs, of 2019\n")
    assert imported("folder", tmp_path).notes == [
        f"'captions.txt' is a table of images: `recoquest import folder {tmp_path} "
        f"--table {tmp_path / 'captions.txt'}` takes what it says of them."
    ]


@pytest.mark.parametrize(
    "name",
    ["a.jpg.json", "a.jpg.supplemental-metadata.json", "a.xmp", "sub/A.XMP", "sub/b.supplemental-meta.json"],
)
def test_files_next_to_images_that_may_have_captions_are_named(tmp_path: Path, name: str) -> None:
    touch(tmp_path, "a.jpg", "sub/b.jpg")
    for other in (name, "metadata.json", "sub/metadata.json", "elsewhere/a.json"):
        write(tmp_path, other, "{}")
    (note,) = imported("folder", tmp_path).notes
    assert note.startswith(f"1 file such as '{name}' may have captions")


def test_a_folder_without_images_names_its_own_files_ahead_of_those_of_systems(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there", target_is_directory=True)
    for name in ("@a/1.jpg", "@b/1.jpg", "@c/1.jpg", "@d/1.jpg", "scan.dcm", "notes.doc"):
        write(tmp_path, name, "")
    with pytest.raises(
        DataError, match=r"Left out: \.dcm files.*: 1; \.doc files.*: 1; files in folders named '@a'"
    ) as raised:
        imported("folder", tmp_path)
    link = "The folder 'link' is a link and was not followed; import it by itself."
    assert raised.value.__notes__ == [link]


def test_lines_of_json_are_a_table_and_the_command_that_takes_them_is_named(tmp_path: Path) -> None:
    touch(tmp_path, *(f"{number}.png" for number in range(1, 7)))
    lines = (
        '{"file_name": "1.png", "text": "A dog, that runs.", "title": ["a", "b"]}',
        '{"file_name": "2.png", "text": "A \\"cat\\".", "tags": ["cat", "indoors"], "age": 3, "box": [1, 2]}',
        "",
        '{"file_name": "3.png", "text": ["One,  two;\\nthree.", "", "nan", "Last."]}',
        "no JSON",
        '{"file_name": "4.png", "text": []}',
        '{"file_name": "5.png", "text": [{"raw": "x"}]}',
        '{"file_name": "5.png", "text": ["x", null]}',
        '{"file_name": "6.png", "text": "A dog.", "text": "A cat."}',
    )
    write(tmp_path, "captions.jsonl", "\n".join(lines))
    table = tmp_path / "captions.jsonl"
    notes = "\n".join(imported("folder", tmp_path).notes)
    assert f"--table {table}` takes what it says" in notes
    report = imported("folder", tmp_path, table=table)
    found = records_of(tmp_path)
    assert [(record.texts, record.labels) for record in found.values()] == [
        (("A dog, that runs.",), ()),
        (('A "cat".',), ("cat", "indoors")),
        (("One, two; three.", "Last."), ()),
        ((), ()),
    ]
    assert dict(found["1.png"].metadata) == {"title": '["a", "b"]'}
    assert dict(found["2.png"].metadata) == {"age": 3, "box": "[1, 2]"}
    unread = "'text' is a list or an object; give a text, a list of texts, or each text a line of its own"
    assert refused(report) == [
        (5, "it is not one JSON object, as other lines are"),
        (7, unread),
        (8, unread),
        (9, "it gives one of its keys twice: file_name, text, text"),
    ]
