"""`recoquest keys` and `audit`, and the events of commands."""

import json
import sqlite3
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from typer.testing import Result

from index.errors import KeyNameError
from index.keys.api_keys import ROLES
from tests.app.commands import plain_output, run_command
from tests.app.conftest import COLLECTION, Indexed


def _keys(home: Path, *arguments: str, code: int = 0) -> Result:
    return run_command("keys", *arguments, home=home, code=code)


def test_a_key_is_made_listed_rotated_and_revoked(tmp_path: Path) -> None:
    made = _keys(tmp_path, "create", "viewer", "--role", "reader", "--role", "judge", "--collection", "a")
    key = made.stdout.strip()
    first = json.loads(_keys(tmp_path, "list", "--json").stdout)[0]
    until = datetime.fromisoformat(first["created"]) + timedelta(days=90)
    message = (
        f"Key {first['id']} of 'viewer' (valid until {until:%Y-%m-%d %H:%M:%S} UTC), shown only this once:"
    )
    assert made.stderr.endswith(f" The key holds there once it is made.\n{message}\n")
    second = _keys(tmp_path, "rotate", "viewer").stdout.strip()
    assert isinstance(_keys(tmp_path, "rotate", "viewer", code=1).exception, KeyNameError)
    revoked = _keys(tmp_path, "revoke", key.split("_")[1])
    assert revoked.stdout == f"The key {key.split('_')[1]} of 'viewer' is revoked.\n"
    listed = _keys(tmp_path, "list", "--json").stdout
    assert [(one["id"], one["state"], one["grants"]) for one in json.loads(listed)] == [
        (key.split("_")[1], "revoked", {"a": ["reader", "judge"]}),
        (second.split("_")[1], "live", {"a": ["reader", "judge"]}),
    ]
    trail = run_command("audit", "export", "-", home=tmp_path).stdout
    events = [json.loads(line) for line in trail.splitlines()]
    assert [(one["action"], one["details"]["key"]) for one in events if "key" in one["details"]] == [
        ("create", key.split("_")[1]),
        ("create", second.split("_")[1]),
        ("delete", key.split("_")[1]),
    ]
    assert key.split("_", 2)[2] not in trail
    assert key.split("_", 2)[2] not in listed + _keys(tmp_path, "list").output


@pytest.mark.parametrize(
    ("role", "collection", "expected"),
    [
        ("auditor", "scenes", ["audit trail"]),
        ("owner", "*", ROLES),
        *(("reader", name, ["cannot name a collection"]) for name in ("no such", "~1", "", "a/b", "x" * 101)),
    ],
)
def test_a_key_that_gives_no_right_is_refused(
    tmp_path: Path, role: str, collection: str, expected: Sequence[str]
) -> None:
    refused = plain_output(_keys(tmp_path, "create", "a", "--role", role, "--collection", collection, code=2))
    assert all(word in refused for word in expected)
    assert json.loads(_keys(tmp_path, "list", "--json").stdout) == []


def test_a_key_of_all_collections_is_made_without_a_warning(tmp_path: Path) -> None:
    for role in ("auditor", "reader"):
        made = _keys(tmp_path, "create", role, "--role", role, "--collection", "*")
        assert made.stderr.count("\n") == 1


def test_a_key_for_an_alias_is_made_with_a_warning(own: Indexed) -> None:
    home = own.settings.home
    own.run("aliases", "set", "current", COLLECTION)
    made = _keys(home, "create", "a", "--role", "reader", "--collection", "current")
    assert f"'current' is an alias of {COLLECTION!r}" in made.stderr
    assert f"--collection {COLLECTION}" in made.stderr
    quiet = _keys(home, "create", "b", "--role", "reader", "--collection", COLLECTION)
    assert "collection" not in quiet.stderr


