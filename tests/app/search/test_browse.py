"""Lists without a query over HTTP: searches for nothing, lists of images, counts under a filter."""

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import update

from index.catalogue.tables import GenerationRow
from tests.app.conftest import COLLECTION, Indexed, serve
from tests.app.search.test_search import ids, pages, problem

HERE = f"/v1/collections/{COLLECTION}"
PA = {"field": "view", "eq": "PA"}


@pytest.fixture(scope="module")
def client(on_either: Indexed) -> Iterator[TestClient]:
    with serve(on_either, key=False) as running:
        yield running


def search(client: TestClient, **query: Any) -> dict[str, Any]:
    answer = client.post(f"{HERE}/search", json=query)
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


def get(client: TestClient, what: str, **parameters: Any) -> dict[str, Any]:
    answer = client.get(f"{HERE}/{what}", params=parameters)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def test_a_collection_without_an_active_generation_is_listed_but_not_searched(
    make_indexed: Callable[..., Indexed],
) -> None:
    indexed = make_indexed()
    asked: list[dict[str, Any]] = [{}, {"filter": PA}, {"keywords": "dogs", "limit": 3}, {"group_by": "view"}]
    with serve(indexed, key=False) as client:
        before = [search(client, **query) for query in asked]
        with indexed.write() as session:
            session.execute(update(GenerationRow).values(state="building"))
        for query, page in zip(asked, before, strict=True):
            after = search(client, **query)
            assert after["served_by"] is None
            assert {hit["cosine_kind"] for hit in after["hits"]} == {None}
            assert [hit | {"cosine_kind": "cosine"} for hit in after["hits"]] == page["hits"] != []
            assert (after["count"], after["query"]) == (page["count"], page["query"])
        for query in ({"text": "two"}, {"text": "two", "keywords": "two"}, {"like": [{"id": "image-1"}]}):
            problem(client.post(f"{HERE}/search", json=query), 409, "nothing-indexed")


def test_a_search_for_nothing_gives_everything_in_pages_without_scores(
    client: TestClient, on_either: Indexed
) -> None:
    assert "next_cursor" not in search(client, limit=5)
    found = pages(client, limit=5)
    assert {(page["count"], page["confident"]) for page in found} == {(24, None)}
    names = [record.id for record in on_either.manifest.records]
    assert [name for page in found for name in ids(page)] == names
    page = found[-1]
    hit = page["hits"][-1]
    absent = ("score", "score_kind", "cosine", "z_score", "text", "group_size", "matched")
    assert [hit[name] for name in absent] == [None] * len(absent)
    assert (hit["rank"], hit["found_by"], hit["cosine_kind"]) == (24, [], "cosine")
    assert page["served_by"]["model"] == "tiny-0"


def test_a_filter_alone_and_words_alone_give_what_passes(client: TestClient, on_either: Indexed) -> None:
    records = on_either.manifest.records
    passing = [record.id for record in records if record.metadata["view"] == "PA"]
    page = search(client, filter=PA, limit=24)
    assert ids(page) == passing
    assert page["count"] == len(passing)
    boats = [record.id for record in records if "boat" in record.texts[0]]
    page = search(client, keywords="boat", limit=24)
    assert sorted(ids(page)) == sorted(boats)
    assert {tuple(hit["found_by"]) for hit in page["hits"]} == {("keywords",)}
    assert {json.dumps(hit["matched"]) for hit in page["hits"]} == {
        json.dumps({"text": "a boat at sea", "spans": [[2, 6]]})
    }
    (report,) = (hit for hit in search(client, keywords="pneumothorax")["hits"])
    assert report["matched"] == {"text": "Confidential: no pneumothorax.", "spans": [[17, 29]]}
    fused = search(client, text="a boat", keywords="boats", limit=24)["hits"]
    assert {hit["id"] for hit in fused if hit["matched"]} == {*boats}
    assert {*ids(search(client, keywords="boat", filter=PA, limit=24))} == {*boats} & {*passing}
    assert len(search(client, target="texts", keywords="boat", limit=24)["hits"]) == len(boats)
    assert [hit["group_size"] for hit in search(client, group_by="view")["hits"]] == [8, 16]


def test_what_goes_with_a_query_alone_is_refused_without_one(client: TestClient) -> None:
    problem(client.post(f"{HERE}/search", json={"diversity": 0.3}), 422, "invalid-request", "diversity")
    sent = client.post(f"{HERE}/search", json={"exclude_same_group": True})
    problem(sent, 422, "invalid-request", "exclude_same_group")
    cursor = search(client, limit=2, cursor=True)["next_cursor"]
    for query in ({"filter": PA}, {"text": "a boat"}, {"keywords": "boat"}):
        answer = client.post(f"{HERE}/search", json={**query, "limit": 2, "cursor": cursor})
        problem(answer, 422, "invalid-cursor", "cursor")


