"""Hostile images over HTTP: each costs its own request, and no more than its decoder."""

import gc
import os
import signal
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from app.decoding.images import ImageDecoders
from tests.app.conftest import COLLECTION, Indexed, make_bundle, serve
from tests.app.images.test_uploads import picture, post, put, statuses
from tests.app.search.test_search import problem_of, search_image
from tests.training.data.hostile import (
    deep_png,
    encoded,
    jpeg_with,
    png_chunk,
    png_with,
    rle_bmp,
    segment,
    slow_bmp,
)
from tests.training.imaging.processes.decoding import cpu_ticks, is_at_work, is_there, noise, wait_until
from training.common.manifest import Record, read_manifest, write_manifest
from training.imaging.processes.pool import DecodingPool

IMAGE = f"/v1/collections/{COLLECTION}/images/image-3"
TOO_LARGE = (413, "image-too-large")
LATE = (504, "encoding-timeout")

HOSTILE = {
    "bmp": rle_bmp(50_000_000, 1, b"\1\1\0\0"),
    "jpeg": jpeg_with(segment(0xE1, b"Exif\0\0" + bytes(30)) * 20_000),
    "png": png_with(png_chunk(b"teSt") * 200_000),
    "memory": deep_png(),
}


@pytest.fixture
def home(make_indexed: Callable[..., Indexed]) -> Indexed:
    return make_indexed(decode_memory_bytes=200 * 2**20)


@pytest.fixture
def client(home: Indexed) -> Iterator[TestClient]:
    with serve(home) as running:
        yield running


def decoders(client: TestClient) -> ImageDecoders:
    application = client.app
    assert isinstance(application, FastAPI)
    found = application.state.services.images
    assert isinstance(found, ImageDecoders)
    return found


def counted(client: TestClient, name: str) -> dict[str, float]:
    """Values of a counter by its only label."""
    samples = [
        sample
        for family in text_string_to_metric_families(client.get("/metrics").text)
        for sample in family.samples
    ]
    return {
        next(iter(sample.labels.values())): sample.value
        for sample in samples
        if sample.name == f"{name}_total"
    }


def test_hostile_queries_are_refused_and_the_next_is_answered(client: TestClient) -> None:
    for content in HOSTILE.values():
        assert problem_of(search_image(client, content)) == TOO_LARGE
    assert search_image(client, picture(1)).status_code == 200
    assert counted(client, "recoquest_decodes") == {"too-large": 3, "memory": 1, "done": 1}
    # The next query need not have waited for the process that left.
    wait_until(lambda: counted(client, "recoquest_decoder_restarts") == {"memory": 1})


def test_one_bad_image_among_good_ones_is_refused_alone(client: TestClient) -> None:
    names = ["good", *HOSTILE, "none", "also-good"]
    files = [picture(1), *HOSTILE.values(), b"hello", picture(2)]
    answer = post(client, [{"id": name} for name in names], files)
    bad = [(name, "refused") for name in (*HOSTILE, "none")]
    assert statuses(answer) == [("good", "created"), *bad, ("also-good", "created")]


def test_a_decoder_that_is_killed_at_work_costs_no_query(home: Indexed) -> None:
    with serve(home, decode_memory_bytes=560 * 2**20) as client, ThreadPoolExecutor(1) as caller:
        pool = decoders(client).pool
        wait_until(lambda: len(pool.pids) == 2)
        pids = pool.pids
        idle = [cpu_ticks(pid) for pid in pids]
        answer = caller.submit(search_image, client, slow_bmp(15_000_000))
        wait_until(lambda: any(map(is_at_work, pids, idle)))
        for pid, ticks in zip(pids, idle, strict=True):
            if is_at_work(pid, ticks):
                os.kill(pid, signal.SIGKILL)
        assert answer.result().status_code == 200
        assert search_image(client, picture(1)).status_code == 200
        assert counted(client, "recoquest_decoder_restarts") == {"crash": 1}


@pytest.fixture
def patient_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """The deadline of the whole request never comes first, however busy the machine is."""
    monkeypatch.setattr("app.edge.admission._GRACE_S", 30.0)


@pytest.mark.usefixtures("patient_request")
def test_a_query_that_decodes_for_too_long_is_given_up(home: Indexed) -> None:
    with serve(home, encode_deadline_s=1.0, decode_memory_bytes=560 * 2**20) as client:
        pool = decoders(client).pool
        assert problem_of(search_image(client, slow_bmp())) == LATE
        wait_until(lambda: pool.busy == 0 and len(pool.pids) == 2)
        assert search_image(client, picture(1)).status_code == 200
        assert counted(client, "recoquest_decoder_restarts") == {"wall": 1}


