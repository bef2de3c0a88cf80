"""Forms and records of images that are wrong: each is told with its field, and the rest is kept."""

import json
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient

from tests.app.conftest import COLLECTION, Indexed
from tests.app.images.test_writes import IMAGES, files_of, picture, post, problem, put, statuses


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


def test_more_files_than_one_request_may_have_are_refused(local: TestClient, on_either: Indexed) -> None:
    before = files_of(on_either)
    answer = post(local, [{"id": f"m{number}"} for number in range(65)], [b"x"] * 65)
    document = problem(answer, 422, "invalid-request")
    assert document["errors"] == [
        {"field": "image", "message": "Too many files are sent: a request takes at most 64."}
    ]
    files = [("image", ("x.png", picture(1)))] * 2
    document = problem(local.put(f"{IMAGES}/x", data={"record": "{}"}, files=files), 422, "invalid-request")
    assert document["errors"] == [{"field": "image", "message": "Send one image, not several."}]
    assert files_of(on_either) == before


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


def test_no_database_can_have_a_null_character(local: TestClient) -> None:
    answer = post(local, [{"id": "a\0"}, {"id": "beside"}], [picture(60), picture(61)])
    assert [status for _, status in statuses(answer)] == ["refused", "created"]
    assert (
        answer.json()["results"][0]["problem"]["detail"]
        == "The record cannot be used: 'id' holds a null character."
    )
    path = f"{IMAGES}/%00"
    problem(local.delete(path), 404, "unknown-image")
    for read in (path, f"{path}/content", f"{path}/thumbnail"):
        problem(local.get(read), 404, "unknown-image")
    problem(local.patch(path, json={"report": "r"}), 404, "unknown-image")
    problem(put(local, "%00", picture(60)), 422, "invalid-request")
    search = f"/v1/collections/{COLLECTION}/search"
    for name in ("like", "unlike"):
        asked = {"text": "a boat", name: [{"id": "\0"}], "exclude_same_group": True}
        problem(local.post(search, json=asked), 404, "unknown-image")
    problem(local.post(search, json={"text": "a", "group_by": "\0"}), 422, "invalid-request")
    problem(local.post("/v1/collections", json={"name": "\0", "model": "tiny-0"}), 422, "invalid-name")
    new = {"name": "n", "same_model_as": "\0"}
    problem(local.post("/v1/collections", json=new), 404, "unknown-collection")
    problem(local.delete("/v1/collections/%00"), 404, "unknown-collection")


def test_a_group_that_no_database_looks_for_is_refused_and_a_long_comment_kept(local: TestClient) -> None:
    comment = "".join(np.random.default_rng(0).choice(list("abcdefghijklmnopqrstuvwxyz"), 6000))
    grouped: dict[str, Any] = {"id": "grouped", "group": "x" * 2001}
    records = [grouped, {"id": "remarked", "metadata": {"comment": comment}}]
    answer = post(local, records, [picture(62), picture(63)])
    assert [status for _, status in statuses(answer)] == ["refused", "created"]
    reason = "The record cannot be used: 'group' has 2,001 bytes in UTF-8; the limit is 2,000."
    assert answer.json()["results"][0]["problem"]["detail"] == reason
    assert local.get(f"{IMAGES}/remarked").json()["metadata"] == {"comment": comment}


def test_metadata_that_stands_for_not_known_is_refused_and_what_is_beside_it_kept(local: TestClient) -> None:
    values: list[object] = ["nan", "NULL", "k. A.", ["a", "NaN"], float("nan"), 7]
    records = [
        {"id": f"aged-{number}", "metadata": {"age": value, "view": ""}}
        for number, value in enumerate(values)
    ]
    answer = post(local, records, [picture(70 + number) for number in range(len(values))])
    assert [status for _, status in statuses(answer)] == [*["refused"] * 5, "created"]
    said = [result["problem"]["detail"] for result in answer.json()["results"][:5]]
    for detail, word in zip(said[:4], ("nan", "NULL", "k. A.", "NaN"), strict=True):
        assert detail == (
            f"The record cannot be used: 'metadata.age' is {word!r}, which stands for a value not known; "
            "leave it out or send null."
        )
    assert said[4] == "The record cannot be used: NaN is not a JSON number."
    problem(put(local, "aged-0", picture(70), {"metadata": {"age": "nan"}}), 422, "invalid-request")
    assert local.patch(f"{IMAGES}/aged-5", json={"metadata": {"age": "nan"}}).status_code == 422
    assert local.get(f"{IMAGES}/aged-5").json()["metadata"] == {"age": 7, "view": ""}
