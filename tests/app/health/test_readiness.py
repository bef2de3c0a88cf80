"""Readiness follows the encoder and the catalogue, down and up again; liveness follows the process."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from fastapi.testclient import TestClient
from httpx2 import Response
from sqlalchemy import Engine, event

from app.application import create_app
from app.health import readiness as health
from app.health.readiness import active_generations
from app.settings import Settings
from index.engine import SearchEngine
from index.errors import ViewError
from index.generations.activation import activate, mark_preloading
from index.generations.reindex import generation_for, reindex
from tests.access import OPEN
from tests.app.conftest import COLLECTION, Indexed, make_bundle
from tests.app.search.test_search import problem
from tests.training.imaging.processes.decoding import wait_until
from training.models.bundle import read_bundle, save_bundle
from training.models.config import (
    AudioTowerConfig,
    DualEncoderConfig,
    ImagePreprocessingConfig,
    ImageTowerConfig,
    PreprocessingConfig,
)
from training.models.dual_encoder import build_dual_encoder
from training.models.encoder import Encoder, load_encoder
from training.models.preprocessing import Preprocessing
from training.models.text_input import TextEmbeddings

# Longer than anything takes on a busy machine; a test that passes waits for none of it.
PATIENCE = 30.0


class Trouble:
    """What happens inside the encoder's forward pass."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.entered = threading.Event()
        self.gate = threading.Event()
        self.gate.set()

    def load(self, bundle: Path) -> Encoder:
        """Load an encoder that has this trouble."""
        encoder = load_encoder(bundle, "cpu")
        embed = encoder.embed_texts

        def embed_texts(texts: Sequence[str | Sequence[str]]) -> TextEmbeddings:
            self.entered.set()
            self.gate.wait(PATIENCE)
            if self.error is not None:
                raise self.error
            return embed(texts)

        encoder.embed_texts = embed_texts  # type: ignore[method-assign]
        return encoder


@contextmanager
def served(
    home: Indexed, load: Callable[[Path], Encoder] | None = None, **changed: object
) -> Iterator[TestClient]:
    settings = home.settings.model_copy(update={"readiness_cache_s": 0.0, "refresh_s": 0.05, **changed})
    application = create_app(settings, load=load)
    with TestClient(application, "http://localhost", raise_server_exceptions=False) as client:
        yield client


def break_bundle(home: Indexed, digest: str) -> None:
    (home.settings.home / "bundles" / digest / "model.safetensors").write_bytes(b"broken")


def ready(client: TestClient) -> bool:
    return client.get("/readyz").status_code == 200


def search(client: TestClient, collection: str = COLLECTION) -> Response:
    answer: Response = client.post(f"/v1/collections/{collection}/search", json={"text": "two dogs"})
    return answer


def test_a_service_that_works_is_alive_and_ready(client: TestClient) -> None:
    assert client.get("/livez").json() == {"status": "alive"}
    ready = client.get("/readyz").json()
    assert ready["status"] == "ready"
    assert set(ready["checks"].values()) == {"ok"}
    assert set(ready["checks"]) == {"home", "catalogue", "views", f"encoder {_digest(client)[:12]}"}


def test_an_empty_home_is_ready_for_the_first_collection(tmp_path: Path) -> None:
    application = create_app(Settings(home=tmp_path / "new", **OPEN))
    with TestClient(application, "http://localhost") as client:
        assert client.get("/readyz").json()["checks"] == {"home": "ok", "catalogue": "ok", "views": "ok"}
        assert client.get("/v1/collections").json() == {"collections": []}
        problem(search(client), 404, "unknown-collection")


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [("unspecified launch failure", 500, "encoding-failed"), ("out of memory", 503, "encoder-out-of-memory")],
)
def test_a_failing_encoder_makes_the_service_unready_until_it_works_again(
    indexed: Indexed, error: str, status: int, kind: str
) -> None:
    trouble = Trouble()
    with served(indexed, trouble.load) as client:
        assert ready(client)
        trouble.error = RuntimeError(f"CUDA error: {error}")
        document = problem(client.get("/readyz"), 503, "not-ready", f"encoder {_digest(client)[:12]}")
        assert "CUDA" not in str(document)
        problem(search(client), status, kind)
        assert client.get("/livez").status_code == 200
        trouble.error = None
        assert ready(client)
        assert search(client).status_code == 200
        # A worker that dies is replaced and counted.
        trouble.error = SystemExit()
        problem(search(client), 500, "encoding-failed")
        trouble.error = None
        assert search(client).status_code == 200
        assert "recoquest_encode_worker_restarts_total 1.0" in client.get("/metrics").text


