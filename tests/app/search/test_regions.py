"""A part of a picture as the query, and maps of what matched."""

import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from index.search.request import SearchRequest
from tests.app.conftest import COLLECTION, Indexed, serve
from tests.app.search.test_browse import search
from tests.app.search.test_search import ids, problem
from tests.training.models.tiny import tiny_config, tiny_model, tiny_preprocessing
from training.imaging.images import decode_image
from training.models.bundle_writer import save_bundle
from training.models.encoder import load_encoder
from training.models.inputs.regions import Box, RegionGrid, grid_of

HERE = f"/v1/collections/{COLLECTION}"
BOX = {"x": 0.3, "y": 0.1, "width": 0.25, "height": 0.5}
WHOLE = {"x": 0, "y": 0, "width": 1, "height": 1}


def grid(indexed: Indexed, number: int) -> RegionGrid:
    """The regions of an image, by PyTorch."""
    encoder = load_encoder(indexed.bundle, "cpu")
    image = decode_image(indexed.image_bytes(number))
    regions = encoder.embed_regions(encoder.prepare_image(image)[None])[0]
    return grid_of(regions, image.size, encoder.image_config.square)


def search_file(client: TestClient, content: bytes, **query: Any) -> Any:
    return client.post(
        f"{HERE}/search", files={"image": ("a.png", content)}, data={"query": json.dumps(query)}
    )


def ask_map(client: TestClient, name: str = "image-5", accept: str = "*/*", **query: Any) -> Any:
    path = f"{HERE}/images/{name}/similarity-map"
    return client.post(path, json=query, headers={"accept": accept})


def map_of(client: TestClient, **query: Any) -> dict[str, Any]:
    answer = ask_map(client, **query)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_part_of_a_stored_image_searches_by_the_mean_of_its_regions(
    client: TestClient, indexed: Indexed
) -> None:
    vector = grid(indexed, 3).pool(Box(**BOX))
    assert vector is not None
    with indexed.engine() as engine:
        expected = engine.search(
            engine.active(COLLECTION), vector, SearchRequest(k=24, exclude=("image-3",)), None
        )
    page = search(client, like=[{"id": "image-3", "box": BOX}], limit=24)
    assert ids(page) == [hit.id for hit in expected.hits]
    np.testing.assert_allclose(
        [hit["cosine"] for hit in page["hits"]], [hit.cosine for hit in expected.hits], atol=1e-4
    )
    assert ids(page) != ids(search(client, like=[{"id": "image-3"}], limit=24))


def test_a_file_and_the_stored_image_have_the_same_parts(client: TestClient, indexed: Indexed) -> None:
    stored = search(client, like=[{"id": "image-3", "box": BOX}], limit=23)
    sent = search_file(client, indexed.image_bytes(3), image_boxes=[BOX], limit=24).json()
    assert [name for name in ids(sent) if name != "image-3"] == ids(stored)


def test_a_part_of_a_file_is_not_wanted_as_that_of_the_stored_image_is(
    client: TestClient, indexed: Indexed
) -> None:
    stored = search(client, text="two dogs", unlike=[{"id": "image-3", "box": BOX}], limit=23)
    files = [("unlike_image", ("a.png", indexed.image_bytes(number))) for number in (3, 3)]

    def send(count: int, **query: Any) -> Any:
        sent = json.dumps({"text": "two dogs", "limit": 24, **query})
        return client.post(f"{HERE}/search", files=files[:count], data={"query": sent})

    marked = send(1, unlike_image_boxes=[BOX])
    assert marked.status_code == 200, marked.text
    assert [name for name in ids(marked.json()) if name != "image-3"] == ids(stored)
    assert ids(marked.json()) != ids(send(1).json())
    # The second box belongs to the second file, and null leaves the first as a whole.
    other = ids(send(2, unlike_image_boxes=[None, BOX]).json())
    assert other == ids(send(2, unlike_image_boxes=[BOX, None]).json()) != ids(send(2).json())
    first = send(1, unlike_image_boxes=[BOX], limit=8, cursor=True).json()
    moved = send(1, unlike_image_boxes=[WHOLE], limit=8, cursor=first["next_cursor"])
    problem(moved, 422, "invalid-cursor", "cursor")
    problem(send(1, unlike_image_boxes=[BOX, BOX]), 422, "invalid-request", "unlike_image_boxes")


