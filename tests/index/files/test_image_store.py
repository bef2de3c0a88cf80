import errno
import hashlib
import itertools
import os
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image

import index.files.image_store
from index.errors import DiskFullError, StoreError
from index.files.image_store import ImageStore
from tests.index.meanwhile import at_first, note_calls
from tests.index.samples import make_picture


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    make_picture(tmp_path / "picture.png", seed=0)
    return (tmp_path / "picture.png").read_bytes()


@pytest.fixture
def store(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "store")


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_file_lies_under_the_digest_of_its_bytes_which_are_kept_once(
    store: ImageStore, content: bytes
) -> None:
    digest = store.put(content)
    assert digest == hashlib.sha256(content).hexdigest()
    assert store.path(digest) == store._folder / "originals" / digest[:2] / digest
    assert store.path(digest).read_bytes() == content
    before, after = store.path(digest).stat(), store.path(store.put(content)).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert len(_files(store._folder)) == 1


def test_a_thumbnail_is_small_upright_and_made_once(
    tmp_path: Path, store: ImageStore, content: bytes
) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # Turned by a quarter: what is 600 x 300 in the file is shown as 300 x 600.
    Image.new("RGB", (600, 300), "red").save(tmp_path / "picture.jpg", exif=exif)
    digest = store.put((tmp_path / "picture.jpg").read_bytes())
    path = store.thumbnail(digest)
    with Image.open(path) as image:
        assert (image.format, image.size) == ("WEBP", (128, 256))
    made = path.stat().st_mtime_ns
    assert store.thumbnail(digest).stat().st_mtime_ns == made
    assert not [file for file in _files(store._folder) if file.name.endswith(".part")]
    with Image.open(store.thumbnail(store.put(content))) as image:
        assert image.size == (48, 40)


def test_thumbnails_of_earlier_decoding_are_made_anew_and_removed(store: ImageStore, content: bytes) -> None:
    digest = store.put(content)
    former = store._folder / "thumbnails" / digest[:2] / f"{digest}.webp"
    former.parent.mkdir(parents=True)
    former.write_bytes(b"old")
    assert not store.has_thumbnail(digest)
    made = store.thumbnail(digest)
    assert made.read_bytes() != b"old"
    assert not former.exists()
    former.write_bytes(b"old")
    store.remove([digest])
    assert _files(store._folder) == []


def test_a_missing_or_damaged_original_is_a_clear_error(store: ImageStore) -> None:
    for call in (store.path, store.thumbnail):
        with pytest.raises(StoreError, match=r"is missing .* index its data again"):
            call("0" * 64)
    with pytest.raises(StoreError, match="is damaged"):
        store.thumbnail(store.put(b"\x89PNG\r\n\x1a\n and nothing more"))


def test_a_disk_that_does_not_take_a_file_is_a_clear_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "originals").write_bytes(b"a file where a folder should be")
    with pytest.raises(StoreError, match="cannot be written"):
        ImageStore(tmp_path / "store").put(content)


@pytest.mark.parametrize("damaged", [b"", b"other bytes"])
def test_a_damaged_file_is_brought_back(store: ImageStore, content: bytes, damaged: bytes) -> None:
    path = store.path(store.put(content))
    path.write_bytes((damaged + content)[: len(content)] if damaged else b"")
    store.put(content)
    assert path.read_bytes() == content


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What was flushed to the disk, in order."""
    return note_calls(monkeypatch, os, "fsync", lambda file: Path(f"/proc/self/fd/{file}").readlink())


def test_the_file_and_the_names_that_lead_to_it_are_flushed(
    store: ImageStore, tmp_path: Path, content: bytes, synced: list[Path]
) -> None:
    path = store.path(store.put(content))
    *folders, part, last = synced
    assert folders == [tmp_path, store._folder, store._folder / "originals"]
    # The file, before it took its name, and then the name.
    assert (part.parent, part.suffix) == (path.parent, ".part")
    assert last == path.parent
    synced.clear()
    ImageStore(store._folder).put(content)
    assert synced == [path.parent]


def test_a_removed_file_is_gone_with_its_thumbnail(store: ImageStore, content: bytes) -> None:
    digest = store.put(content)
    store.thumbnail(digest)
    store.remove([digest, "0" * 64])
    assert _files(store._folder) == []
    assert not store.has(digest)


def test_after_a_removal_each_folder_is_flushed_once(
    store: ImageStore, content: bytes, synced: list[Path]
) -> None:
    alike = [content + bytes([number]) for number in range(256)]
    digests = [hashlib.sha256(one).hexdigest() for one in alike]
    folder = digests[0][:2]
    together = [one for one, digest in zip(alike, digests, strict=True) if digest[:2] == folder]
    together += [content + digests[0].encode()]
    kept = [store.put(one) for one in together]
    store.thumbnail(kept[0])
    synced.clear()
    store.remove([*kept, "0" * 64])
    folders = {digest[:2] for digest in kept}
    assert sorted(synced) == sorted(
        store._folder / kind / name
        for kind in ("originals", "thumbnails")
        for name in folders
        if (store._folder / kind / name).is_dir()
    )
    # A killed process may have removed a file and not flushed its folder.
    synced.clear()
    store.remove(kept[:1])
    assert store._folder / "originals" / kept[0][:2] in synced


def test_no_thumbnail_stays_of_a_file_that_is_removed_meanwhile(
    store: ImageStore, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = store.put(content)
    at_first(monkeypatch, index.files.image_store, "_write", lambda: store.remove([digest]))
    with pytest.raises(StoreError, match="missing"):
        store.thumbnail(digest)
    assert _files(store._folder) == []


def test_files_that_are_kept_together_are_each_flushed_with_their_name(
    store: ImageStore, synced: list[Path]
) -> None:
    contents = [f"file {number}".encode() for number in range(40)]
    store.put_all(contents)
    digests = {hashlib.sha256(content).hexdigest(): content for content in contents}
    assert {digest: store.path(digest).read_bytes() for digest in digests} == digests
    flushed = Counter(synced)
    assert sum(path.suffix == ".part" for path in flushed) == len(contents)
    for folder, files in Counter(store.path(digest).parent for digest in digests).items():
        assert flushed[folder] >= files


def test_a_full_disk_is_an_error_of_its_own(store: ImageStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether one file is kept or many together."""
    store.put(b"other")
    flushed, fill = itertools.count(), 30

    def flush(_: int) -> None:
        if next(flushed) > fill:
            raise OSError(errno.ENOSPC, "No space left on device")

    note_calls(monkeypatch, os, "fsync", flush)
    with pytest.raises(DiskFullError, match="the disk is full"):
        store.put_all([f"file {number}".encode() for number in range(40)])
    assert not list(store.unfinished())
    kept, fill = _files(store._folder), 0
    with pytest.raises(DiskFullError, match="the disk is full"):
        store.put(b"another")
    assert _files(store._folder) == kept
