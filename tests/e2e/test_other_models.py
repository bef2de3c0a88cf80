"""Encoders of other kinds are evaluated, indexed, served and searched like any other."""

import json
from collections.abc import Mapping, Sequence

import pytest

from tests.e2e.work import TINY, Work, service

# Five models are trained, and served by two processes each.
pytestmark = pytest.mark.slow

KINDS: Mapping[str, Sequence[str]] = {
    "reco": ["objective.name=reco", "objective.reduction=balanced"],
    "quest": ["objective.name=quest", "model.branches={kind: mlp}"],
    "normals": ["objective.name=quest", "model.branches={kind: mlp}", "model.retrieval=normal"],
    "blades": ["objective.name=reco", "model.blades=2"],
}
# One that never saw a text.
IMAGES_ALONE = ["objective.name=simclr", "model.text=null", "train.select_by=loss"]
SCORE_KINDS: Mapping[str, str] = {"normals": "absolute_cosine", "blades": "blade_cosine"}
IMAGES = 40


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Work:
    """One collection by each kind of encoder, each step by its command."""
    work = Work(tmp_path_factory.mktemp("work"))
    work.run("sample-data", "samples", "--images", IMAGES)
    for kind, settings in [*KINDS.items(), ("images", IMAGES_ALONE)]:
        overrides = [part for setting in [*TINY, *settings] for part in ("--set", setting)]
        work.run("train", "demo-scenes", "--data", work.data, "--out", kind, *overrides)
        work.run("index", kind, "--bundle", f"{kind}/bundle", "--data", work.data)
    return work


@pytest.mark.parametrize("kind", list(KINDS))
def test_evaluate_measures_it(work: Work, kind: str) -> None:
    assert "RSUM" in work.run("evaluate", f"{kind}/bundle", "--data", work.data).stdout


def test_an_encoder_of_images_alone_is_evaluated_and_searched_by_image(work: Work) -> None:
    printed = work.run("evaluate", "images/bundle", "--data", work.data).stdout
    assert "image to image" in printed
    assert "text to image" not in printed
    record, place = work.records[3], "/v1/collections/images/search"
    picture = (work.data / record.image).read_bytes()
    with service(work) as (client, _):
        refused = client.post(place, json={"text": record.texts[0]})
        assert refused.status_code == 422
        assert refused.json()["title"] == "The collection cannot be searched by text"
        found = client.post(place, files={"image": picture}, data={"query": json.dumps({"limit": IMAGES})})
        alike = client.post(place, json={"like": [{"id": record.id}], "limit": IMAGES})
    assert len(found.json()["hits"]) == IMAGES
    assert found.json()["hits"][0]["id"] == record.id
    assert len(alike.json()["hits"]) == IMAGES - 1


def test_all_are_searched_by_text_by_image_and_by_likeness(work: Work) -> None:
    record = work.records[3]
    picture = (work.data / record.image).read_bytes()
    with service(work) as (client, _):
        for kind in KINDS:
            place = f"/v1/collections/{kind}"
            answers = [
                client.post(f"{place}/search", json={"text": record.texts[0], "limit": IMAGES}),
                client.post(
                    f"{place}/search", files={"image": picture}, data={"query": json.dumps({"limit": IMAGES})}
                ),
                client.post(f"{place}/search", json={"like": [{"id": record.id}], "limit": IMAGES}),
            ]
            for answer, expected in zip(answers, (IMAGES, IMAGES, IMAGES - 1), strict=True):
                assert answer.status_code == 200, answer.text
                page = answer.json()
                assert len(page["hits"]) == expected
                scores = [hit["score"] for hit in page["hits"]]
                assert scores == sorted(scores, reverse=True)
                assert {hit["score_kind"] for hit in page["hits"]} == {SCORE_KINDS.get(kind, "cosine")}
                assert kind != "normals" or min(scores) >= 0
            by_image = answers[1].json()["hits"][0]
            assert by_image["id"] == record.id
            assert by_image["score"] == pytest.approx(1, abs=2e-3)
