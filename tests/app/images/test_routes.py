"""One image over HTTP: what is known of it, its thumbnail and file, and who may change it when."""

import hashlib
import io
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response
from PIL import Image

from app.images.schemas import ImageInfo
from index.files.image_store import ImageStore
from tests.access import ADMIN_KEY, AS_ADMIN
from tests.app.conftest import COLLECTION, LOCAL, PATIENT, REPORT, Indexed, serve
from tests.app.images.test_uploads import IMAGES, picture, problem, put, replace_when_looked_up
from tests.app.search.test_search import problem as problem_document

IMAGE = f"/v1/collections/{COLLECTION}/images/image-5"


def test_everything_known_of_an_image_is_told(client: TestClient, indexed: Indexed) -> None:
    image = client.get(IMAGE).json()
    assert image.keys() == ImageInfo.model_fields.keys()
    links = {kind: f"{IMAGE}/{kind}" for kind in ("thumbnail", "rendition", "content")}
    assert image == image | {
        "id": "image-5",
        "texts": list(indexed.manifest.records[5].texts),
        "report": None,
        "findings": [],
        "labels": ["Edema"],
        "metadata": {"age": 25, "view": "PA"},
        "split": "test",
        "group": None,
        "width": 40,
        "height": 32,
        "media_type": "image/png",
        "links": {"image": IMAGE, **links},
        "sha256": hashlib.sha256(indexed.image_bytes(5)).hexdigest(),
    }


def test_the_report_comes_with_its_image_only(client: TestClient) -> None:
    answer = client.get(f"/v1/collections/{COLLECTION}/images/{PATIENT} %237%3F")
    assert answer.json()["report"] == REPORT
    (start, end), finding = (17, 29), "pneumothorax"
    assert REPORT[start:end] == finding
    (of_report, of_text) = answer.json()["findings"]
    assert of_report == {
        "finding": finding,
        "state": "absent",
        "position": None,
        "start": start,
        "end": end,
        "prior": False,
    }
    assert (of_text["finding"], of_text["position"]) == ("cardiomegaly", 0)
    page = client.post(f"/v1/collections/{COLLECTION}/search", json={"text": "x", "limit": 24})
    assert REPORT not in page.text


def test_the_file_is_given_back_byte_for_byte_and_cannot_run_as_a_page(
    client: TestClient, indexed: Indexed
) -> None:
    answer = client.get(f"{IMAGE}/content")
    assert answer.content == indexed.image_bytes(5)
    assert answer.headers["content-type"] == "image/png"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-disposition"] == "inline; filename*=UTF-8''image-5"
    assert "sandbox" in answer.headers["content-security-policy"]
    assert answer.headers["cache-control"].startswith("private")


def test_the_thumbnail_is_a_small_picture(client: TestClient) -> None:
    answer = client.get(f"{IMAGE}/thumbnail")
    assert answer.headers["content-type"] == "image/webp"
    with Image.open(io.BytesIO(answer.content)) as picture:
        assert picture.size == (40, 32)


@pytest.mark.parametrize("variant", ["", "/thumbnail", "/content"])
def test_a_copy_that_is_current_is_not_sent_again(client: TestClient, variant: str) -> None:
    etag = client.get(f"{IMAGE}{variant}").headers["etag"]
    for known in (etag, f"W/{etag}", f'"other", {etag}', "*"):
        answer = client.get(f"{IMAGE}{variant}", headers={"if-none-match": known})
        assert (answer.status_code, answer.content) == (304, b"")
        assert answer.headers["etag"] == etag
        assert answer.headers["cache-control"].startswith("private")
    assert client.get(f"{IMAGE}{variant}", headers={"if-none-match": '"other"'}).status_code == 200


def test_etags_tell_files_and_variants_apart(client: TestClient) -> None:
    images, kinds = ("image-5", "image-6"), ("thumbnail", "content")
    answers = [client.get(f"{IMAGES}/{image}/{kind}") for image in images for kind in kinds]
    assert len({answer.headers["etag"] for answer in answers}) == 4


@pytest.mark.parametrize("variant", ["", "/thumbnail", "/content", "/rendition"])
def test_what_is_not_there_is_not_found(client: TestClient, variant: str) -> None:
    problem_document(client.get(f"/v1/collections/{COLLECTION}/images/none{variant}"), 404, "unknown-image")
    problem_document(client.get(f"/v1/collections/none/images/image-5{variant}"), 404, "unknown-collection")


@pytest.mark.parametrize("name", ["..%2f..%2fetc%2fpasswd", "%00", "image-5%2f..", "%ff%fe", "' OR 1=1 --"])
def test_no_id_leads_to_a_file_of_the_server(client: TestClient, name: str) -> None:
    for variant in ("", "/content", "/thumbnail"):
        answer = client.get(f"/v1/collections/{COLLECTION}/images/{name}{variant}")
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"


