"""What is left out: every line by its number, and when that is too much."""

import pytest

from training.common.errors import DataError
from training.common.rejections import Rejections


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_the_share_is_a_share(share: float) -> None:
    with pytest.raises(DataError, match="from 0 to 1"):
        Rejections(total=10, max_share=share)


def test_every_line_is_named() -> None:
    rejections = Rejections(total=2000, source="x.json", unit="image")
    for number in range(1, 8):
        rejections.add(number, "gone.")
    assert len(rejections) == 7
    assert rejections.summary().splitlines() == [
        "7 of 2,000 images of x.json cannot be used.",
        *(f"Image {number}: gone." for number in range(1, 8)),
    ]
    for number in range(8, 53):
        rejections.add(number, "gone.")
    assert rejections.named()[-2:] == ["Image 50: gone.", "And 2 more."]


@pytest.mark.parametrize(
    ("reason", "table", "rows", "named"),
    [
        ("no path", "valid.csv", 1, "Line 4 of valid.csv: no path."),
        ("no image 'a.JPG'; is it 'a.jpg'?", "", 1, "Line 4: no image 'a.JPG'; is it 'a.jpg'?"),
        ("there is no image.", "", 5, "Line 4: there is no image (5 rows)."),
    ],
)
def test_a_line_is_named_with_its_table_and_its_rows(reason: str, table: str, rows: int, named: str) -> None:
    rejections = Rejections(total=10, max_share=0.5)
    rejections.add(4, reason, table, rows)
    assert (rejections.named(), len(rejections)) == ([named], rows)
    if rows == 5:
        with pytest.raises(DataError, match="6 of 10 lines"):
            rejections.add(9, "gone")


def test_too_much_is_an_error_that_names_every_line() -> None:
    rejections = Rejections(total=100, max_share=0.06)
    for number in range(1, 7):
        rejections.add(number, "gone")
    with pytest.raises(DataError, match=r"7 of 100 lines up to here.* 0\.06 .*larger share\.") as raised:
        rejections.add(7, "gone")
    assert raised.value.__notes__ == [f"Line {number}: gone." for number in range(1, 8)]


@pytest.mark.parametrize(("lines", "images"), [(2, 1), (1, 2), (3, 0), (0, 3)])
def test_what_was_left_out_before_counts_together_with_what_comes_after(lines: int, images: int) -> None:
    """3 of 100 may be left out, whichever they are; the next is one too many."""
    rejections = Rejections(total=100, max_share=0.03)
    for number in range(1, lines + 1):
        rejections.add(number, "no JSON")
    later = rejections.continued(100 - lines)
    for number in range(11, 11 + images):
        later.add(number, "no image")
    with pytest.raises(DataError) as raised:
        later.add(50, "no image")
    assert f"{lines} of 100 lines and {images + 1} of {100 - lines} images up to here" in str(raised.value)
    assert len(raised.value.__notes__) == 4
    assert [item.line for item in later.items] == [*range(11, 11 + images), 50]
    assert len(rejections) == lines
    # A part of the lines, such as one split, is measured by itself.
    assert rejections.continued(10).share == pytest.approx(lines / 100)


def test_what_several_went_through_is_joined_line_by_line() -> None:
    first, second = (Rejections(10, 1, source="a.txt", unit="image") for _ in range(2))
    for tally in (first, second):
        tally.add(2, "it is cut off", rows=2)
    second.add(5, "it is empty", rows=3)
    whole = first.joined([first, second])
    assert [item.line for item in whole.items] == [2, 5]
    assert whole.summary().startswith("5 of 10 images of a.txt")
    assert len(first) == 2


def test_a_patient_tally_names_several_lines_before_it_stops_or_ends() -> None:
    rejections = Rejections(total=100, max_share=0.01, patience=3)
    rejections.add(1, "gone")
    rejections.finish()
    rejections.add(2, "gone")
    with pytest.raises(DataError, match=r"2 of 100 lines, more than the share"):
        rejections.finish()
    with pytest.raises(DataError, match="3 of 100 lines up to here") as raised:
        rejections.add(3, "gone")
    assert len(raised.value.__notes__) == 3
