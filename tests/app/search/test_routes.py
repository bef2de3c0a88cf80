"""Lists and counts without a query, the parts of hits, and several searches in one request."""

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from fastapi.testclient import TestClient
from sqlalchemy import update

from app.edge.admission import ConcurrencyLimiter, Slot
from app.search.schemas import MAX_SEARCHES, ListedImage
from index.catalogue.tables import GenerationRow
from tests.app.conftest import COLLECTION, Indexed, serve
from tests.app.search.test_search import SEARCH, body_of, ids, page_of, pages, problem

HERE = f"/v1/collections/{COLLECTION}"
PA = {"field": "view", "eq": "PA"}
BOAT = {"keywords": "boat"}


@pytest.fixture(scope="module")
def either(on_either: Indexed) -> Iterator[TestClient]:
    with serve(on_either, key=False) as running:
        yield running


def get(client: TestClient, what: str, **parameters: Any) -> dict[str, Any]:
    return body_of(client.get(f"{HERE}/{what}", params=parameters))


def test_a_collection_without_an_active_generation_is_listed_but_not_searched(
    make_indexed: Callable[..., Indexed],
) -> None:
    indexed = make_indexed()
    payload: list[dict[str, Any]] = [
        {},
        {"filter": PA},
        {"keywords": "dogs", "limit": 3},
        {"group_by": "view"},
    ]
    with serve(indexed, key=False) as client:
        before = [page_of(client, **query) for query in payload]
        with indexed.write() as session:
            session.execute(update(GenerationRow).values(state="building"))
        for query, page in zip(payload, before, strict=True):
            after = page_of(client, **query)
            assert after["served_by"] is None
            assert {hit["cosine_kind"] for hit in after["hits"]} == {None}
            assert [hit | {"cosine_kind": "cosine"} for hit in after["hits"]] == page["hits"] != []
            assert (after["count"], after["query"]) == (page["count"], page["query"])
        for query in ({"text": "two"}, {"text": "two", "keywords": "two"}, {"like": [{"id": "image-1"}]}):
            problem(client.post(SEARCH, json=query), 409, "nothing-indexed")


def test_a_search_for_nothing_gives_everything_in_pages_without_scores(
    either: TestClient, on_either: Indexed
) -> None:
    assert "next_cursor" not in page_of(either, limit=5)
    result = pages(either, limit=5)
    assert {(page["count"], page["confident"]) for page in result} == {(24, None)}
    names = [record.id for record in on_either.manifest.records]
    assert [name for page in result for name in ids(page)] == names
    page = result[-1]
    hit = page["hits"][-1]
    absent = ("score", "score_kind", "cosine", "z_score", "text", "group_size", "matched")
    assert [hit[name] for name in absent] == [None] * len(absent)
    assert (hit["rank"], hit["found_by"], hit["cosine_kind"]) == (24, [], "cosine")
    assert page["served_by"]["model"] == "tiny-0"


def test_a_filter_alone_and_words_alone_give_what_passes(either: TestClient, on_either: Indexed) -> None:
    records = on_either.manifest.records
    passing = [record.id for record in records if record.metadata["view"] == "PA"]
    page = page_of(either, filter=PA, limit=24)
    assert ids(page) == passing
    assert page["count"] == len(passing)
    boats = [record.id for record in records if "boat" in record.texts[0]]
    page = page_of(either, keywords="boat", limit=24)
    assert sorted(ids(page)) == sorted(boats)
    assert {tuple(hit["found_by"]) for hit in page["hits"]} == {("keywords",)}
    assert [hit["matched"] for hit in page["hits"]] == [{"text": "a boat at sea", "spans": [[2, 6]]}] * len(
        boats
    )
    (report,) = (hit for hit in page_of(either, keywords="pneumothorax")["hits"])
    assert report["matched"] == {"text": "Confidential: no pneumothorax.", "spans": [[17, 29]]}
    fused = page_of(either, text="a boat", keywords="boats", limit=24)["hits"]
    assert {hit["id"] for hit in fused if hit["matched"]} == {*boats}
    assert {*ids(page_of(either, keywords="boat", filter=PA, limit=24))} == {*boats} & {*passing}
    assert len(page_of(either, target="texts", keywords="boat", limit=24)["hits"]) == len(boats)
    assert [hit["group_size"] for hit in page_of(either, group_by="view")["hits"]] == [8, 16]


