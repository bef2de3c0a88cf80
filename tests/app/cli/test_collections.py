"""Near-duplicates by the command, by a job and over HTTP; and the output of `erase`."""

import json
from pathlib import Path

import pytest

from app.images.deletion import Erasure
from app.jobs.folder import JobFolder
from app.jobs.kinds import read_result
from index.duplicates import DuplicateGroup, Duplicates, as_json, write_groups
from index.erasure import Erased, KnownBackup
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
    with own.engine() as engine:
        engine.image_path(COLLECTION, "image-3").unlink()
    done = own.run("duplicates", COLLECTION)
    assert done.stdout == "There are no near-duplicates.\n"
    assert done.stderr.endswith("The files of these could not be read: image-3.\n")


def _pair(number: int) -> DuplicateGroup:
    return DuplicateGroup((f"é-{number}", f"copy of é-{number}"), same_file=False)


def _written(folder: Path, expected: Duplicates) -> dict[str, object]:
    """The result of a job that has found this."""
    (folder / "duplicates").mkdir()
    write_groups(expected, folder / "duplicates")
    assert json.loads((folder / "duplicates" / "groups.json").read_bytes()) == as_json(expected)
    result = read_result("duplicates", folder)
    assert result is not None
    return result


def test_what_fits_is_the_result(tmp_path: Path) -> None:
    result = Duplicates((_pair(1), _pair(2)), ("x",), looked_at=5)
    assert _written(tmp_path, result) == {**as_json(result), "left_out": {"groups": 0, "unread": 0}}


def test_a_result_holds_what_there_is_room_for_and_counts_the_rest(tmp_path: Path) -> None:
    many = tuple(f"image-{number}" for number in range(20_000))
    huge = DuplicateGroup(many, same_file=True)
    results = Duplicates((_pair(0), huge, *map(_pair, range(1, 5000))), many, looked_at=5)
    everything, result = as_json(results), _written(tmp_path, results)
    groups, unread = result["groups"], result["unread"]
    assert isinstance(groups, list)
    assert isinstance(unread, list)
    assert groups == [everything["groups"][0], *everything["groups"][2 : len(groups) + 1]]
    assert unread == everything["unread"][: len(unread)]
    assert 400 < len(groups) < 5000
    assert 400 < len(unread) < 20_000
    assert result["left_out"] == {"groups": 5001 - len(groups), "unread": 20_000 - len(unread)}


def test_an_erasure_tells_what_went_what_stays_and_what_is_left_to_do(
    own: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = KnownBackup("/gone.tar", "2026-01-02T03:04:05.678901+00:00", "0" * 64)
    erased = Erased(("a",), ("1" * 64,), ("f00",), judgements=1200, reports=2, backups=(backup,))
    files = ((Path("/part"),), False, [3, 4], [5, 6], [Path("/log")])
    result = Erasure(erased, ("a",), ("b",), ("c",), *files)
    monkeypatch.setattr("app.images.deletion.erase", lambda *_, **__: result)
    later = "photos: c is erased, which had one of these ids before it was moved.\n"
    closing_lines = """\
Judgements for queries that named them: 1,200, erased.
Removed from job 3, 4.
The file f00 stays: another image is the same file.
/log still names one of them and cannot be rewritten: remove it.
/part is unfinished and may contain one of them: run this again later, or remove it.
Models that may have learned from them: those of job 5, 6.
Still in the backup /gone.tar (not there any more) of 2026-01-02 03:04:05 UTC.
The database's log keeps them until its readers end: run the command again after that.
"""
    ids = "photos: a is erased.\nphotos: b was not in the collection.\n"
    reports = "Reports that waited for them: 2, erased.\n"
    assert own.run("erase", COLLECTION, "a", "b").stdout == f"{ids}{later}{reports}{closing_lines}"
    people = "photos: 1 images and 2 waiting reports are erased.\n"
    assert own.run("erase", COLLECTION, "--patient", "P").stdout == f"{people}{later}{closing_lines}"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_worker_finds_copies_and_the_service_tells_of_them(with_a_copy: Indexed) -> None:
    with opened_jobs(with_a_copy.settings.home, None) as jobs, serve(with_a_copy) as local:
        response = local.post("/v1/jobs", json={"kind": "duplicates", "collection": "copied"})
        assert (response.status_code, response.json()["arguments"]) == (202, ["copied"])
        with jobs.worker():
            ended = jobs.wait(response.json()["id"])
        job = local.get(response.headers["Location"]).json()
        folder = JobFolder.for_job(jobs.settings, ended.id).path
        assert (job["state"], job["error"]) == ("done", None), jobs.log(ended.id)
    assert job["result"] == {**COPIES, "left_out": {"groups": 0, "unread": 0}}
    assert json.loads((folder / "duplicates" / "groups.json").read_bytes()) == COPIES
