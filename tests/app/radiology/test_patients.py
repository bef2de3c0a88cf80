"""Hits by study, and the patients of examples."""

from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.app.conftest import COLLECTION
from tests.app.radiology.conftest import FILMS, patient_of, sop_uid, study_uid
from tests.app.search.test_search import ids

SEARCH = f"/v1/collections/{FILMS}/search"


def found(client: TestClient, **query: Any) -> dict[str, Any]:
    answer = client.post(SEARCH, json={"limit": 100, **query})
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


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
    pages = [found(client, **query, cursor=True)]
    while pages[-1]["next_cursor"] is not None:
        pages.append(found(client, **query, cursor=pages[-1]["next_cursor"]))
    assert [name for page in pages for name in ids(page)] == ids(found(client, like=query["like"]))
    answer = client.post(
        SEARCH, json={**query, "exclude_same_group": False, "cursor": pages[0]["next_cursor"]}
    )
    assert answer.status_code == 422


@pytest.mark.parametrize("field", ["patient", "study", "group", True])
def test_groups_that_are_named_are_left_out_instead(client: TestClient, field: str | bool) -> None:
    page = found(client, like=[{"id": sop_uid(4)}], exclude_same_group=field)
    assert len(page["hits"]) == (21 if field == "study" else 18)


def test_a_collection_without_studies_leaves_the_example_out_alone(client: TestClient) -> None:
    sent = {"like": [{"id": "image-3"}], "limit": 100}
    page = client.post(f"/v1/collections/{COLLECTION}/search", json=sent).json()
    assert len(page["hits"]) == 23