def test_what_goes_with_a_query_alone_is_refused_without_one(either: TestClient) -> None:
    problem(either.post(SEARCH, json={"diversity": 0.3}), 422, "invalid-request", "diversity")
    sent = either.post(SEARCH, json={"exclude_same_group": True})
    problem(sent, 422, "invalid-request", "exclude_same_group")
    cursor = page_of(either, limit=2, cursor=True)["next_cursor"]
    for query in ({"filter": PA}, {"text": "a boat"}, {"keywords": "boat"}):
        answer = either.post(SEARCH, json={**query, "limit": 2, "cursor": cursor})
        problem(answer, 422, "invalid-cursor", "cursor")


def test_images_are_listed_with_what_is_known_of_them(either: TestClient, on_either: Indexed) -> None:
    records = {record.id: record for record in on_either.manifest.records}
    shown = []
    cursor: dict[str, str] = {}
    for _ in range(4):
        page = get(either, "images", limit=7, filter=json.dumps(PA), **cursor)
        assert page["count"] == 16
        shown += page["images"]
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert [image["id"] for image in shown] == [n for n, r in records.items() if r.metadata["view"] == "PA"]
    for image in shown:
        record = records[image["id"]]
        assert image["metadata"] == record.metadata
        assert (image["texts"], image["labels"]) == ([*record.texts], [*record.labels])
        assert either.get(image["links"]["image"]).json()["id"] == image["id"]
    assert len(get(either, "images")["images"]) == 24
    newest = [image["id"] for image in shown][::-1]
    page = get(either, "images", limit=7, filter=json.dumps(PA), sort="newest")
    rest = get(either, "images", filter=json.dumps(PA), sort="newest", cursor=page["next_cursor"])
    assert [image["id"] for image in page["images"] + rest["images"]] == newest
    assert ids(page_of(either, filter=PA, sort="newest", limit=24)) == newest
    changed = {"filter": json.dumps(PA), "cursor": page["next_cursor"]}
    problem(either.get(f"{HERE}/images", params=changed), 422, "invalid-cursor", "cursor")
    sorted_hits = either.post(SEARCH, json={"text": "a", "sort": "newest"})
    problem(sorted_hits, 422, "invalid-request", "sort")


def test_wrong_parameters_of_lists_are_named(either: TestClient) -> None:
    for what, parameters, field in (
        ("images", {"limit": "0"}, "limit"),
        ("images", {"limit": "many"}, "limit"),
        ("images", {"sort": "oldest"}, "sort"),
        ("images", {"filtre": "{}"}, "filtre"),
        ("images", {"filter": "{"}, "filter"),
        ("images", {"filter": "x" * 16_385}, "filter"),
        ("facets", {"field": "x" * 1001}, "field"),
        ("facets", {"field": "viwe"}, "field"),
        ("facets", {"offset": "3"}, "offset"),
    ):
        problem(either.get(f"{HERE}/{what}", params=parameters), 422, "invalid-request", field)
    for text in ("[]", "5", "null", '{"field": "view"}', '"PA"'):
        answer = either.get(f"{HERE}/images", params={"filter": text})
        assert answer.json()["type"] == "urn:recoquest:invalid-filter", text
    answer = either.get(f"{HERE}/facets", params={"filter": '{"field": "sex", "eq": "F"}'})
    problem(answer, 422, "invalid-filter", "filter.sex")
    problem(either.get(f"{HERE}/images", params={"cursor": "x"}), 422, "invalid-cursor", "cursor")
    problem(either.get("/v1/collections/none/images"), 404, "unknown-collection")
    problem(either.get("/v1/collections/none/facets"), 404, "unknown-collection")


