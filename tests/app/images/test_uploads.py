"""Writes over HTTP: what is kept, wrong forms, and files without what they say of anybody."""

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from fastapi.testclient import TestClient
from httpx2 import Response
from PIL import Image
from sqlalchemy import select

from app.encoding.queue import EncodingQueue
from index.catalogue.images import StoredImage
from index.catalogue.tables import CollectionRow
from index.engine import SearchEngine
from index.home import Home
from index.writes.live import read_known_images
from tests.app.conftest import COLLECTION, Indexed, png_of_size, serve
from tests.app.search.test_search import SEARCH, page_of, search_image
from tests.dicom_films import MARKER, draw, encoded, make_film
from tests.heic_files import PLAIN
from tests.index.homes import remove_collection
from tests.needed import needed_module
from tests.training.imaging.metadata_files import FILES, SECRET, jpeg, png
from training.imaging.images import decode_image

IMAGES = f"/v1/collections/{COLLECTION}/images"


def picture(seed: int, size: tuple[int, int] = (40, 30)) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    return content.getvalue()


def post(
    client: TestClient, records: list[dict[str, Any]], files: list[bytes], path: str = IMAGES
) -> Response:
    sent = [("image", (f"{number}.png", content, "image/png")) for number, content in enumerate(files)]
    answer: Response = client.post(path, data={"records": json.dumps(records)}, files=sent)
    return answer