def test_images_are_listed_with_what_is_known_of_them(client: TestClient, on_either: Indexed) -> None:
    records = {record.id: record for record in on_either.manifest.records}
    shown = []
    cursor: dict[str, str] = {}
    for _ in range(4):
        page = get(client, "images", limit=7, filter=json.dumps(PA), **cursor)
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
        assert client.get(image["links"]["image"]).json()["id"] == image["id"]
    assert len(get(client, "images")["images"]) == 24


def test_wrong_parameters_of_lists_are_named(client: TestClient) -> None:
    for what, parameters, field in (
        ("images", {"limit": "0"}, "limit"),
        ("images", {"limit": "many"}, "limit"),
        ("images", {"filtre": "{}"}, "filtre"),
        ("images", {"filter": "{"}, "filter"),
        ("images", {"filter": "x" * 16_385}, "filter"),
        ("facets", {"field": "x" * 1001}, "field"),
        ("facets", {"field": "viwe"}, "field"),
        ("facets", {"offset": "3"}, "offset"),
    ):
        problem(client.get(f"{HERE}/{what}", params=parameters), 422, "invalid-request", field)
    for text in ("[]", "5", "null", '{"field": "view"}', '"PA"'):
        answer = client.get(f"{HERE}/images", params={"filter": text})
        assert answer.json()["type"] == "urn:recoquest:invalid-filter", text
    answer = client.get(f"{HERE}/facets", params={"filter": '{"field": "sex", "eq": "F"}'})
    problem(answer, 422, "invalid-filter", "filter.sex")
    problem(client.get(f"{HERE}/images", params={"cursor": "x"}), 422, "invalid-cursor", "cursor")
    problem(client.get("/v1/collections/none/images"), 404, "unknown-collection")
    problem(client.get("/v1/collections/none/facets"), 404, "unknown-collection")


def test_values_are_counted_under_a_filter(client: TestClient) -> None:
    counted = get(client, "facets", filter=json.dumps({"field": "age", "lt": 30}))
    fields = {field["name"]: field for field in counted["fields"]}
    assert counted["count"] == 10
    assert fields["view"]["values"] == [{"value": "PA", "count": 6}, {"value": "AP", "count": 4}]
    assert (fields["age"]["minimum"], fields["age"]["maximum"]) == (20, 29)
    (named,) = get(client, "facets", field="id", containing="IMAGE-2")["fields"]
    assert {value["value"] for value in named["values"]} == {
        "image-2",
        *(f"image-{number}" for number in range(20, 24)),
    }


def test_values_are_counted_among_images_with_keywords(client: TestClient) -> None:
    asked = {"keywords": "effusion", "filter": {"field": "age", "lt": 60}}
    for body in (asked, {**asked, "keywords_state": "present"}, {**asked, "keywords_state": "absent"}):
        count = client.post(f"{HERE}/count", json=body).json()["count"]
        counted = client.post(f"{HERE}/facets", json={**body, "field": "view"}).json()
        assert counted["count"] == count
        assert sum(value["count"] for value in counted["fields"][0]["values"]) == count
    without = client.post(f"{HERE}/facets", json={"keywords": "..."})
    problem(without, 422, "invalid-request", "keywords")


def test_values_are_counted_by_a_body_as_by_an_address(client: TestClient) -> None:
    young = {"field": "age", "lt": 30}
    for body, parameters in (
        ({}, {}),
        ({"filter": young}, {"filter": json.dumps(young)}),
        ({"field": "id", "containing": "IMAGE-2"}, {"field": "id", "containing": "IMAGE-2"}),
    ):
        answer = client.post(f"{HERE}/facets", json=body)
        assert answer.status_code == 200, answer.text
        assert answer.json() == get(client, "facets", **parameters)
    for wrong, kind, field in (
        ({"filtre": {}}, "invalid-request", "filtre"),
        ({"filter": "{}"}, "invalid-request", "filter"),
        ({"field": "viwe"}, "invalid-request", "field"),
        ({"field": "id", "containing": "x" * 201}, "invalid-request", "containing"),
        ({"filter": {"field": "sex", "eq": "F"}}, "invalid-filter", "filter.sex"),
    ):
        problem(client.post(f"{HERE}/facets", json=wrong), 422, kind, field)


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
