"""Images: what is known of them, their files, and changes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from recoquest_client import answers, operations
from recoquest_client.async_client.connection import AsyncConnection
from recoquest_client.files import NewImage, UploadProgress
from recoquest_client.uploads import Upload

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from recoquest_client.options import LinkedPicture, ListOptions, Record


class AsyncImages(AsyncConnection):
    """Images: what is known of them, their files, and changes."""

    async def images(
        self, collection: str, *, page_size: int = 100, **options: Unpack[ListOptions]
    ) -> AsyncIterator[answers.ListedImage]:
        """Iterate over the images that pass a `filter`; docs/guides/search.md explains the options."""
        call = operations.list_images(collection, options, page_size)
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

    async def link(
        self,
        collection: str,
        image_id: str,
        *,
        rendition: LinkedPicture | None = None,
        expires_in: int = 3600,
    ) -> answers.PictureLink:
        """Make a link that shows one picture without a key, for so many seconds; a day at most.

        Args:
            collection: Name of the collection.
            image_id: Id of the image.
            rendition: Parameters of the image as it is searched, such as `{"size": 1024}`; `thumbnail`; or
                `content`, the stored file. None: the image as it is searched, whole.
            expires_in: Seconds until its end.
        """
        return await self._send(operations.link_image(collection, image_id, rendition, expires_in))

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
        """Change the record of an image; omitted fields stay, None removes a report or group.

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
        """Remove the images that pass a filter, up to 10,000 a call, or count them by a dry run.

        Raises:
            ProblemError: The filter does not fit, or finds another number of images than expected.
        """
        return await self._send(
            operations.delete_matching_images(collection, filter, dry_run, expected_count)
        )

    async def erase(
        self,
        collection: str,
        ids: Sequence[str] = (),
        *,
        patient: str | None = None,
        study: str | None = None,
    ) -> answers.Erased:
        """Remove images so that no byte of them is left on the disk, and name backups that hold them.

        Args:
            collection: Name of the collection.
            ids: Ids of the images.
            patient: Patient ID or its keyed hash, whose images and reports are removed, too.
            study: Study Instance UID, accession number or its keyed hash, likewise.
        """
        return await self._send(operations.erase_images(collection, ids, patient, study))
