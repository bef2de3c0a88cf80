"""Writes over HTTP: images and collections in, changed and out, by a real encoder and a real catalogue."""

import io
import json
from typing import Any

import numpy as np
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
from index.writes.live import known_now
from tests.app.conftest import COLLECTION, Indexed, png_of_size, serve
from tests.index.homes import remove_collection

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
        found = looked(engine, collection, image_id)
        monkeypatch.undo()
        assert put(client, image_id, new).status_code == 200
        return found

    monkeypatch.setattr(SearchEngine, "image", look_before)


def statuses(answer: Response) -> list[tuple[str, str]]:
    refused = [image for image in answer.json()["results"] if image["status"] == "refused"]
    assert answer.status_code == (207 if refused else 200), answer.text
    return [(image["id"], image["status"]) for image in answer.json()["results"]]


def nearest(client: TestClient, content: bytes, **query: Any) -> dict[str, Any]:
    answer = client.post(
        f"/v1/collections/{COLLECTION}/search",
        data={"query": json.dumps({"limit": 1, **query})},
        files={"image": ("x.png", content, "image/png")},
    )
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["hits"][0]
    return found


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
    texts = local.post(
        f"/v1/collections/{COLLECTION}/search", json={"text": "a boat at sea", "target": "texts", "limit": 40}
    ).json()
    assert any(hit["id"] == "new one" and hit["score"] > 0.999 for hit in texts["hits"])


def test_outcomes_are_counted_and_truncated_texts_too(local: TestClient) -> None:
    long = " ".join(["snow"] * 100)
    records: list[dict[str, Any]] = [{"id": "cut", "texts": [long, "two dogs"]}, {"id": "bad"}]
    answer = post(local, records, [picture(50), b"no image"])
    assert [image["truncated_texts"] for image in answer.json()["results"]] == [1, 0]
    assert answer.json()["counts"] == {
        "received": 2, "created": 1, "replaced": 0, "unchanged": 0, "refused": 1,
    }  # fmt: skip
    assert put(local, "cut", picture(50), {"texts": [long, long]}).json()["truncated_texts"] == 2
    changed = local.patch(f"{IMAGES}/cut", json={"texts": ["short", f"{long} {long}"]})
    assert changed.json()["truncated_texts"] == 1
    unchanged = post(
        local, [{"id": "cut", "texts": ["short", f"{long} {long}"], "split": "test"}], [picture(50)]
    )
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
    assert [status for _, status in statuses(answer)] == [
        "created", "refused", "unchanged", "refused", "refused",
    ]  # fmt: skip
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
    told = local.get(f"{IMAGES}/compared").json()["findings"]
    assert [(one["position"], one["finding"], one["prior"]) for one in told] == [
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
    assert local.delete(f"{IMAGES}/gone").json() == {
        "status": "removed",
        "id": "gone",
        "collection": COLLECTION,
    }
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
        return known_now(home, *asked)

    monkeypatch.setattr("app.images.uploads.known_now", removing)
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
    problem(
        post(local, [{"id": "a"}], [picture(20)], "/v1/collections/fresh/images"), 404, "unknown-collection"
    )


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
