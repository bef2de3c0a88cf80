"""`recoquest aliases`, as a user types it, and its events in the audit trail."""

import json
from pathlib import Path

import pytest

from tests.e2e.work import Work
from tests.index.samples import make_bundle, make_manifest, make_records


@pytest.fixture
def work(tmp_path: Path) -> Work:
    make_bundle(tmp_path / "bundle", seed=0, name="tiny")
    make_manifest(tmp_path / "data", make_records(4))
    work = Work(tmp_path)
    for name in ("ward", "ward-7"):
        work.run("index", name, "--bundle", "bundle", "--data", "data")
    return work


def _aliases(work: Work) -> dict[str, str]:
    return dict(json.loads(work.run("aliases", "list", "--json").stdout))


def test_an_alias_is_set_swapped_listed_and_deleted(work: Work) -> None:
    assert _aliases(work) == {}
    assert work.run("aliases", "set", "current", "ward").stdout == "current leads to ward.\n"
    assert _aliases(work) == {"current": "ward"}
    swapped = work.run("aliases", "swap", "current", "ward", "ward-7").stdout
    assert swapped == "current leads to ward-7, and no more to ward.\n"
    assert _aliases(work) == {"current": "ward-7"}
    back = work.run("aliases", "set", "current", "ward").stdout
    assert back == "current leads to ward, and no more to ward-7.\n"
    assert "current" in work.run("aliases", "list").stdout
    deleted = work.run("aliases", "delete", "current").stdout
    assert deleted == "current is no alias any more; ward stays.\n"
    assert _aliases(work) == {}
    work.run("audit", "export", "trail.ndjson")
    events = [json.loads(line) for line in (work.folder / "trail.ndjson").read_text().splitlines()]
    assert [
        (event["action"], event["collection"], event["details"])
        for event in events
        if event["details"]["operation"].startswith("aliases")
    ] == [
        ("change", "ward", {"operation": "aliases set", "alias": "current", "led_to": None}),
        ("change", "ward-7", {"operation": "aliases swap", "alias": "current", "led_to": "ward"}),
        ("change", "ward", {"operation": "aliases set", "alias": "current", "led_to": "ward-7"}),
        ("delete", "ward", {"operation": "aliases delete", "alias": "current"}),
    ]
    assert {event["actor"]["kind"] for event in events} == {"command"}


def test_mistakes_are_one_sentence_and_change_nothing(work: Work) -> None:
    work.run("aliases", "set", "current", "ward")
    for arguments, words in (
        (("set", "current", "nowhere"), "nowhere"),
        (("set", "ward-7", "ward"), "'ward-7' is the name of a collection"),
        (("set", "no such name", "ward"), "cannot name an alias"),
        (("swap", "current", "ward-7", "ward"), "leads to 'ward' and not to 'ward-7'"),
        (("swap", "current", "ward", "nowhere"), "nowhere"),
        (("swap", "next", "ward", "ward-7"), "There is no alias 'next'"),
        (("delete", "next"), "recoquest aliases list"),
    ):
        done = work.run("aliases", *arguments, code=1)
        assert words in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr
    assert _aliases(work) == {"current": "ward"}
