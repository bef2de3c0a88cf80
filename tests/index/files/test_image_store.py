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


def test_thumbnails_of_earlier_decoding_are_made_anew_and_removed(tmp_path: Path, content: bytes) -> None:
    store = ImageStore(tmp_path / "store")
    digest = store.put(content)
    former = tmp_path / "store" / "thumbnails" / digest[:2] / f"{digest}.webp"
    former.parent.mkdir(parents=True)
    former.write_bytes(b"old")
    assert not store.has_thumbnail(digest)
    made = store.thumbnail(digest)
    assert made.read_bytes() != b"old"
    assert not former.exists()
    former.write_bytes(b"old")
    store.remove([digest])
    assert _files(tmp_path / "store") == []


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


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """What was flushed to the disk, in order."""
    found: list[Path] = []
    flush = os.fsync

    def note(descriptor: int) -> None:
        found.append(Path(f"/proc/self/fd/{descriptor}").readlink())
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    return found


def test_the_file_and_the_names_that_lead_to_it_are_flushed(
    tmp_path: Path, content: bytes, synced: list[Path]
) -> None:
    store = ImageStore(tmp_path / "store")
    path = store.path(store.put(content))
    *folders, part, last = synced
    assert folders == [tmp_path, tmp_path / "store", tmp_path / "store" / "originals"]
    # The file, before it took its name, and then the name.
    assert (part.parent, part.suffix) == (path.parent, ".part")
    assert last == path.parent
    synced.clear()
    ImageStore(tmp_path / "store").put(content)
    assert synced == [path.parent]


def test_a_removed_file_is_gone_with_its_thumbnail(tmp_path: Path, content: bytes) -> None:
    store = ImageStore(tmp_path / "store")
    digest = store.put(content)
    store.thumbnail(digest)
    store.remove([digest, "0" * 64])
    assert _files(tmp_path / "store") == []
    assert not store.has(digest)


def test_after_a_removal_each_folder_is_flushed_once(
    tmp_path: Path, content: bytes, synced: list[Path]
) -> None:
    store = ImageStore(tmp_path / "store")
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
        tmp_path / "store" / kind / name
        for kind in ("originals", "thumbnails")
        for name in folders
        if (tmp_path / "store" / kind / name).is_dir()
    )
    # A killed process may have removed a file and not flushed its folder.
    synced.clear()
    store.remove(kept[:1])
    assert tmp_path / "store" / "originals" / kept[0][:2] in synced


def test_no_thumbnail_stays_of_a_file_that_is_removed_meanwhile(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ImageStore(tmp_path / "store")
    digest = store.put(content)
    write = index.files.image_store._write

    def remove_and_write(path: Path, small: bytes) -> None:
        store.remove([digest])
        write(path, small)

    monkeypatch.setattr(index.files.image_store, "_write", remove_and_write)
    with pytest.raises(StoreError, match="missing"):
        store.thumbnail(digest)
    assert _files(tmp_path / "store") == []


def test_a_full_disk_is_an_error_of_its_own(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    store = ImageStore(tmp_path / "store")
    store.put(b"other")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DiskFullError, match="the disk is full"):
        store.put(content)
    assert [file.read_bytes() for file in _files(tmp_path / "store")] == [b"other"]


def test_files_that_are_kept_together_are_each_flushed_with_their_name(
    tmp_path: Path, synced: list[Path]
) -> None:
    contents = [f"file {number}".encode() for number in range(40)]
    store = ImageStore(tmp_path / "store")
    store.put_all(contents)
    digests = {hashlib.sha256(content).hexdigest(): content for content in contents}
    assert {digest: store.path(digest).read_bytes() for digest in digests} == digests
    flushed = Counter(synced)
    assert sum(path.suffix == ".part" for path in flushed) == len(contents)
    for folder, files in Counter(store.path(digest).parent for digest in digests).items():
        assert flushed[folder] >= files


def test_a_disk_that_fills_up_ends_files_that_are_kept_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flush, flushed = os.fsync, itertools.count()

    def fill(descriptor: int) -> None:
        if next(flushed) > 30:
            raise OSError(errno.ENOSPC, "No space left on device")
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", fill)
    with pytest.raises(DiskFullError, match="the disk is full"):
        ImageStore(tmp_path / "store").put_all([f"file {number}".encode() for number in range(40)])
    assert not list(ImageStore(tmp_path / "store").unfinished())
