"""Cases that people keep in lists."""

from __future__ import annotations

from collections.abc import AsyncIterator

from recoquest_client import answers, operations
from recoquest_client.async_client.connection import AsyncConnection


class AsyncCases(AsyncConnection):
    """Cases that people keep in lists."""

    async def case_lists(self, collection: str) -> tuple[answers.CaseList, ...]:
        """Return the case lists of a collection, by name."""
        return await self._send(operations.list_case_lists(collection))

    async def put_case_list(
        self, collection: str, case_list: str, name: str, *, etag: str | None = None
    ) -> answers.CaseList:
        """Begin a list under an id of your choice, or give it another name.

        Raises:
            PreconditionError: The list is not that of `etag` any more.
        """
        return await self._send(operations.put_case_list(collection, case_list, name, etag))

    async def delete_case_list(self, collection: str, case_list: str) -> None:
        """Remove a list with its notes; its images stay."""
        await self._send(operations.delete_case_list(collection, case_list))

    async def cases(
        self, collection: str, case_list: str, *, page_size: int = 100
    ) -> AsyncIterator[answers.SavedCase]:
        """Iterate over the images of a list, in the order in which they came into it."""
        call = operations.get_case_list(collection, case_list, page_size)
        async for page in self._pages(call, lambda page: page.next_cursor):
            for one in page.cases:
                yield one

    async def save_case(
        self,
        collection: str,
        case_list: str,
        image_id: str,
        note: str | None = None,
        *,
        etag: str | None = None,
    ) -> None:
        """Put an image into a list, or change its note there; None leaves the note as it is.

        Raises:
            PreconditionError: The image is not in the list with the note of `etag` any more.
        """
        await self._send(operations.save_case_image(collection, case_list, image_id, note, etag))

    async def remove_case(self, collection: str, case_list: str, image_id: str) -> None:
        """Take an image out of a list with its note."""
        await self._send(operations.remove_case_image(collection, case_list, image_id))

    async def teaching_file(self, collection: str, case_list: str) -> bytes:
        """Return the zip file of a list without ids, UIDs and dates; of a thousand films it has gigabytes."""
        return await self._send(operations.export_case_list(collection, case_list))
