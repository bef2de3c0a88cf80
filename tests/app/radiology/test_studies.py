"""Studies like a study or an image of it, hits by study, and the patients of examples."""

import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pytest
from fastapi.testclient import TestClient

from tests.access import AS_ADMIN
from tests.app.audit.written import written_events
from tests.app.conftest import COLLECTION, Indexed, serve
from tests.app.radiology.conftest import FILMS, index_films, patient_of, sop_uid, study_uid, with_key
from tests.app.search.test_search import body_of, ids, pages, problem

HERE: Final = f"/v1/collections/{FILMS}/studies"


def similar(client: TestClient, path: str, **params: Any) -> dict[str, Any]:
    return body_of(client.get(path, params=params))


def _cosines(films: Indexed) -> dict[tuple[int, int], float]:
    """The cosine of each two images, from the vectors of the catalogue."""
    with films.engine() as engine:
        active = engine.active(FILMS)
        vectors = np.stack([engine.vector_of(active, sop_uid(number)) for number in range(24)])
    cosines = vectors @ vectors.T
    return {(one, other): float(cosines[one, other]) for one in range(24) for other in range(24)}


def test_a_study_is_as_near_as_its_most_similar_pair_of_images(client: TestClient, films: Indexed) -> None:
    answer = similar(client, f"{HERE}/{study_uid(1)}/similar", limit=100)
    assert answer["state"] == "indexed"
    assert [image["sop"] for image in answer["images"]] == [sop_uid(number) for number in (3, 4, 5)]
    cosines = _cosines(films)
    best = {
        study: max(
            (cosines[number, other], other, number)
            for number in (3, 4, 5)
            for other in range(3 * study, 3 * study + 3)
        )
        for study in range(2, 8)
    }
    ranked = sorted(best, key=lambda study: best[study], reverse=True)
    assert [hit["study"] for hit in answer["hits"]] == [study_uid(study) for study in ranked]
    for hit, study in zip(answer["hits"], ranked, strict=True):
        score, other, number = best[study]
        assert hit["score"] == pytest.approx(score, abs=1e-3)
        assert (hit["sop"], hit["query_image"]) == (sop_uid(other), sop_uid(number))
    assert [hit["rank"] for hit in answer["hits"]] == list(range(1, 7))


def test_an_image_finds_studies_by_itself_alone(client: TestClient, films: Indexed) -> None:
    answer = similar(client, f"{HERE}/{study_uid(1)}/instances/{sop_uid(4)}/similar", limit=3)
    cosines = _cosines(films)
    best = max(range(6, 24), key=lambda other: cosines[4, other])
    assert answer["hits"][0]["sop"] == sop_uid(best)
    assert {hit["query_image"] for hit in answer["hits"]} == {sop_uid(4)}
    assert len(answer["hits"]) == 3


def test_counted_dates_say_whether_they_are_shifted(client: TestClient) -> None:
    path = f"/v1/collections/{FILMS}"
    (date,) = client.post(f"{path}/facets", json={"field": "date"}).json()["fields"]
    assert (date["kinds"], date["date_shifted"]) == (["date"], None)
    for fields in (client.get(f"{path}/facets").json()["fields"], client.get(path).json()["fields"]):
        assert {field["name"] for field in fields if field["date_shifted"] is not False} == {"date"}


def test_hits_are_told_with_all_that_a_viewer_shows(client: TestClient) -> None:
    answer = similar(client, f"{HERE}/{study_uid(1)}/instances/{sop_uid(4)}/similar", limit=100)
    hits = {hit["study"]: hit for hit in answer["hits"]}
    hit = hits[study_uid(5)]
    number = int(hit["sop"].rpartition(".")[2])
    path = f"/v1/collections/{FILMS}/images/{sop_uid(number)}"
    sentence = hit.pop("sentence")
    assert {name: hit[name] for name in hit if name not in ("rank", "score", "z_score", "findings")} == {
        "id": sop_uid(number),
        "query_image": sop_uid(4),
        "images": 3,
        "study": study_uid(5),
        "series": f"{study_uid(5)}.1",
        "sop": sop_uid(number),
        "frame": None,
        "modality": "DX",
        "view": ("PA", "LL", "AP")[number % 3],
        "laterality": None,
        "body_part": None,
        "date": "2024-01-06",
        "date_shifted": None,
        "days": 4,
        "age_band": "90+",
        "sex": "F",
        "same_patient": False,
        "links": {
            "image": path,
            "thumbnail": f"{path}/thumbnail",
            "rendition": f"{path}/rendition",
            "report": path,
            "viewer": None,
        },
    }
    assert hit["findings"]["absent"] == ["pneumothorax"]
    record = client.get(path).json()
    assert record["report"][sentence["start"] : sentence["end"]] == sentence["text"]
    assert sentence["start"] > record["report"].index("FINDINGS")
    assert record["texts"][sentence["position"]] == sentence["text"]
    assert hits[study_uid(2)]["age_band"] == "60-69"
    for name in ("thumbnail", "rendition"):
        assert client.get(hit["links"][name]).status_code == 200