def test_searches_and_judgements_by_commands_are_events(own: Indexed, tmp_path: Path) -> None:
    shown = json.loads(own.run("search", COLLECTION, "two dogs", "--json", "-k", 3).stdout)["hits"]
    own.run("feedback", "add", COLLECTION, "image-2", "--not-relevant", "--text", "two dogs")
    own.run("feedback", "add", COLLECTION, "image-3", "--relevant", "--missed", "--text", "two dogs")
    own.run("feedback", "export", COLLECTION, tmp_path / "said.jsonl")
    judged = [json.loads(line) for line in (tmp_path / "said.jsonl").read_text().splitlines()]
    assert [one["verdict"] for one in judged] == ["rejected", "supplemented"]
    assert [one["relevant"] for one in judged] == [False, True]
    assert all(one["user"]["id"] and len(one["model"]) == 64 for one in judged)
    own.run("audit", "export", tmp_path / "trail.ndjson")
    events = [json.loads(line) for line in (tmp_path / "trail.ndjson").read_text().splitlines()]
    assert [event["action"] for event in events] == ["search", "judge", "judge", "export"]
    assert events[0]["ids"] == [hit["id"] for hit in shown]
    assert events[3]["ids"] == ["image-2", "image-3"]
    assert events[0]["query"] == {"text": ["two dogs"], "keywords": ["two dogs"]}
    assert {event["actor"]["kind"] for event in events} == {"command"}
    own.run("audit", "export", tmp_path / "trail.fhir", "--format", "fhir", "--collection", COLLECTION)
    resources = [json.loads(line) for line in (tmp_path / "trail.fhir").read_text().splitlines()]
    assert {resource["resourceType"] for resource in resources} == {"AuditEvent"}
    assert len(resources) == 4


def test_image_files_of_a_search_are_in_its_event(own: Indexed, tmp_path: Path) -> None:
    image = own.manifest.image_path(own.manifest.records[3])
    own.run("search", COLLECTION, "--image", image, "--unlike-image", image)
    own.run("audit", "export", tmp_path / "trail.ndjson")
    event = json.loads((tmp_path / "trail.ndjson").read_text())
    assert len(event["query"].pop("file")) == 2
    assert not event["query"]


def test_a_changed_trail_ends_verify_with_an_error(own: Indexed) -> None:
    own.run("search", COLLECTION, "two dogs")
    own.run("search", COLLECTION, "a boat")
    head = own.run("audit", "verify").stdout.split()[-1]
    own.run("audit", "verify", "--head", head)
    with sqlite3.connect(own.settings.home / "catalogue.sqlite3") as connection:
        connection.execute("DROP TRIGGER audit_events_update")
        connection.execute("UPDATE audit_events SET event = replace(event, 'boat', 'goat')")
    assert "Event 2 was changed" in plain_output(own.run("audit", "verify", code=1))


def test_pruning_is_an_event(own: Indexed) -> None:
    own.run("search", COLLECTION, "two dogs")
    with sqlite3.connect(own.settings.home / "catalogue.sqlite3") as connection:
        connection.execute("DROP TRIGGER audit_events_update")
        connection.execute("UPDATE audit_events SET time = '2020-01-01T00:00:00.000000+00:00'")
    assert own.run("audit", "prune", "--before", "2020-01-02").stdout.startswith("Removed 1 events")
    verified = own.run("audit", "verify").stdout
    assert "1 events are as they were written (1 before them were pruned)" in verified
    (own.settings.home / "audit-dead-letters.ndjson").write_text("{}\n" * 2)
    assert own.run("audit", "verify").stderr.startswith("2 events could not be written to the trail: ")


def test_a_day_that_is_not_over_is_not_pruned_up_to(own: Indexed) -> None:
    own.run("search", COLLECTION, "two dogs")
    for day in ("2999-01-01", datetime.now(UTC).date().isoformat()):
        assert f"{day} is not over" in plain_output(own.run("audit", "prune", "--before", day, code=2))
    assert "1 events are as they were written." in own.run("audit", "verify").stdout


def test_an_export_names_the_folder_that_is_not_there(own: Indexed, tmp_path: Path) -> None:
    message = plain_output(own.run("audit", "export", tmp_path / "none" / "x.nd", code=2))
    assert ".part" not in message
    assert "not there: create it" in message


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        (("export", "-", "--since"), "garbage"),
        (("export", "-", "--until"), "2026-13-01"),
        (("export", "-", "--since"), "0001-01-01T00:00:00+23:00"),
        (("prune", "--before"), "yesterday"),
    ],
)
def test_a_wrong_time_is_one_sentence_with_a_right_one(
    own: Indexed, command: tuple[str, ...], wrong: str
) -> None:
    words = plain_output(own.run("audit", *command, wrong, code=2))
    assert f"{wrong!r} is no time: write a day such as 2026-01-31, or a time such as" in words
    assert "Value error" not in words
    assert "%Y" not in words


@pytest.mark.parametrize("since", ["2020-01-01", "2020-01-01T12:00:00Z", "2020-01-01T12:00:00.5+02:00"])
def test_days_and_times_of_any_zone_are_taken(own: Indexed, since: str) -> None:
    own.run("search", COLLECTION, "two dogs")
    assert len(own.run("audit", "export", "-", "--since", since).stdout.splitlines()) == 1
    assert own.run("audit", "export", "-", "--until", since).stdout == ""
