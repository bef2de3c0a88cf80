"""One image over HTTP: what is known of it, its thumbnail and its file."""

import hashlib
import io
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from PIL import Image

from app.images.schemas import ImageInfo
from index.files.image_store import ImageStore
from tests.app.conftest import COLLECTION, PATIENT, REPORT, Indexed, serve
from tests.app.images.test_writes import picture, replace_when_looked_up
from tests.app.search.test_search import problem

IMAGE = f"/v1/collections/{COLLECTION}/images/image-5"


def test_everything_known_of_an_image_is_told(client: TestClient, indexed: Indexed) -> None:
    image = client.get(IMAGE).json()
    content = indexed.image_bytes(5)
    assert image.keys() == ImageInfo.model_fields.keys()
    assert (
        image.items()
        >= {
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
            "sha256": hashlib.sha256(content).hexdigest(),
            "links": {
                "image": IMAGE,
                "thumbnail": f"{IMAGE}/thumbnail",
                "rendition": f"{IMAGE}/rendition",
                "content": f"{IMAGE}/content",
            },
        }.items()
    )


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
    other = f"/v1/collections/{COLLECTION}/images/image-6"
    tags = {
        client.get(f"{path}/{kind}").headers["etag"]
        for path in (IMAGE, other)
        for kind in ("thumbnail", "content")
    }
    assert len(tags) == 4


@pytest.mark.parametrize("variant", ["", "/thumbnail", "/content", "/rendition"])
def test_what_is_not_there_is_not_found(client: TestClient, variant: str) -> None:
    problem(client.get(f"/v1/collections/{COLLECTION}/images/none{variant}"), 404, "unknown-image")
    problem(client.get(f"/v1/collections/none/images/image-5{variant}"), 404, "unknown-collection")


@pytest.mark.parametrize("name", ["..%2f..%2fetc%2fpasswd", "%00", "image-5%2f..", "%ff%fe", "' OR 1=1 --"])
def test_no_id_leads_to_a_file_of_the_server(client: TestClient, name: str) -> None:
    for variant in ("", "/content", "/thumbnail"):
        answer = client.get(f"/v1/collections/{COLLECTION}/images/{name}{variant}")
        assert answer.status_code == 404
        assert answer.headers["content-type"] == "application/problem+json"


def test_a_damaged_store_is_an_error_that_names_no_path(own: Indexed) -> None:
    originals = own.settings.home / "images" / "originals"
    for file in list(originals.rglob("*")):
        if file.is_file():
            file.unlink()
    with serve(own, key=False) as client:
        for variant in ("content", "thumbnail", "rendition"):
            document = problem(client.get(f"{IMAGE}/{variant}"), 500, "image-file-unavailable")
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
        problem(client.get(f"{IMAGE}/{variant}"), 404, "unknown-image")
