"""Registered models over HTTP: their cards, one of a job, and which one a collection is searched with."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.application import create_app
from app.jobs.folder import JobFolder
from app.jobs.kinds import bundle_of
from index.catalogue.collections import Generation
from index.catalogue.jobs import add_job, claim_job, end_job
from index.engine import SearchEngine
from index.errors import GenerationError
from index.generations.activation import drop_generation, require_complete
from index.generations.reindex import generation_for, reindex
from tests.access import AS_ADMIN
from tests.app.conftest import COLLECTION, LOCAL, Indexed, make_bundle, serve
from tests.app.images.test_writes import picture, problem, put
from tests.training.models.tiny import tiny_config, tiny_model, tiny_preprocessing
from training.models.bundle import read_bundle
from training.models.bundle_writer import save_bundle
from training.models.encoder import load_encoder
from training.recipes.load import dump_recipe, load_recipe

UNKNOWN = "0" * 64
JUDGEMENT = {
    "metric": "rsum",
    "before": 271.4,
    "after": 280.2,
    "held_out": "test",
    "images": 120,
    "passed": True,
}


@pytest.fixture
def home(own: Indexed) -> Indexed:
    return replace(own, settings=own.settings.model_copy(update={"refresh_s": 0.01}))


@pytest.fixture
def local(home: Indexed) -> Iterator[TestClient]:
    with serve(home) as running:
        yield running


@pytest.fixture
def engine(home: Indexed) -> Iterator[SearchEngine]:
    with home.engine() as opened:
        yield opened


def embedded(engine: SearchEngine, bundle: Path) -> Generation:
    """A generation of the collection that is complete and not active."""
    encoder = load_encoder(bundle, "cpu")
    generation = generation_for(engine.home, COLLECTION, encoder)
    reindex(engine, generation, encoder, show_progress=False)
    return generation


def activation_of(generation: Generation) -> str:
    return f"/v1/collections/{COLLECTION}/generations/{generation.id}/activate"


def trained_further(folder: Path, base: str) -> str:
    """Save another model, whose recipe says that it began with `base`; return its digest."""
    recipe = load_recipe("demo-scenes", [f"train.start_from=/srv/secret/bundles/{base}", "train.seed=3"])
    return save_bundle(
        folder,
        name="further",
        model=tiny_model(tiny_config(dim=12), seed=1),
        preprocessing=tiny_preprocessing(),
        metrics={"rsum": 280.2},
        recipe_yaml=dump_recipe(recipe),
    ).digest


def end(engine: SearchEngine, kind: str, result: dict[str, Any]) -> int:
    """A job of this kind that is done."""
    with engine.home.catalogue.write() as session:
        number = add_job(session, kind, []).id
        claim_job(session, number, "w")
        end_job(session, number, "w", "done", result=result)
    return number


def test_the_model_of_a_job_is_registered_embedded_activated_and_taken_back(
    home: Indexed, local: TestClient, engine: SearchEngine
) -> None:
    base = read_bundle(home.bundle).digest
    number = end(engine, "retrain", {})
    bundle = bundle_of("retrain", JobFolder.of(home.settings, number).path)
    assert bundle is not None
    digest = trained_further(bundle, base)
    answer = local.post("/v1/models", json={"job": number})
    assert (answer.status_code, answer.headers["Location"]) == (201, f"/v1/models/{digest}")
    assert local.post("/v1/models", json={"job": number}).json() == answer.json()
    assert [model["digest"] for model in local.get("/v1/models").json()["models"]] == [digest, base]

    encoder = load_encoder(engine.home.bundles_folder / digest, "cpu")
    generation = generation_for(engine.home, COLLECTION, encoder)
    activation = activation_of(generation)
    lacking = problem(local.post(activation), 409, "incomplete-generation")
    assert f"--generation {generation.id}" in lacking["detail"]
    reindex(engine, generation, encoder, show_progress=False)

    changed = local.post(activation)
    listed = local.get(f"/v1/collections/{COLLECTION}/generations").json()["generations"]
    assert changed.json() == next(each for each in listed if each["number"] == generation.id)
    expected = {"collection": COLLECTION, "state": "active", "model": "further", "missing": 0}
    assert changed.json() | expected | {"digest": digest} == changed.json()
    assert engine.active(COLLECTION).digest == digest
    back = local.post(f"/v1/collections/{COLLECTION}/rollback")
    assert (back.status_code, back.json()["digest"]) == (200, base)
    assert engine.active(COLLECTION).digest == base


def test_an_old_generation_that_cannot_be_dropped_is_no_error_of_the_answer(
    home: Indexed, engine: SearchEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    generation = embedded(engine, make_bundle(home.bundle.with_name("other"), seed=1))
    asked = []

    def fail(*arguments: object) -> None:
        asked.append(arguments)
        raise GenerationError("It was activated meanwhile: it stays.")

    monkeypatch.setattr("index.generations.activation.drop_old_generations", fail)
    application = create_app(home.settings)
    # An error behind the answer is raised here.
    with TestClient(application, "http://127.0.0.1", client=LOCAL, headers=AS_ADMIN) as client:
        assert client.post(activation_of(generation)).status_code == 200
    assert len(asked) == 1


@pytest.mark.parametrize(
    "then", [pytest.param("before it is loaded", marks=pytest.mark.slow), "while services load it"]
)
def test_a_generation_that_is_dropped_meanwhile_is_unknown(
    home: Indexed, local: TestClient, engine: SearchEngine, then: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained_further(home.bundle.with_name("further"), UNKNOWN)
    generation = embedded(engine, home.bundle.with_name("further"))
    warm = SearchEngine.warm

    def dropping(self: SearchEngine, number: int) -> None:
        if not home.owns(self):
            warm(self, number)
            return
        if then == "while services load it":
            warm(self, number)
        drop_generation(engine.home, COLLECTION, number)
        if then == "before it is loaded":
            warm(self, number)

    monkeypatch.setattr(SearchEngine, "warm", dropping)
    answer = local.post(activation_of(generation))
    assert problem(answer, 404, "unknown-generation")["detail"] == (
        f"Generation {generation.id} of '{COLLECTION}' was dropped meanwhile, and nothing was changed."
    )


def test_a_card_says_where_a_model_comes_from_and_names_no_folder(
    home: Indexed, local: TestClient, engine: SearchEngine
) -> None:
    base = read_bundle(home.bundle).digest
    digest = trained_further(home.bundle.with_name("further"), base)
    home.index("ward", home.bundle.with_name("further"))
    result = {"verdict": "waiting", "collection": COLLECTION, "generation": 2, "bundle": digest}
    number = end(engine, "retrain", {**result, "judgement": JUDGEMENT})
    answer = local.get(f"/v1/models/{digest}")
    card = answer.json()
    assert (card["name"], card["dim"], card["score_kind"]) == ("further", 12, "cosine")
    assert (card["metrics"], card["collections"]) == ({"rsum": 280.2}, ["ward"])
    assert card["towers"] == {"image": "resnet", "text": "small_transformer"}
    training = card["training"]
    assert (training["recipe"], training["objective"]) == ("demo-scenes", "infonce")
    assert (training["started_from"], training["seed"]) == (base, 3)
    assert card["retraining"] == {
        "job": number,
        "collection": COLLECTION,
        "verdict": "waiting",
        # It is of an earlier release.
        "judgement": {**JUDGEMENT, "verdict": None, "low": None, "high": None, "chance": None},
    }
    (made,) = card["generations"]
    assert (made["collection"], made["state"], made["images"], made["missing"]) == ("ward", "active", 24, 0)
    assert "/srv" not in answer.text
    assert str(home.settings.home) not in answer.text


def test_a_card_tells_what_it_does_not_know(home: Indexed, local: TestClient) -> None:
    digest = read_bundle(home.bundle).digest
    (home.settings.home / "bundles" / digest / "config.json").unlink()
    card = local.get(f"/v1/models/{digest}").json()
    assert (card["towers"], card["training"], card["retraining"]) == (None, None, None)
    problem(local.get(f"/v1/models/{UNKNOWN}"), 404, "unregistered-model")
    problem(local.get("/v1/models/tiny-0"), 422, "invalid-request")


def test_only_jobs_that_have_made_a_model_give_one(local: TestClient, engine: SearchEngine) -> None:
    for kind in ("tidy", "train"):
        number = end(engine, kind, {})
        answer = problem(local.post("/v1/models", json={"job": number}), 409, "no-model")
        assert f"Job {number} ({kind}) has made no model" in answer["detail"]
    problem(local.post("/v1/models", json={"job": 999}), 404, "unknown-job")
    problem(local.post("/v1/models", json={"bundle": "/srv/bundle"}), 422, "invalid-request")


def test_a_job_embeds_with_a_registered_model(home: Indexed, local: TestClient) -> None:
    digest = read_bundle(home.bundle).digest
    asked = {"kind": "reindex", "collection": COLLECTION, "model": digest}
    given = local.post("/v1/jobs", json=asked)
    assert (given.status_code, given.json()["arguments"]) == (202, [COLLECTION, "--model", digest])
    problem(local.post("/v1/jobs", json={**asked, "model": UNKNOWN}), 404, "unregistered-model")
    problem(local.post("/v1/jobs", json={**asked, "collection": "--home=/"}), 404, "unknown-collection")
    problem(local.post("/v1/jobs", json={**asked, "generation": 1}), 422, "invalid-request")
    problem(local.post("/v1/jobs", json={**asked, "model": "--bundle=/srv"}), 422, "invalid-request")


@pytest.mark.slow
def test_a_collection_that_is_written_to_all_the_time_changes_its_generation(
    home: Indexed, local: TestClient, engine: SearchEngine
) -> None:
    generation = embedded(engine, make_bundle(home.bundle.with_name("other"), seed=1))
    written: list[int] = []
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set() and len(written) < 5_000:
            number = len(written)
            assert put(local, f"new-{number}", picture(number)).status_code == 201
            written.append(number)

    with ThreadPoolExecutor(1) as writer:
        writing = writer.submit(write)
        try:
            while len(written) < 3:
                assert not writing.done(), writing.result()
            answer = local.post(activation_of(generation))
            assert not writing.done()
        finally:
            stop.set()
        writing.result()
    assert answer.status_code == 200, answer.text
    active = engine.active(COLLECTION)
    assert active.generation == generation.id
    with engine.home.catalogue.read() as session:
        require_complete(session, generation, texts=True)
