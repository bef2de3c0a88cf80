"""`recoquest audit`, and the events of commands."""

import json
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli.main import build
from tests.app.conftest import COLLECTION, Indexed


def _run(home: Path, *arguments: str, code: int = 0) -> str:
    run = CliRunner().invoke(build(), [*arguments, "--home", str(home)])
    assert run.exit_code == code, f"{run.output} {run.exception!r}"
    return run.stdout


@pytest.fixture
def home(own: Indexed) -> Path:
    return own.settings.home


def test_searches_and_judgements_by_commands_are_events(home: Path, tmp_path: Path) -> None:
    shown = json.loads(_run(home, "search", COLLECTION, "two dogs", "--json", "-k", "3"))["hits"]
    _run(home, "feedback", "add", COLLECTION, "image-2", "--not-relevant", "--text", "two dogs")
    _run(home, "feedback", "add", COLLECTION, "image-3", "--relevant", "--missed", "--text", "two dogs")
    _run(home, "feedback", "export", COLLECTION, str(tmp_path / "said.jsonl"))
    said = [json.loads(line) for line in (tmp_path / "said.jsonl").read_text().splitlines()]
    assert [one["verdict"] for one in said] == ["rejected", "supplemented"]
    assert [one["relevant"] for one in said] == [False, True]
    assert all(one["user"]["id"] and len(one["model"]) == 64 for one in said)
    _run(home, "audit", "export", str(tmp_path / "trail.ndjson"))
    events = [json.loads(line) for line in (tmp_path / "trail.ndjson").read_text().splitlines()]
    assert [event["action"] for event in events] == ["search", "judge", "judge", "export"]
    assert events[0]["ids"] == [hit["id"] for hit in shown]
    assert events[3]["ids"] == ["image-2", "image-3"]
    assert events[0]["query"] == {"text": ["two dogs"], "keywords": ["two dogs"]}
    assert {event["actor"]["kind"] for event in events} == {"command"}
    _run(
        home, "audit", "export", str(tmp_path / "trail.fhir"), "--format", "fhir", "--collection", COLLECTION
    )
    resources = [json.loads(line) for line in (tmp_path / "trail.fhir").read_text().splitlines()]
    assert {resource["resourceType"] for resource in resources} == {"AuditEvent"}
    assert len(resources) == 4


def test_image_files_of_a_search_are_in_its_event(home: Path, own: Indexed, tmp_path: Path) -> None:
    image = own.manifest.image_path(own.manifest.records[3])
    _run(home, "search", COLLECTION, "--image", str(image), "--unlike-image", str(image))
    _run(home, "audit", "export", str(tmp_path / "trail.ndjson"))
    event = json.loads((tmp_path / "trail.ndjson").read_text())
    assert len(event["query"].pop("file")) == 2
    assert not event["query"]


def test_a_changed_trail_ends_verify_with_an_error(home: Path) -> None:
    _run(home, "search", COLLECTION, "two dogs")
    _run(home, "search", COLLECTION, "a boat")
    head = _run(home, "audit", "verify").split()[-1]
    _run(home, "audit", "verify", "--head", head)
    with sqlite3.connect(home / "catalogue.sqlite3") as connection:
        connection.execute("DROP TRIGGER audit_events_update")
        connection.execute("UPDATE audit_events SET event = replace(event, 'boat', 'goat')")
    run = CliRunner().invoke(build(), ["audit", "verify", "--home", str(home)])
    assert run.exit_code == 1
    assert "Event 2 was changed" in str(run.exception)


def test_pruning_is_an_event(home: Path) -> None:
    _run(home, "search", COLLECTION, "two dogs")
    with sqlite3.connect(home / "catalogue.sqlite3") as connection:
        connection.execute("DROP TRIGGER audit_events_update")
        connection.execute("UPDATE audit_events SET time = '2020-01-01T00:00:00.000000+00:00'")
    assert _run(home, "audit", "prune", "--before", "2020-01-02").startswith("Removed 1 events")
    assert "1 events are as they were written (1 before them were pruned)" in _run(home, "audit", "verify")


def test_a_day_that_is_not_over_is_not_pruned_up_to(home: Path) -> None:
    _run(home, "search", COLLECTION, "two dogs")
    for day in ("2999-01-01", datetime.now(UTC).date().isoformat()):
        run = CliRunner().invoke(build(), ["audit", "prune", "--before", day, "--home", str(home)])
        assert run.exit_code == 2
        assert f"{day} is not over" in run.output
    assert "1 events are as they were written." in _run(home, "audit", "verify")


def test_an_export_names_the_folder_that_is_not_there(home: Path, tmp_path: Path) -> None:
    place = tmp_path / "none" / "x.nd"
    run = CliRunner().invoke(build(), ["audit", "export", str(place), "--home", str(home)])
    assert run.exit_code == 2
    assert ".part" not in run.output
    assert "not there: create it" in " ".join(run.output.replace("│", " ").split())


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
    home: Path, command: tuple[str, ...], wrong: str
) -> None:
    run = CliRunner().invoke(build(), ["audit", *command, wrong, "--home", str(home)])
    assert run.exit_code == 2
    words = " ".join(run.output.replace("│", " ").split())
    assert f"{wrong!r} is no time: write a day such as 2026-01-31, or a time such as" in words
    assert "Value error" not in words
    assert "%Y" not in words


@pytest.mark.parametrize("since", ["2020-01-01", "2020-01-01T12:00:00Z", "2020-01-01T12:00:00.5+02:00"])
def test_days_and_times_of_any_zone_are_taken(home: Path, since: str) -> None:
    _run(home, "search", COLLECTION, "two dogs")
    assert len(_run(home, "audit", "export", "-", "--since", since).splitlines()) == 1
    assert _run(home, "audit", "export", "-", "--until", since) == ""
