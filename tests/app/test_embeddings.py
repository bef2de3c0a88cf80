"""Embeddings in OpenAI's form: vectors of the space that is searched, and whoever may have them."""

import base64
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from httpx2 import Response

from app.application import create_app
from tests.access import AS_ADMIN, bearer
from tests.app.audit.test_requests import audited
from tests.app.conftest import COLLECTION, Indexed, make_bundle, serve

TEXT = "two dogs in the snow"


def embed(client: TestClient, **body: Any) -> Response:
    answer: Response = client.post("/v1/embeddings", json={"model": COLLECTION, **body})
    return answer


def vectors(client: TestClient, **body: Any) -> list[Any]:
    answer = embed(client, **body)
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert [one["index"] for one in found["data"]] == list(range(len(found["data"])))
    return [one["embedding"] for one in found["data"]]


def wrong(answer: Response) -> tuple[str, str]:
    assert answer.status_code == 422, answer.text
    (error,) = answer.json()["errors"]
    return error["field"], error["message"]


def hits(client: TestClient, **query: Any) -> list[tuple[str, Any]]:
    found = client.post(f"/v1/collections/{COLLECTION}/search", json={"limit": 24, **query}).json()["hits"]
    return [(hit["id"], pytest.approx(hit["cosine"], abs=1e-4)) for hit in found]


def test_the_answer_has_the_form_of_openai(client: TestClient, indexed: Indexed) -> None:
    answer = embed(client, input=[TEXT, "a boat at sea"])
    assert answer.status_code == 200, answer.text
    found = answer.json()
    (digest,) = [one["digest"] for one in client.get("/v1/models").json()["models"]]
    assert found.keys() == {"object", "data", "model", "digest", "truncations", "usage"}
    assert (found["object"], found["model"], found["digest"]) == ("list", COLLECTION, digest)
    assert [one["object"] for one in found["data"]] == ["embedding"] * 2
    assert {len(one["embedding"]) for one in found["data"]} == {12}
    assert found["truncations"] == []
    assert found["usage"]["prompt_tokens"] == found["usage"]["total_tokens"] > 6


def test_the_vector_of_a_text_finds_what_the_text_finds(client: TestClient) -> None:
    (vector,) = vectors(client, input=TEXT)
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)
    assert hits(client, like=[{"vector": vector}]) == hits(client, text=TEXT)


def test_the_vector_of_an_image_is_the_stored_one(client: TestClient, indexed: Indexed) -> None:
    content = base64.b64encode(indexed.image_bytes(3)).decode()
    made = vectors(
        client, input=[{"image": content}, {"text": TEXT}, {"image": f"data:image/png;base64,{content}"}]
    )
    listed = client.get(f"/v1/collections/{COLLECTION}/images", params={"with": ["vector"]}).json()["images"]
    (stored,) = [image["vector"] for image in listed if image["id"] == "image-3"]
    np.testing.assert_allclose(made[0], stored, atol=1e-4)
    assert made[2] == made[0]
    np.testing.assert_allclose(made[1], vectors(client, input=TEXT)[0], atol=1e-5)


def test_numbers_in_base64_are_float32_from_the_lowest_byte(client: TestClient) -> None:
    plain, sealed = (vectors(client, input=TEXT, encoding_format=form)[0] for form in ("float", "base64"))
    np.testing.assert_array_equal(np.frombuffer(base64.b64decode(sealed), "<f4"), np.float32(plain))


def test_a_model_is_meant_by_its_collection_digest_or_name(client: TestClient) -> None:
    (model,) = client.get("/v1/models").json()["models"]
    found = [vectors(client, model=name, input=TEXT) for name in (COLLECTION, model["digest"], model["name"])]
    assert found[0] == found[1] == found[2]
    answer = embed(client, model="another", input=TEXT)
    assert answer.status_code == 404
    assert COLLECTION in answer.json()["detail"]
    assert model["name"] in answer.json()["detail"]


def test_an_alias_means_the_encoder_of_its_collection_with_the_rights_there(own: Indexed) -> None:
    settings = own.settings.model_copy(update={"open_reading": False, "open_feedback": False})
    own.index("other", make_bundle(own.settings.home.parent / "second", seed=7))
    reader = own.key("reader", COLLECTION)
    with TestClient(create_app(settings), "http://localhost", headers=AS_ADMIN) as service:
        wanted = {name: embed(service, model=name, input=TEXT).json() for name in (COLLECTION, "other")}
        for collection in (COLLECTION, "other"):
            service.put("/v1/aliases/current", json={"collection": collection})
            found = embed(service, model="current", input=TEXT).json()
            assert found["model"] == "current"
            assert (found["digest"], found["data"]) == (
                wanted[collection]["digest"], wanted[collection]["data"],
            )  # fmt: skip
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


