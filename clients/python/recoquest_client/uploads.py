"""Uploads of many images as calls, and their progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from recoquest_client import operations
from recoquest_client.answers import Uploaded, Written
from recoquest_client.call import Call
from recoquest_client.files import MAX_BYTES, MAX_FILES, NewImage, UploadProgress, batches


class Upload:
    """An upload: its calls are made one at a time, and each answer is taken before the next."""

    def __init__(
        self,
        collection: str,
        images: Iterable[NewImage],
        progress: Callable[[UploadProgress], object] | None,
    ) -> None:
        self._collection = collection
        self._images = images
        self._progress = progress
        is_known = isinstance(images, Sequence)
        self._total_images = len(images) if is_known else None  # type: ignore[arg-type]
        self._total = sum(image.size for image in images) if is_known else None
        self._sent = 0
        self._batch: list[NewImage] = []
        self._results: list[Written] = []

    def calls(self) -> Iterator[Call[Uploaded]]:
        """Make the calls, one for each request."""
        for batch in batches(self._images, files=MAX_FILES, size=MAX_BYTES):
            self._batch = batch
            yield operations.upload_images(self._collection, batch, self._tell)

    def answered(self, answer: Uploaded) -> None:
        """Take the answer to the latest call."""
        self._results += answer.results
        self._sent += sum(image.size for image in self._batch)
        self._tell(0)

    def outcome(self) -> Uploaded:
        """Return the outcome of all."""
        return Uploaded(tuple(self._results))

    def _tell(self, sent: int) -> None:
        if self._progress is not None:
            self._progress(
                UploadProgress(len(self._results), self._total_images, self._sent + sent, self._total)
            )
