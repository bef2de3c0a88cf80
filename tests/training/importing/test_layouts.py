"""Layouts of other packages: the example of docs/guides/data.md is imported from outside of recoquest."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.e2e.work import COMMAND
from tests.image_files import write_photo
from tests.training.importing.trees import imported
from training.common.errors import DataError
from training.common.manifest import read_manifest
from training.importing.layouts import describe_layouts, find_layout, layout_names

PAGE: Final = Path(__file__).parents[3] / "docs" / "guides" / "data.md"


def block(language: str) -> str:
    """The only file of a language in the page."""
    (code,) = re.findall(
        rf"^```{language} title.*?\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S
    )
    return str(code)


def install(folder: Path, package: str, *entries: str) -> None:
    """Write what pip writes of a package with entry points for layouts."""
    about = folder / f"{package}-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("\n".join(["[recoquest.layouts]", *entries]))


@pytest.fixture
def birds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data set of birds; the package that reads it is found by this process and those that it starts."""
    site, source = tmp_path / "site", tmp_path / "data"
    install(site, "bird-layouts", block("toml").splitlines()[1].replace('"', ""))
    (site / "birds.py").write_text(block("python"))
    for name in ("wren", "robin"):
        (source / "pictures").mkdir(parents=True, exist_ok=True)
        write_photo(source / "pictures" / f"{name}.png")
    (source / "birds.csv").write_text("name,song\nwren,a loud trill\n,silence\nrobin,a song\n")
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(site), *filter(None, sys.path))))
    return source


def test_a_layout_of_another_package_is_imported_and_listed(birds: Path) -> None:
    assert (layout_names()[0], layout_names()[-1]) == ("folder", "birds")

    def run(*words: str) -> str:
        done = subprocess.run([*COMMAND, "import", *words], capture_output=True, text=True, check=True)
        return done.stdout + done.stderr

    said = run("birds", str(birds))
    assert "Line 3: the bird has no name." in said
    assert f"Found 3 rows in {birds / 'birds.csv'}: 2 taken, 1 refused, 0 left out." in said
    wren, robin = read_manifest(birds).records
    assert (wren.id, wren.image, wren.texts) == ("wren", "pictures/wren.png", ("a loud trill",))
    assert robin.texts == ("a song",)
    assert None not in (wren.split, wren.sha256)
    listed = run("--help")
    for words in ("birds.csv and pictures of birds", "MS-COCO", "films of a PACS"):
        assert words in listed


def test_broken_and_clashing_layouts_are_named_and_stop_no_other(birds: Path) -> None:
    site = birds.parent / "site"
    (site / "lost.py").write_text("raise OSError('no licence')\n")
    install(site, "lost", "lost=lost:LOST", "odd=birds:read_birds", "other=birds:BIRDS", "gone=nowhere:X")
    install(site, "thief", "coco=birds:BIRDS", "birds=birds:BIRDS")
    reasons = {
        "lost": "of the package lost (lost:LOST) cannot be loaded: OSError: no licence.",
        "gone": "of the package lost (nowhere:X) cannot be loaded: ModuleNotFoundError: No module named",
        "odd": "of the package lost (birds:read_birds) is no Layout of this name",
        "other": "of the package lost (birds:BIRDS) is no Layout of this name",
        "coco": "is in recoquest itself and the package thief: uninstall one",
        "birds": "uninstall one, or have its owner rename it.",
        "nothing": "There is no layout 'nothing'; there are folder, karpathy, coco, ",
    }
    for name, reason in reasons.items():
        with pytest.raises(DataError, match=re.escape(reason)):
            find_layout(name)
    described = dict(describe_layouts())
    assert [name for name in reasons if name != "nothing" and reasons[name] not in described[name]] == []
    assert described["folder"] == find_layout("folder").help
    assert imported("folder", birds).records == 2


def test_options_that_a_layout_does_not_read_are_refused(tmp_path: Path) -> None:
    for name, option, takes in (
        ("karpathy", "leave_out", "takes no --leave-out, only --images."),
        ("webdataset", "images", "takes no --images."),
        ("folder", "take_quarantined", "takes no --take-quarantined, only --encoding, --images, --keep-unk"),
        ("dicom", "table", "takes no --table, only --modality, --reports, --take-quarantined."),
    ):
        with pytest.raises(DataError, match=f"`recoquest import {name}` {takes}"):
            options: dict[str, Any] = {option: tmp_path}
            imported(name, tmp_path, tmp_path, **options)
    with pytest.raises(DataError, match="give a second folder for them and the manifest"):
        imported("webdataset", tmp_path)
    with pytest.raises(DataError, match=r"There is no .*nowhere"):
        imported("chexpert", tmp_path / "nowhere")
