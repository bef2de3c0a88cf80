"""Image files that are sent: opened for each attempt, read in pieces, many in requests of bounded size."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Union

# A path, or the bytes of a file.
ImageFile = Union[str, "os.PathLike[str]", bytes]

# Of one request; the service takes 64 files and, unless it is set otherwise, 24 MiB.
MAX_FILES = 64
MAX_BYTES = 20 * 1024 * 1024


@dataclass(frozen=True)
class NewImage:
    """An image to upload: its id, a path or the bytes of its file, and its record; see `Record`."""

    id: str
    file: ImageFile
    record: Mapping[str, Any] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Bytes of its file."""
        return len(self.file) if isinstance(self.file, bytes) else os.stat(self.file).st_size  # noqa: PTH116


@dataclass(frozen=True)
class UploadProgress:
    """Progress of an upload; totals are None where images come one by one.

    Attributes:
        images: Images that were answered.
        sent: Bytes of files that were sent; it falls where a request is sent again.
    """

    images: int
    total_images: int | None
    sent: int
    total: int | None


def content_of(file: ImageFile) -> bytes:
    """Return the bytes of an image file."""
    return file if isinstance(file, bytes) else Path(file).read_bytes()


def batches(images: Iterable[NewImage], *, files: int, size: int) -> Iterator[list[NewImage]]:
    """Group images for requests: as many as `files`, together of `size` bytes, without an id twice."""
    batch: list[NewImage] = []
    ids: set[str] = set()
    held = 0
    for image in images:
        its_size = image.size + sum(len(str(value)) for value in image.record.values())
        if batch and (len(batch) == files or held + its_size > size or image.id in ids):
            yield batch
            batch, ids, held = [], set(), 0
        batch.append(image)
        ids.add(image.id)
        held += its_size
    if batch:
        yield batch


class OpenedFiles:
    """Files of one attempt; a context that closes them."""

    def __init__(self, files: Sequence[tuple[str, ImageFile]], on_sent: Callable[[int], None] | None) -> None:
        self._files = files
        self._on_sent = on_sent
        self._sent = 0
        self._stack = ExitStack()
        self.parts: list[tuple[str, tuple[str, IO[bytes]]]] = []

    def __enter__(self) -> OpenedFiles:
        with ExitStack() as stack:
            for field_name, file in self._files:
                is_path = not isinstance(file, bytes)
                opened: IO[bytes] = Path(file).open("rb") if is_path else io.BytesIO(file)  # type: ignore[arg-type]
                stack.enter_context(opened)
                name = Path(file).name if is_path else "image"  # type: ignore[arg-type]
                self.parts.append((field_name, (name, _Counted(opened, self._count))))  # type: ignore[arg-type]
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def _count(self, read: int) -> None:
        self._sent += read
        if self._on_sent is not None:
            self._on_sent(self._sent)


class _Counted:
    """A file that tells how much of it was read."""

    def __init__(self, file: IO[bytes], count: Callable[[int], None]) -> None:
        self._file = file
        self._count = count

    def read(self, size: int = -1) -> bytes:
        content = self._file.read(size)
        if content:
            self._count(len(content))
        return content

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()
