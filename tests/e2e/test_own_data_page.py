"""docs/own-data.md: its commands, as they stand there, on a folder of images and a table."""

import csv
import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.e2e.work import TINY, Work
from training.common.manifest import read_manifest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PAGE = (Path(__file__).parents[2] / "docs" / "own-data.md").read_text(encoding="utf-8")
COMMANDS = [
    shlex.split(command.replace("\\\n", " "))[1:]
    for command in re.findall(r"^    (recoquest (?:.*\\\n)*.*)", PAGE, re.MULTILINE)
]
SMALLER_IMAGES = [part for setting in TINY if "text" not in setting for part in ("--set", setting)]
SMALLER = [part for setting in TINY for part in ("--set", setting)]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Work:
    """Images in a folder and a table beside it."""
    work = Work(tmp_path_factory.mktemp("own"))
    work.run("sample-data", "samples", "--images", 60)
    photos = work.folder / "photos"
    photos.mkdir()
    with (work.folder / "photos.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(("image", "text", "labels", "group", "place"))
        for number, record in enumerate(work.records, 1):
            shutil.copy(work.data / record.image, photos / f"{number:04}.jpg")
            caption = "" if number == 2 else record.texts[0]
            series = f"series {number // 2}"
            row = (f"{number:04}.jpg", caption, ";".join(record.labels), series, record.metadata["place"])
            table.writerow(row)
    return work


def _commands(name: str) -> list[list[str]]:
    return [command for command in COMMANDS if command[0] == name]


def test_the_commands_lead_from_a_table_to_a_search(work: Work) -> None:
    (make_manifest,) = _commands("import")
    assert "Wrote 60 records" in work.run(*make_manifest).stdout
    manifest = read_manifest(work.folder / "photos")
    assert {record.split for record in manifest.records} == {"train", "val", "test"}
    assert [record.texts for record in manifest.records[:2]] == [work.records[0].texts[:1], ()]
    first, pretrained, alone = _commands("train")
    assert "Encoder: runs/photos/bundle" in work.run(*first, *SMALLER).stdout
    assert "model.image.pretrained=mobilenetv2" in pretrained
    assert "Encoder: runs/alone/bundle" in work.run(*alone, *SMALLER_IMAGES).stdout
    (measure,) = _commands("evaluate")
    assert "RSUM" in work.run(*measure).stdout
    (index,) = _commands("index")
    assert "60 added" in work.run(*index).stdout
    by_text, by_image = _commands("search")
    assert work.run(*by_text).stdout.count("\n") >= 5
    assert "0001" in work.run(*by_image, "--json").stdout
