"""The store of image files: each is stored once, under the SHA-256 of its bytes."""

import fcntl
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from index.catalogue.connections import is_disk_full
from index.errors import DiskFullError, StoreError, StoreWriteError
from index.files.renditions import make_thumbnail
from index.files.stale import try_lock
from training.common.atomic import atomic_file, sync
from training.common.errors import ImageError
from training.imaging.images import PIXELS_VERSION

MakeThumbnail = Callable[[Path], bytes]

# Flushes that wait at the same time share one write of the file system's journal.
WRITES_AT_ONCE: Final = 8


class ImageStore:
    """Content-addressed files in `folder/originals`, and thumbnails made on demand in `folder/thumbnails`.

    Files appear whole or not at all, and never change, so any number of processes may share a store.

    Args:
        folder: Folder of the store.
        make: Makes the WebP of an image file.
    """

    def __init__(self, folder: Path, make: MakeThumbnail = make_thumbnail) -> None:
        self._make_thumbnail = make
        self._folder = folder
        self._originals = folder / "originals"
        self._thumbnails = folder / "thumbnails"

    def put(self, content: bytes) -> str:
        """Keep an image file and return its SHA-256 in hexadecimal; an existing complete one is left alone.

        When this returns, the file and its name are on the disk.
        """
        digest = hashlib.sha256(content).hexdigest()
        if not self.holds(digest, content):
            _write(self._original(digest), content)
        return digest

    def put_all(self, contents: Collection[bytes]) -> None:
        """Keep image files as `put` does, several at a time.

        Raises:
            DiskFullError: The disk has no space left; some of the files may be there.
            StoreError: The disk does not take one; some of the files may be there.
        """
        if len(contents) < 2:
            for content in contents:
                self.put(content)
            return
        with ThreadPoolExecutor(min(len(contents), WRITES_AT_ONCE), "store") as pool:
            for _ in pool.map(self.put, contents):
                pass

    def holds(self, sha256: str, content: bytes) -> bool:
        """Return whether a complete file exists; if so, its name is on the disk when this returns.

        Args:
            sha256: Digest of the file.
            content: Bytes of the file; indexing again restores a file that the disk has lost.
        """
        path = self._original(sha256)
        try:
            if path.stat().st_size != len(content) or path.read_bytes() != content:
                return False
            # The process that wrote the file may not have flushed its name yet.
            sync(path.parent)
        except OSError:
            return False
        return True

    def has(self, sha256: str) -> bool:
        """Return whether there is a file with this digest."""
        return self._original(sha256).is_file()

    def remove(self, digests: Iterable[str]) -> None:
        """Remove the files with these digests and their thumbnails, those that are there.

        When this returns, no power cut brings one back.

        Raises:
            StoreError: The disk does not let go of one.
        """
        folders = set()
        for sha256 in digests:
            # In this order: see `thumbnail`.
            for path in (self._original(sha256), self._thumbnail(sha256), *self._former_thumbnails(sha256)):
                folders.add(path.parent)
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    raise StoreWriteError(f"{path} cannot be removed: {error.strerror or error}.") from error
        for folder in sorted(folders):
            try:
                # Also for a missing file: the process that deleted it may have crashed before this.
                sync(folder)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StoreWriteError(f"{folder} cannot be written: {error.strerror or error}.") from error

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Let no process remove files while the block runs; it begins when others that do so have ended.

        Raises:
            StoreError: The disk does not take the lock's file.
        """
        with self._lock_file() as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextmanager
    def removing(self) -> Iterator[bool]:
        """Return whether files may be removed in the block; no `keeping` begins before it ends.

        Raises:
            StoreError: The disk does not take the lock's file.
        """
        with self._lock_file() as lock:
            yield try_lock(lock, shared=True)

    def originals(self) -> Iterator[Path]:
        """Walk over the files of images."""
        return self._originals.glob("*/[0-9a-f]*")

    def unfinished(self) -> Iterator[Path]:
        """Walk over the files that are being written, or were by a process that was killed."""
        for folder in (self._originals, self._thumbnails):
            yield from folder.glob("*/.*.part")

    def path(self, sha256: str) -> Path:
        """Return the path of the file with this digest.

        Raises:
            StoreError: The file is missing.
        """
        path = self._original(sha256)
        if not path.is_file():
            raise StoreError(
                f"The stored image {sha256} is missing from {self._originals}: "
                "index its data again to bring it back."
            )
        return path

    def has_thumbnail(self, sha256: str) -> bool:
        """Return whether a thumbnail is made already."""
        return self._thumbnail(sha256).is_file()

    def thumbnail(self, sha256: str) -> Path:
        """Return the path of the WebP thumbnail of a stored image, at most 256 pixels a side, made if needed.

        Raises:
            StoreError: The original is missing or damaged, or the disk does not take the thumbnail.
        """
        path = self._thumbnail(sha256)
        if not self.has_thumbnail(sha256):
            original = self.path(sha256)
            try:
                _write(path, self._make_thumbnail(original))
                for former in self._former_thumbnails(sha256):
                    former.unlink(missing_ok=True)
            except ImageError as error:
                raise StoreError(f"The stored image {sha256} is damaged: {error}") from error
            if not original.exists():
                # The image was removed meanwhile: its thumbnail must go, and the caller gets an error.
                path.unlink(missing_ok=True)
                self.path(sha256)
        return path

    @contextmanager
    def _lock_file(self) -> Iterator[BinaryIO]:
        path = self._folder / "removals.lock"
        try:
            _make_folder(self._folder)
            lock = path.open("ab")
        except OSError as error:
            raise StoreWriteError(f"{path} cannot be opened: {error.strerror or error}.") from error
        with lock:
            yield lock

    def _original(self, sha256: str) -> Path:
        return self._originals / sha256[:2] / sha256

    def _thumbnail(self, sha256: str) -> Path:
        return self._thumbnails / sha256[:2] / f"{sha256}.{PIXELS_VERSION}.webp"

    def _former_thumbnails(self, sha256: str) -> Iterator[Path]:
        """Give the names of thumbnails that earlier decoding has made; the first had no version."""
        yield self._thumbnails / sha256[:2] / f"{sha256}.webp"
        for version in range(2, PIXELS_VERSION):
            yield self._thumbnails / sha256[:2] / f"{sha256}.{version}.webp"


def _write(path: Path, content: bytes) -> None:
    try:
        _make_folder(path.parent)
        with atomic_file(path) as file:
            file.write(content)
    except OSError as error:
        if is_disk_full(error):
            raise DiskFullError(f"{path} cannot be written: the disk is full.") from error
        raise StoreWriteError(f"{path} cannot be written: {error.strerror or error}.") from error


def _make_folder(folder: Path) -> None:
    """Make a folder and those above it, with their names on the disk."""
    if not folder.is_dir():
        _make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync(folder.parent)
