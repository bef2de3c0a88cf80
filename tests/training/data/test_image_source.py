from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from training.common.errors import DataError
from training.common.manifest import Manifest, Record, Rejections
from training.data import prepared_rows
from training.data.image_source import CacheImages, Decoder, StreamedImages, open_images
from training.models.config import ImagePreprocessingConfig
from training.models.preprocessing import ImagePreprocessing
from training.trainer.run_state.processes import Processes

CPU = torch.device("cpu")
SIDE = 4


@pytest.fixture
def decoder(tmp_path: Path) -> Decoder:
    """Four images, each of one brightness, of which the second is broken."""
    records = [Record(id=str(n), image=f"{n}.png", split="train", line=n + 1) for n in range(4)]
    for number, record in enumerate(records):
        Image.new("RGB", (SIDE, SIDE), (number, number, number)).save(tmp_path / record.image)
    (tmp_path / "1.png").write_bytes(b"not an image")
    manifest = Manifest(tmp_path, tuple(records), Rejections(4))
    preprocessing = ImagePreprocessing(ImagePreprocessingConfig(size=SIDE))
    return Decoder(manifest, preprocessing)


@pytest.fixture
def rejections() -> Rejections:
    return Rejections(4, max_share=0.25)


@pytest.fixture
def streamed(decoder: Decoder, rejections: Rejections) -> Iterator[StreamedImages]:
    images = StreamedImages(decoder, rejections, threads=2)
    yield images
    images.close()


def test_streamed_images_leave_out_the_broken_and_count_it_once(
    streamed: StreamedImages, rejections: Rejections
) -> None:
    for _ in range(2):
        images, kept = streamed.load(np.array([3, 1, 0]))
        assert images[:, 0, 0, 0].tolist() == [3, 0]
        assert kept == [0, 2]
    (broken,) = rejections.items
    assert broken.line == 2
    assert "1.png" in broken.reason


def test_a_batch_without_a_readable_image_stops_the_run(streamed: StreamedImages) -> None:
    with pytest.raises(DataError, match=r"No image of a whole batch can be read.*\nLine 2: 1\.png.*[^.]\.$"):
        streamed.load(np.array([1]))


def test_both_sources_give_the_same_images(
    decoder: Decoder, rejections: Rejections, streamed: StreamedImages
) -> None:
    cached = open_images(
        decoder, rejections, cache=True, threads=2, device=CPU, processes=Processes(), show_progress=False
    )
    assert list(cached.readable) == [0, 2, 3]
    rows = np.array([2, 0])
    ours, _ = cached.load(rows)
    theirs, _ = streamed.load(np.array(cached.readable)[rows])
    assert torch.equal(ours, theirs)


def test_images_that_neither_memory_nor_disk_can_hold_are_streamed(
    decoder: Decoder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null")
    giant = Decoder(decoder.manifest, ImagePreprocessing(ImagePreprocessingConfig(size=10**7)))
    images = open_images(
        giant, Rejections(4), cache=True, threads=1, device=CPU, processes=Processes(), show_progress=False
    )
    images.close()
    assert isinstance(images, StreamedImages)
    assert "need 1,200,000.0 GB" in caplog.text


def test_images_on_disk_are_those_in_memory(
    decoder: Decoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    found = []
    monkeypatch.setattr(prepared_rows, "_FEW", 0)
    caches: tuple[CacheImages, ...] = ("memory", True, True)
    for cache in caches:
        counted = Rejections(4, max_share=0.25)
        images = open_images(
            decoder, counted, cache=cache, threads=2, device=CPU, processes=Processes(), show_progress=False
        )
        assert (tmp_path / "cache").exists() == (cache is True)
        assert list(images.readable) == [0, 2, 3]
        assert [item.line for item in counted.items] == [2]
        found.append(images.load(np.array([2, 0, 0]))[0])
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])