def test_values_are_counted_under_a_filter(either: TestClient) -> None:
    counted = get(either, "facets", filter=json.dumps({"field": "age", "lt": 30}))
    fields = {field["name"]: field for field in counted["fields"]}
    assert counted["count"] == 10
    assert fields["view"]["values"] == [{"value": "PA", "count": 6}, {"value": "AP", "count": 4}]
    assert (fields["age"]["minimum"], fields["age"]["maximum"]) == (20, 29)
    (named,) = get(either, "facets", field="id", containing="IMAGE-2")["fields"]
    numbers = (2, *range(20, 24))
    assert {value["value"] for value in named["values"]} == {f"image-{number}" for number in numbers}


def test_values_are_counted_among_images_with_keywords(either: TestClient) -> None:
    payload = {"keywords": "effusion", "filter": {"field": "age", "lt": 60}}
    for body in (
        payload,
        {**payload, "keywords_state": "present"},
        {**payload, "keywords_state": "absent"},
    ):
        count = either.post(f"{HERE}/count", json=body).json()["count"]
        counted = either.post(f"{HERE}/facets", json={**body, "field": "view"}).json()
        assert counted["count"] == count
        assert sum(value["count"] for value in counted["fields"][0]["values"]) == count
    without = either.post(f"{HERE}/facets", json={"keywords": "..."})
    problem(without, 422, "invalid-request", "keywords")


def test_values_are_counted_by_a_body_as_by_an_address(either: TestClient) -> None:
    young = {"field": "age", "lt": 30}
    for body, parameters in (
        ({}, {}),
        ({"filter": young}, {"filter": json.dumps(young)}),
        ({"field": "id", "containing": "IMAGE-2"}, {"field": "id", "containing": "IMAGE-2"}),
    ):
        assert body_of(either.post(f"{HERE}/facets", json=body)) == get(either, "facets", **parameters)
    for wrong, kind, field in (
        ({"filtre": {}}, "invalid-request", "filtre"),
        ({"filter": "{}"}, "invalid-request", "filter"),
        ({"field": "viwe"}, "invalid-request", "field"),
        ({"field": "id", "containing": "x" * 201}, "invalid-request", "containing"),
        ({"filter": {"field": "sex", "eq": "F"}}, "invalid-filter", "filter.sex"),
    ):
        problem(either.post(f"{HERE}/facets", json=wrong), 422, kind, field)


def test_pages_have_no_repeats_and_no_gaps_while_images_are_put_and_removed(own: Indexed) -> None:
    names = [record.id for record in own.manifest.records]
    with serve(own) as client:
        shown: list[str] = []
        cursor: dict[str, str] = {}
        for step in range(20):
            page = get(client, "images", limit=4, **cursor)
            shown += [image["id"] for image in page["images"]]
            if page["next_cursor"] is None:
                break
            cursor = {"cursor": page["next_cursor"]}
            files = {"image": ("a.png", own.image_bytes(step))}
            put = client.put(f"{HERE}/images/a-{step}", files=files, data={"record": "{}"})
            assert put.status_code == 201
            if step < 3:
                assert client.delete(f"{HERE}/images/{quote(shown[-1])}").status_code == 200
                assert client.delete(f"{HERE}/images/{names[-1 - step]}").status_code == 200
    removed = {*names[-3:]}
    assert len(shown) == len({*shown})
    assert [name for name in shown if name in names] == [name for name in names if name not in removed]
    assert {"a-0", "a-3"} <= {*shown}


def test_fields_that_a_setting_hides_are_told_to_the_page(own: Indexed) -> None:
    with serve(own, key=False, hidden_fields=("age",)) as client:
        described = client.get(HERE).json()
        assert described["hidden_fields"] == ["age"]
        assert "age" in {field["name"] for field in described["fields"]}


def test_the_command_lists_what_passes(indexed: Indexed) -> None:
    def run(*options: object) -> Any:
        return indexed.run("search", COLLECTION, *options)

    listed = json.loads(run("--filter", json.dumps(PA), "-k", 24, "--json").stdout)
    expected = [record.id for record in indexed.manifest.records if record.metadata["view"] == "PA"]
    assert ids(listed) == expected
    table = run("--filter", json.dumps(PA), "-k", 3)
    assert "1 to 3 of 16" in table.stderr
    assert "Cosine" not in table.stdout
    assert "image-1" in table.stdout
    assert "image-2" in run("--words", "boat").stdout
    assert "No image has any of the words" in run("--words", "giraffe").stdout
    nothing = run("--filter", '{"field": "age", "lt": 0}')
    assert "Nothing passes the filter" in nothing.stdout


