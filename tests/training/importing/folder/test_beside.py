"""Texts in files beside images, and the commands that a folder of another layout is told."""

from pathlib import Path

import pytest

from tests.training.importing.trees import imported, left_out, records_of, touch, write
from training.common.errors import DataError


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
    assert (record.report or "").startswith(report or "")
    assert (record.report is None) == (report is None)
    assert "Took the texts of 1 image from files of the same name, such as '1.txt' for '1.jpg'." in said.notes
    assert (said.tallies[0].found, said.tallies[0].taken) == (2, 2)


def test_names_that_differ_in_their_ending_case_or_accents_alone(tmp_path: Path) -> None:
    names = ("a.jpg", "B.JPG", "c.png", "e\u0301.jpg", "sub/a.jpg", "d.jpg", "d.png")
    touch(tmp_path, *names)
    for name in ("a.jpg.txt", "b.TXT", "c.caption", "\xe9.txt", "d.txt"):
        write(tmp_path, name, f"text of {name}")
    write(tmp_path, "lonely.txt", "of none")
    report = imported("folder", tmp_path)
    assert {record.image: record.texts for record in records_of(tmp_path).values()} == {
        "B.JPG": ("text of b.TXT",),
        "a.jpg": ("text of a.jpg.txt",),
        "c.png": ("text of c.caption",),
        "d.jpg": ("text of d.txt",),
        "d.png": ("text of d.txt",),
        "e\u0301.jpg": ("text of \xe9.txt",),
        "sub/a.jpg": (),
    }
    assert left_out(report) == {".txt files, which are no images that can be read": 1}


def test_texts_without_words_are_left_out(tmp_path: Path) -> None:
    for number, text in enumerate(("", "\u200b\n", "___", "a dog"), 1):
        touch(tmp_path, f"{number}.jpg")
        write(tmp_path, f"{number}.txt", text)
    report = imported("folder", tmp_path)
    assert [record.texts for record in records_of(tmp_path).values()] == [(), (), (), ("a dog",)]
    assert left_out(report) == {"texts beside images that are empty or without words": 3}


def test_texts_in_another_encoding_are_refused_and_read_by_its_name(tmp_path: Path) -> None:
    touch(tmp_path, "1.jpg", "2.jpg")
    (tmp_path / "1.txt").write_bytes("Ein Hund läuft.".encode("cp1252"))
    report = imported("folder", tmp_path, max_rejected=1.0)
    assert report.rejections.named()[0].startswith(
        "File 1: '1.jpg' has a text that cannot be used: the text '1.txt': line 1 is not UTF-8; it reads as "
        "Windows-1252: 'Ein Hund läuft.'."
    )
    assert report.rejections.named()[0].endswith("or give `--encoding windows-1252` (2 files).")
    imported("folder", tmp_path, encoding="windows-1252")
    assert records_of(tmp_path)["1.jpg"].texts == ("Ein Hund läuft.",)


def test_reports_beside_images_in_folders_of_patients_are_taken_and_told_their_command(
    tmp_path: Path,
) -> None:
    touch(tmp_path, "p10000032/s1.jpg")
    write(tmp_path, "p10000032/s1.txt", "A large heart.")
    report = imported("folder", tmp_path)
    assert records_of(tmp_path)["p10000032-s1.jpg"].texts == ("A large heart.",)
    assert "`recoquest import mimic-cxr" in report.notes[0]


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
@pytest.mark.parametrize("image", ["images/1.jpg", None])
def test_a_published_layout_is_told_its_command(
    tmp_path: Path, file: str, command: str, image: str | None
) -> None:
    write(tmp_path, file, "a,b\n")
    if image is None:
        with pytest.raises(DataError) as raised:
            imported("folder", tmp_path)
        said = raised.value.__notes__
    else:
        touch(tmp_path, image)
        said = list(imported("folder", tmp_path).notes)
    assert any(f"`recoquest {command.format(tmp_path)}" in note for note in said)


def test_a_table_beside_the_images_is_told(tmp_path: Path) -> None:
    touch(tmp_path, "Images/1.jpg")
    write(tmp_path, "captions.txt", "image,caption\n1.jpg,a dog\n")
    write(tmp_path, "readme.txt", "Photographs, of 2019\n")
    report = imported("folder", tmp_path)
    assert report.notes == [
        f"'captions.txt' is a table of images: `recoquest import folder {tmp_path} "
        f"--table {tmp_path / 'captions.txt'}` takes what it says of them."
    ]


def test_a_folder_without_images_names_its_own_files_ahead_of_those_of_systems(tmp_path: Path) -> None:
    for name in ("@a/1.jpg", "@b/1.jpg", "@c/1.jpg", "@d/1.jpg", "scan.dcm", "notes.doc"):
        touch(tmp_path, name)
    with pytest.raises(
        DataError, match=r"Left out: \.dcm files.*: 1; \.doc files.*: 1; files in folders named '@a'"
    ):
        imported("folder", tmp_path)


