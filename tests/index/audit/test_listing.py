"""Events as FHIR AuditEvent: what R4 requires of each, and the codes of BALP's patterns."""

import base64
import json
from pathlib import Path
from typing import Any, get_args

import pytest

from index.audit.chain import Trail
from index.audit.event import Action, Actor, Event
from index.audit.listing import Selection, all_events, audit_event
from index.catalogue import open_catalogue
from tests.index.audit.trails import KEY

_READER = Actor("key", "7f", "Jo Doe", "10.0.0.1 for 192.0.2.7")

# Profile, interaction, action, and the codes of client and server (BALP 1.1.3).
_PATTERNS = {
    "search": ("Query", "search", "E", "110153", "110152"),
    "view": ("Read", "read", "R", "110152", "110153"),
    "create": ("Create", "create", "C", "110153", "110152"),
    "change": ("Update", "update", "U", "110153", "110152"),
    "delete": ("Delete", "delete", "D", "110153", "110152"),
}


@pytest.fixture(scope="module")
def resources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """A resource of each action."""
    path: Path = tmp_path_factory.mktemp("fhir") / "catalogue.db"
    catalogue = open_catalogue(f"sqlite:///{path}")
    Trail(catalogue, KEY).append(
        [
            Event(
                action=action,
                actor=_READER,
                outcome="failure" if action == "sign-in" else "success",
                collection="ward",
                objects=["image-1", "image-2"] if action != "sign-in" else [],
                query={"text": ["effusion"]} if action == "search" else None,
                model="m" * 64,
                request="r1",
                details={"status": 200, "words": ["a"], "nothing": None},
            )
            for action in get_args(Action)
        ]
    )
    with catalogue.read() as session:
        results = {
            entry.record["action"]: audit_event(entry, "images.example.org")
            for entry in all_events(session, Selection())
        }
    catalogue.close()
    assert results.keys() == set(get_args(Action))
    # As it is written to a file.
    return {action: json.loads(json.dumps(resource)) for action, resource in results.items()}


def test_every_resource_has_what_r4_requires(resources: dict[str, dict[str, Any]]) -> None:
    for resource in resources.values():
        assert resource["resourceType"] == "AuditEvent"
        assert {"type", "recorded", "agent", "source"} <= resource.keys()
        assert resource["action"] in "CRUDE"
        assert resource["recorded"].endswith("+00:00")
        assert [agent["requestor"] for agent in resource["agent"]] == [False, False, True]
        assert resource["source"]["observer"]["display"] == "images.example.org"
        for coding in (resource["type"], *resource["subtype"], *resource["source"]["type"]):
            assert coding.keys() == {"system", "code", "display"}
        for entity in resource["entity"]:
            # R4's sev-1: an entity has a name or a query, not both.
            assert not {"name", "query"} <= entity.keys()
            for detail in entity.get("detail", ()):
                assert detail.keys() == {"type", "valueString"}
                assert isinstance(detail["valueString"], str)


@pytest.mark.parametrize("action", _PATTERNS)
def test_events_follow_the_patterns(resources: dict[str, dict[str, Any]], action: str) -> None:
    profile, interaction, code, client, server = _PATTERNS[action]
    resource = resources[action]
    assert resource["meta"]["profile"] == [
        f"https://profiles.ihe.net/ITI/BALP/StructureDefinition/IHE.BasicAudit.{profile}"
    ]
    assert resource["type"]["code"] == "rest"
    assert resource["subtype"][0]["code"] == interaction
    assert (resource["action"], resource["outcome"]) == (code, "0")
    codes = [agent["type"]["coding"][0]["code"] for agent in resource["agent"]]
    assert codes[:2] == [client, server]
    assert resource["agent"][0]["who"] == {"display": "10.0.0.1 for 192.0.2.7"}
    assert resource["agent"][0]["network"] == {"address": "192.0.2.7", "type": "2"}
    assert resource["agent"][2]["who"] == {"display": "Jo Doe", "identifier": {"value": "7f"}}
    assert resource["agent"][1]["network"] == {"address": "images.example.org", "type": "1"}
    assert resource["entity"][-1]["what"]["identifier"]["value"] == "r1"
    first = resource["entity"][-3]
    details = (("model", "m" * 64), ("status", "200"), ("words", '["a"]'))
    assert first["detail"] == [{"type": name, "valueString": value} for name, value in details]


def test_a_query_is_in_base64_and_hits_are_named(resources: dict[str, dict[str, Any]]) -> None:
    query, *hits, _ = resources["search"]["entity"]
    assert (query["type"]["code"], query["role"]["code"]) == ("2", "24")
    assert json.loads(base64.b64decode(query["query"])) == {"collection": "ward", "text": ["effusion"]}
    assert [hit["what"]["identifier"]["value"] for hit in hits] == ["ward/image-1", "ward/image-2"]


def test_a_refusal_is_a_failed_login(resources: dict[str, dict[str, Any]]) -> None:
    resource = resources["sign-in"]
    assert (resource["type"]["code"], resource["subtype"][0]["code"]) == ("110114", "110122")
    assert (resource["action"], resource["outcome"]) == ("E", "4")
    assert "meta" not in resource
    assert resource["entity"][0]["what"] == {"identifier": {"value": "ward"}}