def count(client: TestClient, **query: Any) -> int:
    answer = body_of(client.post(f"{HERE}/count", json=query))
    assert answer.keys() == {"count"}
    return int(answer["count"])


def test_a_hit_tells_what_is_asked_for_and_no_more(client: TestClient) -> None:
    payload = ["report", "findings", "vector"]
    for hit in page_of(client, text="a boat", limit=24, **{"with": payload})["hits"]:
        image = client.get(hit["links"]["image"]).json()
        assert not {"texts", "labels", "metadata"} & hit.keys()
        assert hit["report"] == image["report"]
        stated = {name for names in hit["findings"].values() for name in names}
        assert stated == {one["finding"] for one in image["findings"]}
    assert any(hit["report"] for hit in page_of(client, text="a boat", limit=24, **{"with": payload})["hits"])
    bare = page_of(client, text="a boat", limit=3, **{"with": []})["hits"]
    assert not {"texts", "findings", "labels", "metadata", *payload} & bare[0].keys()
    assert ids({"hits": bare}) == ids(page_of(client, text="a boat", limit=3))


@pytest.mark.parametrize("target", ["images", "texts"])
def test_the_vector_of_a_hit_finds_it_with_a_cosine_of_one(client: TestClient, target: str) -> None:
    for hit in page_of(client, text="a boat", limit=5, target=target, **{"with": ["vector"]})["hits"]:
        assert np.linalg.norm(hit["vector"]) == pytest.approx(1, abs=1e-5)
        again = page_of(client, like=[{"vector": hit["vector"]}], target=target, limit=24)["hits"]
        (same,) = [one for one in again if (one["id"], one["text"]) == (hit["id"], hit["text"])]
        assert same["cosine"] == pytest.approx(1, abs=1e-4)


def test_a_list_tells_what_is_asked_for(client: TestClient) -> None:
    plain = client.get(f"{HERE}/images").json()["images"]
    assert plain[0].keys() == ListedImage.__required_keys__ | {"texts", "findings", "labels", "metadata"}
    body = client.get(f"{HERE}/images", params={"with": ["report", "vector"]}).json()["images"]
    assert body[0].keys() == ListedImage.__required_keys__ | {"report", "vector"}
    by_search = page_of(client, like=[{"vector": body[3]["vector"]}], limit=1)["hits"][0]
    assert by_search["cosine"] == pytest.approx(1, abs=1e-4)


def test_a_part_that_there_is_not_is_refused_with_those_that_there_are(client: TestClient) -> None:
    answer = client.post(SEARCH, json={"text": "x", "with": ["pixels"]})
    document = problem(answer, 422, "invalid-request", "with.0")
    assert "'texts', 'findings', 'labels', 'metadata', 'report' or 'vector'" in document["detail"]
    body = client.post(SEARCH, json={"text": "x", "with_": []}).json()["detail"]
    assert "cursor, with." in body
    problem(client.post(SEARCH, json={"text": "x", "parts": []}), 422, "invalid-request", "parts")


@pytest.mark.parametrize(
    "query",
    [{}, {"filter": PA}, BOAT, {"diversity": 0.3}, {"target": "texts"}, {"group_by": "group"}],
)
def test_no_page_has_hits_below_the_lowest_score(client: TestClient, query: dict[str, Any]) -> None:
    whole = page_of(client, text="a boat", limit=100, **query)["hits"]
    lowest = sorted(hit["cosine"] for hit in whole)[len(whole) // 3]
    expected = {(hit["id"], str(hit["text"])) for hit in whole if hit["cosine"] >= lowest}
    told = pages(client, text="a boat", limit=4, min_score=lowest, **query)
    hits = [hit for page in told for hit in page["hits"]]
    assert len(told) == -(-len(expected) // 4)
    assert [hit["rank"] for hit in hits] == list(range(1, len(hits) + 1))
    assert {(hit["id"], str(hit["text"])) for hit in hits} == expected
    assert len(hits) == len(expected) < len(whole)


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ({"filter": PA, "min_score": 0.1}, "min_score goes with a query: give a text, an image or examples."),
        ({"text": "x", "min_score": 1.5}, "min_score: It must be at most 1.0."),
        ({"text": "x", "min_score": "0.5"}, "min_score: It must be a number."),
    ],
)
def test_a_lowest_score_that_is_none_is_refused(
    client: TestClient, query: dict[str, Any], sentence: str
) -> None:
    nothing = page_of(client, text="a boat", min_score=1)
    assert (nothing["hits"], nothing["has_more"]) == ([], False)
    document = problem(client.post(SEARCH, json=query), 422, "invalid-request", "min_score")
    assert document["detail"] == sentence


