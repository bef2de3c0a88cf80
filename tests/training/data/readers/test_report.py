"""The contents of a manifest in sentences."""

from training.data.readers.report import Contents
from training.data.record import Record


def test_reports_that_give_no_text_are_counted() -> None:
    contents = Contents()
    contents.add(Record("1", "1.jpg", "train", report="Normal."))
    contents.add(Record("2", "2.jpg", "train", report="No effusion.", texts=("No effusion.",)))
    contents.add(Record("3", "3.jpg", "train"))
    assert contents.sentences() == [
        "1 text, for 1 of 3 images.",
        "1 image has a report and no text, as all its sentences are fragments: 'Normal.' of '1.jpg'.",
    ]
