"""Processes that examine files: what a decoder does to one of them costs that file alone."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from tests.dicom_films import encoded, make_film
from training.common.errors import DataError
from training.importing.dicom.examination import Examined, Rules, examine
from training.importing.dicom.places import Place
from training.importing.dicom.workers import Work, examine_all


def _fall(place: Place, _: Rules) -> Examined:
    if place.number == 2:
        os._exit(1)
    return Examined(place.number)


def _run(place: Place, _: Rules) -> Examined:
    while place.number == 2:
        pass
    return Examined(place.number)


def _hang(place: Place, _: Rules) -> Examined:
    if place.number == 2:
        time.sleep(60)
    return Examined(place.number)


def _in_ten_megabytes(place: Place, rules: Rules) -> Examined:
    held = np.empty(1_190_000_000, np.uint8)
    examined = examine(place, rules)
    assert held.size
    return examined


def _fail(place: Place, _: Rules) -> Examined:
    raise DataError(f"The films cannot be written: {place.number}.")


def _children() -> list[str]:
    """The processes that examine files for this one."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
            command = (folder / "cmdline").read_bytes()
            if int(stat[1]) == os.getpid() and b"importing.dicom.workers" in command:
                found.append(folder.name)
    return found


def _stop_once(place: Place, rules: Rules) -> Examined:
    if place.number == 2 and not (rules.folder / "stopped").exists():
        (rules.folder / "stopped").touch()
        os.kill(os.getpid(), signal.SIGSTOP)
    return Examined(place.number)


@pytest.mark.slow
def test_a_stopped_process_costs_no_file(tmp_path: Path) -> None:
    places = [Place(number, tmp_path) for number in range(1, 4)]
    outcomes = examine_all(_stop_once, places, Rules(tmp_path, b""))
    assert next(outcomes) == Examined(1)
    assert _children()
    assert list(outcomes) == [Examined(2), Examined(3)]
    assert not _children()


@pytest.mark.slow
def test_files_that_end_their_process_are_named_and_all_others_examined(tmp_path: Path) -> None:
    places = [Place(number, tmp_path) for number in range(1, 4)]
    outcomes = list(examine_all(_fall, places, Rules(tmp_path, b"")))
    assert [examined.number for examined in outcomes] == [1, 2, 3]
    refused = "decoding it ended the process"
    assert [examined.refused for examined in outcomes] == ["", refused, ""]


@pytest.mark.slow
def test_films_that_take_more_memory_than_one_may_are_refused(tmp_path: Path) -> None:
    (tmp_path / "1").write_bytes(encoded(make_film(1, rows=2048, columns=2048)))
    (examined,) = examine_all(_in_ten_megabytes, [Place(1, tmp_path / "1")], Rules(tmp_path, b"key"))
    assert examined.refused == "decoding it takes over 1.2 GB of memory, the limit of a file"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "cpu_s", "wall_s", "reason"),
    [
        (_run, 1, 60, "decoding it takes over 1 seconds"),
        (_hang, 60, 6, "it could not be read within 6 seconds"),
    ],
)
def test_files_that_take_too_long_are_refused_and_all_others_examined(
    tmp_path: Path, work: Work, cpu_s: int, wall_s: float, reason: str
) -> None:
    places = [Place(number, tmp_path) for number in range(1, 9)]
    outcomes = list(examine_all(work, places, Rules(tmp_path, b""), cpu_s=cpu_s, wall_s=wall_s))
    assert [examined.number for examined in outcomes] == list(range(1, 9))
    assert [examined.refused for examined in outcomes] == ["", reason, *[""] * 6]
    assert not _children()


def test_a_folder_that_cannot_be_written_ends_an_import(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be written: 1"):
        list(examine_all(_fail, [Place(1, tmp_path)], Rules(tmp_path, b"")))
    assert not _children()
