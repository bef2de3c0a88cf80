"""Forms of images that are wrong: each is told with its field."""

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.app.conftest import COLLECTION, Indexed
from tests.app.images.test_writes import IMAGES, files_of, home, local, picture, post, problem

__all__ = ["home", "local"]


@pytest.mark.parametrize(
    ("records", "files", "field"),
    [
        ([{"id": "a"}], 2, "records"),
        ([{"id": "a"}, {"id": "a"}], 2, "records"),
        ([{"id": "a", "colour": 1}], 1, "records.0.colour"),
        ([{}], 1, "records.0.id"),
        ([{"id": "a", "split": "all"}], 1, "records.0.split"),
        ([], 0, "image"),
    ],
)
def test_a_form_that_is_wrong_is_told_where(
    local: TestClient, records: list[dict[str, Any]], files: int, field: str
) -> None:
    answer = post(local, records, [picture(number) for number in range(files)])
    if files == 0:
        assert answer.status_code == 415
        return
    document = problem(answer, 422, "invalid-request")
    assert document["errors"][0]["field"] == field
    assert local.get(f"{IMAGES}/a").status_code == 404


def test_more_files_than_one_request_may_have_are_refused(local: TestClient, home: Indexed) -> None:
    before = files_of(home)
    answer = post(local, [{"id": f"m{number}"} for number in range(65)], [b"x"] * 65)
    document = problem(answer, 422, "invalid-request")
    assert document["errors"] == [
        {"field": "image", "message": "Too many files are sent: a request takes at most 64."}
    ]
    files = [("image", ("x.png", picture(1)))] * 2
    document = problem(local.put(f"{IMAGES}/x", data={"record": "{}"}, files=files), 422, "invalid-request")
    assert document["errors"] == [{"field": "image", "message": "Send one image, not several."}]
    assert files_of(home) == before


def test_too_many_or_too_long_texts_in_a_form_are_refused(local: TestClient) -> None:
    files = {"image": ("x.png", picture(1))}
    texts = {"records": "[]", "group": "a", "labels": "b"}
    document = problem(local.post(IMAGES, data=texts, files=files), 422, "invalid-request")
    message = "The form has too many texts: send `records` once, and images as files."
    assert (document["detail"], document["errors"][0]["field"]) == (message, "records")
    long = json.dumps({"report": "x" * 2_000_000})
    answer = local.put(f"{IMAGES}/x", data={"record": long}, files=files)
    document = problem(answer, 413, "content-too-large")
    message = "A text of the form has over 1,048,576 bytes; send a shorter one."
    assert (document["detail"], document["errors"][0]["field"]) == (message, "record")


@pytest.mark.parametrize(
    ("boundary", "body", "detail"),
    [
        (
            *("", "--x--\r\n"),
            "The content type is multipart/form-data without a boundary: let the HTTP client write it.",
        ),
        (
            *("; boundary=x", "no form"),
            "The body is not the multipart/form-data that its content type says: send it again.",
        ),
        (
            *("; boundary=x", "--x\r\nContent-Disposition: form-data\r\n\r\n{}\r\n--x--\r\n"),
            "A part of the form has no name: give each the name of its field.",
        ),
    ],
)
def test_a_form_that_cannot_be_read_is_told_why(
    local: TestClient, boundary: str, body: str, detail: str
) -> None:
    headers = {"Content-Type": f"multipart/form-data{boundary}"}
    for path in (IMAGES, f"/v1/collections/{COLLECTION}/search"):
        document = problem(local.post(path, content=body, headers=headers), 400, "bad-request")
        assert (document["detail"], document["errors"]) == (detail, [])
