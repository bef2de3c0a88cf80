"""Records of images that are refused before they are written, and what beside them is kept."""

from typing import Any

import numpy as np
from fastapi.testclient import TestClient

from tests.app.conftest import COLLECTION
from tests.app.images.test_writes import IMAGES, home, local, picture, post, problem, put, statuses

__all__ = ["home", "local"]


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
