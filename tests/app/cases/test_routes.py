"""Case lists over HTTP: who may keep cases, what answers tell, what is refused, and what is audited."""

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.access import bearer
from tests.app.audit.written import written_events
from tests.app.conftest import COLLECTION, PATIENT, Indexed

CASES = f"/v1/collections/{COLLECTION}/cases"
SPECIAL = f"{PATIENT} #7?"


def problem(answer: Any, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    return document


def key_of(home: Indexed, name: str, role: Any) -> dict[str, str]:
    return bearer(home.key(role, COLLECTION, name=name))


def test_a_judge_keeps_cases_that_readers_see(service: TestClient, own: Indexed) -> None:
    judge, reader = key_of(own, "Dr. Judge", "judge"), key_of(own, "viewer", "reader")
    made = service.put(f"{CASES}/ptx", json={"name": " Pneumothorax, teaching "}, headers=judge)
    assert made.status_code == 201, made.text
    assert made.json()["name"] == "Pneumothorax, teaching"
    for image, text in ((SPECIAL, "Small,\nmissed"), ("image-3", "")):
        path = f"{CASES}/ptx/images/{image.replace('#', '%23').replace('?', '%3F')}"
        kept = service.put(path, json={"note": text}, headers=judge)
        body = kept.json()
        assert (body["case_list"], body["id"], body["note"]) == ("ptx", image, text)
        assert (body["saved_by"], body["etag"]) == ("Dr. Judge", kept.headers["ETag"])
    (listed,) = service.get(CASES, headers=reader).json()["lists"]
    assert (listed["id"], listed["images"]) == ("ptx", 2)
    page = service.get(f"{CASES}/ptx", params={"limit": 1}, headers=reader).json()
    (case,) = page["cases"]
    assert (case["image"]["id"], case["note"], case["saved_by"]) == (SPECIAL, "Small,\nmissed", "Dr. Judge")
    assert case["image"]["metadata"] == {"age": 27, "view": "PA"}
    assert service.get(case["image"]["links"]["thumbnail"], headers=reader).status_code == 200
    rest = service.get(f"{CASES}/ptx", params={"cursor": page["next_cursor"]}, headers=reader).json()
    assert [one["image"]["id"] for one in rest["cases"]] == ["image-3"]
    assert rest["next_cursor"] is None
    renamed = service.put(f"{CASES}/ptx", json={"name": "Pneumothorax"}, headers=judge)
    assert (renamed.status_code, renamed.json()["images"]) == (200, 2)
    assert service.delete(f"{CASES}/ptx/images/image-3", headers=judge).json()["note"] is None
    for method, path, body in (
        ("PUT", f"{CASES}/other", {"name": "x"}),
        ("PUT", f"{CASES}/ptx/images/image-3", {}),
        ("DELETE", f"{CASES}/ptx", None),
    ):
        refused = service.request(method, path, json=body, headers=reader)
        assert problem(refused, 403)["detail"].count("the role judge ") == 1
    assert service.delete(f"{CASES}/ptx", headers=judge).json() == {
        "collection": COLLECTION,
        "case_list": "ptx",
    }
    assert service.get(CASES).json()["lists"] == []


def test_a_note_and_a_name_are_changed_on_what_the_caller_knows_alone(service: TestClient) -> None:
    named = service.put(f"{CASES}/a", json={"name": "First"}, headers={"If-None-Match": "*"})
    kept = service.put(f"{CASES}/a/images/image-3", json={"note": "one"})
    (listed,) = service.get(CASES).json()["lists"]
    (case,) = service.get(f"{CASES}/a").json()["cases"]
    assert listed["etag"] == named.headers["ETag"]
    assert case["etag"] == kept.headers["ETag"]
    for path, etag, bodies in (
        ("/a", listed["etag"], [{"name": "Second"}, {"name": "Third"}]),
        ("/a/images/image-3", case["etag"], [{"note": "two"}, {"note": "three"}]),
    ):
        first, late = (
            service.put(f"{CASES}{path}", json=body, headers={"If-Match": etag}) for body in bodies
        )
        assert (first.status_code, first.headers["ETag"] != etag) == (200, True), first.text
        assert "nothing was written" in problem(late, 412)["detail"]
        assert late.headers["ETag"] == first.headers["ETag"]
    (listed,) = service.get(CASES).json()["lists"]
    (case,) = service.get(f"{CASES}/a").json()["cases"]
    assert (listed["name"], case["note"]) == ("Second", "two")
    # Neither comes back by a change of what was removed meanwhile.
    service.delete(f"{CASES}/a/images/image-3")
    changed = service.put(f"{CASES}/a/images/image-3", json={"note": "x"}, headers={"If-Match": case["etag"]})
    assert "is not in the list now" in problem(changed, 412)["detail"]
    service.delete(f"{CASES}/a")
    changed = service.put(f"{CASES}/a", json={"name": "x"}, headers={"If-Match": listed["etag"]})
    assert "is none now" in problem(changed, 412)["detail"]
    assert service.get(CASES).json()["lists"] == []


@pytest.mark.parametrize(
    ("path", "body", "status", "message"),
    [
        ("/bad%20id", {"name": "x"}, 422, "case_list"),
        ("/.hidden", {"name": "x"}, 422, "case_list"),
        ("/a", {"name": ""}, 422, ""),
        ("/a", {"name": "two\nlines"}, 422, "one line"),
        ("/a", {"name": "x" * 101}, 422, "100"),
        ("/a", {}, 422, ""),
        ("/b", {"name": "Taken"}, 409, "'Taken'"),
        ("/kept/images/image-3", {"note": "x" * 2001}, 422, "2000"),
        ("/kept/images/image-3", {"note": "a\x00b"}, 422, "cannot be stored"),
        ("/kept/images/image-3", {"notes": "x"}, 422, "the fields are note"),
        ("/kept/images/nobody", {}, 404, "'nobody'"),
        ("/gone/images/image-3", {}, 404, "'gone'"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_kept(
    service: TestClient, path: str, body: dict[str, str], status: int, message: str
) -> None:
    service.put(f"{CASES}/kept", json={"name": "Taken"})
    answer = service.put(f"{CASES}{path}", json=body)
    assert message in json.dumps(problem(answer, status)), answer.text
    assert [(one["id"], one["images"]) for one in service.get(CASES).json()["lists"]] == [("kept", 0)]


def test_pages_and_lists_that_are_not_there_are_refused(service: TestClient) -> None:
    service.put(f"{CASES}/kept", json={"name": "Kept"})
    problem(service.get(f"{CASES}/kept", params={"cursor": "x"}), 422)
    for limit in (0, 1001):
        problem(service.get(f"{CASES}/kept", params={"limit": limit}), 422)
    problem(service.get(f"{CASES}/kept", params={"page": 2}), 422)
    assert problem(service.get(f"{CASES}/gone"), 404)["type"] == "urn:recoquest:unknown-case-list"
    problem(service.delete(f"{CASES}/gone"), 404)
    problem(service.get(f"{CASES}/gone/export"), 404)


def test_the_audit_trail_names_images_and_the_list_and_no_note(service: TestClient) -> None:
    service.put(f"{CASES}/taught", json={"name": "Mrs. Example"})
    service.put(f"{CASES}/taught/images/image-3", json={"note": "Mrs. Example's film"})
    service.get(f"{CASES}/taught")
    service.get(f"{CASES}/taught/export")
    service.delete(f"{CASES}/taught")
    events = written_events(service)
    new, read = {"case_list": "taught", "was_there": False}, {"case_list": "taught"}
    assert [(event["action"], event["ids"], event["details"]) for event in events] == [
        ("change", [], {"operation": "put_case_list", "status": 201, **new}),
        ("change", ["image-3"], {"operation": "save_case_image", "status": 200, **new}),
        ("browse", ["image-3"], {"operation": "get_case_list", "status": 200, **read}),
        ("export", ["image-3"], {"operation": "export_case_list", "status": 200, **read}),
        ("delete", [], {"operation": "delete_case_list", "status": 200, **read}),
    ]
    assert "Example" not in json.dumps(events)