def test_a_damaged_store_is_an_error_that_names_no_path(own: Indexed) -> None:
    for file in (own.settings.home / "images" / "originals").glob("*/*"):
        file.unlink()
    with serve(own, key=False) as client:
        for variant in ("content", "thumbnail", "rendition"):
            document = problem_document(client.get(f"{IMAGE}/{variant}"), 500, "image-file-unavailable")
            assert str(own.settings.home) not in str(document)


@pytest.mark.parametrize("variant", ["thumbnail", "content", "rendition"])
def test_an_image_that_is_replaced_meanwhile_comes_with_its_own_etag(
    own: Indexed, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = picture(77)
    with serve(own) as client:
        replace_when_looked_up(client, new, monkeypatch)
        answer = client.get(f"{IMAGE}/{variant}")
        assert answer.status_code == 200
        assert answer.headers["etag"].strip('"').split("-")[0] == hashlib.sha256(new).hexdigest()
        assert answer.content == client.get(f"{IMAGE}/{variant}").content


@pytest.mark.parametrize(("variant", "finds"), [("thumbnail", "thumbnail"), ("content", "path")])
def test_an_image_that_is_removed_meanwhile_is_not_found(
    own: Indexed, variant: str, finds: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = getattr(ImageStore, finds)
    with serve(own) as client:

        def find_before(store: ImageStore, sha256: str) -> Path:
            path: Path = find(store, sha256)
            monkeypatch.undo()
            assert client.delete(IMAGE).status_code == 200
            return path

        monkeypatch.setattr(ImageStore, finds, find_before)
        problem_document(client.get(f"{IMAGE}/{variant}"), 404, "unknown-image")


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


@pytest.mark.slow
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


@pytest.fixture(scope="module")
def running(on_either: Indexed) -> Iterator[TestClient]:
    """A service under a name of its own, which a page of another origin may call."""
    with serve(
        on_either, key=False, allowed_hosts=(".example.org",), cors_origins=("https://viewer.example.org",)
    ) as client:
        yield client


@pytest.mark.parametrize(
    ("client", "host", "headers"),
    [
        # A program here, or a proxy here that sends nothing of its own: they cannot be told apart.
        (LOCAL, "127.0.0.1", {}),
        (("::1", 1), "localhost", {"Origin": "http://localhost"}),
        (LOCAL, "127.0.0.1", {"X-Forwarded-For": "127.0.0.1"}),
        (("192.168.0.7", 1), "127.0.0.1", {}),
        (LOCAL, "named.example.org", {}),
        (LOCAL, "127.0.0.1", {"Origin": "https://viewer.example.org"}),
    ],
)
def test_no_address_gives_a_right(
    running: TestClient, client: tuple[str, int], host: str, headers: dict[str, str]
) -> None:
    caller = TestClient(running.app, f"http://{host}", client=client)
    answer = caller.delete(f"{IMAGES}/image-1", headers=headers)
    assert "Bearer" in problem(answer, 401, "authentication-needed")["detail"]
    assert answer.headers["WWW-Authenticate"] == "Bearer"


@pytest.mark.parametrize("value", ["", f"Basic {ADMIN_KEY}", "Digest x", ADMIN_KEY])
def test_no_other_scheme_gives_a_right(running: TestClient, value: str) -> None:
    headers = {"Authorization": value} if value else {}
    problem(running.delete(f"{IMAGES}/nobody", headers=headers), 401, "authentication-needed")


@pytest.mark.parametrize("value", ["Bearer", "Bearer wrong", f"Bearer {ADMIN_KEY[:-1]}"])
def test_a_wrong_key_is_said_to_be_wrong(running: TestClient, value: str) -> None:
    # From elsewhere each time, so that no guess makes the next wait.
    caller = TestClient(running.app, "http://127.0.0.1", client=(f"10.0.0.{len(value)}", 1))
    answer = caller.delete(f"{IMAGES}/nobody", headers={"Authorization": value})
    problem(answer, 401, "wrong-key")
    assert answer.headers["WWW-Authenticate"] == 'Bearer error="invalid_token"'


@pytest.mark.parametrize("headers", [{}, {"X-Forwarded-For": "10.0.0.1"}])
def test_who_brings_the_key_may_change_things_from_anywhere(
    running: TestClient, headers: dict[str, str]
) -> None:
    caller = TestClient(running.app, "http://images.example.org", client=("192.168.0.7", 1), headers=AS_ADMIN)
    problem(caller.delete(f"{IMAGES}/nobody", headers=headers), 404, "unknown-image")
    assert caller.get("/v1/collections").status_code == 200