def test_texts_that_are_cut_are_told_with_the_tokens_that_count(client: TestClient) -> None:
    found = embed(client, input=["a boat", "a boat at sea " * 20]).json()
    (cut,) = found["truncations"]
    assert (cut["field"], cut["kept"]) == ("input.1", 16)
    alone = embed(client, input="a boat").json()["usage"]["total_tokens"]
    assert found["usage"]["total_tokens"] == alone + cut["kept"]


@pytest.mark.parametrize(
    ("body", "field", "words"),
    [
        ({"input": [[1, 2, 3]]}, "input", "send texts"),
        ({"input": [1, 2, 3]}, "input", "send texts"),
        ({"input": []}, "input", ""),
        ({"input": ["a"] * 65}, "input", "at most 64"),
        ({"input": [" "]}, "input.0.text", "nothing in it"),
        ({"input": ["a", {}]}, "input.1", "exactly one"),
        ({"input": {"text": "a", "image": "b"}}, "input.0", "exactly one"),
        ({"input": {"image": "https://example.org/a.png"}}, "input.0.image", "No address"),
        ({"input": {"image": "no base64!"}}, "input.0.image", "base64"),
        ({"input": {"image": "data:image/png,abc"}}, "input.0.image", "base64"),
        ({"input": "a", "dimensions": 8}, "dimensions", "12 numbers"),
        ({"input": "a", "encoding_format": "int8"}, "encoding_format", "'float' or 'base64'"),
        ({"input": "a", "k": 8}, "k", "unknown"),
        ({"input": "a" * 10_001}, "input.0", "10,000"),
    ],
)  # fmt: skip
def test_a_wrong_request_is_told_in_a_sentence(
    client: TestClient, body: dict[str, Any], field: str, words: str
) -> None:
    named, message = wrong(embed(client, **body))
    assert named == field
    assert words in message


def test_a_file_that_is_no_image_is_named_by_its_place(client: TestClient) -> None:
    answer = embed(client, input=["a", {"image": base64.b64encode(b"no image").decode()}])
    assert answer.status_code == 415
    assert "input.1" in answer.json()["detail"]


def test_its_own_length_is_taken_for_dimensions_and_a_user_is_not_looked_at(client: TestClient) -> None:
    assert len(vectors(client, input="a", dimensions=12, user="somebody")[0]) == 12


def test_a_body_is_long_by_its_images_alone(client: TestClient) -> None:
    content = base64.b64encode(bytes(2 << 20)).decode()
    assert embed(client, input={"image": content}).status_code == 415
    many = json.dumps({"model": COLLECTION, "input": [["a"]] * 200_000}).encode()
    answer = client.post("/v1/embeddings", content=many, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    assert "Without images" in answer.json()["detail"]
    assert client.post("/v1/embeddings", content=b"model=a").status_code == 415


@pytest.fixture
def guarded(own: Indexed) -> Iterator[TestClient]:
    own.index("other", make_bundle(own.bundle.with_name("other"), seed=1))
    with serve(own, key=False, open_reading=False) as running:
        yield running


def test_a_reader_embeds_for_its_collections_and_learns_of_no_other(
    guarded: TestClient, own: Indexed
) -> None:
    reader = bearer(own.key("reader", "other"))
    models = {model["name"]: model for model in guarded.get("/v1/models", headers=AS_ADMIN).json()["models"]}

    def ask(model: str, headers: dict[str, str]) -> Response:
        body = {"model": model, "input": TEXT}
        answer: Response = guarded.post("/v1/embeddings", json=body, headers=headers)
        return answer

    assert ask("other", {}).status_code == 401
    for name in ("other", "tiny-1", models["tiny-1"]["digest"]):
        assert ask(name, reader).status_code == 200
    refused = [ask(name, reader) for name in (COLLECTION, "tiny-0", models["tiny-0"]["digest"], "nothing")]
    assert {answer.status_code for answer in refused} == {404}
    for answer in refused:
        assert "Collections: other. Models: tiny-1." in answer.json()["detail"]
    assert ask(COLLECTION, AS_ADMIN).status_code == 200
    events = audited(guarded, action="search")
    assert {(event["collection"], event["details"]["texts"]) for event in events} >= {
        ("other", 1), (COLLECTION, 1),
    }  # fmt: skip
