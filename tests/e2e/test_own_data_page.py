"""docs/own-data.md: its script and its commands, as they stand there, on a folder of images and a table."""

import csv
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.work import TINY, Work
from training.data.manifest import read_manifest

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
    """Images in a folder and a table beside it, which the page's script has made a manifest of."""
    work = Work(tmp_path_factory.mktemp("own"))
    work.run("sample-data", "samples", "--images", 60)
    photos = work.folder / "photos"
    photos.mkdir()
    with (work.folder / "photos.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(("file", "caption", "labels", "series", "place"))
        for number, record in enumerate(work.records, 1):
            shutil.copy(work.data / record.image, photos / f"{number:04}.jpg")
            caption = "" if number == 2 else record.texts[0]
            series = f"series {number // 2}"
            row = (f"{number:04}.jpg", caption, ";".join(record.labels), series, record.metadata["place"])
            table.writerow(row)
    (script,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    subprocess.run([sys.executable, "-c", script], cwd=work.folder, check=True)
    return work


def _commands(name: str) -> list[list[str]]:
    return [command for command in COMMANDS if command[0] == name]


def test_the_script_writes_what_is_in_the_table(work: Work) -> None:
    manifest = read_manifest(work.folder / "photos")
    assert not manifest.rejections
    assert len(manifest.records) == len(work.records)
    assert {record.split for record in manifest.records} == {"train", "val", "test"}
    for mine, theirs in zip(manifest.records, work.records, strict=True):
        assert mine.texts == (() if mine.id == "0002" else theirs.texts[:1])
        assert (mine.labels, mine.metadata["place"]) == (theirs.labels, theirs.metadata["place"])


def test_the_commands_lead_to_a_search(work: Work) -> None:
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
