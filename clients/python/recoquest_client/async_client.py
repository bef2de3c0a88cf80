"""The client for programs on asyncio; the same methods as `Client`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import httpx2

from recoquest_client import answers, operations
from recoquest_client.call import Call, client_headers
from recoquest_client.events import EventReader
from recoquest_client.files import ImageFile, NewImage, UploadProgress
from recoquest_client.options import Example, Part
from recoquest_client.retry import Attempts, Following, Retry
from recoquest_client.uploads import Upload

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from recoquest_client.options import CountOptions, Record, Search, SearchOptions

_T = TypeVar("_T")
# The service sends a comment every 15 s.
_SILENCE = 45.0


class AsyncClient:
    """A client of one service on asyncio; an asynchronous context that closes its connections."""

    def __init__(
        self,
        url: str,
        key: str | None = None,
        *,
        timeout: float = 60.0,
        retry: Retry | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        """Set up; nothing is sent yet.

        Args:
            url: Address of the service, such as `http://127.0.0.1:8000`.
            key: API key or token; None: that of the environment, `RECOQUEST_KEY`, if any.
            timeout: Seconds to wait for a part of an answer.
            retry: How often and when requests are sent again.
            transport: Sends requests; None: over the network.
        """
        self._timeout = timeout
        self._retry = retry or Retry()
        self._http = httpx2.AsyncClient(base_url=url, headers=client_headers(key), transport=transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def collections(self) -> tuple[answers.Collection, ...]:
        """Return the collections that the caller may read."""
        return await self._send(operations.list_collections())

    async def collection(self, name: str) -> answers.Collection:
        """Return a collection with the values of its fields."""
        return await self._send(operations.get_collection(name))

    async def create_collection(
        self, name: str, *, model: str | None = None, same_model_as: str | None = None
    ) -> answers.Collection:
        """Begin an empty collection, by a registered model or by that of another collection."""
        return await self._send(operations.create_collection(name, model, same_model_as))

    async def delete_collection(self, name: str) -> None:
        """Remove a collection with all its images."""
        await self._send(operations.delete_collection(name))

    async def search(
        self,
        collection: str,
        text: str | None = None,
        *,
        images: Sequence[ImageFile] = (),
        unlike_images: Sequence[ImageFile] = (),
        cursor: str | None = None,
        **options: Unpack[SearchOptions],
    ) -> answers.SearchPage:
        """Search by a text, image files (paths or bytes) and examples, alone or together.

        Args:
            collection: Name of the collection.
            text: Description of the wanted images.
            images: Files to find more of.
            unlike_images: Files to find less of.
            cursor: `next_cursor` of the page before.
            options: Further parts, such as `like`, `filter`, `limit`, `min_score`, `keywords`, `with_`.
        """
        return await self._send(
            operations.search(
                collection, text, options, images=images, unlike_images=unlike_images, cursor=cursor
            )
        )

    async def search_pages(
        self,
        collection: str,
        text: str | None = None,
        *,
        images: Sequence[ImageFile] = (),
        unlike_images: Sequence[ImageFile] = (),
        **options: Unpack[SearchOptions],
    ) -> AsyncIterator[answers.SearchPage]:
        """Search, page after page; `limit` is the number of hits on each."""
        cursor = None
        while True:
            page = await self._send(
                operations.search(
                    collection, text, options, images=images, unlike_images=unlike_images, cursor=cursor
                )
            )
            yield page
            cursor = page.next_cursor
            if cursor is None:
                return

    async def search_batch(
        self, collection: str, searches: Sequence[Search]
    ) -> tuple[answers.BatchResult, ...]:
        """Search up to 64 times in one request; each has a page or a problem of its own."""
        return await self._send(operations.search_batch(collection, searches))

    async def images(
        self,
        collection: str,
        *,
        filter: Mapping[str, Any] | None = None,
        with_: Sequence[Part] | None = None,
        page_size: int = 100,
    ) -> AsyncIterator[answers.ListedImage]:
        """Iterate over the images that pass a filter, in the order in which they were added."""
        call = operations.list_images(collection, filter, with_, page_size)
        async for page in self._pages(call, lambda page: page.next_cursor):
            for one in page.images:
                yield one

    async def image(self, collection: str, image_id: str) -> answers.Image:
        """Return what is known of an image, and its ETag."""
        return await self._send(operations.get_image(collection, image_id))

    async def content(self, collection: str, image_id: str) -> bytes:
        """Return the stored file."""
        return await self._send(operations.get_content(collection, image_id))

    async def thumbnail(self, collection: str, image_id: str) -> bytes:
        """Return a small WebP."""
        return await self._send(operations.get_thumbnail(collection, image_id))

    async def rendition(
        self,
        collection: str,
        image_id: str,
        *,
        size: int | None = None,
        window: str = "auto",
        media_type: str = "image/png",
    ) -> bytes:
        """Return the image as it is searched, as PNG, JPEG or WebP."""
        return await self._send(operations.get_rendition(collection, image_id, size, window, media_type))

    async def count(self, collection: str, **options: Unpack[CountOptions]) -> int:
        """Count the images, texts or groups that pass a filter and have keywords."""
        return await self._send(operations.count_images(collection, options))

    async def facets(
        self,
        collection: str,
        *,
        filter: Mapping[str, Any] | None = None,
        field: str | None = None,
        containing: str | None = None,
    ) -> answers.Facets:
        """Count the values of the fields of the images that pass a filter."""
        return await self._send(operations.count_values(collection, filter, field, containing))

    async def upload(
        self,
        collection: str,
        images: Iterable[NewImage],
        *,
        progress: Callable[[UploadProgress], object] | None = None,
    ) -> answers.Uploaded:
        """Put in images, many in requests of bounded size; sent again after an error, all is unchanged.

        Args:
            collection: Name of the collection.
            images: Images; of a generator only those of one request are held.
            progress: Called while files are sent and after each answer.

        Raises:
            ProblemError: A request was refused as a whole; images of earlier requests are there.
        """
        upload = Upload(collection, images, progress)
        for call in upload.calls():
            upload.answered(await self._send(call))
        return upload.outcome()

    async def put(
        self, collection: str, image: NewImage, *, etag: str | None = None, only_new: bool = False
    ) -> answers.Written:
        """Put in an image under its id, or replace the one there.

        Raises:
            PreconditionError: The image is not that of `etag`, or is there and should be new.
        """
        return await self._send(operations.put_image(collection, image, etag, only_new))

    async def update(
        self, collection: str, image_id: str, *, etag: str | None = None, **changes: Unpack[Record]
    ) -> answers.Written:
        """Change what is said of an image; what is not named stays, None removes a report or group.

        Raises:
            PreconditionError: The image is not that of `etag` any more.
        """
        return await self._send(operations.update_image(collection, image_id, etag, changes))

    async def delete(self, collection: str, image_id: str, *, etag: str | None = None) -> None:
        """Remove an image."""
        await self._send(operations.delete_image(collection, image_id, etag))

    async def delete_where(
        self,
        collection: str,
        filter: Mapping[str, Any],
        *,
        dry_run: bool = False,
        expected_count: int | None = None,
    ) -> answers.Deleted:
        """Remove the images that pass a filter, up to 10,000 a call, or count them; see `Client`."""
        return await self._send(
            operations.delete_matching_images(collection, filter, dry_run, expected_count)
        )

    async def erase(self, collection: str, ids: Sequence[str]) -> answers.Erased:
        """Remove images so that no byte of them is left on the disk, and name backups that hold them."""
        return await self._send(operations.erase_images(collection, ids))

    async def judge(
        self,
        collection: str,
        hit: str,
        relevant: bool | None,
        *,
        text: str | None = None,
        like: Sequence[Example] = (),
        unlike: Sequence[Example] = (),
        missed: bool = False,
    ) -> answers.Judged:
        """Say whether a hit of a query is relevant; None withdraws it."""
        return await self._send(operations.judge_hit(collection, hit, relevant, text, like, unlike, missed))

    async def judgements(self, collection: str) -> answers.Judgements:
        """Count the judgements of a collection."""
        return await self._send(operations.count_judgements(collection))

    async def generations(self, collection: str) -> tuple[answers.Generation, ...]:
        """Return the generations of a collection, the latest first."""
        return await self._send(operations.list_generations(collection))

    async def activate(self, collection: str, number: int) -> answers.Generation:
        """Search in this generation."""
        return await self._send(operations.activate_generation(collection, number))

    async def roll_back(self, collection: str) -> answers.Generation:
        """Search in the generation before."""
        return await self._send(operations.roll_back_collection(collection))

    async def models(self) -> tuple[answers.Model, ...]:
        """Return the registered models, the latest first."""
        return await self._send(operations.list_models())

    async def model(self, digest: str) -> answers.Model:
        """Return a model with its origin and generations."""
        return await self._send(operations.get_model(digest))

    async def register_model(self, job: int) -> answers.Model:
        """Register the model that a training or retraining has made."""
        return await self._send(operations.register_model(job))

    async def start_job(self, kind: str, **arguments: object) -> answers.Job:
        """Give a job to the workers, such as `start_job("reindex", collection="cxr", generation=1)`."""
        return await self._send(operations.create_job(kind, arguments))

    async def jobs(
        self, *, state: str | None = None, kind: str | None = None, page_size: int = 100
    ) -> AsyncIterator[answers.Job]:
        """Iterate over jobs, the latest first."""
        call = operations.list_jobs(state, kind, page_size)
        async for page in self._pages(call, lambda page: page.next_cursor):
            for one in page.jobs:
                yield one

    async def job(self, number: int) -> answers.Job:
        """Return a job."""
        return await self._send(operations.get_job(number))

    async def cancel_job(self, number: int) -> answers.Job:
        """End a job before its time."""
        return await self._send(operations.cancel_job(number))

    async def stream(self, job: int, *, timeout: float | None = None) -> AsyncIterator[answers.Job]:
        """Give a job now and after every change until it has ended; joined again after a break.

        Raises:
            TimeoutError: It has not ended within so many seconds.
            UnreachableError: The stream broke too often without news.
        """
        call = operations.stream_job_events(job)
        following = Following(call, self._retry, timeout)
        events = EventReader()
        while not events.has_ended:
            try:
                with call.opened() as files:
                    request = self._http.build_request(
                        **call.arguments(files, following.read_timeout(_SILENCE))
                    )
                response = await self._http.send(request, stream=True)
                try:
                    if response.is_success:
                        events.begin()
                        async for line in response.aiter_lines():
                            following.check()
                            if (found := events.read(line)) is not None:
                                following.progressed()
                                yield found
                            if events.has_ended:
                                return
                    else:
                        await response.aread()
                    pause = following.after_answer(response)
                finally:
                    await response.aclose()
            except httpx2.TransportError as error:
                pause = following.after_error(error)
            await asyncio.sleep(pause)

    async def wait(self, job: int, *, timeout: float | None = None) -> answers.Job:
        """Wait until a job has ended, and return it: done, failed or cancelled.

        Raises:
            TimeoutError: It has not ended within so many seconds; it goes on.
        """
        found = [state async for state in self.stream(job, timeout=timeout)]
        return found[-1]

    async def audit(
        self,
        *,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        collection: str | None = None,
        action: str | None = None,
        page_size: int = 100,
    ) -> AsyncIterator[answers.AuditEvent]:
        """Iterate over events of the audit trail, the oldest first."""
        call = operations.list_audit(since, until, collection, action, page_size)
        async for page in self._pages(call, lambda page: page.next_cursor):
            for one in page.events:
                yield one

    async def _pages(self, call: Call[_T], cursor_of: Callable[[_T], str | None]) -> AsyncIterator[_T]:
        cursor: str | None = ""
        while cursor is not None:
            page = await self._send(operations.behind(call, cursor) if cursor else call)
            yield page
            cursor = cursor_of(page)

    async def _send(self, call: Call[_T]) -> _T:
        attempts = Attempts(call, self._retry)
        while True:
            try:
                with call.opened() as files:
                    request = self._http.build_request(**call.arguments(files, self._timeout))
                    response = await self._http.send(request)
            except httpx2.TransportError as error:
                pause: float | None = attempts.after_error(error)
            else:
                pause = attempts.after_answer(response)
                if pause is None:
                    return call.result(response)
            assert pause is not None
            await asyncio.sleep(pause)