def test_texts_in_a_folder_of_their_own(tmp_path: Path) -> None:
    touch(tmp_path, "images/1.jpg", "images/2.jpg", "images/3.jpg", "images/a/4.jpg", "images/b/4.jpg")
    for name in ("1", "2", "4"):
        write(tmp_path, f"reports/{name}.txt", f"A large heart in {name}.")
    report = imported("folder", tmp_path)
    assert {record.image: record.texts for record in records_of(tmp_path).values() if record.texts} == {
        "images/1.jpg": ("A large heart in 1.",),
        "images/2.jpg": ("A large heart in 2.",),
    }
    assert report.notes[-1].endswith("such as 'reports/1.txt' for 'images/1.jpg'.")
    assert left_out(report) == {".txt files, which are no images that can be read": 1}


def test_a_readme_of_the_name_of_an_image_is_no_text_of_it(tmp_path: Path) -> None:
    touch(tmp_path, "images/about.jpg", "images/2.jpg")
    for name in ("about", "licence"):
        write(tmp_path, f"{name}.txt", "Photographs of 2019.")
    imported("folder", tmp_path)
    assert all(not record.texts for record in records_of(tmp_path).values())


def test_boxes_of_objects_are_no_texts(tmp_path: Path) -> None:
    touch(tmp_path, "1.jpg")
    write(tmp_path, "1.txt", "0 0.51 0.43 0.2 1e-2\n3 0.1 0.2 0.3 0.4\n")
    report = imported("folder", tmp_path)
    assert records_of(tmp_path)["1.jpg"].texts == ()
    assert left_out(report) == {"texts beside images that are empty or without words": 1}


def test_the_only_report_in_a_folder_is_that_of_all_its_images(tmp_path: Path) -> None:
    touch(tmp_path, "A1/1.png", "A1/2.png", "A2/1.png", "B/1.png", "B/2.png")
    write(tmp_path, "A1/report.txt", "FINDINGS: Clear lungs.\nIMPRESSION: No change.")
    write(tmp_path, "A2/Befund.txt", "Effusion")
    write(tmp_path, "B/report.txt", "Both are clear.")
    write(tmp_path, "B/1.txt", "A heart.")
    report = imported("folder", tmp_path)
    found = {record.image: (record.texts, record.group) for record in records_of(tmp_path).values()}
    assert found == {
        "A1/1.png": (("Clear lungs.", "No change."), "A1"),
        "A1/2.png": (("Clear lungs.", "No change."), "A1"),
        "A2/1.png": (("Effusion",), "A2"),
        "B/1.png": (("A heart.",), None),
        "B/2.png": ((), None),
    }
    assert len({record.split for record in records_of(tmp_path).values() if record.group == "A1"}) == 1
    assert [note for note in report.notes if "one group" in note] == [
        "Took 2 texts such as 'A1/report.txt' for the report of all images in its folder, which are one "
        "group."
    ]
    assert (report.tallies[0].found, report.tallies[0].taken, report.tallies[0].unaccounted) == (9, 8, 0)


def test_a_lone_text_of_another_name_is_told_and_not_taken(tmp_path: Path) -> None:
    touch(tmp_path, "A1/1.png", "A1/2.png", "1.png")
    write(tmp_path, "A1/dictated.txt", "Clear lungs.")
    write(tmp_path, "README.txt", "All about it.")
    report = imported("folder", tmp_path)
    assert not any(record.texts for record in records_of(tmp_path).values())
    assert [note for note in report.notes if "only text" in note] == [
        "'A1/dictated.txt' is the only text in the folder of 2 images: name it report.txt to have it taken "
        "as the report of all images there."
    ]


def test_lines_of_json_are_a_table_and_the_command_that_takes_them_is_named(tmp_path: Path) -> None:
    touch(tmp_path, "1.png", "2.png", "3.png")
    lines = (
        '{"file_name": "1.png", "text": "A dog, that runs."}',
        '{"file_name": "2.png", "text": "A \\"cat\\".", "tags": ["cat", "indoors"], "age": 3, "box": [1, 2]}',
        "",
        '{"file_name": "3.png", "text": ["One.", "Two."]}',
        "no JSON",
    )
    write(tmp_path, "captions.jsonl", "\n".join(lines))
    table = tmp_path / "captions.jsonl"
    notes = "\n".join(imported("folder", tmp_path).notes)
    assert f"--table {table}` takes what it says" in notes
    report = imported("folder", tmp_path, table=table, max_rejected=1.0)
    found = records_of(tmp_path)
    texts = [("A dog, that runs.",), ('A "cat".',), ("One.", "Two.")]
    assert [record.texts for record in found.values()] == texts
    assert [record.labels for record in found.values()] == [(), ("cat", "indoors"), ()]
    assert dict(found["2.png"].metadata) == {"age": 3, "box": "[1, 2]"}
    assert [(item.line, item.reason) for item in report.rejections.items] == [
        (5, "it is not one JSON object, as other lines are"),
    ]


