"""`recoquest duplicates`: what it prints."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.main import build
from tests.app.conftest import Indexed

COPIES = {"groups": [{"ids": ["image-3", "copy"], "same_file": True}], "unread": []}


def test_groups_are_printed_for_people_and_for_programs(
    with_a_copy: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    home = ["--home", str(with_a_copy.settings.home)]
    shown = CliRunner().invoke(build(), ["duplicates", "copied", *home])
    assert shown.exit_code == 0, shown.output
    assert "image-3, copy" in shown.output
    printed = CliRunner().invoke(build(), ["duplicates", "copied", "--json", *home])
    assert json.loads(printed.stdout) == COPIES


def test_groups_are_written_into_a_folder_and_not_printed(with_a_copy: Indexed, tmp_path: Path) -> None:
    out = tmp_path / "new" / "found"
    asked = ["duplicates", "copied", "--out", str(out), "--home", str(with_a_copy.settings.home)]
    # As a job does that begins again.
    for _ in range(2):
        written = CliRunner().invoke(build(), asked)
        assert written.exit_code == 0, written.output
        assert written.stdout == f"Groups of near-duplicates: 1, in {out / 'groups.json'}.\n"
        assert json.loads((out / "groups.json").read_bytes()) == COPIES


def test_a_collection_without_any_says_so(own: Indexed) -> None:
    name = "alone"
    own.index(name, own.bundle)
    result = CliRunner().invoke(build(), ["duplicates", name, "--home", str(own.settings.home)])
    assert result.exit_code == 0, result.output
    assert "There are no near-duplicates." in result.output