def test_the_whole_as_a_part_finds_as_the_whole_does(client: TestClient) -> None:
    whole = search(client, like=[{"id": "image-3"}], limit=24)
    part = search(client, like=[{"id": "image-3", "box": WHOLE}], limit=24)
    cosines = [{hit["id"]: hit["cosine"] for hit in page["hits"]} for page in (part, whole)]
    assert cosines[0] == pytest.approx(cosines[1], abs=1e-3)


def test_a_part_goes_with_texts_and_into_batches(client: TestClient) -> None:
    query = {"text": "two dogs", "like": [{"id": "image-3", "box": BOX}], "limit": 5}
    alone = search(client, **query)
    answer = client.post(
        f"{HERE}/search/batch", json={"searches": [query, {"like": [{"id": "none", "box": BOX}]}]}
    )
    assert answer.status_code == 207
    first, second = answer.json()["results"]
    assert ids(first["page"]) == ids(alone)
    assert second["problem"]["type"] == "urn:recoquest:unknown-image"


@pytest.mark.parametrize("text", [{}, {"text": "two dogs"}])
def test_pages_go_on_with_the_same_part_and_with_no_other(
    client: TestClient, text: Mapping[str, str]
) -> None:
    query = {**text, "like": [{"id": "image-3", "box": BOX}], "limit": 8}
    every = ids(search(client, **{**query, "limit": 24}))
    first = search(client, **query, cursor=True)
    second = search(client, **query, cursor=first["next_cursor"])
    assert ids(first) + ids(second) == every[:16]
    moved = {**query, "like": [{"id": "image-3", "box": {**BOX, "x": 0.5}}], "cursor": first["next_cursor"]}
    problem(client.post(f"{HERE}/search", json=moved), 422, "invalid-cursor", "cursor")


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        ({"x": -0.1}, "like.0.box.x", "0"),
        ({"x": 0.9}, "like.0.box", "beyond the picture"),
        ({"width": 0.001}, "like.0.box.width", "0.01"),
        ({"height": "tall"}, "like.0.box.height", "number"),
        ({"depth": 1}, "like.0.box.depth", "unknown"),
    ],
)
def test_a_box_that_is_none_is_refused(
    client: TestClient, change: Mapping[str, Any], field: str, words: str
) -> None:
    answer = client.post(f"{HERE}/search", json={"like": [{"id": "image-3", "box": {**BOX, **change}}]})
    assert words in problem(answer, 422, "invalid-request", field)["errors"][0]["message"]


def test_a_box_without_its_picture_is_refused(client: TestClient, indexed: Indexed) -> None:
    answer = client.post(f"{HERE}/search", json={"like": [{"text": "a dog", "box": BOX}]})
    assert "id with it" in problem(answer, 422, "invalid-request", "like.0")["errors"][0]["message"]
    answer = client.post(f"{HERE}/search", json={"text": "a dog", "image_boxes": [BOX]})
    problem(answer, 422, "invalid-request", "image_boxes")
    answer = search_file(client, indexed.image_bytes(3), image_boxes=[None, BOX])
    problem(answer, 422, "invalid-request", "image_boxes")


def test_what_the_model_cuts_off_cannot_be_searched_by(client: TestClient, indexed: Indexed) -> None:
    edge = {"x": 0, "y": 0, "width": 0.05, "height": 1}
    answer = client.post(f"{HERE}/search", json={"like": [{"id": "image-0", "box": edge}]})
    document = problem(answer, 422, "invalid-request", "like.0.box")
    assert "x from 0.12 to 0.88" in document["detail"]
    file = {"unlike_image": ("a.png", indexed.image_bytes(0))}
    query = json.dumps({"text": "a dog", "unlike_image_boxes": [edge]})
    sent = client.post(f"{HERE}/search", files=file, data={"query": query})
    problem(sent, 422, "invalid-request", "unlike_image_boxes")


