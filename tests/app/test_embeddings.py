"""Embeddings in OpenAI's form: vectors of the space that is searched, and who may have them."""

import base64
import json
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from httpx2 import Response

from tests.access import AS_ADMIN, bearer
from tests.app.audit.test_requests import audited
from tests.app.conftest import COLLECTION, Indexed, make_bundle, serve
from tests.app.search.test_search import body_of, page_of

TEXT = "two dogs in the snow"


def embed(client: TestClient, headers: dict[str, str] | None = None, **body: Any) -> Response:
    sent = {"model": COLLECTION, **body}
    answer: Response = client.post("/v1/embeddings", json=sent, headers=headers)
    return answer


def vectors(client: TestClient, **body: Any) -> list[Any]:
    result = body_of(embed(client, **body))
    assert [one["index"] for one in result["data"]] == list(range(len(result["data"])))
    return [one["embedding"] for one in result["data"]]


def test_the_answer_has_the_form_of_openai(client: TestClient, indexed: Indexed) -> None:
    body = body_of(embed(client, input=[TEXT, "a boat at sea"]))
    (digest,) = [one["digest"] for one in client.get("/v1/models").json()["models"]]
    assert body.keys() == {"object", "data", "model", "digest", "truncations", "usage"}
    assert (body["object"], body["model"], body["digest"]) == ("list", COLLECTION, digest)
    assert [one["object"] for one in body["data"]] == ["embedding"] * 2
    assert {len(one["embedding"]) for one in body["data"]} == {12}
    assert body["truncations"] == []
    assert body["usage"]["prompt_tokens"] == body["usage"]["total_tokens"] > 6
    # Of texts that are cut the tokens that are kept count.
    body = embed(client, input=["a boat", "a boat at sea " * 20]).json()
    (cut,) = body["truncations"]
    assert (cut["field"], cut["kept"]) == ("input.1", 16)
    alone = embed(client, input="a boat").json()["usage"]["total_tokens"]
    assert body["usage"]["total_tokens"] == alone + cut["kept"]


def test_the_vector_of_a_text_finds_what_the_text_finds_and_that_of_an_image_is_the_stored_one(
    client: TestClient, indexed: Indexed
) -> None:
    def hits(**query: Any) -> list[tuple[str, Any]]:
        result = page_of(client, limit=24, **query)["hits"]
        return [(hit["id"], pytest.approx(hit["cosine"], abs=1e-4)) for hit in result]

    # Its own length is taken for dimensions, and a user is not looked at.
    (vector,) = vectors(client, input=TEXT, dimensions=12, user="somebody")
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)
    assert hits(like=[{"vector": vector}]) == hits(text=TEXT)
    (sealed,) = vectors(client, input=TEXT, encoding_format="base64")
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(sealed), "<f4"), np.float32(vector))
    content = base64.b64encode(indexed.image_bytes(3)).decode()
    address = f"data:image/png;base64,{content}"
    made = vectors(client, input=[{"image": content}, {"text": TEXT}, {"image": address}])
    listed = client.get(f"/v1/collections/{COLLECTION}/images", params={"with": ["vector"]}).json()["images"]
    (stored,) = [image["vector"] for image in listed if image["id"] == "image-3"]
    np.testing.assert_allclose(made[0], stored, atol=1e-4)
    assert made[2] == made[0]
    np.testing.assert_allclose(made[1], vector, atol=1e-5)


def test_a_model_is_meant_by_its_collection_digest_or_name(client: TestClient) -> None:
    (model,) = client.get("/v1/models").json()["models"]
    results = [
        vectors(client, model=name, input=TEXT) for name in (COLLECTION, model["digest"], model["name"])
    ]
    assert results[0] == results[1] == results[2]
    answer = embed(client, model="another", input=TEXT)
    assert answer.status_code == 404
    assert COLLECTION in answer.json()["detail"]
    assert model["name"] in answer.json()["detail"]