def test_a_list_of_texts_in_a_line_of_json_is_the_texts_of_its_image(tmp_path: Path) -> None:
    touch(tmp_path, "1.png", "2.png", "3.png", "4.png", "5.png")
    lines = (
        '{"image": "1.png", "texts": ["A dog, that runs.", "Ein  Hund;\\nläuft"], "title": ["a", "b"]}',
        '{"image": "2.png", "texts": []}',
        '{"image": "3.png", "texts": ["", "nan", "Last."]}',
        '{"image": "4.png", "texts": [{"raw": "x"}]}',
        '{"image": "5.png", "texts": ["x", null]}',
    )
    write(tmp_path, "metadata.jsonl", "\n".join(lines))
    report = imported("folder", tmp_path, table=tmp_path / "metadata.jsonl", max_rejected=1.0)
    found = records_of(tmp_path)
    assert {name: record.texts for name, record in found.items()} == {
        "1.png": ("A dog, that runs.", "Ein Hund; läuft"),
        "2.png": (),
        "3.png": ("Last.",),
    }
    assert dict(found["1.png"].metadata) == {"title": '["a", "b"]'}
    reason = "'texts' is a list or an object; give a text, a list of texts, or each text a line of its own"
    assert [(item.line, item.reason) for item in report.rejections.items] == [(4, reason), (5, reason)]
    (tally, _) = report.tallies
    assert (tally.found, tally.taken, tally.refused) == (5, 3, 2)


def test_texts_whose_names_differ_by_case_go_to_their_own_images(tmp_path: Path) -> None:
    touch(tmp_path, "a.jpg", "A.jpg", "b.jpg", "Cc.jpg")
    for name in ("a.txt", "A.txt", "B.TXT", "cC.txt", "CC.txt"):
        write(tmp_path, name, f"text of {name}")
    imported("folder", tmp_path)
    assert {record.image: record.texts for record in records_of(tmp_path).values()} == {
        "a.jpg": ("text of a.txt",),
        "A.jpg": ("text of A.txt",),
        "b.jpg": ("text of B.TXT",),
        "Cc.jpg": (),
    }


def test_second_texts_of_an_image_are_named(tmp_path: Path) -> None:
    touch(tmp_path, "1.jpg", "2.jpg", "3.jpg")
    for name in ("1.txt", "1.caption", "2.jpg.txt", "2.txt", "3.txt", "3.TXT"):
        (tmp_path / name).write_text(f"of {name}")
    report = imported("folder", tmp_path)
    texts = {record.image: record.texts for record in records_of(tmp_path).values()}
    assert texts == {"1.jpg": ("of 1.caption",), "2.jpg": ("of 2.jpg.txt",), "3.jpg": ("of 3.TXT",)}
    (note,) = [note for note in report.notes if "not read" in note]
    assert note == (
        "3 texts are not read, since the image has another: '1.txt' beside '1.caption', '2.txt' beside "
        "'2.jpg.txt', '3.txt' beside '3.TXT'."
    )


def test_a_key_twice_in_a_line_of_json_refuses_it(tmp_path: Path) -> None:
    touch(tmp_path, "1.png", "2.png")
    lines = (
        '{"image": "1.png", "text": "A dog.", "text": "A cat."}',
        '{"image": "2.png", "text": "A lake."}',
    )
    write(tmp_path, "t.jsonl", "\n".join(reversed(lines)))
    report = imported("folder", tmp_path, table=tmp_path / "t.jsonl", max_rejected=1)
    assert [record.texts for record in records_of(tmp_path).values()] == [("A lake.",)]
    assert report.rejections.items[0].reason == "it gives one of its keys twice: image, text, text"


@pytest.mark.parametrize(
    "name",
    ["a.jpg.json", "a.jpg.supplemental-metadata.json", "a.xmp", "sub/A.XMP", "sub/b.supplemental-meta.json"],
)
def test_files_beside_images_that_may_have_captions_are_named(tmp_path: Path, name: str) -> None:
    touch(tmp_path, "a.jpg", "sub/b.jpg")
    write(tmp_path, name, "{}")
    for other in ("metadata.json", "sub/metadata.json", "elsewhere/a.json"):
        write(tmp_path, other, "{}")
    (note,) = imported("folder", tmp_path).notes
    assert note.startswith(f"1 file such as '{name}' may have captions")