@pytest.mark.slow
def test_a_hanging_encoder_makes_the_service_unready_and_no_search_hangs(indexed: Indexed) -> None:
    trouble = Trouble()
    with served(indexed, trouble.load, readiness_timeout_s=1.0, encode_deadline_s=1.0) as client:
        wait_until(lambda: ready(client))
        trouble.gate.clear()
        started = time.monotonic()
        problem(search(client), 504, "encoding-timeout")
        document = problem(client.get("/readyz"), 503, "not-ready", f"encoder {_digest(client)[:12]}")
        assert "took too long" in document["detail"]
        assert client.get("/livez").status_code == 200
        assert time.monotonic() - started < PATIENCE
        trouble.gate.set()
        wait_until(lambda: ready(client))


def test_overload_is_told_at_once_with_a_time_to_try_again(indexed: Indexed) -> None:
    trouble = Trouble()
    with (
        served(indexed, trouble.load, encode_queue_size=1, encode_deadline_s=PATIENCE) as client,
        ThreadPoolExecutor(2) as callers,
    ):
        assert search(client).status_code == 200
        trouble.gate.clear()
        trouble.entered.clear()
        first = callers.submit(search, client)
        assert trouble.entered.wait(PATIENCE)
        second = callers.submit(search, client)
        wait_until(lambda: "recoquest_encode_queue_depth 1.0" in client.get("/metrics").text)
        refused = search(client)
        problem(refused, 429, "too-many-requests")
        assert int(refused.headers["retry-after"]) >= 1
        trouble.gate.set()
        assert [first.result().status_code, second.result().status_code] == [200, 200]


def test_a_bundle_that_cannot_be_loaded_is_told_without_its_path(own: Indexed, tmp_path: Path) -> None:
    break_bundle(own, read_bundle(own.bundle).digest)
    with served(own) as client:
        document = problem(search(client), 503, "encoder-unavailable")
        assert str(own.settings.home) not in str(document)
        assert client.get("/readyz").status_code == 503
        models = client.get("/v1/models").json()["models"]
        assert [model["loaded"] for model in models] == [False]
    # Nor is one in the place of another.
    folder = own.settings.home / "bundles" / read_bundle(own.bundle).digest
    shutil.copytree(make_bundle(tmp_path / "other", seed=1), folder, dirs_exist_ok=True)
    with served(own) as client:
        problem(search(client), 503, "encoder-unavailable")


def test_a_broken_bundle_makes_only_its_own_collections_unsearchable(own: Indexed, tmp_path: Path) -> None:
    trouble, other = Trouble(), make_bundle(tmp_path / "other", seed=1)
    own.index("broken", other)
    digest = read_bundle(other).digest
    break_bundle(own, digest)
    with served(own, trouble.load) as client:
        assert search(client).status_code == 200
        wait_until(lambda: ready(client))
        answer = client.get("/readyz").json()
        assert answer["status"] == "degraded"
        assert answer["checks"] == {
            "home": "ok",
            "catalogue": "ok",
            "views": "ok",
            f"encoder {read_bundle(own.bundle).digest[:12]}": "ok",
            f"encoder {digest[:12]}": "degraded: the encoder cannot be loaded",
        }
        problem(search(client, "broken"), 503, "encoder-unavailable")
        assert search(client).status_code == 200
        # Another one that is loaded and fails makes the service unready.
        trouble.error = RuntimeError()
        names = [f"encoder {result[:12]}" for result in sorted([read_bundle(own.bundle).digest, digest])]
        failed = client.get("/readyz")
        assert failed.status_code == 503
        assert sorted(error["field"] for error in failed.json()["errors"]) == names
        assert "cannot be loaded" in failed.json()["detail"]


