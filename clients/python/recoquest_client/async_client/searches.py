"""Searches, counts and judgements."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from recoquest_client import answers, operations
from recoquest_client.async_client.connection import AsyncConnection
from recoquest_client.files import ImageFile
from recoquest_client.options import Example, State

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from recoquest_client.options import CountOptions, Search, SearchOptions


class AsyncSearches(AsyncConnection):
    """Searches, counts and judgements."""

    async def search(
        self,
        collection: str,
        text: str | None = None,
        *,
        images: Sequence[ImageFile] = (),
        unlike_images: Sequence[ImageFile] = (),
        cursor: str | bool | None = None,
        **options: Unpack[SearchOptions],
    ) -> answers.SearchPage:
        """Search by a text, image files (paths or bytes) and examples, alone or together.

        Args:
            collection: Name of the collection.
            text: Description of the wanted images.
            images: Files to find more of.
            unlike_images: Files to find less of.
            cursor: True for a page with `next_cursor`; that of the page before for the next page.
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
        cursor: str | bool = True
        while True:
            page = await self._send(
                operations.search(
                    collection, text, options, images=images, unlike_images=unlike_images, cursor=cursor
                )
            )
            yield page
            if page.next_cursor is None:
                return
            cursor = page.next_cursor

    async def similarity_map(
        self,
        collection: str,
        image_id: str,
        text: str | None = None,
        *,
        images: Sequence[ImageFile] = (),
        unlike_images: Sequence[ImageFile] = (),
        **options: Unpack[SearchOptions],
    ) -> answers.SimilarityMap:
        """Tell which parts of an image fit a search, given as to `search`: what each adds to the cosine.

        Raises:
            ProblemError: The model has no regions (`no-regions`), or the search is wrong.
        """
        return await self._send(
            operations.map_similarity(
                collection, image_id, text, options, images=images, unlike_images=unlike_images
            )
        )

    async def search_batch(
        self, collection: str, searches: Sequence[Search]
    ) -> tuple[answers.BatchResult, ...]:
        """Search up to 64 times in one request; each has a page or a problem of its own."""
        return await self._send(operations.search_batch(collection, searches))

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
        keywords: str | None = None,
        keywords_state: State | None = None,
    ) -> answers.Facets:
        """Count the values of the fields of the images that pass a filter and have keywords."""
        options = {"keywords": keywords, "keywords_state": keywords_state}
        return await self._send(operations.count_facets(collection, filter, field, containing, options))

    async def embed(
        self, model: str, texts: Sequence[str] = (), *, images: Sequence[ImageFile] = ()
    ) -> answers.Embeddings:
        """Embed up to 64 texts and image files, the texts first; `like=[{"vector": ...}]` takes a vector.

        Args:
            model: Name or alias of a collection, whose encoder is meant; or digest or name of a model.
            texts: Texts.
            images: Image files: paths or bytes.
        """
        return await self._send(operations.create_embeddings(model, texts, images))

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