def test_a_count_is_that_of_all_pages(client: TestClient) -> None:
    assert count(client) == 24
    assert count(client, group_by="view") == 2
    assert count(client, keywords="nothing-has-this") == 0
    for query in (
        {"filter": PA},
        BOAT,
        {"target": "texts"},
        {**BOAT, "filter": PA},
        {**BOAT, "target": "texts"},
    ):
        assert count(client, **query) == page_of(client, **query)["count"]
    assert min(count(client, filter=PA), count(client, keywords="boat")) > 0


def test_a_count_is_refused_as_a_search_is(client: TestClient) -> None:
    path = f"{HERE}/count"
    unknown = client.post(path, json={"filter": {"field": "vieww", "eq": 1}})
    problem(unknown, 422, "invalid-filter", "filter.vieww")
    problem(client.post(path, json={"keywords": "--"}), 422, "invalid-request", "keywords")
    problem(client.post(path, json={"text": "x"}), 422, "invalid-request", "text")
    problem(client.post("/v1/collections/none/count", json={}), 404, "unknown-collection")
    one = {"searches": [{"text": "x"}]}
    problem(client.post("/v1/collections/none/search/batch", json=one), 404, "unknown-collection")


BATCH = f"{SEARCH}/batch"
SEARCHES: list[dict[str, Any]] = [
    {"text": "two dogs"},
    {"text": "two dogs", "limit": 24},
    {"text": "a boat", "filter": PA, "limit": 4},
    {"text": "two dogs", "filter": PA, "limit": 4, "with": ["report", "vector"]},
    {"text": "a boat", "min_score": 0.0, "limit": 24},
    {"text": "a boat", "keywords": "boat"},
    {"text": "no pneumothorax"},
    {"text": "a boat", "target": "texts"},
    {"like": [{"id": "image-3"}, {"text": "a lake"}], "unlike": [{"id": "image-8"}]},
    {"like": [{"id": "image-3"}], "exclude_same_group": True},
    {"text": "a boat", "group_by": "view"},
    {"text": "a boat", "diversity": 0.5},
    {"filter": PA, "limit": 3},
    {"keywords": "boat"},
]


def batch(client: TestClient, searches: list[dict[str, Any]], status: int = 200) -> list[dict[str, Any]]:
    answer = client.post(BATCH, json={"searches": searches})
    assert answer.status_code == status, answer.text
    results: list[dict[str, Any]] = answer.json()["results"]
    assert len(results) == len(searches)
    return results


def without_times(page: dict[str, Any]) -> dict[str, Any]:
    """Leave out what differs between two answers to the same search."""

    def rounded(value: Any) -> Any:
        if isinstance(value, list):
            return [rounded(part) for part in value]
        return round(value, 4) if isinstance(value, float) else value

    rest = {name: page[name] for name in ("count", "query", "served_by", "confident", "has_more")}
    return {**rest, "hits": [{name: rounded(hit[name]) for name in hit} for hit in page["hits"]]}


def test_each_search_is_answered_as_alone(client: TestClient) -> None:
    for query, result in zip(SEARCHES, batch(client, SEARCHES), strict=True):
        alone = client.post(SEARCH, json=query).json()
        assert result["problem"] is None
        assert without_times(result["page"]) == without_times(alone), query