def test_the_sentence_is_the_nearest_of_the_image(client: TestClient, films: Indexed) -> None:
    answer = similar(client, f"{HERE}/{study_uid(1)}/instances/{sop_uid(4)}/similar", limit=100)
    sent = {"like": [{"id": sop_uid(4)}], "target": "texts", "limit": 100}
    texts = client.post(f"/v1/collections/{FILMS}/search", json=sent).json()["hits"]
    for hit in answer["hits"]:
        nearest = next(text for text in texts if text["id"] == hit["id"])
        assert hit["sentence"]["text"] == nearest["text"]["text"]
        assert hit["sentence"]["prior"] == ("unchanged" in hit["sentence"]["text"])
    assert {hit["sentence"]["prior"] for hit in answer["hits"]} == {False, True}


def test_priors_are_told_on_demand_and_the_study_itself_never(client: TestClient) -> None:
    path = f"{HERE}/{study_uid(1)}/similar"
    without = similar(client, path, limit=100)
    with_priors = similar(client, path, limit=100, same_patient=True)
    told = {hit["study"]: hit["same_patient"] for hit in with_priors["hits"]}
    assert told == {study_uid(study): study == 0 for study in (0, 2, 3, 4, 5, 6, 7)}
    assert {hit["study"] for hit in without["hits"]} == told.keys() - {study_uid(0)}
    (prior,) = [hit for hit in with_priors["hits"] if hit["same_patient"]]
    assert prior["days"] == -1


def test_a_filter_is_about_the_images_of_hits(client: TestClient) -> None:
    condition = json.dumps({"field": "view", "eq": "PA"})
    answer = similar(client, f"{HERE}/{study_uid(1)}/similar", limit=100, filter=condition)
    assert {(hit["view"], hit["images"]) for hit in answer["hits"]} == {("PA", 1)}
    wrong = client.get(f"{HERE}/{study_uid(1)}/similar", params={"filter": '{"field": "viw", "eq": "PA"}'})
    problem(wrong, 422, "invalid-filter", "filter.viw")


@pytest.mark.parametrize("study", ["9.9.9", "x" * 255, "\N{BLACK HEART SUIT}", "%00"])
def test_a_study_that_is_not_here_is_not_indexed(client: TestClient, study: str) -> None:
    answer = similar(client, f"{HERE}/{study}/similar")
    assert (answer["state"], answer["hits"], answer["images"]) == ("not_indexed", [], [])
    image = similar(client, f"{HERE}/{study_uid(1)}/instances/{study}/similar")
    assert (image["state"], image["collections"]) == ("not_indexed", [])


def test_a_frame_is_one_image(client: TestClient) -> None:
    path = f"{HERE}/{study_uid(1)}/instances/{sop_uid(4)}/similar"
    # A single image is its own first frame.
    assert similar(client, path, frame=1)["state"] == "indexed"
    assert similar(client, path, frame=2)["state"] == "not_indexed"
    problem(client.get(path, params={"frame": 0}), 422, "invalid-request", "frame")


def test_unknown_parameters_and_limits_are_refused(client: TestClient) -> None:
    path = f"{HERE}/{study_uid(1)}/similar"
    problem(client.get(path, params={"limit": 101}), 422, "invalid-request", "limit")
    problem(client.get(path, params={"patient": "1"}), 422, "invalid-request", "patient")
    problem(client.get(path, params={"frame": 1}), 422, "invalid-request", "frame")
    problem(client.get("/v1/collections/none/studies/1/similar"), 404, "unknown-collection")


def test_a_collection_of_other_images_has_no_studies(client: TestClient) -> None:
    answer = similar(client, f"/v1/collections/{COLLECTION}/studies/{study_uid(1)}/similar")
    assert answer["state"] == "not_indexed"
    assert answer["collections"] == [FILMS]


@pytest.fixture
def closed(make_indexed: Callable[..., Indexed]) -> Iterator[TestClient]:
    home = make_indexed(open_reading=False, viewer_url="/viewer?StudyInstanceUIDs={study}&image={sop}")
    index_films(home)
    with serve(home, key=False) as client:
        yield client