def test_a_large_jpeg_is_found_by_itself_where_files_are_decoded_at_a_scale(
    home: Indexed, tmp_path: Path
) -> None:
    content = encoded(noise("RGB", 640, 480), "JPEG")
    folder = home.manifest.folder
    (folder / "images" / "large.jpg").write_bytes(content)
    write_manifest(folder, [Record("large", "images/large.jpg", "test")])
    bundle = make_bundle(tmp_path / "scaled", seed=0, scaled_decoding=True)
    Indexed(home.settings, read_manifest(folder), bundle).index("scaled", bundle)
    with serve(home) as client:
        answer = client.post("/v1/collections/scaled/search", files={"image": ("large.jpg", content)})
        assert answer.json()["hits"][0]["score"] > 0.999999
        sent = post(client, [{"id": "again"}], [content], "/v1/collections/scaled/images")
        assert statuses(sent) == [("again", "created")]
        again = client.post("/v1/collections/scaled/search", json={"like": [{"id": "large"}]}).json()["hits"]
        assert [(hit["id"], hit["score"] > 0.999999) for hit in again] == [("again", True)]


def test_thumbnails_are_made_by_the_decoders(client: TestClient) -> None:
    for _ in range(2):
        answer = client.get(f"{IMAGE}/thumbnail")
        assert (answer.status_code, answer.headers["content-type"]) == (200, "image/webp")
    assert counted(client, "recoquest_decodes") == {"done": 1}


@pytest.mark.usefixtures("stops_last")
@pytest.mark.usefixtures("patient_request")
def test_a_thumbnail_waits_no_longer_than_a_query(home: Indexed) -> None:
    with serve(home, encode_deadline_s=0.5) as client:
        pool = decoders(client).pool
        wait_until(lambda: len(pool.pids) == 2)
        pids = pool.pids
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        assert problem_of(client.get(f"{IMAGE}/thumbnail")) == LATE
        wait_until(lambda: not all(is_there(pid) for pid in pids))
        assert client.get(f"{IMAGE}/thumbnail").status_code in (200, 504)


def test_images_are_taken_and_found_though_all_decoders_are_stopped(home: Indexed) -> None:
    with serve(home) as client:
        for ask in (lambda: put(client, "new", picture(5)), lambda: search_image(client, picture(1))):
            pool = decoders(client).pool
            wait_until(lambda pool=pool: len(pool.pids) == 2)  # type: ignore[misc]
            for pid in pool.pids:
                os.kill(pid, signal.SIGSTOP)
            assert ask().status_code in (200, 201)
        assert set(counted(client, "recoquest_decoder_restarts")) == {"stopped"}


def test_no_decoder_is_left_when_the_service_ends(home: Indexed) -> None:
    with serve(home) as client:
        pool = decoders(client).pool
        wait_until(lambda: len(pool.pids) == 2)
        pids = pool.pids
    assert not any(is_there(pid) for pid in pids)


@pytest.mark.usefixtures("stops_last")
def test_thumbnails_that_wait_for_a_decoder_leave_searches_their_threads(home: Indexed) -> None:
    with serve(home, concurrent_decodes=1) as client:
        wait_until(lambda: len(decoders(client).pool.pids) == 1)
        (pid,) = decoders(client).pool.pids
        os.kill(pid, signal.SIGSTOP)
        paths = [f"/v1/collections/{COLLECTION}/images/image-{number}/thumbnail" for number in range(20, 24)]
        with ThreadPoolExecutor(12) as threads:
            waiting = [threads.submit(client.get, path) for path in paths * 3]
            wait_until(lambda: decoders(client).pool.waiting >= 3)
            found = client.post(f"/v1/collections/{COLLECTION}/search", json={"text": "two dogs"})
            os.kill(pid, signal.SIGCONT)
            assert found.status_code == 200
            assert {answer.result().status_code for answer in waiting} == {200}


def test_a_refused_image_is_let_go_without_a_garbage_collection(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit, futures = DecodingPool.submit, list[weakref.ref[Any]]()

    def noted(self: DecodingPool, *args: Any) -> Any:
        future = submit(self, *args)
        futures.append(weakref.ref(future))
        return future

    monkeypatch.setattr(DecodingPool, "submit", noted)
    broken = picture(1)[:-40]
    gc.collect()
    gc.disable()
    try:
        assert problem_of(search_image(client, broken))[0] == 415
        assert statuses(post(client, [{"id": "broken"}], [broken])) == [("broken", "refused")]
        assert problem_of(put(client, "broken", broken))[0] == 415
        # The error of a task holds the frames that hold the image.
        wait_until(lambda: all(future() is None for future in futures))
    finally:
        gc.enable()
    assert len(futures) == 3
