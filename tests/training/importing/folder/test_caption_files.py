"""Flickr's own files of captions: lines of a name, a number and a caption."""

from pathlib import Path

from tests.training.importing.folder.tables import import_table, texts_of


def test_files_of_captions_have_no_header_and_no_quotes(folder: Path) -> None:
    (folder / "inner").mkdir()
    for number in range(1, 7):
        (folder / f"{number}.jpg").rename(folder / "inner" / f"{number}.jpg")
    lines = [
        '1.jpg#0\t"Old Ben" , a dog',
        "1.jpg#1\ta brown dog, wet",
        "2.jpg.1#0\tgone",
        "",
        "3.jpg#10\ta lake",
    ]
    report, records = import_table(folder, "\r\n".join(lines))
    assert texts_of(records) == {
        "inner/1.jpg": ('"Old Ben" , a dog', "a brown dog, wet"),
        "inner/3.jpg": ("a lake",),
    }
    assert report.rejections.named() == [f"Line 3: there is no image '2.jpg.1' in {folder}."]
    assert report.tallies[0].left_out == {"rows without any value": 1}
    assert report.notes[0].endswith("t.csv for lines of a name, # and a number, a tab, and a caption.")


def test_a_line_that_is_no_caption_is_named(folder: Path) -> None:
    report, records = import_table(folder, "1.jpg#0\ta dog\n" * 60 + "2.jpg a lake\n")
    assert len(records[0].texts) == 60
    assert [item.line for item in report.rejections.items] == [61]
