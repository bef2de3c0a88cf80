"""The contents of a manifest in sentences."""

from training.common.record import Record
from training.importing.report import HIDDEN_FILES, IN_FOLDERS, Contents, Tally


def test_reports_that_give_no_text_are_counted() -> None:
    contents = Contents()
    contents.add(Record("1", "1.jpg", "train", report="Normal."))
    contents.add(Record("2", "2.jpg", "train", report="No effusion.", texts=("No effusion.",)))
    contents.add(Record("3", "3.jpg", "train"))
    assert contents.sentences() == [
        "1 text, for 1 of 3 images.",
        "1 image has a report and no text, as all its sentences are fragments: 'Normal.' of '1.jpg'.",
    ]


def test_files_of_users_are_named_ahead_of_those_of_systems() -> None:
    of_users = {f".{name} files, which are no images that can be read": 1 for name in "abcdefghijklmnop"}
    of_systems = {f"{IN_FOLDERS}'@{number}'": 100 for number in range(8)} | {HIDDEN_FILES: 500}
    tally = Tally("photos", "file", 1400, 84, 0, of_systems | of_users)
    _, left_out = tally.sentences()
    named = left_out.removeprefix("Left out: ").removesuffix(".").split("; ")
    assert named == [
        *(f".{name} files, which are no images that can be read: 1" for name in "abcdefghijkl"),
        *(f".{name} files: 1" for name in "mnop"),
        f"{HIDDEN_FILES}: 500",
        *(f"{IN_FOLDERS}'@{number}': 100" for number in range(3)),
        "files in 5 more folders of systems: 500",
    ]


def test_hundreds_of_endings_are_summed_up_at_last() -> None:
    kinds = {f".{number:03} files, which are no images that can be read": 1 for number in range(100)}
    _, left_out = Tally("photos", "file", 100, 0, 0, kinds).sentences()
    assert ".071 files: 1; 28 more kinds of files: 28." in left_out
