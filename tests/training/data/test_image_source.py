"""Images of a training: the same from memory, disk and stream; films are decoded in processes that end."""

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from PIL import Image

from tests.dicom_films import encoded, make_film
from tests.training.data.hostile import encoded as encoded_picture
from tests.training.evaluation.encoders import ColourEncoder
from tests.training.imaging.processes.decoding import (
    PATIENCE,
    decoders_of,
    is_there,
    kill_a_decoder_at_work,
    slow_film,
    small,
    wait_until,
)
from training.common.errors import DataError, ImageError
from training.common.manifest import Manifest, Record, Rejections
from training.common.workers import WorkerLostError
from training.data import prepared_rows
from training.data.image_source import CacheImages, Decoder, ImageSource, StreamedImages, open_images
from training.evaluation.embedding import embed_manifest
from training.imaging.images import DecodedImage, decode_image
from training.imaging.processes.file_decoder import FileDecoder
from training.models.config import ImagePreprocessingConfig
from training.models.image_input import to_pixels
from training.models.preprocessing import ImagePreprocessing
from training.trainer.run_state.processes import Processes

CACHES: Final[tuple[CacheImages, ...]] = (False, "memory", True)


@pytest.fixture(autouse=True)
def none_left() -> Iterator[None]:
    """No test leaves a process that decodes."""
    yield
    assert decoders_of(os.getpid()) == []


def manifest_of(folder: Path, contents: Sequence[bytes]) -> Manifest:
    records = [Record(str(row), str(row), "test", line=row + 1) for row in range(len(contents))]
    for record, content in zip(records, contents, strict=True):
        (folder / record.image).write_bytes(content)
    return Manifest(folder, tuple(records), Rejections(len(records), max_share=0.5))


def opened(
    manifest: Manifest, cache: CacheImages, rejections: Rejections, threads: int = 2, *, size: int = 8
) -> ImageSource:
    return open_images(
        Decoder(manifest, ImagePreprocessing(ImagePreprocessingConfig(size=size))),
        rejections,
        cache=cache,
        threads=threads,
        device=torch.device("cpu"),
        processes=Processes(),
        show_progress=False,
    )


@pytest.fixture
def films(tmp_path: Path) -> Manifest:
    return manifest_of(tmp_path, [encoded(make_film(1)), small(), encoded(make_film(2)), small("blue")])


@pytest.fixture
def pictures(tmp_path: Path) -> Manifest:
    """Four images, each of one brightness, of which the second is broken."""
    contents = [encoded_picture(Image.new("RGB", (8, 8), (n, n, n)), "PNG") for n in range(4)]
    contents[1] = b"not an image"
    return manifest_of(tmp_path, contents)