def put(
    client: TestClient,
    image_id: str,
    content: bytes,
    record: dict[str, Any] | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    answer: Response = client.put(
        f"{IMAGES}/{image_id}",
        data={"record": json.dumps(record or {})},
        files={"image": ("x.png", content, "image/png")},
        headers=headers,
    )
    return answer


def replace_when_looked_up(client: TestClient, new: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the next image that is looked up be replaced before its file is read."""
    looked = SearchEngine.image

    def look_before(engine: SearchEngine, collection: str, image_id: str) -> StoredImage:
        result = looked(engine, collection, image_id)
        monkeypatch.undo()
        assert put(client, image_id, new).status_code == 200
        return result

    monkeypatch.setattr(SearchEngine, "image", look_before)


def statuses(answer: Response) -> list[tuple[str, str]]:
    refused = [image for image in answer.json()["results"] if image["status"] == "refused"]
    assert answer.status_code == (207 if refused else 200), answer.text
    return [(image["id"], image["status"]) for image in answer.json()["results"]]


def nearest(client: TestClient, content: bytes, **query: Any) -> dict[str, Any]:
    answer = search_image(client, content, limit=1, **query)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()["hits"][0]
    return body


def problem(answer: Response, status: int, slug: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    document: dict[str, Any] = answer.json()
    assert document["type"] == f"urn:recoquest:{slug}"
    return document


def files_of(home: Indexed) -> int:
    folder = home.settings.home / "images" / "originals"
    return sum(path.is_file() for path in folder.glob("*/*"))


def test_what_is_sent_is_found_by_the_next_search(local: TestClient) -> None:
    record = {
        "id": "new one",
        "texts": ["two dogs in the snow", "a boat at sea"],
        "report": "No pneumothorax seen.",
        "labels": ["Edema"],
        "group": "patient 9",
        "split": "val",
        "metadata": {"age": 71, "view": "PA", "signs": ["a", "b"]},
    }
    answer = post(local, [record], [picture(1)])
    assert statuses(answer) == [("new one", "created")]
    assert answer.json()["written_to"]["model"] == "tiny-0"
    hit = nearest(local, picture(1))
    assert (hit["id"], hit["texts"]) == ("new one", record["texts"])
    assert hit["score"] == pytest.approx(1, abs=1e-3)
    assert nearest(local, picture(2), filter={"field": "age", "eq": 71})["id"] == "new one"
    image = local.get(f"{IMAGES}/new one").json()
    assert {name: image[name] for name in record} == record
    assert (image["width"], image["height"]) == (40, 30)
    assert local.get(f"{IMAGES}/new one/content").content == picture(1)
    texts = page_of(local, text="a boat at sea", target="texts", limit=40)
    assert any(hit["id"] == "new one" and hit["score"] > 0.999 for hit in texts["hits"])


def test_outcomes_are_counted_and_truncated_texts_too(local: TestClient) -> None:
    long = " ".join(["snow"] * 100)
    records: list[dict[str, Any]] = [{"id": "cut", "texts": [long, "two dogs"]}, {"id": "bad"}]
    answer = post(local, records, [picture(50), b"no image"])
    assert [image["truncated_texts"] for image in answer.json()["results"]] == [1, 0]
    counts = {"received": 2, "created": 1, "replaced": 0, "unchanged": 0, "refused": 1}
    assert answer.json()["counts"] == counts
    assert put(local, "cut", picture(50), {"texts": [long, long]}).json()["truncated_texts"] == 2
    texts = {"texts": ["short", f"{long} {long}"]}
    assert local.patch(f"{IMAGES}/cut", json=texts).json()["truncated_texts"] == 1
    unchanged = post(local, [{"id": "cut", **texts, "split": "test"}], [picture(50)])
    assert unchanged.json()["counts"]["unchanged"] == 1


def test_the_same_again_changes_nothing(local: TestClient, on_either: Indexed) -> None:
    assert put(local, "same", picture(3), {"texts": ["a text"]}).status_code == 201
    with on_either.engine() as engine:
        before = _sequence(engine)
        again = put(local, "same", picture(3), {"texts": ["a text"]})
        assert (again.status_code, again.json()["status"]) == (200, "unchanged")
        assert _sequence(engine) == before
        other = put(local, "same", picture(3), {"texts": ["another"]})
        assert other.json()["status"] == "replaced"


def _sequence(engine: SearchEngine) -> int:
    with engine.home.catalogue.read() as session:
        query = select(CollectionRow.sequence).where(CollectionRow.name == COLLECTION)
        return int(session.execute(query).scalar_one())


def test_a_replaced_picture_is_found_in_its_new_place_only(local: TestClient, on_either: Indexed) -> None:
    put(local, "turned", picture(4))
    before = files_of(on_either)
    assert put(local, "turned", picture(5)).json()["status"] == "replaced"
    assert nearest(local, picture(5))["id"] == "turned"
    assert nearest(local, picture(4))["score"] < 0.9999
    assert files_of(on_either) == before


def test_each_image_has_its_own_status(local: TestClient) -> None:
    put(local, "there", picture(6))
    records = [{"id": name} for name in ("fine", "broken", "there", "bo/mb", "bomb")]
    contents = [picture(7), b"no image", picture(6), picture(8), png_of_size(100_000, 100_000)]
    answer = post(local, records, contents)
    expected = ["created", "refused", "unchanged", "refused", "refused"]
    assert [status for _, status in statuses(answer)] == expected
    assert answer.status_code == 207
    assert (answer.json()["written"], answer.json()["refused"]) == (2, 3)
    problems = [image["problem"] for image in answer.json()["results"]]
    assert (problems[0], problems[2]) == (None, None)
    told = [
        (each["type"].removeprefix("urn:recoquest:"), each["status"]) for each in problems if each is not None
    ]
    assert told == [("not-an-image", 415), ("invalid-request", 422), ("image-too-large", 413)]
    assert "not an image" in problems[1]["detail"]
    assert "'/'" in problems[3]["detail"]
    assert "megapixels" in problems[4]["detail"]
    assert local.get(f"{IMAGES}/broken").status_code == 404


def test_findings_of_sentences_on_an_earlier_examination_are_told(local: TestClient) -> None:
    record = {
        "texts": ["A mass, unchanged since the prior film.", "No effusion. Interval growth of the nodule."],
        "report": "COMPARISON: prior film.\n\nFINDINGS: Small effusion. Pneumothorax is no longer seen.",
    }
    put(local, "compared", picture(9), record)
    body = local.get(f"{IMAGES}/compared").json()["findings"]
    assert [(one["position"], one["finding"], one["prior"]) for one in body] == [
        (None, "pleural effusion", False),
        (None, "pneumothorax", True),
        (0, "mass", True),
        (1, "pleural effusion", False),
        (1, "nodule", True),
    ]


def test_a_change_keeps_what_it_does_not_name(local: TestClient) -> None:
    record = {"texts": ["one", "two"], "report": "r", "group": "g", "metadata": {"age": 1, "view": "AP"}}
    put(local, "changed", picture(9), record)
    change = {"texts": ["one", "three"], "group": None, "metadata": {"age": 2, "view": None, "new": True}}
    answer = local.patch(f"{IMAGES}/changed", json=change)
    assert (answer.status_code, answer.json()["status"]) == (200, "replaced")
    image = local.get(f"{IMAGES}/changed").json()
    assert (image["texts"], image["report"], image["group"]) == (["one", "three"], "r", None)
    assert image["metadata"] == {"age": 2, "new": True}
    assert local.patch(f"{IMAGES}/changed", json={"report": "r"}).json()["status"] == "unchanged"
    problem(local.patch(f"{IMAGES}/changed", json={"texts": None}), 422, "invalid-request")
    problem(local.patch(f"{IMAGES}/changed", json={"labels": [" "]}), 422, "invalid-request")
    problem(local.patch(f"{IMAGES}/none", json={}), 404, "unknown-image")


def test_what_is_removed_does_not_come_back(local: TestClient, on_either: Indexed) -> None:
    put(local, "gone", picture(10), {"texts": ["lost words"]})
    put(local, "twin", picture(10))
    before = files_of(on_either)
    removed = {"status": "removed", "id": "gone", "collection": COLLECTION}
    assert local.delete(f"{IMAGES}/gone").json() == removed
    assert nearest(local, picture(10))["id"] == "twin"
    assert files_of(on_either) == before
    local.delete(f"{IMAGES}/twin")
    assert nearest(local, picture(10))["score"] < 0.9999
    assert files_of(on_either) == before - 1
    problem(local.delete(f"{IMAGES}/gone"), 404, "unknown-image")
    problem(local.get(f"{IMAGES}/gone"), 404, "unknown-image")
    with serve(on_either) as restarted:
        assert nearest(restarted, picture(10))["score"] < 0.9999


def test_who_writes_to_a_collection_that_goes_meanwhile_is_told_that_there_is_none(
    local: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    local.post("/v1/collections", json={"name": "brief", "same_model_as": COLLECTION})

    def removing(home: Home, *asked: Any) -> Any:
        remove_collection(SearchEngine(home), "brief")
        return read_known_images(home, *asked)

    monkeypatch.setattr("app.images.uploads.read_known_images", removing)
    answer = post(local, [{"id": "a"}], [picture(64)], "/v1/collections/brief/images")
    problem(answer, 404, "unknown-collection")


def test_a_single_image_that_cannot_be_used_has_the_status_of_its_fault(local: TestClient) -> None:
    problem(put(local, "x", b"no image"), 415, "not-an-image")
    problem(put(local, "x", png_of_size(100_000, 100_000)), 413, "image-too-large")
    problem(put(local, "x", picture(1), {"metadata": {"a": {}}}), 422, "invalid-request")
    problem(put(local, "x", picture(1), {"texts": ["x" * 10_001]}), 422, "invalid-request")


def test_a_collection_is_begun_filled_and_removed(local: TestClient, on_either: Indexed) -> None:
    new = local.post("/v1/collections", json={"name": "fresh", "same_model_as": COLLECTION})
    assert (new.status_code, new.json()["count"]) == (201, 0)
    search = {"text": "a boat", "limit": 5}
    assert local.post("/v1/collections/fresh/search", json=search).json()["hits"] == []
    before = files_of(on_either)
    assert statuses(post(local, [{"id": "a"}], [picture(20)], "/v1/collections/fresh/images"))
    assert len(local.post("/v1/collections/fresh/search", json=search).json()["hits"]) == 1
    assert files_of(on_either) == before + 1
    for model in (new.json()["generation"]["digest"], "tiny-0"):
        exists = local.post("/v1/collections", json={"name": "fresh", "model": model})
        problem(exists, 409, "collection-exists")
    assert local.delete("/v1/collections/fresh").json()["status"] == "removed"
    assert files_of(on_either) == before
    problem(local.delete("/v1/collections/fresh"), 404, "unknown-collection")
    problem(local.post("/v1/collections/fresh/search", json=search), 404, "unknown-collection")
    late = post(local, [{"id": "a"}], [picture(20)], "/v1/collections/fresh/images")
    problem(late, 404, "unknown-collection")


@pytest.mark.parametrize(
    ("body", "status", "slug"),
    [
        ({"name": "n", "model": "nobody"}, 422, "unknown-model"),
        ({"name": "n", "same_model_as": "nobody"}, 404, "unknown-collection"),
        ({"name": "a b", "model": "tiny-0"}, 422, "invalid-name"),
        ({"name": "n"}, 422, "invalid-request"),
        ({"name": "n", "model": "tiny-0", "same_model_as": COLLECTION}, 422, "invalid-request"),
    ],
)
def test_no_collection_is_begun_without_a_name_and_a_model(
    local: TestClient, body: dict[str, str], status: int, slug: str
) -> None:
    problem(local.post("/v1/collections", json=body), status, slug)
    assert local.get("/v1/collections/n").status_code == 404


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"texts": ["x" * 10_001]}, 422),
        ({"texts": ["a dog", "a\0b"]}, 422),
        ({"texts": ["a dog"], "group": "g" * 5_000}, 422),
        ({"texts": ["a dog"], "metadata": {"a": {"b": 1}}}, 422),
        ({"texts": ["a text that nobody has embedded"]}, 412),
    ],
)
def test_a_change_that_is_refused_is_not_embedded_before(
    local: TestClient, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any], status: int
) -> None:
    async def never(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(EncodingQueue, "encode_text", never)
    answer = local.patch(f"{IMAGES}/image-1", json=changes, headers={"If-Match": '"stale"'})
    assert answer.status_code == status


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
    message = "Too many files are sent: a request takes at most 64."
    assert document["errors"] == [{"field": "image", "message": message}]
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
            "",
            "--x--\r\n",
            "The content type is multipart/form-data without a boundary: let the HTTP client write it.",
        ),
        (
            "; boundary=x",
            "no form",
            "The body is not the multipart/form-data that its content type says: send it again.",
        ),
        (
            "; boundary=x",
            "--x\r\nContent-Disposition: form-data\r\n\r\n{}\r\n--x--\r\n",
            "A part of the form has no name: give each the name of its field.",
        ),
    ],
)
def test_a_form_that_cannot_be_read_is_told_why(
    local: TestClient, boundary: str, body: str, detail: str
) -> None:
    headers = {"Content-Type": f"multipart/form-data{boundary}"}
    for path in (IMAGES, SEARCH):
        document = problem(local.post(path, content=body, headers=headers), 400, "bad-request")
        assert (document["detail"], document["errors"]) == (detail, [])


def test_no_database_can_have_a_null_character(local: TestClient) -> None:
    answer = post(local, [{"id": "a\0"}, {"id": "beside"}], [picture(60), picture(61)])
    assert [status for _, status in statuses(answer)] == ["refused", "created"]
    detail = answer.json()["results"][0]["problem"]["detail"]
    assert detail == "The record cannot be used: 'id' holds a null character."
    path = f"{IMAGES}/%00"
    problem(local.delete(path), 404, "unknown-image")
    for read in (path, f"{path}/content", f"{path}/thumbnail"):
        problem(local.get(read), 404, "unknown-image")
    problem(local.patch(path, json={"report": "r"}), 404, "unknown-image")
    problem(put(local, "%00", picture(60)), 422, "invalid-request")
    for name in ("like", "unlike"):
        payload = {"text": "a boat", name: [{"id": "\0"}], "exclude_same_group": True}
        problem(local.post(SEARCH, json=payload), 404, "unknown-image")
    problem(local.post(SEARCH, json={"text": "a", "group_by": "\0"}), 422, "invalid-request")
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
    records = [{"id": f"aged-{n}", "metadata": {"age": age, "view": ""}} for n, age in enumerate(values)]
    answer = post(local, records, [picture(70 + number) for number in range(len(values))])
    assert [status for _, status in statuses(answer)] == [*["refused"] * 5, "created"]
    body = [result["problem"]["detail"] for result in answer.json()["results"][:5]]
    for detail, word in zip(body[:4], ("nan", "NULL", "k. A.", "NaN"), strict=True):
        assert detail == (
            f"The record cannot be used: 'metadata.age' is {word!r}, which means an unknown value; "
            "leave it out or send null."
        )
    assert body[4] == "The record cannot be used: NaN is not a JSON number."
    problem(put(local, "aged-0", picture(70), {"metadata": {"age": "nan"}}), 422, "invalid-request")
    assert local.patch(f"{IMAGES}/aged-5", json={"metadata": {"age": "nan"}}).status_code == 422
    assert local.get(f"{IMAGES}/aged-5").json()["metadata"] == {"age": 7, "view": ""}


@pytest.mark.slow
def test_nothing_that_was_uploaded_hands_out_its_metadata(own: Indexed) -> None:
    before = files_of(own)
    with serve(own) as client:
        for name, make in FILES.items():
            content = make()
            assert put(client, name, content).status_code == 201
            image = client.get(f"{IMAGES}/{name}").json()
            answer = client.get(f"{IMAGES}/{name}/content")
            assert answer.headers["etag"] == f'"{image["sha256"]}"'
            assert SECRET not in answer.content
            assert SECRET not in client.get(f"{IMAGES}/{name}/thumbnail").content
            assert decode_image(answer.content).tobytes() == decode_image(content).tobytes()
            assert put(client, name, content).json()["status"] == "unchanged"
            assert put(client, name, answer.content).json()["status"] == "unchanged"
    assert files_of(own) == before + len(FILES)


@pytest.mark.slow
def test_a_setting_keeps_what_the_file_says_and_it_goes_with_the_next_upload_without(
    make_indexed: Callable[..., Indexed],
) -> None:
    kept = make_indexed(keep_metadata=True)
    with serve(kept) as client:
        assert put(client, "photograph", jpeg()).status_code == 201
        assert client.get(f"{IMAGES}/photograph/content").content == jpeg()
    without = kept.with_settings(keep_metadata=False)
    with serve(without) as client:
        feedback = IMAGES.replace("/images", "/feedback")
        judgement = {"query": {"like": [{"text": "a dog"}]}, "hit": "photograph", "relevant": True}
        assert client.post(feedback, json=judgement).status_code == 200
        files = files_of(without)
        assert put(client, "photograph", jpeg()).json()["status"] == "replaced"
        assert files_of(without) == files
        assert SECRET not in client.get(f"{IMAGES}/photograph/content").content
        assert client.get(feedback).json()["relevant"] == 1


@pytest.mark.parametrize(
    "content", [png().replace(b"prVt", b"PrVt"), jpeg().replace(b"\xff\xdb", b"\xff\xf7", 1), jpeg()[:900]]
)
def test_a_file_that_cannot_be_followed_is_refused_in_a_sentence(own: Indexed, content: bytes) -> None:
    before = files_of(own)
    with serve(own) as client:
        answer = put(client, "broken", content)
        assert answer.status_code == 415
        assert answer.json()["detail"].endswith(".")
    assert files_of(own) == before


def test_an_uploaded_photograph_is_kept_and_shown(own: Indexed) -> None:
    needed_module("pi_heif", '`pip install -c constraints.txt ".[heic]"`')
    with serve(own) as client:
        assert put(client, "photograph", PLAIN).status_code == 201
        assert client.get(f"{IMAGES}/photograph").json()["media_type"] == "image/heic"
        content = client.get(f"{IMAGES}/photograph/content")
        assert (content.status_code, content.headers["content-type"]) == (200, "image/heic")
        shown = client.get(f"{IMAGES}/photograph/rendition", headers={"accept": "image/png"})
        assert shown.headers["content-type"] == "image/png"
        assert decode_image(shown.content).tobytes() == decode_image(PLAIN).tobytes()
        assert client.get(f"{IMAGES}/photograph/thumbnail").status_code == 200


CENTRE, WIDTH = 1500.0, 2000.0


@pytest.fixture(scope="module")
def films(make_indexed: Callable[..., Indexed]) -> Iterator[TestClient]:
    with serve(make_indexed()) as running:
        for number, photometric in ((1, "MONOCHROME2"), (2, "MONOCHROME1")):
            assert put(running, f"film-{number}", film(number, photometric)).status_code == 201
        yield running


def film(number: int, photometric: str = "MONOCHROME2") -> bytes:
    return encoded(make_film(number, rows=120, columns=100, photometric=photometric))


def grey(content: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(content)).convert("L")).astype(float)


def test_an_uploaded_film_is_kept_and_shown(films: TestClient) -> None:
    body = films.get(f"{IMAGES}/film-1").json()
    assert (body["media_type"], body["width"], body["height"]) == ("application/dicom", 100, 120)
    shown = films.get(f"{IMAGES}/film-1/rendition", headers={"accept": "image/png"})
    assert np.array_equal(grey(shown.content), np.asarray(decode_image(film(1)).convert("L")))
    thumbnail = films.get(f"{IMAGES}/film-1/thumbnail")
    assert thumbnail.headers["content-type"] == "image/webp"
    assert np.corrcoef(grey(thumbnail.content).ravel(), draw(1, 120, 100).ravel())[0, 1] > 0.99


def test_a_negative_is_stored_as_it_came_and_never_shown(films: TestClient) -> None:
    for what in ("rendition", "thumbnail"):
        shown = grey(films.get(f"{IMAGES}/film-2/{what}").content)
        assert np.corrcoef(shown.ravel(), draw(2, 120, 100).ravel())[0, 1] > 0.99


@pytest.mark.parametrize("number", [1, 2])
def test_a_film_finds_itself(films: TestClient, number: int) -> None:
    for photometric in ("MONOCHROME1", "MONOCHROME2"):
        hit = nearest(films, film(number, photometric))
        assert (hit["id"], hit["score"] > 0.999) == (f"film-{number}", True)


def test_a_window_counts_values_of_the_film_and_its_own_is_told(films: TestClient) -> None:
    levels = films.get(f"{IMAGES}/film-1/levels").json()
    values = draw(1, 120, 100)
    assert (levels["deep"], levels["smallest"], levels["largest"]) == (True, values.min(), values.max())
    assert levels["automatic"] == levels["stated"] == {"centre": 2047.5, "width": 4095.0}
    payload = {"window": f"{CENTRE},{WIDTH}"}
    shown = films.get(f"{IMAGES}/film-1/rendition", params=payload, headers={"accept": "image/png"})
    expected = ((values - (CENTRE - WIDTH / 2)) / WIDTH).clip(0, 1) * 255
    assert np.abs(grey(shown.content) - expected).max() <= 1


def test_what_a_film_says_of_anybody_is_handed_out_by_no_address(films: TestClient) -> None:
    assert MARKER.encode() in film(1)
    content = films.get(f"{IMAGES}/film-1/content")
    assert content.headers["content-type"] == "application/dicom"
    assert not pydicom.dcmread(io.BytesIO(content.content)).get("PatientID")
    cut = put(films, "cut", film(1)[:-200])
    assert cut.status_code == 415
    assert "The DICOM image is damaged" in cut.text
    shown = (films.get(f"{IMAGES}/film-1"), search_image(films, film(1)), put(films, "again", film(1)))
    for answer in (content, cut, *shown):
        assert MARKER.encode() not in answer.content


def test_nothing_of_it_is_on_the_disk(own: Indexed) -> None:
    with serve(own) as client:
        assert put(client, "film", film(3)).status_code == 201
        assert search_image(client, film(3)).status_code == 200
    files = [path for path in Path(own.settings.home).rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if MARKER.encode() in path.read_bytes()]


@pytest.mark.slow
def test_what_is_no_picture_is_refused_with_its_name(films: TestClient) -> None:
    report = make_film(5, PixelData=None, SOPClassUID="1.2.840.10008.5.1.4.1.1.88.33")
    for answer in (put(films, "report", encoded(report)), search_image(films, encoded(report))):
        assert "The DICOM file has no pixels: it is Comprehensive SR Storage." in answer.text
    huge = make_film(6, Rows=60_000, Columns=60_000)
    answer = search_image(films, encoded(huge))
    assert answer.status_code in (413, 422)
    assert "3,600 megapixels" in json.dumps(answer.json())
