"""Groups of near-duplicates as JSON: what is kept, and what of it is a job's result."""

import json
from pathlib import Path

from app.jobs.kinds import read_result
from index.duplicates import DuplicateGroup, Duplicates, as_json, write_groups


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
