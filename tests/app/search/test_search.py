"""Searching over HTTP: hits, filters, cursors, what is refused or confident, parts of pictures and maps."""

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image
from sqlalchemy import select

from app.search.schemas import DEFAULT_PARTS, SearchHit, SearchQuery
from index.catalogue.tables import GenerationRow
from index.scoring import Confidence, FlagCounts, keep_confidence
from index.search.cursors import Binding, PageEnd, PagePosition, encode_cursor
from index.search.request import SearchRequest
from index.vectors.protocol import After
from tests.app.conftest import COLLECTION, PATIENT, Indexed, png_of_size, serve
from tests.training.imaging.processes.decoding import wait_until
from tests.training.models.tiny import tiny_config, tiny_model, tiny_preprocessing
from training.imaging.images import decode_image
from training.models.bundle import save_bundle
from training.models.encoder import load_encoder
from training.models.image_input import Box, RegionGrid, grid_of

SEARCH = f"/v1/collections/{COLLECTION}/search"
_PNG = b"\x89PNG\r\n\x1a\n"


def body_of(answer: Any) -> dict[str, Any]:
    """Return the JSON of an answer that is no problem."""
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def page_of(client: TestClient, **query: Any) -> dict[str, Any]:
    return body_of(client.post(SEARCH, json=query))


def search(client: TestClient, **body: Any) -> dict[str, Any]:
    return page_of(client, **{"text": "two dogs", **body})


def search_image(client: TestClient, content: bytes, **query: Any) -> Any:
    return client.post(SEARCH, files={"image": ("query.png", content)}, data={"query": json.dumps(query)})


def search_like(client: TestClient, *names: str, **query: Any) -> Any:
    return client.post(SEARCH, json={"like": [{"id": name} for name in names], **query})


def ids(page: dict[str, Any]) -> list[str]:
    return [hit["id"] for hit in page["hits"]]


def pages(client: TestClient, path: str = SEARCH, **query: Any) -> list[dict[str, Any]]:
    """All pages of a search, each by the cursor of the one before."""
    results: list[dict[str, Any]] = []
    cursor: str | bool | None = True
    while cursor is not None:
        results.append(body_of(client.post(path, json={**query, "cursor": cursor})))
        cursor = results[-1]["next_cursor"]
        assert results[-1]["has_more"] is (cursor is not None)
        assert len(results) < 50
    return results


