import hashlib
from pathlib import Path

import pytest
from PIL import Image

from index.errors import StoreError
from index.store import ImageStore
from tests.index.samples import make_picture


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    make_picture(tmp_path / "picture.png", seed=0)
    return (tmp_path / "picture.png").read_bytes()


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_file_lies_under_the_digest_of_its_bytes(tmp_path: Path, content: bytes) -> None:
    store = ImageStore(tmp_path / "store")
    digest = store.put(content)
    assert digest == hashlib.sha256(content).hexdigest()
    assert store.path(digest) == tmp_path / "store" / "originals" / digest[:2] / digest
    assert store.path(digest).read_bytes() == content


def test_the_same_bytes_are_kept_once(tmp_path: Path, content: bytes) -> None:
    store = ImageStore(tmp_path / "store")
    before = store.path(store.put(content)).stat()
    after = store.path(store.put(content)).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert len(_files(tmp_path / "store")) == 1


def test_a_thumbnail_is_small_upright_and_made_once(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # Turned by a quarter: what is 600 x 300 in the file is shown as 300 x 600.
    Image.new("RGB", (600, 300), "red").save(tmp_path / "picture.jpg", exif=exif)
    store = ImageStore(tmp_path / "store")
    digest = store.put((tmp_path / "picture.jpg").read_bytes())
    path = store.thumbnail(digest)
    with Image.open(path) as image:
        assert (image.format, image.size) == ("WEBP", (128, 256))
    made = path.stat().st_mtime_ns
    assert store.thumbnail(digest).stat().st_mtime_ns == made
    assert not [file for file in _files(tmp_path / "store") if file.name.endswith(".part")]


def test_a_small_image_is_not_enlarged(tmp_path: Path, content: bytes) -> None:
    store = ImageStore(tmp_path / "store")
    with Image.open(store.thumbnail(store.put(content))) as image:
        assert image.size == (48, 40)


def test_a_missing_original_is_a_clear_error(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "store")
    for call in (store.path, store.thumbnail):
        with pytest.raises(StoreError, match=r"is missing .* index its data again"):
            call("0" * 64)


def test_a_damaged_original_is_a_clear_error(tmp_path: Path) -> None:
    store = ImageStore(tmp_path / "store")
    with pytest.raises(StoreError, match="is damaged"):
        store.thumbnail(store.put(b"\x89PNG\r\n\x1a\n and nothing more"))


def test_a_disk_that_does_not_take_a_file_is_a_clear_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "originals").write_bytes(b"a file where a folder should be")
    with pytest.raises(StoreError, match="cannot be written"):
        ImageStore(tmp_path / "store").put(content)


@pytest.mark.parametrize("damaged", [b"", b"other bytes"])
def test_a_damaged_file_is_brought_back(tmp_path: Path, content: bytes, damaged: bytes) -> None:
    store = ImageStore(tmp_path / "store")
    path = store.path(store.put(content))
    path.write_bytes((damaged + content)[: len(content)] if damaged else b"")
    store.put(content)
    assert path.read_bytes() == content