def test_every_source_gives_the_same_images_and_counts_the_broken_once(
    pictures: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(prepared_rows, "_FEW", 0)
    for cache in (*CACHES, True):
        rejections = Rejections(4, max_share=0.25)
        images = opened(pictures, cache, rejections)
        assert (tmp_path / "cache").exists() == (cache is True)
        readable = list(images.readable)
        assert readable == ([0, 2, 3] if cache else [0, 1, 2, 3])
        for _ in range(2):
            loaded, kept = images.load(
                np.array([readable.index(row) for row in (3, 1, 0) if row in readable])
            )
            assert loaded[:, 0, 0, 0].tolist() == [3, 0]
            assert kept == ([0, 1] if cache else [0, 2])
        assert images.blank(2).shape == (2, 3, 8, 8)
        images.close()
        (broken,) = rejections.items
        assert broken.line == 2


def test_a_batch_without_a_readable_image_stops_the_run(pictures: Manifest) -> None:
    images = opened(pictures, False, pictures.rejections)
    with pytest.raises(DataError, match=r"No image of a whole batch can be read.*\nLine 2: 1: .*[^.]\.$"):
        images.load(np.array([1]))
    images.close()


def test_images_that_neither_memory_nor_disk_can_hold_are_streamed(
    pictures: Manifest, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    images = opened(pictures, True, Rejections(4), size=10**7)
    images.close()
    assert isinstance(images, StreamedImages)
    assert "need 1,200,000.0 GB" in caplog.text


@pytest.mark.parametrize("cache", CACHES)
def test_films_and_other_images_have_the_pixels_that_are_decoded_here(
    films: Manifest, cache: CacheImages
) -> None:
    images = opened(films, cache, films.rejections)
    loaded, kept = images.load(np.arange(4))
    images.close()
    assert kept == [0, 1, 2, 3]
    for record, image in zip(films.records, loaded, strict=True):
        assert np.array_equal(
            image.numpy(), to_pixels(decode_image(films.image_path(record)), ImagePreprocessingConfig(size=8))
        )


@pytest.mark.parametrize("cache", CACHES)
def test_no_process_begins_where_there_is_no_film(
    tmp_path: Path, cache: CacheImages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    manifest = manifest_of(tmp_path, [small(), small("blue")])
    images = opened(manifest, cache, manifest.rejections)
    assert len(images.load(np.arange(2))[1]) == 2
    images.close()
    assert len(embed_manifest(ColourEncoder(), manifest, show_progress=False).records) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("threads", "here", "expected"), [(3, "4", 3), (0, "1", 8), (0, "4", 2), (0, "100", 1)]
)
def test_processes_that_train_together_share_the_cores(
    films: Manifest, monkeypatch: pytest.MonkeyPatch, threads: int, here: str, expected: int
) -> None:
    monkeypatch.setenv("LOCAL_WORLD_SIZE", here)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8))
    images = opened(films, False, films.rejections, threads)
    images.load(np.arange(4))
    wait_until(lambda: len(decoders_of(os.getpid())) == expected)
    images.close()


@pytest.mark.slow
@pytest.mark.parametrize("evaluating", [False, True])
def test_a_killed_process_costs_nothing(evaluating: bool, tmp_path: Path) -> None:
    manifest = manifest_of(tmp_path, [slow_film()] * 6)
    with ThreadPoolExecutor(1) as killer:
        killed = killer.submit(kill_a_decoder_at_work, os.getpid())
        if evaluating:
            embedded = embed_manifest(ColourEncoder(), manifest, show_progress=False)
            counts = len(embedded.records), len(embedded.skipped)
        else:
            images = opened(manifest, "memory", manifest.rejections)
            images.close()
            counts = len(images.readable), len(manifest.rejections)
        assert not is_there(killed.result(PATIENCE))
    assert counts == (6, 0)


def test_a_film_whose_decoder_was_lost_is_tried_again_by_the_next_run(
    films: Manifest, monkeypatch: pytest.MonkeyPatch
) -> None:
    decode = FileDecoder.decode

    def lost(self: FileDecoder, source: bytes | Path, *arguments: Any, **named: Any) -> DecodedImage:
        if source == films.image_path(films.records[2]):
            raise ImageError("its decoder broke down") from WorkerLostError("crash")
        return decode(self, source, *arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(FileDecoder, "decode", lost)
        images = opened(films, True, films.rejections)
        images.close()
    assert list(images.readable) == [0, 1, 3]
    images = opened(films, True, Rejections(4, max_share=0.5))
    images.close()
    assert list(images.readable) == [0, 1, 2, 3]


@pytest.mark.usefixtures("stops_last")
def test_closing_waits_for_no_process_that_hangs(films: Manifest) -> None:
    images = opened(films, False, films.rejections)
    assert isinstance(images, StreamedImages)
    images.load(np.arange(4))
    for pid in decoders_of(os.getpid()):
        os.kill(pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as thread:
        waiting = thread.submit(images.load, np.arange(4))
        pool = images._threads._files._running()
        wait_until(lambda: pool.busy > 0)
        begun = time.monotonic()
        images.close()
        assert waiting.exception(PATIENCE) is not None
        assert time.monotonic() < begun + PATIENCE