def test_a_page_of_a_batch_goes_on_alone_and_in_a_batch(client: TestClient) -> None:
    query = {"text": "two dogs", "limit": 5}
    whole = [hit["id"] for hit in client.post(SEARCH, json={**query, "limit": 10}).json()["hits"]]
    first, without = batch(client, [{**query, "cursor": True}, query])
    assert "next_cursor" not in without["page"]
    assert without["page"]["has_more"]
    behind = {**query, "cursor": first["page"]["next_cursor"]}
    alone = client.post(SEARCH, json=behind).json()
    (again,) = batch(client, [behind])
    assert [hit["id"] for hit in (*first["page"]["hits"], *alone["hits"])] == whole
    assert [hit["id"] for hit in again["page"]["hits"]] == whole[5:]


def test_a_search_that_cannot_be_answered_has_its_problem_in_its_place(client: TestClient) -> None:
    wrong: list[tuple[dict[str, Any], str, tuple[str, ...]]] = [
        ({"like": [{"id": "nobody"}]}, "unknown-image", ()),
        ({"text": "x", "filter": {"field": "vieww", "eq": "PA"}}, "invalid-filter", ("filter.vieww",)),
        ({"text": "x", "filter": {"is": 1}}, "invalid-filter", ("filter",)),
        ({"text": "x", "cursor": "damaged"}, "invalid-cursor", ("cursor",)),
        ({"like": [{"vector": [1.0]}]}, "invalid-request", ("like.0.vector",)),
        ({"text": "x", "exclude_same_group": True}, "invalid-request", ("exclude_same_group",)),
        ({"text": "x", "group_by": "nothing"}, "invalid-request", ("group_by",)),
        ({"diversity": 0.5}, "invalid-request", ("diversity",)),
    ]
    searches = [{"text": "a boat"}, *(query for query, _, _ in wrong), {"filter": PA}]
    first, *problems, last = batch(client, searches, status=207)
    assert first["page"]["hits"]
    assert last["page"]["count"] > 0
    for (query, kind, _), result in zip(wrong, problems, strict=True):
        alone = client.post(SEARCH, json=query)
        assert result["page"] is None
        assert result["problem"]["type"] == f"urn:recoquest:{kind}", query
        for name in ("type", "title", "status", "detail", "errors"):
            assert result["problem"][name] == alone.json()[name]
        assert result["problem"]["status"] == alone.status_code


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "searches"),
        ({"searches": []}, "searches"),
        ({"searches": [{"text": "x"}] * (MAX_SEARCHES + 1)}, "searches"),
        ({"searches": [{"text": "x"}, {"text": "x", "limit": 0}]}, "searches.1.limit"),
        ({"searches": [{"text": "x", "limits": 1}]}, "searches.0.limits"),
        ({"searches": [{"text": "x" * 10_001}]}, "searches.0.text"),
        ({"searches": [{"text": "\udfff"}]}, "searches.0.text"),
        ({"searches": [{"text": "x"}], "limit": 3}, "limit"),
    ],
)
def test_a_request_that_is_no_batch_is_refused_whole(
    client: TestClient, body: dict[str, Any], field: str
) -> None:
    headers = {"content-type": "application/json"}
    answer = client.post(BATCH, content=json.dumps(body), headers=headers)
    problem(answer, 422, "invalid-request", field)


def test_a_full_batch_is_answered_by_a_short_queue(indexed: Indexed) -> None:
    with serve(indexed, key=False, encode_queue_size=2, encode_batch_size=2) as client:
        searches = [{"text": f"dogs {number}", "limit": 1} for number in range(MAX_SEARCHES)]
        assert all(result["page"]["hits"] for result in batch(client, searches))


def test_a_batch_counts_by_its_searches_and_a_lone_one_is_taken_however_large_it_is() -> None:
    limiter = ConcurrencyLimiter("search", 8, 10.0)

    def take() -> Slot:
        page_of = limiter.take()
        assert page_of is not None
        return page_of

    for searches in (8, 64):
        wide = limiter.widen(take(), searches)
        assert wide is not None
        assert limiter.is_full
        assert limiter.take() is None
        limiter.give_back(wide, answered=True)
        assert not limiter.is_full
    take()
    other = take()
    assert limiter.widen(other, 8) is None
    assert limiter.widen(other, 7) is not None
    assert limiter.is_full