def problem(answer: Any, status: int, kind: str, *fields: str) -> dict[str, Any]:
    """Check that an answer is this problem document, about these fields."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert set(document) == {"type", "title", "status", "detail", "help", "request_id", "errors"}
    assert document["help"] == f"/docs/problems#{kind}"
    assert document["type"] == f"urn:recoquest:{kind}"
    assert document["status"] == status
    assert document["detail"].strip()
    assert document["request_id"] == answer.headers["x-request-id"]
    assert tuple(error["field"] for error in document["errors"]) == fields
    return document


def problem_of(answer: Any) -> tuple[int, str]:
    """Return the status and the kind of a problem document."""
    assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, answer.json()["type"].removeprefix("urn:recoquest:")


def test_the_page_of_hits_is_what_the_interface_promises(client: TestClient) -> None:
    page = search(client, limit=3, filter={"field": "view", "eq": "PA"})
    expected = {"hits", "confident", "count", "has_more", "query", "served_by", "took_ms", "unknown_keywords"}
    assert set(page) == expected
    assert page["count"] is None
    assert page["unknown_keywords"] == []
    assert search(client, keywords="pneumothorax Zebra")["unknown_keywords"] == ["Zebra"]
    assert page["query"] == {"limit": 3, "filter": {"field": "view", "eq": "PA"}, "truncations": []}
    assert set(page["served_by"]) == {"collection", "generation", "model", "digest", "exact"}
    assert (page["served_by"]["collection"], page["served_by"]["model"]) == (COLLECTION, "tiny-0")
    assert page["served_by"]["exact"] is True
    took = page["took_ms"]
    assert set(took) == {"encode", "search", "total"}
    assert min(took.values()) > 0
    assert took["encode"] + took["search"] <= took["total"] < 10_000
    assert [hit["rank"] for hit in page["hits"]] == [1, 2, 3]
    hit = page["hits"][0]
    assert set(hit) == SearchHit.__required_keys__ | set(DEFAULT_PARTS)
    assert set(hit["links"]) == {"image", "thumbnail"}
    assert hit["score_kind"] == hit["cosine_kind"] == "cosine"
    assert hit["score"] == hit["cosine"]
    assert hit["found_by"] == ["vector"]
    assert (hit["text"], hit["matched"], hit["group"], hit["group_size"]) == (None, None, None, None)
    assert hit["metadata"]["view"] == "PA"
    assert len(hit["texts"]) == 1


def test_text_hits_are_those_of_the_encoder_and_a_brute_force_scan(
    client: TestClient, indexed: Indexed
) -> None:
    encoder = load_encoder(indexed.bundle, "cpu")
    query = encoder.embed_texts(["two dogs"]).vectors[0]
    expected = _ranking(indexed, query)
    page = search(client, limit=24)
    assert ids(page) == [name for name, _ in expected]
    # Spaces around a text do not matter.
    assert ids(search(client, text="  two dogs\n", limit=24)) == ids(page)
    np.testing.assert_allclose([hit["score"] for hit in page["hits"]], [s for _, s in expected], atol=2e-3)


def test_image_hits_are_those_of_the_encoder_and_the_image_itself_comes_first(
    client: TestClient, indexed: Indexed
) -> None:
    encoder = load_encoder(indexed.bundle, "cpu")
    content = indexed.image_bytes(5)
    query = encoder.embed_images(encoder.prepare_image(decode_image(content))[None])[0]
    page = search_image(client, content, limit=24).json()
    assert ids(page)[0] == "image-5"
    assert page["hits"][0]["score"] > 0.999
    assert ids(page) == [name for name, _ in _ranking(indexed, query)]


def _ranking(indexed: Indexed, query: np.ndarray[Any, np.dtype[np.float32]]) -> list[tuple[str, float]]:
    """Ids and scores over the stored vectors, best first."""
    with indexed.engine() as engine:
        active = engine.active(COLLECTION)
        names: Sequence[str] = [record.id for record in indexed.manifest.records]
        scores = np.stack([engine.vector_of(active, name) for name in names]) @ query
    return sorted(zip(names, scores.tolist(), strict=True), key=lambda pair: -pair[1])


def test_more_like_this_leaves_the_image_itself_out(client: TestClient, indexed: Indexed) -> None:
    page = search_like(client, "image-3", limit=24).json()
    with indexed.engine() as engine:
        stored = engine.vector_of(engine.active(COLLECTION), "image-3")
    assert ids(page) == [name for name, _ in _ranking(indexed, stored) if name != "image-3"]


def test_filters_work_the_same_in_every_kind_of_search(client: TestClient, indexed: Indexed) -> None:
    condition = {
        "and": [{"field": "age", "gte": 25, "lt": 35}, {"not": {"field": "labels", "any_of": ["Edema"]}}]
    }
    query: dict[str, Any] = {"limit": 24, "filter": condition}
    by_image = search_image(client, indexed.image_bytes(0), **query).json()
    for page in (search(client, **query), by_image, search_like(client, "image-3", **query).json()):
        assert set(ids(page)) == {f"image-{number}" for number in (6, 8, 10, 12, 14)}


def test_pages_follow_each_other_without_gap_or_repetition(client: TestClient) -> None:
    whole = search(client, limit=24)
    assert whole["has_more"] is False
    result = pages(client, text="two dogs", limit=5)
    assert [len(page["hits"]) for page in result] == [5, 5, 5, 5, 4]
    assert [name for page in result for name in ids(page)] == ids(whole)
    assert [hit["rank"] for page in result for hit in page["hits"]] == list(range(1, 25))


def test_images_are_paged_too(client: TestClient, indexed: Indexed) -> None:
    content = indexed.image_bytes(2)
    first = search_image(client, content, limit=12, cursor=True).json()
    second = search_image(client, content, limit=12, cursor=first["next_cursor"]).json()
    assert ids(first) + ids(second) == ids(search_image(client, content, limit=24).json())
    similar = search_like(client, "image-3", limit=20, cursor=True).json()
    rest = search_like(client, "image-3", limit=20, cursor=similar["next_cursor"]).json()
    assert len(set(ids(similar) + ids(rest))) == 23


def test_links_lead_to_the_image_even_when_its_id_needs_quoting(client: TestClient) -> None:
    name = f"{PATIENT} #7?"
    hit = next(hit for hit in search(client, limit=24)["hits"] if hit["id"] == name)
    assert unquote(hit["links"]["image"]).endswith(name)
    assert client.get(hit["links"]["image"]).json()["id"] == name
    assert client.get(hit["links"]["thumbnail"]).headers["content-type"] == "image/webp"
    assert name not in ids(search_like(client, name, limit=24).json())


def test_a_long_text_is_searched_and_the_answer_says_how_it_was_cut(client: TestClient) -> None:
    page = search(client, text="a red square on a table and " * 20)
    (cut,) = page["query"]["truncations"]
    assert cut["field"] == "text"
    assert cut["kept"] <= 16 < cut["tokens"]
    assert ("a red square on a table and " * 20).startswith(cut["searched_text"])
    assert ids(page) == ids(search(client, text=cut["searched_text"]))


def test_unknown_fields_too_much_and_the_wrong_media_type_are_refused(
    client: TestClient, indexed: Indexed
) -> None:
    problem(client.post(SEARCH, json={"text": "x", "top_k": 5}), 422, "invalid-request", "top_k")
    problem(search_image(client, indexed.image_bytes(0), top_k=5), 422, "invalid-request", "top_k")
    files = {"image": ("x.png", indexed.image_bytes(0))}
    problem(client.post(SEARCH, files=files, data={"limit": "5"}), 422, "invalid-request", "limit")
    document = problem(client.post(SEARCH, json={"text": "secret " * 2000}), 422, "invalid-request", "text")
    assert "10,000" in document["detail"]
    assert "secret" not in json.dumps(document)
    problem(search_image(client, bytes(25 * 2**20)), 413, "content-too-large")
    problem(client.post(SEARCH, json={"text": "x" * 2**20}), 413, "content-too-large")
    problem(client.post(SEARCH, content=indexed.image_bytes(0)), 415, "unsupported-media-type")
    problem(client.post(SEARCH, data={"text": "x"}), 415, "unsupported-media-type")


def test_a_filter_on_an_unknown_field_is_refused_and_told_the_known_ones(
    client: TestClient, indexed: Indexed
) -> None:
    condition = {"field": "colour", "eq": "red"}
    for answer in (
        client.post(SEARCH, json={"text": "x", "filter": condition}),
        search_image(client, indexed.image_bytes(0), filter=condition),
        search_like(client, "image-3", filter=condition),
    ):
        document = problem(answer, 422, "invalid-filter", "filter.colour")
        assert "view" in document["detail"]
    deep = '{"text": "x", "filter": ' + '{"not":' * 3000 + "{}" + "}" * 3000 + "}"
    answer = client.post(SEARCH, content=deep, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)
    assert answer.headers["content-type"] == "application/problem+json"


def test_unknown_collections_and_images_are_not_found(client: TestClient, indexed: Indexed) -> None:
    none = "/v1/collections/none/search"
    problem(client.post(none, json={"text": "x"}), 404, "unknown-collection")
    problem(client.post(none, files={"image": ("x.png", indexed.image_bytes(0))}), 404, "unknown-collection")
    problem(client.post(none, json={"like": [{"id": "image-1"}]}), 404, "unknown-collection")
    problem(search_like(client, "none"), 404, "unknown-image")


@pytest.mark.parametrize(
    ("content", "status", "kind", "message"),
    [
        *(
            (content, 415, "not-an-image", "")
            for content in (b"", b"GIF", b"<svg xmlns='http://www.w3.org/2000/svg'/>", _PNG, b"hello", None)
        ),
        (png_of_size(50_000, 50_000), 413, "image-too-large", "2,500 megapixels"),
        (_PNG + bytes(20 * 2**20), 413, "image-too-large", ""),
    ],
    ids=["empty", "gif", "svg", "png", "text", "cut", "huge", "long"],
)
def test_a_file_that_is_no_image_or_too_large_is_refused(
    client: TestClient, indexed: Indexed, content: bytes | None, status: int, kind: str, message: str
) -> None:
    sent = indexed.image_bytes(0)[:-2000] if content is None else content
    assert message in problem(search_image(client, sent), status, kind, "image")["detail"]


def test_a_form_names_its_fields(client: TestClient, indexed: Indexed) -> None:
    document = problem(client.post(SEARCH, files={"file": ("x.png", b"x")}), 422, "invalid-request", "file")
    assert "query, image, unlike_image" in document["detail"]
    body = b'--x\r\nContent-Disposition: form-data; name="image"\r\n\r\ntext\r\n--x--\r\n'
    headers = {"content-type": "multipart/form-data; boundary=x"}
    problem(client.post(SEARCH, content=body, headers=headers), 422, "invalid-request", "image")
    part = b'--x\r\nContent-Disposition: form-data; name="query"\r\n\r\n{}\r\n'
    image = b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n'
    body = part + part + image + indexed.image_bytes(0) + b"\r\n--x--\r\n"
    problem(client.post(SEARCH, content=body, headers=headers), 422, "invalid-request", "query")
    # The query may be a file.
    files = [("query", ("blob", b'{"limit": 3}')), ("image", ("x.png", indexed.image_bytes(4)))]
    page = client.post(SEARCH, files=files).json()
    assert ids(page)[0] == "image-4"
    assert len(ids(page)) == 3


@pytest.mark.parametrize("target", ["images", "texts"])
def test_a_cursor_is_of_all_that_a_query_is_made_of(
    client: TestClient, indexed: Indexed, target: str
) -> None:
    query: dict[str, Any] = {"limit": 2, "target": target, "unlike": [{"text": "a lake"}]}
    liked = ["image-1", "image-2", "image-3"]
    cursor = search_like(client, *liked, **query, cursor=True).json()["next_cursor"]
    assert search_like(client, *liked, **query, cursor=cursor).status_code == 200
    others: list[tuple[list[str], dict[str, Any]]] = [
        (liked, {"unlike": [{"text": "a lake "}, {"text": "two lakes"}]}),
        (liked, {"unlike": [{"text": "lakes"}]}),
        ([*liked[:2], "image-4"], {}),
        (liked[:2], {}),
        (liked, {"filter": {"field": "view", "eq": "PA"}}),
    ]
    for names, changed in others:
        other = search_like(client, *names, **{**query, **changed}, cursor=cursor)
        problem(other, 422, "invalid-cursor", "cursor")
    form = {"limit": 2, "text": "two dogs", "target": target}
    cursor = search_image(client, indexed.image_bytes(2), **form, cursor=True).json()["next_cursor"]
    assert search_image(client, indexed.image_bytes(2), **form, cursor=cursor).status_code == 200
    other = search_image(client, indexed.image_bytes(3), **form, cursor=cursor)
    problem(other, 422, "invalid-cursor", "cursor")


@pytest.mark.parametrize("cursor", [None, False])
@pytest.mark.parametrize(
    "query",
    [
        {"text": "two dogs"},
        {},
        {"keywords": "boat"},
        {"text": "two dogs", "keywords": "boat", "target": "texts"},
        {"like": [{"id": "image-3"}], "group_by": "view"},
        {"text": "two dogs", "diversity": 0.4},
    ],
)
def test_a_cursor_is_made_only_where_it_is_asked_for(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, query: dict[str, Any], cursor: bool | None
) -> None:
    body = client.post(SEARCH, json={**query, "limit": 1, "cursor": True}).json()
    made = "index.search.results.encode_cursor"
    monkeypatch.setattr(made, lambda end: pytest.fail(f"A cursor was made: {end.place}."))
    page = client.post(SEARCH, json={**query, "limit": 1, "cursor": cursor}).json()
    assert page["has_more"] is True
    assert page["hits"] == body["hits"]
    assert body.keys() - page.keys() == {"next_cursor"}
    whole = client.post(SEARCH, json={**query, "limit": 100}).json()
    assert whole["has_more"] is False
    assert "next_cursor" not in whole


@pytest.mark.parametrize("cursor", ["x", "%%%", "eyJhIjoxfQ", "x" * 4000, 1, [], "x" * 98_305])
def test_a_damaged_cursor_and_what_is_none_are_refused(client: TestClient, cursor: object) -> None:
    is_damaged = isinstance(cursor, str) and len(cursor) < 5000
    kind = "invalid-cursor" if is_damaged else "invalid-request"
    document = problem(client.post(SEARCH, json={"text": "x", "cursor": cursor}), 422, kind, "cursor")
    words = "cursor: It must be true, false or `next_cursor` of the page before."
    assert (document["detail"] == words) is not is_damaged


def test_the_cursor_of_a_long_vector_is_taken_back() -> None:
    seen = np.random.default_rng(0).permutation(5_000_000)[:10_000]
    position = PagePosition(After(score=0.5, key=1, rank=10), sequence=1, confident=True, seen=seen)
    for dim in (768, 4096):
        cursor = encode_cursor(PageEnd(Binding("g" * 32, ""), np.ones(dim, dtype=np.float32), position))
        assert SearchQuery(text="a dog", cursor=cursor).cursor == cursor


COUNTS = FlagCounts(true=30, true_right=29, false=4, false_right=3, unanswerable=90, unanswerable_right=88)
# All scores count of texts whose words the collection has, and none of the others.
MEASURED = Confidence(count=24, held_out=60, kinds=12, known=-1.0, unknown=1.5, counts=COUNTS)
EXPECTED = {"dogs in the snow": True, "a photograph of a giraffe": False, "edema": True}


def _keep(indexed: Indexed, measured: Confidence) -> None:
    with indexed.engine() as engine, engine.home.catalogue.write() as session:
        keep_confidence(session, engine.active(COLLECTION).generation, measured)


def _search(client: TestClient, **query: object) -> bool | None:
    result: bool | None = page_of(client, **query)["confident"]
    return result


def test_service_and_command_line_say_the_same(own: Indexed, tmp_path: Path) -> None:
    _keep(own, MEASURED)
    with serve(own, key=False) as client:
        assert {text: _search(client, text=text) for text in EXPECTED} == EXPECTED
        assert _search(client, text="dogs in the snow", target="texts") is None
        assert _search(client, like=[{"id": "image-1"}]) is None
        assert _search(client, text="dogs in the snow", like=[{"text": "a boat"}]) is None
    file = tmp_path / "texts.txt"
    file.write_text("\n".join(EXPECTED))
    done = own.run("search", COLLECTION, "--queries", file)
    pages = [json.loads(line) for line in done.stdout.splitlines()]
    assert {page["text"]: page["confident"] for page in pages} == EXPECTED
    for text, confident in EXPECTED.items():
        alone = own.run("search", COLLECTION, text)
        assert ("Probably nothing here" in alone.stderr) is (confident is False)


@pytest.mark.parametrize(
    ("measured", "message"),
    [
        (None, "not measured yet"),
        (
            Confidence(count=24, held_out=24, kinds=4),
            "unknown from 24 held-out images with texts, of 4 kinds",
        ),
        (MEASURED, "true for 30, of which 29 had more right hits"),
        (MEASURED, "false for 88 of 90"),
        (MEASURED.model_copy(update={"known": None, "unknown": None}), "best score: never; never with words"),
    ],
)
def test_the_command_line_explains_how_often_it_is_right(
    own: Indexed, measured: Confidence | None, message: str
) -> None:
    if measured is None:
        with own.engine() as engine, engine.home.catalogue.write() as session:
            session.get_one(GenerationRow, engine.active(COLLECTION).generation).confidence = None
    else:
        _keep(own, measured)
    assert message in " ".join(own.run("search", COLLECTION, "a boat", "--explain").stdout.split())


def test_a_service_measures_what_has_grown_and_no_search_waits(own: Indexed) -> None:
    _keep(own, MEASURED.model_copy(update={"count": 12}))
    with serve(own, key=False, refresh_s=0.05) as client:
        assert _search(client, text="dogs in the snow") in (True, None)

        def is_measured() -> bool:
            with own.read() as session:
                return bool(session.execute(select(GenerationRow.confidence)).scalar_one()["count"] == 24)

        wait_until(is_measured)
        # Its 24 images are too few.
        assert _search(client, text="dogs in the snow") is None


HERE = f"/v1/collections/{COLLECTION}"
BOX = {"x": 0.3, "y": 0.1, "width": 0.25, "height": 0.5}
WHOLE = {"x": 0, "y": 0, "width": 1, "height": 1}


def grid(indexed: Indexed, number: int) -> RegionGrid:
    """The regions of an image, by PyTorch."""
    encoder = load_encoder(indexed.bundle, "cpu")
    image = decode_image(indexed.image_bytes(number))
    regions = encoder.embed_regions(encoder.prepare_image(image)[None])[0]
    return grid_of(regions, image.size, encoder.image_config.square)


def ask_map(client: TestClient, name: str = "image-5", accept: str = "*/*", **query: Any) -> Any:
    path = f"{HERE}/images/{name}/similarity-map"
    return client.post(path, json=query, headers={"accept": accept})


def map_of(client: TestClient, **query: Any) -> dict[str, Any]:
    return body_of(ask_map(client, **query))


def test_a_part_of_a_stored_image_searches_by_the_mean_of_its_regions(
    client: TestClient, indexed: Indexed
) -> None:
    vector = grid(indexed, 3).pool(Box(**BOX))
    assert vector is not None
    request = SearchRequest(k=24, exclude=("image-3",))
    with indexed.engine() as engine:
        expected = engine.search(engine.active(COLLECTION), vector, request, None)
    page = page_of(client, like=[{"id": "image-3", "box": BOX}], limit=24)
    assert ids(page) == [hit.id for hit in expected.hits]
    np.testing.assert_allclose(
        [hit["cosine"] for hit in page["hits"]], [hit.cosine for hit in expected.hits], atol=1e-4
    )
    assert ids(page) != ids(page_of(client, like=[{"id": "image-3"}], limit=24))


def test_a_file_and_the_stored_image_have_the_same_parts(client: TestClient, indexed: Indexed) -> None:
    stored = page_of(client, like=[{"id": "image-3", "box": BOX}], limit=23)
    sent = search_image(client, indexed.image_bytes(3), image_boxes=[BOX], limit=24).json()
    assert [name for name in ids(sent) if name != "image-3"] == ids(stored)


def test_a_part_of_a_file_is_not_wanted_as_that_of_the_stored_image_is(
    client: TestClient, indexed: Indexed
) -> None:
    stored = page_of(client, text="two dogs", unlike=[{"id": "image-3", "box": BOX}], limit=23)
    files = [("unlike_image", ("a.png", indexed.image_bytes(number))) for number in (3, 3)]

    def send(count: int, **query: Any) -> Any:
        sent = json.dumps({"text": "two dogs", "limit": 24, **query})
        return client.post(SEARCH, files=files[:count], data={"query": sent})

    marked = ids(body_of(send(1, unlike_image_boxes=[BOX])))
    assert [name for name in marked if name != "image-3"] == ids(stored)
    assert marked != ids(send(1).json())
    # The second box belongs to the second file, and null leaves the first as a whole.
    other = ids(send(2, unlike_image_boxes=[None, BOX]).json())
    assert other == ids(send(2, unlike_image_boxes=[BOX, None]).json()) != ids(send(2).json())
    first = send(1, unlike_image_boxes=[BOX], limit=8, cursor=True).json()
    moved = send(1, unlike_image_boxes=[WHOLE], limit=8, cursor=first["next_cursor"])
    problem(moved, 422, "invalid-cursor", "cursor")
    problem(send(1, unlike_image_boxes=[BOX, BOX]), 422, "invalid-request", "unlike_image_boxes")


def test_the_whole_as_a_part_finds_as_the_whole_does(client: TestClient) -> None:
    whole = page_of(client, like=[{"id": "image-3"}], limit=24)
    part = page_of(client, like=[{"id": "image-3", "box": WHOLE}], limit=24)
    cosines = [{hit["id"]: hit["cosine"] for hit in page["hits"]} for page in (part, whole)]
    assert cosines[0] == pytest.approx(cosines[1], abs=1e-3)


def test_a_part_goes_with_texts_and_into_batches(client: TestClient) -> None:
    query = {"text": "two dogs", "like": [{"id": "image-3", "box": BOX}], "limit": 5}
    alone = page_of(client, **query)
    searches = [query, {"like": [{"id": "none", "box": BOX}]}]
    answer = client.post(f"{SEARCH}/batch", json={"searches": searches})
    assert answer.status_code == 207
    first, second = answer.json()["results"]
    assert ids(first["page"]) == ids(alone)
    assert second["problem"]["type"] == "urn:recoquest:unknown-image"


@pytest.mark.parametrize("text", [{}, {"text": "two dogs"}])
def test_pages_go_on_with_the_same_part_and_with_no_other(
    client: TestClient, text: Mapping[str, str]
) -> None:
    query = {**text, "like": [{"id": "image-3", "box": BOX}], "limit": 8}
    every = ids(page_of(client, **{**query, "limit": 24}))
    first = page_of(client, **query, cursor=True)
    second = page_of(client, **query, cursor=first["next_cursor"])
    assert ids(first) + ids(second) == every[:16]
    moved = {**query, "like": [{"id": "image-3", "box": {**BOX, "x": 0.5}}], "cursor": first["next_cursor"]}
    problem(client.post(SEARCH, json=moved), 422, "invalid-cursor", "cursor")


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
    answer = client.post(SEARCH, json={"like": [{"id": "image-3", "box": {**BOX, **change}}]})
    assert words in problem(answer, 422, "invalid-request", field)["errors"][0]["message"]


def test_a_box_without_its_picture_is_refused(client: TestClient, indexed: Indexed) -> None:
    answer = client.post(SEARCH, json={"like": [{"text": "a dog", "box": BOX}]})
    assert "id with it" in problem(answer, 422, "invalid-request", "like.0")["errors"][0]["message"]
    answer = client.post(SEARCH, json={"text": "a dog", "image_boxes": [BOX]})
    problem(answer, 422, "invalid-request", "image_boxes")
    answer = search_image(client, indexed.image_bytes(3), image_boxes=[None, BOX])
    problem(answer, 422, "invalid-request", "image_boxes")


def test_what_the_model_cuts_off_cannot_be_searched_by(client: TestClient, indexed: Indexed) -> None:
    edge = {"x": 0, "y": 0, "width": 0.05, "height": 1}
    answer = client.post(SEARCH, json={"like": [{"id": "image-0", "box": edge}]})
    document = problem(answer, 422, "invalid-request", "like.0.box")
    assert "x from 0.12 to 0.88" in document["detail"]
    file = {"unlike_image": ("a.png", indexed.image_bytes(0))}
    query = json.dumps({"text": "a dog", "unlike_image_boxes": [edge]})
    sent = client.post(SEARCH, files=file, data={"query": query})
    problem(sent, 422, "invalid-request", "unlike_image_boxes")


def test_a_map_tells_what_each_region_adds_to_the_cosine(client: TestClient, indexed: Indexed) -> None:
    hits = page_of(client, text="two dogs", limit=24)["hits"]
    hit = next(one for one in hits if one["id"] == "image-5")
    result = map_of(client, text="two dogs", filter={"field": "view", "eq": "PA"}, limit=3)
    values = np.array(result["values"])
    assert values.shape == (result["height"], result["width"]) == (4, 4)
    assert result["cosine"] == pytest.approx(hit["cosine"], abs=1e-4)
    assert values.mean() == pytest.approx(hit["cosine"], abs=1e-4)
    text = load_encoder(indexed.bundle, "cpu").embed_texts(["two dogs"]).vectors[0]
    np.testing.assert_allclose(values, grid(indexed, 5).similarities(text), atol=1e-4)
    assert (result["smallest"], result["largest"]) == (values.min(), values.max())
    assert result["area"]["height"] == 1
    assert result["area"]["x"] == pytest.approx((1 - result["area"]["width"]) / 2)


def test_a_map_is_of_the_same_query_as_the_search(client: TestClient, indexed: Indexed) -> None:
    """Images, parts of them, files and examples that are not wanted."""
    for query in (
        {"like": [{"id": "image-3", "box": BOX}]},
        {"unlike": [{"id": "image-3"}], "text": "a boat"},
    ):
        page = page_of(client, **query, limit=24)
        cosine = next(hit["cosine"] for hit in page["hits"] if hit["id"] == "image-5")
        assert map_of(client, **query)["cosine"] == pytest.approx(cosine, abs=1e-3)
    answer = client.post(
        f"{HERE}/images/image-5/similarity-map",
        files={"image": ("a.png", indexed.image_bytes(5))},
        data={"query": json.dumps({"image_boxes": [WHOLE]})},
    )
    assert answer.json()["cosine"] == pytest.approx(1, abs=1e-4)


def test_an_overlay_has_the_shape_of_the_picture_and_is_opaque_where_it_fits(client: TestClient) -> None:
    result = map_of(client, text="two dogs")
    answer = ask_map(client, accept="image/png", text="two dogs")
    assert answer.headers["content-type"] == "image/png"
    overlay = Image.open(io.BytesIO(answer.content))
    assert overlay.size == (result["picture_width"], result["picture_height"])
    assert overlay.convert("RGB").getcolors() == [(overlay.width * overlay.height, (255, 153, 0))]
    alpha = np.asarray(overlay)[..., 3].astype(float)
    assert 160 < alpha.max() <= 190
    columns = np.nonzero(alpha.any(axis=0))[0]
    area = result["area"]
    assert columns.min() >= round(area["x"] * overlay.width)
    assert columns.max() <= round((area["x"] + area["width"]) * overlay.width)
    values = np.array(result["values"])
    row, column = np.unravel_index(values.argmax(), values.shape)
    y, x = np.unravel_index(alpha.argmax(), alpha.shape)
    across = (x / overlay.width - area["x"]) / area["width"] * result["width"]
    assert int(y / overlay.height * result["height"]) == row
    assert int(across) == column
    problem(ask_map(client, accept="image/gif", text="a"), 406, "not-acceptable")
    # It needs a query and an image.
    problem(ask_map(client, keywords="dogs"), 422, "invalid-request")
    problem(ask_map(client, "none", text="a dog"), 404, "unknown-image")


def test_collections_and_models_tell_of_regions(own: Indexed) -> None:
    """One of a model that pools the largest values has none."""
    model = tiny_model(tiny_config(image_settings={"pooling": "max"})).eval()
    parts: dict[str, Any] = {"preprocessing": tiny_preprocessing(), "metrics": {}, "recipe_yaml": ""}
    own.index("largest", save_bundle(own.bundle.parent / "largest", name="tiny", model=model, **parts).folder)
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
