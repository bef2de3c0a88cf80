"""`recoquest duplicates`: what it prints."""

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from app.cli.main import build
from tests.app.conftest import Indexed
from training.data.manifest import read_manifest, write_manifest


@pytest.fixture
def with_a_copy(own: Indexed) -> Indexed:
    """A home whose collection has an image a second time."""
    folder = own.manifest.folder
    records = list(own.manifest.records)
    content = own.manifest.image_path(records[3]).read_bytes()
    (folder / "images" / "copy.png").write_bytes(content)
    write_manifest(folder, [*records, replace(records[3], id="copy", image="images/copy.png")])
    again = Indexed(own.settings, read_manifest(folder), own.bundle)
    again.index("copied", own.bundle)
    return again


def test_groups_are_printed_for_people_and_for_programs(
    with_a_copy: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    home = ["--home", str(with_a_copy.settings.home)]
    shown = CliRunner().invoke(build(), ["duplicates", "copied", *home])
    assert shown.exit_code == 0, shown.output
    assert "image-3, copy" in shown.output
    printed = CliRunner().invoke(build(), ["duplicates", "copied", "--json", *home])
    assert json.loads(printed.stdout) == {
        "groups": [{"ids": ["image-3", "copy"], "same_file": True}],
        "unread": [],
    }


def test_a_collection_without_any_says_so(own: Indexed) -> None:
    name = "alone"
    own.index(name, own.bundle)
    result = CliRunner().invoke(build(), ["duplicates", name, "--home", str(own.settings.home)])
    assert result.exit_code == 0, result.output
    assert "There are no near-duplicates." in result.output