@pytest.mark.slow
def test_an_alias_means_the_encoder_of_its_collection_with_the_rights_there(own: Indexed) -> None:
    own.index("other", make_bundle(own.settings.home.parent / "second", seed=7))
    reader = own.key("reader", COLLECTION)
    with serve(own, open_reading=False, open_feedback=False) as service:
        expected = {name: embed(service, model=name, input=TEXT).json() for name in (COLLECTION, "other")}
        for collection in (COLLECTION, "other"):
            service.put("/v1/aliases/current", json={"collection": collection})
            body = embed(service, model="current", input=TEXT).json()
            assert body["model"] == "current"
            assert [body[name] == expected[collection][name] for name in ("digest", "data")] == [True, True]
        event = audited(service, action="search")[-1]
        assert (event["collection"], event["details"]["alias"]) == ("other", "current")
        service.headers["Authorization"] = f"Bearer {reader}"
        refused = embed(service, model="current", input=TEXT)
        # The same as for a name that is nowhere.
        assert refused.status_code == 404
        assert "other" not in refused.text
        nowhere = embed(service, model="nowhere", input=TEXT)
        assert refused.json()["detail"].replace("current", "nowhere") == nowhere.json()["detail"]
        service.put("/v1/aliases/current", json={"collection": COLLECTION}, headers=AS_ADMIN)
        assert embed(service, model="current", input=TEXT).status_code == 200


@pytest.mark.parametrize(
    ("value", "field", "words"),
    [
        ([[1, 2, 3]], "input", "send texts"),
        ([1, 2, 3], "input", "send texts"),
        ([], "input", ""),
        (["a"] * 65, "input", "at most 64"),
        ([" "], "input.0.text", "nothing in it"),
        (["a", {}], "input.1", "exactly one"),
        ({"text": "a", "image": "b"}, "input.0", "exactly one"),
        ({"image": "https://example.org/a.png"}, "input.0.image", "No address"),
        ({"image": "no base64!"}, "input.0.image", "base64"),
        ({"image": "data:image/png,abc"}, "input.0.image", "base64"),
        ({"dimensions": 8}, "dimensions", "12 numbers"),
        ({"dimensions": 0}, "dimensions", "at least 1"),
        ({"user": "x" * 201}, "user", "200"),
        ({"image": "HTTP://example.org/a.png"}, "input.0.image", "No address"),
        ({"encoding_format": "int8"}, "encoding_format", "'float' or 'base64'"),
        ({"k": 8}, "k", "unknown"),
        ("a" * 10_001, "input.0", "10,000"),
    ],
)
def test_a_wrong_request_is_told_in_a_sentence(
    client: TestClient, value: Any, field: str, words: str
) -> None:
    body = {"input": "a", **value} if isinstance(value, dict) and field in value else {"input": value}
    answer = embed(client, **body)
    assert answer.status_code == 422, answer.text
    (error,) = answer.json()["errors"]
    assert error["field"] == field
    assert words in error["message"]


def test_a_body_is_long_by_its_images_alone(client: TestClient) -> None:
    content = base64.b64encode(bytes(2 << 20)).decode()
    assert embed(client, input={"image": content}).status_code == 415
    # A file that is no image is named by its place.
    answer = embed(client, input=["a", {"image": base64.b64encode(b"no image").decode()}])
    assert answer.status_code == 415
    assert "input.1" in answer.json()["detail"]
    many = json.dumps({"model": COLLECTION, "input": [["a"]] * 200_000}).encode()
    answer = client.post("/v1/embeddings", content=many, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    assert "Without images" in answer.json()["detail"]
    assert client.post("/v1/embeddings", content=b"model=a").status_code == 415


def test_a_reader_embeds_for_its_collections_and_learns_of_no_other(own: Indexed) -> None:
    own.index("other", make_bundle(own.bundle.with_name("other"), seed=1))
    reader = bearer(own.key("reader", "other"))
    with serve(own, key=False, open_reading=False) as guarded:
        listed = guarded.get("/v1/models", headers=AS_ADMIN).json()["models"]
        digest = {model["name"]: model["digest"] for model in listed}
        assert embed(guarded, model="other", input=TEXT).status_code == 401
        for name in ("other", "tiny-1", digest["tiny-1"]):
            assert embed(guarded, reader, model=name, input=TEXT).status_code == 200
        for name in (COLLECTION, "tiny-0", digest["tiny-0"], "nothing"):
            refused = embed(guarded, reader, model=name, input=TEXT)
            assert refused.status_code == 404
            assert "Collections: other. Models: tiny-1." in refused.json()["detail"]
        assert embed(guarded, AS_ADMIN, input=TEXT).status_code == 200
        events = audited(guarded, action="search")
    told = {(one["collection"], one["details"]["texts"], one["details"]["images"]) for one in events}
    assert told >= {("other", 1, 0), (COLLECTION, 1, 0)}