def test_an_answer_is_reused_for_a_moment(indexed: Indexed, monkeypatch: pytest.MonkeyPatch) -> None:
    trouble, now = Trouble(), [0.0]
    monkeypatch.setattr(health, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with served(indexed, trouble.load, readiness_cache_s=0.3) as client:
        assert ready(client)
        trouble.error = RuntimeError()
        for now[0], status in ((0.2, 200), (0.4, 503)):
            assert client.get("/readyz").status_code == status


def test_what_another_process_indexes_is_served_by_its_own_encoder(own: Indexed, tmp_path: Path) -> None:
    with served(own) as client:
        before = search(client).json()
        own.index("later", own.bundle)
        assert search(client, "later").json()["served_by"]["digest"] == before["served_by"]["digest"]
        own.index(COLLECTION, make_bundle(tmp_path / "other", seed=1))
        wait_until(lambda: len([m for m in client.get("/v1/models").json()["models"] if m["loaded"]]) == 2)
        after = search(client).json()
        assert after["served_by"]["model"] == "tiny-1"
        assert after["served_by"]["generation"] != before["served_by"]["generation"]
        assert after["hits"] != before["hits"]


def test_a_service_is_ready_once_every_view_was_tried_and_one_that_fails_holds_up_no_other(
    own: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    own.index("later", own.bundle)
    warm, gate = SearchEngine.warm, threading.Event()
    tried: list[int] = []
    loaded: list[int] = []

    def fail_the_first(engine: SearchEngine, generation: int) -> None:
        if not own.owns(engine):
            warm(engine, generation)
            return
        assert gate.wait(PATIENCE)
        tried.append(generation)
        if generation == tried[0]:
            raise ViewError("broken")
        warm(engine, generation)
        loaded.append(generation)

    monkeypatch.setattr(SearchEngine, "warm", fail_the_first)
    with served(own, readiness_timeout_s=0.2) as client:
        answer = client.get("/readyz")
        assert answer.status_code == 503
        assert {"field": "views", "message": "are being loaded"} in answer.json()["errors"]
        assert client.get("/livez").status_code == 200
        gate.set()
        wait_until(lambda: ready(client))
        assert loaded
        assert tried[0] not in loaded


def test_what_is_announced_is_loaded_before_it_is_active(own: Indexed, tmp_path: Path) -> None:
    loads: list[str] = []

    def load(bundle: Path) -> Encoder:
        loads.append(bundle.name)
        return load_encoder(bundle, "cpu")

    encoder = load_encoder(make_bundle(tmp_path / "other", seed=1), "cpu")
    with own.engine() as engine:
        generation = generation_for(engine.home, COLLECTION, encoder)
        reindex(engine, generation, encoder, show_progress=False)
    with served(own, load) as client:

        def number() -> int:
            body: int = client.get("/v1/collections").json()["collections"][0]["generation"]["number"]
            return body

        before = number()
        wait_until(lambda: len(loads) == 1)
        with own.write() as session:
            mark_preloading(session, generation)
        wait_until(lambda: [m["loaded"] for m in client.get("/v1/models").json()["models"]] == [True, True])
        assert loads[-1] == generation.digest
        assert number() == before
        with own.write() as session:
            activate(session, generation)
        assert search(client).json()["served_by"]["digest"] == generation.digest
        assert len(loads) == 2


def _digest(client: TestClient) -> str:
    digest = client.get("/v1/collections").json()["collections"][0]["generation"]["digest"]
    assert isinstance(digest, str)
    return digest


def test_looking_for_active_generations_counts_nothing_twice(
    indexed: Indexed, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    with indexed.engine() as engine:
        first = active_generations(engine)
        event.listen(Engine, "before_cursor_execute", note)
        try:
            assert active_generations(engine) == first
        finally:
            event.remove(Engine, "before_cursor_execute", note)
        assert [active.collection for active in first] == [COLLECTION]
        assert not [statement for statement in statements if "count(" in statement]
        # A collection that is removed at this moment is passed over.
        monkeypatch.setattr(engine, "names", lambda: ["gone", COLLECTION])
        assert [active.collection for active in active_generations(engine)] == [COLLECTION]


def make_bundle_without_texts(folder: Path) -> Path:
    """Save a random encoder of images and sounds."""
    config = DualEncoderConfig(
        image=ImageTowerConfig(
            architecture="resnet",
            options={"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1], "layer_type": "basic"},
        ),
        audio=AudioTowerConfig(architecture="audio_cnn", options={"width": 8, "layers": 1}),
        dim=12,
    )
    save_bundle(
        folder,
        name="heard",
        model=build_dual_encoder(config, None, load_pretrained=False),
        preprocessing=Preprocessing(
            PreprocessingConfig(image=ImagePreprocessingConfig(size=32)), tokenizer=None
        ),
        metrics={},
        recipe_yaml="",
    )
    return folder


def test_a_collection_of_an_encoder_without_texts_is_ready_and_searched_by_image_only(
    own: Indexed, tmp_path: Path
) -> None:
    own.index("heard", make_bundle_without_texts(tmp_path / "heard"))
    with served(own) as client:
        assert ready(client)
        document = problem(search(client, "heard"), 422, "no-text-search", "text")
        assert document["detail"] == (
            "This encoder was trained without texts and cannot be searched by one: search by an image."
        )
        response = client.post("/v1/collections/heard/search", files={"image": own.image_bytes(3)})
        assert response.json()["hits"][0]["id"] == "image-3"
        assert ready(client)
