"""If-Match and If-None-Match on images: a change of what the caller does not know is refused: one wins."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Barrier
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response

from tests.app.conftest import Indexed, serve
from tests.app.images.test_writes import IMAGES, picture, problem, put


def etag_now(client: TestClient, image_id: str) -> str:
    return client.get(f"{IMAGES}/{image_id}").headers["ETag"]


def patch(client: TestClient, image_id: str, label: str, **headers: str) -> Response:
    changes = {"labels": [label]}
    sent = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.patch(f"{IMAGES}/{image_id}", json=changes, headers=sent)


def refused(answer: Response, etag: str | None) -> dict[str, Any]:
    document = problem(answer, 412, "precondition-failed")
    assert answer.headers.get("ETag") == etag
    assert "nothing was written" in document["detail"]
    assert etag is None or etag in document["detail"]
    return document


def test_every_answer_has_the_etag_that_the_next_change_names(local: TestClient) -> None:
    made = put(local, "told", picture(1), {"labels": ["a"]})
    first = made.headers["ETag"]
    assert first == made.json()["etag"] == etag_now(local, "told")
    assert first.startswith('"')
    changed = patch(local, "told", "b", If_Match=first)
    assert changed.status_code == 200
    second = changed.headers["ETag"]
    assert second == changed.json()["etag"] == etag_now(local, "told") != first
    assert patch(local, "told", "b", If_Match=second).json()["status"] == "unchanged"
    assert etag_now(local, "told") == second
    unchanged = put(local, "told", picture(1), {"labels": ["b"]})
    assert (unchanged.json()["status"], unchanged.headers["ETag"]) == ("unchanged", second)
    replaced = put(local, "told", picture(2), {"labels": ["b"]})
    assert replaced.headers["ETag"] == etag_now(local, "told") not in (first, second)
    assert put(local, "told", picture(1), {"labels": ["a"]}).headers["ETag"] == first
    files = [("image", ("a.png", picture(3), "image/png")), ("image", ("b.png", b"none", "image/png"))]
    several = local.post(IMAGES, files=files, data={"records": '[{"id": "one"}, {"id": "two"}]'})
    assert [image["etag"] for image in several.json()["results"]] == [etag_now(local, "one"), None]


def test_a_change_of_another_state_is_refused_and_nothing_is_written(local: TestClient) -> None:
    etag = etag_now(local, "image-3")
    assert patch(local, "image-3", "first", If_Match=etag).status_code == 200
    now = etag_now(local, "image-3")
    before = local.get(f"{IMAGES}/image-3").json()
    refused(patch(local, "image-3", "second", If_Match=etag), now)
    refused(patch(local, "image-3", "second", If_Match=f"W/{now}"), now)
    headers = {"If-Match": etag}
    refused(put(local, "image-3", picture(4), headers=headers), now)
    refused(local.delete(f"{IMAGES}/image-3", headers=headers), now)
    assert local.get(f"{IMAGES}/image-3").json() == before
    assert patch(local, "image-3", "third", If_Match=f'"other", {now}').status_code == 200
    assert local.delete(f"{IMAGES}/image-3", headers={"If-Match": "*"}).status_code == 200


def test_an_image_is_put_in_only_if_it_is_new_or_only_if_it_is_there(local: TestClient) -> None:
    def put_if(headers: dict[str, str]) -> Response:
        return put(local, "only", picture(5), headers=headers)

    assert "leave If-Match out" in refused(put_if({"If-Match": "*"}), None)["detail"]
    new = put_if({"If-None-Match": "*"})
    assert new.status_code == 201
    # The same content again: unchanged without a condition, and refused with one.
    refused(put_if({"If-None-Match": "*"}), new.headers["ETag"])
    refused(put_if({"If-None-Match": new.headers["ETag"]}), new.headers["ETag"])
    assert put_if({"If-Match": new.headers["ETag"]}).json()["status"] == "unchanged"
    assert put_if({"If-None-Match": '"other"'}).json()["status"] == "unchanged"


def test_a_condition_comes_after_the_form_of_a_request_and_before_its_work(local: TestClient) -> None:
    path, stale = f"{IMAGES}/image-8", {"If-Match": '"stale"'}
    now = etag_now(local, "image-8")
    refused(put(local, "image-8", b"no picture", headers=stale), now)
    for answer in (
        local.patch(path, json={"labels": 1}, headers=stale),
        local.patch(path, json={"metadata": {"a": "nan"}}, headers=stale),
        local.put(path, files={"image": ("x.png", b"")}, data={"record": "["}, headers=stale),
    ):
        assert answer.status_code == 422, answer.text
    for answer in (
        local.patch(f"{IMAGES}/nobody", json={"labels": []}, headers=stale),
        local.delete(f"{IMAGES}/nobody", headers=stale),
    ):
        problem(answer, 404, "unknown-image")


@pytest.mark.parametrize("value", ["abc", '"a" "b"', "", '*, "a"', '"a', ", ".join(['"a"'] * 101)])
@pytest.mark.parametrize("name", ["If-Match", "If-None-Match"])
def test_a_condition_that_cannot_be_read_is_refused(local: TestClient, name: str, value: str) -> None:
    answer = local.patch(f"{IMAGES}/image-4", json={"labels": []}, headers={name: value})
    assert problem(answer, 422, "invalid-request")["errors"][0]["field"] == name


def _race(calls: Sequence[Callable[[], Response]]) -> list[int]:
    barrier = Barrier(len(calls))

    def run(call: Callable[[], Response]) -> int:
        barrier.wait()
        return call().status_code

    with ThreadPoolExecutor(len(calls)) as pool:
        return sorted(pool.map(run, calls))


def test_of_writers_that_know_the_same_state_one_wins(local: TestClient, on_either: Indexed) -> None:
    """Two services on one catalogue, each with two callers, all of whom have read the same."""
    with serve(on_either) as other:
        for turn in range(4):
            etag = etag_now(local, "image-5")
            clients = [local, other, local, other]
            labels = [f"{turn} {number}" for number in range(4)]
            writers = [
                partial(patch, client, "image-5", label, If_Match=etag)
                for client, label in zip(clients, labels, strict=True)
            ]
            assert _race(writers) == [200, 412, 412, 412]
            new = {"If-None-Match": "*"}
            makers = [
                partial(put, client, f"new-{turn}", picture(seed), headers=new)
                for seed, client in enumerate([local, other])
            ]
            assert _race(makers) == [201, 412]
