"""The list of the films that a pass quarantines."""

import csv
import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest

from app.radiology import sync as running
from app.radiology.sync_report import COLUMNS, SyncReport, quarantine_list
from index.errors import CatalogueError
from tests.app.radiology.conftest import Home
from tests.app.radiology.small_archive import SmallArchive, archive_of, serve
from tests.dicom_films import make_film, uid
from training.common.errors import DataError

HEADER = "time,study,series,sop,reason\n"
FILM = ("1.2", "1.2.3", "1.2.3.4", "modality OT, SC, DOC")


def _lines(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_a_pass_is_told_in_one_line_and_the_commonest_reasons() -> None:
    report = SyncReport(studies=3120)
    report.count("taken", number=1412)
    report.count("taken", "No part describes the image.", known=True)
    report.count("quarantined", "Known.", number=0)
    for number in range(9):
        report.count("left out" if number else "refused", f"Reason {number}.", number=number + 2, known=True)
    line = (
        "films: 3,120 studies; 1,467 instances found = 1,412 taken + 1 up to date + 2 refused + "
        "52 left out + 0 quarantined."
    )
    assert report.line("films") == line
    reasons = [f"{number + 2} left out: Reason {number}." for number in range(8, 0, -1)]
    assert report.sentences() == reasons
    report.removed, report.reports, report.doubts = 1000, 3, ["It may have more."]
    changed = f"{line} Removed: 1,000. Reports: 3 taken, 0 removed.".replace("studies", "studies or more")
    assert (report.line("films"), report.sentences()) == (changed, ["It may have more.", *reasons])
    assert SyncReport(reports_removed=1).has_changed
    assert not SyncReport(up_to_date=1, refused=1, left_out=1, quarantined=1, failures=1).has_changed


def test_what_a_pass_quarantines_is_listed_once(home: Home, tmp_path: Path) -> None:
    path = tmp_path / "quarantined.csv"
    burnt = [make_film(n, study=7, BurnedInAnnotation="YES") for n in (1, 2)]
    archive = SmallArchive([make_film(0, study=7), *burnt])
    before = datetime.now(UTC).replace(microsecond=0)
    with serve(archive):
        for taken, quarantined in ((1, 2), (0, 2), (0, 3)):
            with quarantine_list(path) as listed:
                report = home.sync(archive_of(archive), quarantined=listed).run()
            assert (report.taken, report.quarantined) == (taken, quarantined)
            if not taken and quarantined == 2:
                archive.films.append(make_film(3, BurnedInAnnotation="YES"))
    lines = _lines(path)
    assert all(before <= datetime.fromisoformat(line.pop("time")) <= datetime.now(UTC) for line in lines)
    assert lines == [
        {
            "study": uid("study", study),
            "series": uid("series", study, "PA"),
            "sop": uid("film", number),
            "reason": "BurnedInAnnotation is YES",
        }
        for number, study in ((1, 7), (2, 7), (3, 3))
    ]
    assert path.read_text().startswith(HEADER)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_film_is_listed_before_the_catalogue_notes_it(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "quarantined.csv"
    archive = SmallArchive([make_film(1, BurnedInAnnotation="YES")])

    def stopped(*_: object, **__: object) -> None:
        assert [line["sop"] for line in _lines(path)] == [uid("film", 1)]
        raise CatalogueError("stopped")

    with serve(archive), quarantine_list(path) as listed:
        sync = home.sync(archive_of(archive), quarantined=listed)
        with monkeypatch.context() as stopping:
            stopping.setattr(running, "note_study", stopped)
            with pytest.raises(CatalogueError, match="stopped"):
                sync.run()
        assert sync.run().quarantined == 1
    assert [line["sop"] for line in _lines(path)] == [uid("film", 1)] * 2


@pytest.mark.parametrize(
    ("before", "after"), [("", ""), (HEADER, ""), (f"{HEADER}2026-01-01,1,2", "2026-01-01,1,2\n")]
)
def test_lines_are_added_to_those_of_earlier_passes(before: str, after: str, tmp_path: Path) -> None:
    path = tmp_path / "quarantined.csv"
    path.write_text(before)
    with quarantine_list(path) as first, quarantine_list(path) as second:
        assert first is not None
        assert second is not None
        first.append([FILM])
        second.append([FILM])
        first.append([])
    text = path.read_text()
    assert text.startswith(HEADER + after)
    assert [tuple(line.values())[1:] for line in _lines(path)[-2:]] == [FILM, FILM]
    assert text.count("\n") == 3 + bool(after)
    assert ",".join(COLUMNS) + "\n" == HEADER


def test_another_file_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    other, pipe = tmp_path / "looked-at.csv", tmp_path / "pipe"
    other.write_text("sop,reason\n1.2.3,secondary capture\n")
    os.mkfifo(pipe)
    for path, expected in (
        (other, "it is not such a list"),
        (pipe, "it is no file"),
        (tmp_path / "none" / "a.csv", "No such file"),
        (tmp_path, "Is a directory"),
    ):
        with pytest.raises(DataError, match=expected), quarantine_list(path):
            pass
    assert other.read_text() == "sop,reason\n1.2.3,secondary capture\n"
