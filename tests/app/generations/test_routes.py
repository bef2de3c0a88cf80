"""Registered models and generations over HTTP: cards, and activation at once or by a job."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from app.application import create_app
from app.engine import open_engine
from app.jobs.folder import JobFolder
from app.jobs.kinds import bundle_of
from index.audit.listing import Selection, all_events
from index.catalogue.collections import Generation
from index.catalogue.jobs import add_job, claim_job, end_job, list_jobs
from index.engine import SearchEngine
from index.errors import GenerationError
from index.generations.activation import drop_generation, require_complete
from index.generations.reindex import generation_for, reindex
from tests.access import AS_ADMIN, bearer
from tests.app.conftest import COLLECTION, LOCAL, Indexed, make_bundle, serve
from tests.app.images.test_uploads import picture, problem, put
from tests.training.models.tiny import tiny_config, tiny_model, tiny_preprocessing
from training.models.bundle import read_bundle, save_bundle
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


@pytest.mark.slow
def test_the_model_of_a_job_is_registered_embedded_activated_and_taken_back(
    home: Indexed, local: TestClient, engine: SearchEngine
) -> None:
    base = read_bundle(home.bundle).digest
    number = end(engine, "retrain", {})
    bundle = bundle_of("retrain", JobFolder.for_job(home.settings, number).path)
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
    requests = []

    def fail(*arguments: object) -> None:
        requests.append(arguments)
        raise GenerationError("It was activated meanwhile: it stays.")

    monkeypatch.setattr("index.generations.activation.drop_old_generations", fail)
    application = create_app(home.settings)
    # An error behind the answer is raised here.
    with TestClient(application, "http://127.0.0.1", client=LOCAL, headers=AS_ADMIN) as client:
        assert client.post(activation_of(generation)).status_code == 200
    assert len(requests) == 1


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
    payload = {"kind": "reindex", "collection": COLLECTION, "model": digest}
    response = local.post("/v1/jobs", json=payload)
    assert (response.status_code, response.json()["arguments"]) == (202, [COLLECTION, "--model", digest])
    problem(local.post("/v1/jobs", json={**payload, "model": UNKNOWN}), 404, "unregistered-model")
    problem(local.post("/v1/jobs", json={**payload, "collection": "--home=/"}), 404, "unknown-collection")
    problem(local.post("/v1/jobs", json={**payload, "generation": 1}), 422, "invalid-request")
    problem(local.post("/v1/jobs", json={**payload, "model": "--bundle=/srv"}), 422, "invalid-request")


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


HERE = f"/v1/collections/{COLLECTION}"
LATER = {"Prefer": "wait=5, Respond-Async"}


@pytest.fixture
def opened(own: Indexed) -> Iterator[SearchEngine]:
    opened = open_engine(own.settings)
    yield opened
    opened.close()


@pytest.fixture
def other(own: Indexed, opened: SearchEngine) -> int:
    """A generation by another encoder that has no vectors yet."""
    folder = make_bundle(own.settings.home.parent / "other", seed=7)
    return generation_for(opened.home, COLLECTION, load_encoder(folder, "cpu")).id


def work(own: Indexed, job: dict[str, Any]) -> None:
    """Run the command of a job, as a worker does."""
    own.run(job["kind"], *job["arguments"], "--device", "cpu")
    with own.write() as session:
        assert claim_job(session, job["id"], "w") is not None
        end_job(session, job["id"], "w", "done")


@pytest.mark.slow
def test_a_job_activates_what_is_far_from_complete_and_another_takes_it_back(
    own: Indexed, service: TestClient, opened: SearchEngine, other: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOQUEST_REFRESH_S", "0.01")
    first = opened.active(COLLECTION).generation
    activation = f"{HERE}/generations/{other}/activate"
    problem(service.post(activation), 409, "incomplete-generation")

    response = service.post(activation, headers=LATER)

    assert response.status_code == 202, response.text
    assert response.headers["Preference-Applied"] == "respond-async"
    assert response.json()["arguments"] == [COLLECTION, "--generation", str(other), "--activate"]
    assert service.get(response.headers["Location"]).json()["state"] == "queued"
    assert opened.active(COLLECTION).generation == first
    work(own, response.json())
    assert opened.active(COLLECTION).generation == other
    back = service.post(f"{HERE}/rollback", headers=LATER)
    assert (back.status_code, back.json()["arguments"][2]) == (202, str(first))
    work(own, back.json())
    assert opened.active(COLLECTION).generation == first
    with opened.home.catalogue.read() as session:
        events = list(all_events(session, Selection(action="activate", collection=COLLECTION)))
        queued = list(all_events(session, Selection(action="create", collection=COLLECTION)))
    # A queued job is no activation yet: the commands tell of these.
    assert [event.record["generation"] for event in events] == [other, first]
    assert [event.record["details"]["job"] for event in queued] == [response.json()["id"], back.json()["id"]]


def test_a_request_that_is_sent_again_queues_one_job(
    service: TestClient, opened: SearchEngine, other: int
) -> None:
    sent = {**LATER, "Idempotency-Key": "once"}
    activation = f"{HERE}/generations/{other}/activate"
    first, again = (service.post(activation, headers=sent) for _ in range(2))
    assert (first.status_code, again.status_code, again.json()) == (202, 202, first.json())
    assert again.headers["Location"] == first.headers["Location"]
    with opened.home.catalogue.read() as session:
        assert len(list_jobs(session)) == 1


def test_what_is_not_there_queues_nothing(service: TestClient, opened: SearchEngine) -> None:
    missing = service.post(f"{HERE}/generations/999/activate", headers=LATER)
    problem(missing, 404, "unknown-generation")
    problem(service.post(f"{HERE}/rollback", headers=LATER), 404, "unknown-generation")
    with opened.home.catalogue.read() as session:
        assert list_jobs(session) == []


def _admin_of(own: Indexed, collection: str) -> dict[str, str]:
    return bearer(own.key("admin", collection, name=collection))


def test_an_administrator_of_the_collection_alone_sees_the_job_and_begins_one_at_a_time(
    own: Indexed, service: TestClient, opened: SearchEngine, other: int
) -> None:
    of_photos, of_others = _admin_of(own, COLLECTION), _admin_of(own, "others")
    activation = f"{HERE}/generations/{other}/activate"
    response = service.post(activation, headers={**LATER, **of_photos})
    assert response.status_code == 202, response.text
    position = response.headers["Location"]
    assert service.get(position, headers=of_photos).json()["state"] == "queued"
    assert service.get(position, headers=of_others).status_code == 403
    for _ in range(3):
        second = service.post(activation, headers={**LATER, **of_photos})
        problem(second, 409, "job-exists")
        assert f"by job {response.json()['id']}, which is queued" in second.json()["detail"]
    with opened.home.catalogue.read() as session:
        assert len(list_jobs(session)) == 1
    assert service.post(f"{position}/cancel", headers=of_others).status_code == 403
    assert service.post(f"{position}/cancel", headers=of_photos).status_code == 202
    events = service.get(f"{position}/events", headers=of_photos)
    assert (events.status_code, events.text.count("event: job"), "cancelled" in events.text) == (200, 1, True)
    assert service.get(f"{position}/events", headers=of_others).status_code == 403
    assert service.post(activation, headers={**LATER, **of_photos}).status_code == 202


def test_other_jobs_of_the_collection_are_for_the_operator(
    own: Indexed, service: TestClient, opened: SearchEngine
) -> None:
    of_photos = _admin_of(own, COLLECTION)
    activation = [COLLECTION, "--generation", "1", "--activate"]
    others = [
        ("index", [COLLECTION, "--data", "/srv/films"], None),
        ("reindex", [COLLECTION, "--bundle", "/srv/bundle", "--activate"], None),
        ("reindex", activation, "/srv"),
        ("reindex", [*activation, "--home"], None),
        ("retrain", activation, None),
        ("reindex", ["--generation", "1", "--activate", COLLECTION], None),
        ("tidy", [], None),
    ]
    with opened.home.catalogue.write() as session:
        numbers = [add_job(session, kind, arguments, folder=folder).id for kind, arguments, folder in others]
    for number in (*numbers, 999, "x", "9" * 30, "\u0661"):
        for method, path in (("GET", ""), ("GET", "/events"), ("POST", "/cancel")):
            refused = service.request(method, f"/v1/jobs/{number}{path}", headers=of_photos)
            assert refused.status_code == 403, (number, path)
            assert "in all collections" in refused.json()["detail"]
    assert service.get("/v1/jobs", headers=of_photos).status_code == 403
