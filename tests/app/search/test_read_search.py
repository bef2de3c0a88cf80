"""The forms of a search over HTTP: examples, texts, groups, words, diversity, and wrong combinations."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from fastapi.testclient import TestClient

from index.ingest import ingest_manifest
from index.search.request import Part, Parts, SearchRequest
from tests.app.conftest import Indexed, serve
from tests.app.search.test_search import body_of, ids, pages, problem
from training.common.manifest import read_manifest, write_manifest
from training.imaging.images import decode_image
from training.models.encoder import load_encoder

SEARCH = "/v1/collections/grouped/search"


@pytest.fixture(scope="module")
def grouped(on_either: Indexed) -> Indexed:
    """A home with a second collection, whose images are of patients with four each."""
    data = on_either.manifest.folder.parent / "grouped"
    data.mkdir()
    (data / "images").symlink_to(on_either.manifest.folder / "images")
    records = enumerate(on_either.manifest.records)
    write_manifest(data, [replace(record, group=f"patient-{n // 4}") for n, record in records])
    with on_either.engine() as engine:
        ingest_manifest(engine, "grouped", load_encoder(on_either.bundle, "cpu"), read_manifest(data))
    return on_either


@pytest.fixture(scope="module")
def client(grouped: Indexed) -> Iterator[TestClient]:
    with serve(grouped, key=False) as running:
        yield running


def found(client: TestClient, **query: Any) -> dict[str, Any]:
    return body_of(client.post(SEARCH, json=query))


def test_everything_that_is_sent_makes_one_query(client: TestClient, grouped: Indexed) -> None:
    vector = np.random.default_rng(0).normal(size=12)
    query = {
        "text": "two dogs",
        "like": [{"id": "image-3"}, {"text": "a boat at sea"}, {"vector": vector.tolist()}],
        "unlike": [{"id": "image-8"}],
        "limit": 24,
    }
    files = {name: grouped.image_bytes(number) for name, number in (("image", 5), ("unlike_image", 6))}
    page = body_of(client.post(SEARCH, files=files, data={"query": json.dumps(query)}))
    encoder = load_encoder(grouped.bundle, "cpu")
    texts = encoder.embed_texts(["two dogs", "a boat at sea"]).vectors
    pixels = [encoder.prepare_image(decode_image(grouped.image_bytes(number))) for number in (5, 6)]
    images = [encoder.embed_images(one[None])[0] for one in pixels]
    with grouped.engine() as engine:
        active = engine.active("grouped")
        parts = Parts(
            queries=[Part(texts[0], "text"), Part(images[0], "image")],
            liked=[
                Part(engine.vector_of(active, "image-3"), "image"),
                Part(texts[1], "text"),
                Part((vector / np.linalg.norm(vector)).astype(np.float32), None),
            ],
            disliked=[Part(engine.vector_of(active, "image-8"), "image"), Part(images[1], "image")],
        )
        request = SearchRequest(k=24, exclude=("image-3", "image-8"))
        expected = engine.search(active, engine.compose(active, parts), request)
    assert ids(page) == [hit.id for hit in expected.hits]
    assert len(ids(page)) == 22
    assert page["confident"] is None
    np.testing.assert_allclose(
        [hit["score"] for hit in page["hits"]], [hit.score for hit in expected.hits], atol=1e-3
    )


def test_an_image_of_the_collection_finds_its_own_text_among_texts(client: TestClient) -> None:
    page = found(client, like=[{"id": "image-3"}], target="texts", limit=24)
    assert len(page["hits"]) == 24
    assert {hit["id"] for hit in page["hits"]} >= {"image-3"}
    for hit in page["hits"]:
        assert hit["text"] == {"position": 0, "text": hit["texts"][0]}
        assert hit["links"]["image"].endswith(quote(hit["id"]))


def test_the_group_of_an_example_is_left_out_on_demand(client: TestClient) -> None:
    alone = set(ids(found(client, like=[{"id": "image-9"}], limit=24)))
    page = found(client, like=[{"id": "image-9"}], exclude_same_group=True, limit=24)
    assert alone - set(ids(page)) == {"image-8", "image-10", "image-11"}
    assert "patient-2" not in {hit["group"] for hit in page["hits"]}
    page = found(client, like=[{"id": "image-9"}], exclude_same_group=False, limit=24)
    assert set(ids(page)) == alone


def test_one_hit_stands_for_each_group_of_any_field(client: TestClient) -> None:
    best = found(client, text="two dogs", limit=1)["hits"][0]
    page = found(client, text="two dogs", group_by="group", limit=24)
    assert len({hit["group"] for hit in page["hits"]}) == len(page["hits"]) == 6
    assert {hit["group_size"] for hit in page["hits"]} == {4}
    assert page["hits"][0]["id"] == best["id"]
    page = found(client, text="two dogs", group_by="view", limit=24)
    assert sorted(hit["metadata"]["view"] for hit in page["hits"]) == ["AP", "PA"]
    assert sum(hit["group_size"] for hit in page["hits"]) == 24
    page = found(client, like=[{"id": best["id"]}], exclude_same_group="view", limit=24)
    assert page["hits"]
    assert best["metadata"]["view"] not in {hit["metadata"]["view"] for hit in page["hits"]}


@pytest.mark.filterwarnings("error")
def test_of_a_vector_only_the_direction_counts_and_diversity_changes_the_order_alone(
    client: TestClient,
) -> None:
    vector = np.random.default_rng(0).normal(size=12)
    plain, *scaled = (
        ids(found(client, like=[{"vector": (length * vector).tolist()}])) for length in (1, 1e300, 1e-300)
    )
    assert scaled == [plain, plain]
    plain, diverse = (ids(found(client, text="two dogs", limit=24, diversity=part)) for part in (0, 0.7))
    assert plain == ids(found(client, text="two dogs", limit=24))
    assert plain[0] == diverse[0]
    assert plain != diverse
    assert sorted(plain) == sorted(diverse)


def test_whatever_can_be_seen_is_a_text_and_long_ones_are_told_by_their_places(client: TestClient) -> None:
    for text in ("।", "❤\ufe0f", "\ue000", "\u200bx"):
        assert found(client, text=text, limit=1)["hits"]
    long = "a red square on a table and " * 20
    page = found(client, text=long, like=[{"id": "image-1"}, {"text": long}])
    assert [cut["field"] for cut in page["query"]["truncations"]] == ["text", "like.1.text"]


def test_exact_words_are_fused_and_told(client: TestClient) -> None:
    page = found(client, text="a boat", keywords="pneumothorax", limit=24)
    (named,) = [hit for hit in page["hits"] if "keywords" in hit["found_by"]]
    assert "#7" in named["id"]
    assert {hit["score_kind"] for hit in page["hits"]} == {"fused"}
    assert {hit["cosine_kind"] for hit in page["hits"]} == {"cosine"}
    assert page["hits"][0] == named


def test_as_many_words_are_taken_as_are_looked_up(client: TestClient) -> None:
    words = [f"w{number}" for number in range(63)] + ["dogs"]
    page = found(client, text="a boat", keywords=" ".join([*words, *words]).upper(), limit=24)
    assert any("keywords" in hit["found_by"] for hit in page["hits"])
    answer = client.post(SEARCH, json={"text": "a boat", "keywords": " ".join([*words, "snow"])})
    document = problem(answer, 422, "invalid-request", "keywords")
    assert document["detail"] == "There are 65 different words in `keywords`: give at most 64."


def test_pages_of_every_form_follow_each_other(client: TestClient) -> None:
    for form in (
        {"text": "x", "keywords": "dogs boat"},
        {"text": "x", "group_by": "group"},
        {"like": [{"id": "image-1"}, {"text": "a boat"}], "unlike": [{"id": "image-2"}], "diversity": 0.5},
        {"text": "x", "target": "texts"},
    ):
        whole = found(client, **form, limit=24)
        hits = [hit for page in pages(client, SEARCH, **form, limit=5) for hit in page["hits"]]
        assert [(h["id"], h["rank"]) for h in hits] == [(h["id"], h["rank"]) for h in whole["hits"]], form


def test_the_largest_values_are_taken(client: TestClient) -> None:
    edge, long = {"x": 0.5, "y": 0.4, "width": 0.01, "height": 0.6}, "x" * 10_000
    for query in (
        {"limit": 1000},
        {"text": long, "keywords": long, "min_score": -1, "limit": 24},
        {"like": [{"id": "image-1", "box": edge}] * 8, "unlike": [{"text": long}] * 8, "diversity": 1},
    ):
        assert found(client, **query)["hits"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"diversity": 0.5}, "diversity"),
        ({"text": "x", "keywords": "--"}, "keywords"),
        ({"text": "x", "exclude_same_group": True}, "exclude_same_group"),
        ({"like": [{"text": "x"}], "exclude_same_group": True}, "exclude_same_group"),
        ({"like": [{"id": "image-1"}] * 17}, "like"),
        ({"like": [{"id": "image-1"}] * 9, "unlike": [{"id": "image-2"}] * 8}, "like"),
        ({"like": [{}]}, "like.0"),
        ({"like": [{"id": "image-1", "text": "x"}]}, "like.0"),
        ({"like": ["image-1"]}, "like.0"),
        ({"unlike": [{"vector": [1.0, 2.0]}]}, "unlike.0.vector"),
        ({"like": [{"vector": [0.0] * 12}]}, "like.0.vector"),
        ({"like": [{"vector": []}]}, "like.0.vector"),
        ({"like": [{"text": "x" * 10_001}]}, "like.0.text"),
        ({"text": "\u200b"}, "text"),
        ({"text": " \u2060\ufeff\u00a0\u202e\n"}, "text"),
        ({"text": "\u3164\u0301\ufe0f"}, "text"),
        ({"like": [{"text": "\u200b"}]}, "like.0.text"),
        ({"text": "x", "keywords": "\u200d"}, "keywords"),
        ({"text": "x", "keywords": "x" * 10_001}, "keywords"),
        *(({"text": "x", "limit": limit}, "limit") for limit in (0, -1, 1001, 2.5, "many", None, True, [1])),
        ({"text": "x", "target": "reports"}, "target"),
        ({"text": "x", "group_by": "viewx"}, "group_by"),
        ({"text": "x", "group_by": True}, "group_by"),
        ({"text": "x", "group_by": ""}, "group_by"),
        ({"text": "x", "diversity": 1.1}, "diversity"),
        ({"text": "x", "diversity": True}, "diversity"),
        ({"text": "x", "diversity": "0.5"}, "diversity"),
        ({"like": [{"id": "image-1"}], "exclude_same_group": "yes"}, "exclude_same_group"),
        ({"like": [{"id": "image-1"}], "exclude_same_group": 1}, "exclude_same_group"),
        ({"like": [{"id": "image-1"}], "exclude_same_group": "x" * 1001}, "exclude_same_group"),
        ({"text": "x", "exclude_same_group": "view"}, "exclude_same_group"),
        ({"like": [{"vector": ["1"] + [0] * 11}]}, "like.0.vector.0"),
        ({"like": [{"vector": [0] * 11 + [True]}]}, "like.0.vector.11"),
        ({"text": "x", "filter": {"field": "view", "any_of": ["x" * 20_000]}}, "filter"),
    ],
)
def test_what_makes_no_search_is_told_with_its_field(
    client: TestClient, query: dict[str, Any], field: str
) -> None:
    document = problem(client.post(SEARCH, json=query), 422, "invalid-request", field)
    assert len(document["detail"]) < 300


@pytest.mark.parametrize(
    ("query", "field"),
    [
        *((text, "query") for text in ("{", "[]", "", "5", "[" * 5000, '{"a":' * 5000)),
        ('{"text": 3}', "text"),
        ('{"like": [{}]}', "like.0"),
    ],
)
def test_a_wrong_query_of_a_form_is_told_with_its_field(client: TestClient, query: str, field: str) -> None:
    answer = client.post(SEARCH, data={"query": query}, files={"image": ("a.png", b"nothing")})
    problem(answer, 422, "invalid-request", field)


@pytest.mark.parametrize("number", [17, 30])
def test_too_many_files_are_told_how_many_are_taken(
    client: TestClient, grouped: Indexed, number: int
) -> None:
    files = [("image", (f"{position}.png", grouped.image_bytes(0))) for position in range(number)]
    document = problem(client.post(SEARCH, files=files), 422, "invalid-request", "like")
    assert document["detail"] == "Too many files are sent: a search takes at most 16 examples."
    answer = client.post(SEARCH, files=files[:16], data={"query": '{"like": [{"id": "image-1"}]}'})
    document = problem(answer, 422, "invalid-request", "like")
    assert document["detail"] == "17 examples are too many: send at most 16."
    files = [*files[:1], ("image", ("b.png", b"nothing"))]
    document = problem(client.post(SEARCH, files=files), 415, "not-an-image", "image")
    assert document["detail"].startswith("File 2 of `image`: ")


def test_what_says_that_a_finding_is_absent_is_preferred_and_told(client: TestClient) -> None:
    page = found(client, text="no pneumothorax", limit=24)
    assert "#7" in page["hits"][0]["id"]
    assert page["hits"][0]["score_kind"] == "fused"
    assert [hit["id"] for hit in page["hits"] if "findings" in hit["found_by"]] == [page["hits"][0]["id"]]
    # Nothing says so of these.
    for text in ("no hernia", "pneumothorax"):
        assert {hit["score_kind"] for hit in found(client, text=text, limit=24)["hits"]} == {"cosine"}


def test_words_are_looked_up_where_a_finding_is_in_one_state(client: TestClient) -> None:
    for state, count in (("absent", 1), ("present", 0), ("uncertain", 0)):
        page = found(client, text="a boat", keywords="pneumothorax", keywords_state=state, limit=24)
        assert sum("keywords" in hit["found_by"] for hit in page["hits"]) == count
    answer = client.post(SEARCH, json={"text": "a boat", "keywords": "boat", "keywords_state": "present"})
    document = problem(answer, 422, "invalid-request", "keywords_state")
    assert document["detail"].startswith("keywords_state goes with `keywords` that name a finding")
    answer = client.post(SEARCH, json={"text": "a boat", "keywords": "mass", "keywords_state": "there"})
    problem(answer, 422, "invalid-request", "keywords_state")


def test_findings_are_filtered_by(client: TestClient) -> None:
    filter = {"finding": "pneumothorax", "state": "absent"}
    assert len(found(client, text="a boat", filter=filter, limit=24)["hits"]) == 1
    enlarged = found(client, text="a boat", filter={"finding": "cardiomegaly", "state": "present"}, limit=24)
    assert {hit["texts"][0] for hit in enlarged["hits"]} == {"the heart is enlarged"}
    assert len(enlarged["hits"]) == 6
    answer = client.post(SEARCH, json={"text": "a boat", "filter": {"finding": "giraffe", "state": "absent"}})
    document = problem(answer, 422, "invalid-filter", "filter.finding")
    assert "there is no finding 'giraffe'" in document["detail"]
