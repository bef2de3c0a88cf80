"""Processes that examine files: what a decoder does to one of them costs that file alone."""

import os
from pathlib import Path

from training.data.readers.dicom.examination import Examined, Rules
from training.data.readers.dicom.places import Place
from training.data.readers.dicom.workers import examine_all


def _fall(place: Place, _: Rules) -> Examined:
    if place.number == 2:
        os._exit(1)
    return Examined(place.number)


def test_files_that_end_their_process_are_named_and_all_others_examined(tmp_path: Path) -> None:
    places = [Place(number, tmp_path) for number in range(1, 4)]
    outcomes = list(examine_all(_fall, places, Rules(tmp_path, b"")))
    assert [examined.number for examined in outcomes] == [1, 2, 3]
    refused = "decoding it ended the process"
    assert [examined.refused for examined in outcomes] == ["", refused, ""]