def test_a_viewer_needs_no_collection(client: TestClient) -> None:
    here = similar(client, f"{HERE}/{study_uid(1)}/similar", limit=100)
    assert similar(client, f"/v1/studies/{study_uid(1)}/similar", limit=100) == here
    image = similar(client, f"{HERE}/{study_uid(1)}/instances/{sop_uid(3)}/similar")
    assert similar(client, f"/v1/studies/{study_uid(1)}/instances/{sop_uid(3)}/similar") == image
    assert here["collection"] == FILMS
    nowhere = similar(client, "/v1/studies/9.9/similar")
    assert (nowhere["state"], nowhere["collection"], nowhere["served_by"]) == ("not_indexed", None, None)


def test_a_caller_without_the_collection_learns_nothing_of_the_study(closed: TestClient) -> None:
    headers = with_key(closed, "reader", COLLECTION)
    held = closed.get(f"/v1/studies/{study_uid(1)}/similar", headers=headers).json()
    unheld = closed.get("/v1/studies/9.9.9/similar", headers=headers).json()
    assert {**held, "study": ""} == {**unheld, "study": ""}
    own = f"/v1/collections/{COLLECTION}/studies/{study_uid(1)}/similar"
    assert closed.get(own, headers=headers).json()["collections"] == []


def test_hits_link_to_the_viewer_and_the_search_is_audited_by_hashes(closed: TestClient) -> None:
    answer = closed.get(f"{HERE}/{study_uid(1)}/similar", headers=AS_ADMIN)
    hits = answer.json()["hits"]
    for hit in hits:
        expected = f"/viewer?StudyInstanceUIDs={hit['study']}&image={hit['sop']}"
        assert hit["links"]["viewer"] == expected
    (event,) = written_events(closed, AS_ADMIN, action="search")
    assert event["ids"] == [hit["id"] for hit in hits]
    assert len(event["query"]["like"]) == 3
    assert study_uid(1) not in json.dumps(event["query"])
    assert event["collection"] == FILMS
    assert patient_of(0) not in json.dumps(event)


SEARCH = f"/v1/collections/{FILMS}/search"


def found(client: TestClient, **query: Any) -> dict[str, Any]:
    return body_of(client.post(SEARCH, json={"limit": 100, **query}))


def _patients(page: dict[str, Any]) -> set[str]:
    return {hit["metadata"]["patient"] for hit in page["hits"]}


def test_images_of_the_same_patient_are_left_out_unless_they_are_asked_for(client: TestClient) -> None:
    like = [{"id": sop_uid(4)}]
    by_default = found(client, like=like)
    assert len(by_default["hits"]) == 18
    assert _patients(by_default) == {patient_of(study) for study in (2, 4, 6)}
    with_priors = found(client, like=like, exclude_same_group=False)
    assert set(ids(with_priors)) == {sop_uid(number) for number in range(24) if number != 4}


def test_the_patient_of_each_liked_example_is_left_out_and_of_no_other(client: TestClient) -> None:
    page = found(client, like=[{"id": sop_uid(0)}, {"id": sop_uid(6)}], unlike=[{"id": sop_uid(12)}])
    assert _patients(page) == {patient_of(4), patient_of(6)}
    assert len(page["hits"]) == 11


def test_sentences_of_the_same_patient_are_left_out_too(client: TestClient) -> None:
    page = found(client, like=[{"id": sop_uid(4)}], target="texts")
    assert _patients(page) == {patient_of(study) for study in (2, 4, 6)}


def test_hits_are_studies(client: TestClient) -> None:
    page = found(client, like=[{"id": sop_uid(4)}], group_by="study")
    studies = [hit["metadata"]["study"] for hit in page["hits"]]
    assert sorted(studies) == [study_uid(study) for study in range(2, 8)]
    assert {hit["group_size"] for hit in page["hits"]} == {3}


def test_pages_leave_the_same_patient_out(client: TestClient) -> None:
    query: dict[str, Any] = {"like": [{"id": sop_uid(4)}], "limit": 7}
    told = pages(client, SEARCH, **query)
    assert [name for page in told for name in ids(page)] == ids(found(client, like=query["like"]))
    changed = {**query, "exclude_same_group": False, "cursor": told[0]["next_cursor"]}
    assert client.post(SEARCH, json=changed).status_code == 422


@pytest.mark.parametrize("field", ["patient", "study", "group", True])
def test_groups_that_are_named_are_left_out_instead(client: TestClient, field: str | bool) -> None:
    page = found(client, like=[{"id": sop_uid(4)}], exclude_same_group=field)
    assert len(page["hits"]) == (21 if field == "study" else 18)


def test_a_collection_without_studies_leaves_the_example_out_alone(client: TestClient) -> None:
    sent = {"like": [{"id": "image-3"}], "limit": 100}
    page = client.post(f"/v1/collections/{COLLECTION}/search", json=sent).json()
    assert len(page["hits"]) == 23
