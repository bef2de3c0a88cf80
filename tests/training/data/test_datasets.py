"""Records in memory become a manifest, and a manifest a torch Dataset that workers of a DataLoader read."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

from tests.training.data.sounds import tone, wav16
from training.common.errors import DataError, ImageError
from training.common.manifest import Record, write_manifest
from training.data.datasets import PairDataset, as_manifest, manifest_of
from training.imaging.images import decode_image
from training.models.config import ImagePreprocessingConfig
from training.models.preprocessing import ImagePreprocessing

PREPROCESSING = ImagePreprocessing(ImagePreprocessingConfig(size=8))


def pixels(seed: int, *shape: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


@pytest.fixture
def records(tmp_path: Path) -> list[dict[str, Any]]:
    """An image as a path, as bytes, as a picture and as arrays."""
    picture, content = Image.fromarray(pixels(0, 9, 12, 3)), io.BytesIO()
    picture.save(tmp_path / "0.png")
    Image.fromarray(pixels(1, 9, 12, 3)).save(content, "PNG")
    return [
        {"image": tmp_path / "0.png", "texts": ["a dog", "a brown dog"], "labels": ["dog"], "id": "first"},
        {"image": content.getvalue(), "texts": "a cat", "split": "val", "metadata": {"year": np.int64(7)}},
        {"image": Image.fromarray(pixels(2, 9, 12, 3)).convert("CMYK"), "labels": ("cat", "dog")},
        {"image": pixels(3, 9, 12, 3), "audio": wav16(tone(440))},
        {"image": torch.from_numpy(pixels(4, 9, 12)), "group": "g"},
    ]


class Rows(Dataset[dict[str, Any]]):
    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> dict[str, Any]:
        return self.rows[row]


@pytest.mark.parametrize("kind", [list, Rows])
def test_records_in_memory_become_a_manifest(records: Any, kind: Any, tmp_path: Path) -> None:
    for _ in range(2):
        manifest = as_manifest(kind(records), tmp_path / "data")
    assert [record.id for record in manifest.records] == ["first", "1", "2", "3", "4"]
    assert [record.split for record in manifest.records] == ["train", "val", "train", "train", "train"]
    assert [record.texts for record in manifest.records][:3] == [("a dog", "a brown dog"), ("a cat",), ()]
    assert manifest.records[2].labels == ("cat", "dog")
    assert manifest.records[1].metadata == {"year": 7}
    for row in (0, 1, 3):
        image = decode_image(manifest.image_path(manifest.records[row]))
        assert np.array_equal(np.asarray(image), pixels(row, 9, 12, 3))
    grey = np.asarray(decode_image(manifest.image_path(manifest.records[4])))
    assert np.array_equal(grey[..., 0], pixels(4, 9, 12))
    sound = manifest.audio_path(manifest.records[3])
    assert sound is not None
    assert sound.read_bytes() == wav16(tone(440))
    assert as_manifest(manifest, tmp_path) is manifest
    assert as_manifest(str(tmp_path / "data"), tmp_path).records == manifest.records


def test_typed_records_are_taken_with_images_from_anywhere(records: Any, tmp_path: Path) -> None:
    given = [Record("a", str(records[0]["image"]), None, ("a dog",)), Record("b", "nowhere.png", "val")]
    manifest = manifest_of(given, tmp_path / "data")
    assert [(record.id, record.split, record.texts) for record in manifest.records] == [
        ("a", "train", ("a dog",))
    ]
    assert [item.line for item in manifest.rejections.items] == [2]
    with pytest.raises(DataError, match="there is no image"):
        manifest_of(given, tmp_path / "data", max_rejected=0)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"image": "a.png", "caption": "a dog"}, "unknown key 'caption'"),
        ({"texts": ["a dog"]}, "'image' is missing"),
        (
            {"image": object()},
            "its image is object of shape .* has to be uint8 of shape",
        ),
        ({"image": b"", "metadata": {"of": {1}}}, "Record 0 can't be used: "),
        ({"image": b"", "split": "dev"}, "Record 0 can't be used: the split 'dev' is not one of"),
        ({"image": np.zeros((3, 8, 8), np.float32)}, r"its image is float32 of shape \(3, 8, 8\)"),
        ((b"", ["a dog"]), "it is a tuple, not a mapping with the keys `image` and `texts`"),
    ],
)
def test_what_is_no_record_is_named(record: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        manifest_of([record], tmp_path / "data")


def test_records_need_a_length_and_an_id_each(tmp_path: Path) -> None:
    records: Any = map(str, ())
    with pytest.raises(DataError, match="and map has none: give a list of them"):
        as_manifest(records, tmp_path)
    with pytest.raises(DataError, match="Record 1 can't be used: another record has the id 'a'"):
        manifest_of([{"id": "a", "image": b""}, {"id": "a", "image": b""}], tmp_path)


def test_workers_of_a_loader_read_the_images_of_a_manifest(records: Any, tmp_path: Path) -> None:
    manifest = manifest_of(records, tmp_path / "data")
    loader = DataLoader(PairDataset(manifest, PREPROCESSING), batch_size=3, num_workers=2, collate_fn=list)
    pairs = [pair for batch in loader for pair in batch]
    plain = PairDataset(manifest)
    assert len(pairs) == len(plain) == 5
    for row, (pair, record) in enumerate(zip(pairs, manifest.records, strict=True)):
        assert (pair.id, pair.texts, pair.labels) == (record.id, record.texts, record.labels)
        assert isinstance(pair.image, torch.Tensor)
        decoded = plain[row].image
        assert isinstance(decoded, Image.Image)
        assert torch.equal(pair.image, PREPROCESSING.to_uint8(decoded))


def test_an_image_that_cannot_be_decoded_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"no image")
    write_manifest(tmp_path, [Record("bad", "bad.png", "train")])
    with pytest.raises(ImageError, match=r"bad\.png: "):
        PairDataset(as_manifest(tmp_path, tmp_path))[0]
