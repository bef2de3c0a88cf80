"""Near-duplicates by the command, by a job and over HTTP: what is printed, kept and told."""

import json
from pathlib import Path

import pytest

from app.jobs.folder import JobFolder
from app.jobs.kinds import read_result
from index.duplicates import DuplicateGroup, Duplicates, as_json, write_groups
from tests.app.conftest import COLLECTION, Indexed, serve
from tests.jobs import opened_jobs

COPIES = {"groups": [{"ids": ["image-3", "copy"], "same_file": True}], "unread": []}


def test_groups_are_printed_for_people_and_for_programs(
    with_a_copy: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert "image-3, copy" in with_a_copy.run("duplicates", "copied").output
    assert json.loads(with_a_copy.run("duplicates", "copied", "--json").stdout) == COPIES


def test_groups_are_written_into_a_folder_and_not_printed(with_a_copy: Indexed, tmp_path: Path) -> None:
    out = tmp_path / "new" / "found"
    # As a job does that begins again.
    for _ in range(2):
        written = with_a_copy.run("duplicates", "copied", "--out", out)
        assert written.stdout == f"Groups of near-duplicates: 1, in {out / 'groups.json'}.\n"
        assert json.loads((out / "groups.json").read_bytes()) == COPIES


def test_a_collection_without_any_says_so(own: Indexed) -> None:
    assert "There are no near-duplicates." in own.run("duplicates", COLLECTION).output


def _pair(number: int) -> DuplicateGroup:
    return DuplicateGroup((f"é-{number}", f"copy of é-{number}"), same_file=False)


def _written(folder: Path, found: Duplicates) -> dict[str, object]:
    """The result of a job that has found this."""
    (folder / "duplicates").mkdir()
    write_groups(found, folder / "duplicates")
    assert json.loads((folder / "duplicates" / "groups.json").read_bytes()) == as_json(found)
    result = read_result("duplicates", folder)
    assert result is not None
    return result


def test_what_fits_is_the_result(tmp_path: Path) -> None:
    found = Duplicates((_pair(1), _pair(2)), ("x",), looked_at=5)
    assert _written(tmp_path, found) == {**as_json(found), "left_out": {"groups": 0, "unread": 0}}


def test_a_result_holds_what_there_is_room_for_and_counts_the_rest(tmp_path: Path) -> None:
    many = tuple(f"image-{number}" for number in range(20_000))
    huge = DuplicateGroup(many, same_file=True)
    found = Duplicates((_pair(0), huge, *map(_pair, range(1, 5000))), many, looked_at=5)
    everything, result = as_json(found), _written(tmp_path, found)
    groups, unread = result["groups"], result["unread"]
    assert isinstance(groups, list)
    assert isinstance(unread, list)
    assert groups == [everything["groups"][0], *everything["groups"][2 : len(groups) + 1]]
    assert unread == everything["unread"][: len(unread)]
    assert 400 < len(groups) < 5000
    assert 400 < len(unread) < 20_000
    assert result["left_out"] == {"groups": 5001 - len(groups), "unread": 20_000 - len(unread)}


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_worker_finds_copies_and_the_service_tells_of_them(with_a_copy: Indexed) -> None:
    with opened_jobs(with_a_copy.settings.home, None) as jobs, serve(with_a_copy) as local:
        given = local.post("/v1/jobs", json={"kind": "duplicates", "collection": "copied"})
        assert (given.status_code, given.json()["arguments"]) == (202, ["copied"])
        with jobs.worker():
            ended = jobs.wait(given.json()["id"])
        job = local.get(given.headers["Location"]).json()
        folder = JobFolder.of(jobs.settings, ended.id).path
        assert (job["state"], job["error"]) == ("done", None), jobs.log(ended.id)
    assert job["result"] == {**COPIES, "left_out": {"groups": 0, "unread": 0}}
    assert json.loads((folder / "duplicates" / "groups.json").read_bytes()) == COPIES