def test_a_map_tells_what_each_region_adds_to_the_cosine(client: TestClient, indexed: Indexed) -> None:
    hits = search(client, text="two dogs", limit=24)["hits"]
    hit = next(one for one in hits if one["id"] == "image-5")
    found = map_of(client, text="two dogs", filter={"field": "view", "eq": "PA"}, limit=3)
    values = np.array(found["values"])
    assert values.shape == (found["height"], found["width"]) == (4, 4)
    assert found["cosine"] == pytest.approx(hit["cosine"], abs=1e-4)
    assert values.mean() == pytest.approx(hit["cosine"], abs=1e-4)
    text = load_encoder(indexed.bundle, "cpu").embed_texts(["two dogs"]).vectors[0]
    np.testing.assert_allclose(values, grid(indexed, 5).similarities(text), atol=1e-4)
    assert (found["smallest"], found["largest"]) == (values.min(), values.max())
    assert found["area"]["height"] == 1
    assert found["area"]["x"] == pytest.approx((1 - found["area"]["width"]) / 2)


def test_a_map_is_of_the_same_query_as_the_search(client: TestClient, indexed: Indexed) -> None:
    """Images, parts of them, files and examples that are not wanted."""
    for query in (
        {"like": [{"id": "image-3", "box": BOX}]},
        {"unlike": [{"id": "image-3"}], "text": "a boat"},
    ):
        page = search(client, **query, limit=24)
        cosine = next(hit["cosine"] for hit in page["hits"] if hit["id"] == "image-5")
        assert map_of(client, **query)["cosine"] == pytest.approx(cosine, abs=1e-3)
    answer = client.post(
        f"{HERE}/images/image-5/similarity-map",
        files={"image": ("a.png", indexed.image_bytes(5))},
        data={"query": json.dumps({"image_boxes": [WHOLE]})},
    )
    assert answer.json()["cosine"] == pytest.approx(1, abs=1e-4)


def test_an_overlay_has_the_shape_of_the_picture_and_is_opaque_where_it_fits(client: TestClient) -> None:
    found = map_of(client, text="two dogs")
    answer = ask_map(client, accept="image/png", text="two dogs")
    assert answer.headers["content-type"] == "image/png"
    overlay = Image.open(io.BytesIO(answer.content))
    assert overlay.mode == "RGBA"
    assert overlay.size == (found["picture_width"], found["picture_height"])
    alpha = np.asarray(overlay)[..., 3].astype(float)
    columns = np.nonzero(alpha.any(axis=0))[0]
    area = found["area"]
    assert columns.min() >= round(area["x"] * overlay.width)
    assert columns.max() <= round((area["x"] + area["width"]) * overlay.width)
    values = np.array(found["values"])
    row, column = np.unravel_index(values.argmax(), values.shape)
    y, x = np.unravel_index(alpha.argmax(), alpha.shape)
    across = (x / overlay.width - area["x"]) / area["width"] * found["width"]
    assert int(y / overlay.height * found["height"]) == row
    assert int(across) == column
    problem(ask_map(client, accept="image/gif", text="a"), 406, "not-acceptable")
    # It needs a query and an image.
    problem(ask_map(client, keywords="dogs"), 422, "invalid-request")
    problem(ask_map(client, "none", text="a dog"), 404, "unknown-image")


def test_collections_and_models_tell_of_regions(own: Indexed) -> None:
    """One of a model that pools the largest values has none."""
    folder = own.bundle.parent / "largest"
    model = tiny_model(tiny_config(image_settings={"pooling": "max"})).eval()
    save_bundle(
        folder, name="tiny", model=model, preprocessing=tiny_preprocessing(), metrics={}, recipe_yaml=""
    )
    own.index("largest", folder)
    with serve(own, key=False) as client:
        for name, regions in ((COLLECTION, True), ("largest", False)):
            overview = client.get(f"/v1/collections/{name}").json()
            model_of_it = client.get(f"/v1/models/{overview['generation']['digest']}").json()
            assert (overview["regions"], model_of_it["regions"]) == (regions, regions)
        like = {"like": [{"id": "image-3", "box": BOX}]}
        problem(client.post("/v1/collections/largest/search", json=like), 422, "no-regions")
        path = "/v1/collections/largest/images/image-5/similarity-map"
        document = problem(client.post(path, json={"text": "a dog"}), 422, "no-regions")
        assert "has no regions" in document["detail"]
