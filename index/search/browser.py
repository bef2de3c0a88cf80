"""Images or texts without a query vector: everything, what passes a filter, or what has some words.

Without words the order is by key, so that what was added last comes last. A key is never given twice and
stays with its image: a page begins behind the last key of the page before, whatever is written or removed in
between, and no page costs more than another. With words the order is by their rank, and made again for each
page, as orders with likeness are.
"""

import math
import time
from functools import partial
from typing import Final, NamedTuple, Protocol

import numpy as np
from sqlalchemy.orm import Session

from index.catalogue import Catalogue
from index.catalogue.collections import Target, require_collection
from index.catalogue.full_text import matching, texts_with
from index.errors import QueryError
from index.filters.column_cache import CollectionState
from index.filters.findings import FindingKeys, texts_saying
from index.filters.passing_keys import PassingKeys
from index.search.cursors import MAX_RANKED, Binding, PageEnd, PagePosition, decode_cursor
from index.search.grouping import GroupColumns, Groups, check_group_field
from index.search.hit_reader import FoundImages
from index.search.matches import WordMatches, match_words
from index.search.orders import NOTHING
from index.search.request import SearchRequest
from index.search.results import FoundBy, FoundImage, Hit, SearchPage
from index.vectors.protocol import After, Keys, Vectors

_NO_QUERY: Final[Vectors] = np.empty(0, dtype=np.float32)
# Attempts at a page whose hits are removed meanwhile.
_TRIES: Final = 3


class _Order(Protocol):
    """Keys in an order that does not depend on a query vector."""

    @property
    def keys(self) -> Keys:
        """All keys, in that order."""

    @property
    def total(self) -> int | None:
        """Number of keys on all pages; None where more match than are ranked."""

    def page(self, wanted: int, place: PagePosition | None) -> Keys:
        """Return the next `wanted` keys behind a page, or from the top; fewer only at the end."""


class _KeyOrder(NamedTuple):
    """By key."""

    keys: Keys

    @property
    def total(self) -> int | None:
        return len(self.keys)

    def page(self, wanted: int, place: PagePosition | None) -> Keys:
        start = 0 if place is None else int(np.searchsorted(self.keys, place.after.key, "right"))
        return self.keys[start : start + wanted]


class _WordOrder(NamedTuple):
    """By the rank of words, one of each group."""

    keys: Keys
    groups: Groups | None
    most: int | None

    @property
    def total(self) -> int | None:
        if self.most is not None and len(self.keys) >= self.most:
            return None
        return len(self.keys if self.groups is None else self.groups.first_places(self.keys))

    def page(self, wanted: int, place: PagePosition | None) -> Keys:
        seen = NOTHING if place is None else place.seen
        keys = self.keys
        if self.groups is not None:
            keys = keys[self.groups.first_places(keys)]
            held, numbers = self.groups.of(keys)
            keys = keys[held][~np.isin(numbers, self.groups.of(seen)[1])]
        return keys[~np.isin(keys, seen)][:wanted]


class Browser:
    """Lists collections without a query vector; threads may share it.

    Args:
        catalogue: Catalogue to read.
        passing: Keys that pass filters.
        columns: Groups of images.
        images: Images of hits.
    """

    def __init__(
        self, catalogue: Catalogue, passing: PassingKeys, columns: GroupColumns, images: FoundImages
    ) -> None:
        self._catalogue = catalogue
        self._passing = passing
        self._columns = columns
        self._images = images

    def page(self, collection: str, request: SearchRequest) -> SearchPage:
        """List the images or texts that pass the filter and have the words.

        Hits have no scores. No generation need be active.

        Raises:
            UnknownCollectionError: No collection has this name.
            QueryError: The request cannot be answered without a query.
            FilterError: The filter does not fit the collection.
            CursorError: The cursor is damaged or of another request.
        """
        started = time.perf_counter()
        request.check()
        if request.diversity is not None:
            raise QueryError(
                "diversity goes with a query: give a text, an image or examples.", field="diversity"
            )
        if request.min_score is not None:
            raise QueryError(
                "min_score goes with a query: give a text, an image or examples.", field="min_score"
            )
        with self._catalogue.reading() as reading:
            row = require_collection(reading.session, collection)
            binding = Binding(f"browse {row.id}", request.bound())
            place = None
            if request.cursor is not None:
                place = decode_cursor(request.cursor, binding, _NO_QUERY)[1]
            found = _Found(*self._order(CollectionState(reading, row.id, row.sequence), request, MAX_RANKED))
            before = 0 if place is None else place.after.rank
            k = request.k if request.words is None else min(request.k, MAX_RANKED - before)
            keys, images, is_last = self._shown(found.order, k, place, request.target)
            others = found.others(keys)
        found_by: tuple[FoundBy, ...] = ()
        matches = WordMatches([None] * len(images), ())
        if request.words is not None:
            found_by = ("keywords",)
            matches = match_words(
                self._catalogue, row.id, request.words, keys.tolist(), images, request.target
            )
        hits = tuple(
            Hit(image, before + place, math.nan, math.nan, found_by, others.get(key), match)
            for place, (image, key, match) in enumerate(
                zip(images, keys.tolist(), matches.texts, strict=True), 1
            )
        )
        end = None
        if not is_last and len(keys):
            after = After(0.0, int(keys[-1]), before + len(keys))
            began, seen = (row.sequence, NOTHING) if place is None else (place.sequence, place.seen)
            if request.words is not None:
                seen = np.append(seen, keys)
            end = partial(_end, PageEnd(binding, _NO_QUERY, PagePosition(after, began, None, seen)))
        took_ms = (time.perf_counter() - started) * 1000
        total = found.order.total
        return SearchPage(hits, place, end, None, True, took_ms, False, total, matches.unknown)

    def count(self, collection: str, request: SearchRequest) -> int:
        """Count the images, texts or groups that pass the filter and have the words.

        Raises:
            UnknownCollectionError: No collection has this name.
            QueryError: There is no word, or no such field to group by.
            FilterError: The filter does not fit the collection.
        """
        request.check()
        with self._catalogue.reading() as reading:
            row = require_collection(reading.session, collection)
            state = CollectionState(reading, row.id, row.sequence)
            order, _, _ = self._order(state, request, most=None)
            total = order.total
        assert total is not None
        return total

    def keys(self, request: SearchRequest, state: CollectionState) -> Keys:
        """Return the keys, rising, of all that pass the filter and have the words.

        Raises:
            QueryError: There is no word.
            FilterError: The filter does not fit the collection.
        """
        request.check()
        return np.sort(self._order(state, request, most=None)[0].keys)

    def _order(
        self, state: CollectionState, request: SearchRequest, most: int | None
    ) -> tuple[_Order, Groups | None, Keys]:
        """Return the order of a request, its groups, and the keys that may be found.

        Of the keys with words, at most `most` are ranked; None ranks all.
        """
        groups, session, collection_id = None, state.session, state.collection_id
        if request.group_by is not None:
            check_group_field(session, collection_id, request.group_by, of="group_by")
            newest = partial(
                self._columns.get,
                session,
                collection_id,
                state.sequence,
                request.group_by,
                request.target,
            )
            groups = Groups(newest)

        def findable(target: Target) -> Keys:
            if request.filter is None:
                return self._passing.every(state, target)
            return self._passing.get(state, request.filter, target)

        if request.words is not None:
            # With keys to choose from, no word is left out for being common.
            images = None if request.filter is None and most is not None else findable("images")
            limit = len(images) if most is None and images is not None else MAX_RANKED
            findings = request.words_findings
            if findings:
                images = FindingKeys(self._passing, state).with_any(findings, images)
            keys = matching(session, collection_id, request.words, limit, images)
            if request.target == "texts":
                keys = _texts_of(session, keys, request)[:most]
            return _WordOrder(keys, groups, most), groups, findable(request.target) if groups else NOTHING
        keys = findable(request.target)
        return _KeyOrder(keys if groups is None else groups.column.firsts(keys)), groups, keys

    def _shown(
        self, order: _Order, k: int, place: PagePosition | None, target: Target
    ) -> tuple[Keys, list[FoundImage], bool]:
        """Return keys and images of the next `k` hits, and whether none is behind them."""
        wanted = k + 1
        for _ in range(_TRIES):
            keys = order.page(wanted, place)
            held = self._images.of(keys.tolist(), target)
            images = [image for image in held if image is not None]
            if len(images) > k or len(keys) < wanted:
                break
            wanted += len(held) - len(images)
        kept = keys[[image is not None for image in held]] if len(keys) else keys
        return kept[:k], images[:k], len(images) <= k and len(keys) < wanted


class _Found(NamedTuple):
    order: _Order
    groups: Groups | None
    findable: Keys

    def others(self, keys: Keys) -> dict[int, int]:
        """Return for hits how many more of their groups there are; nothing without groups."""
        return {} if self.groups is None else self.groups.others(keys, self.findable)


def _texts_of(session: Session, images: Keys, request: SearchRequest) -> Keys:
    """Return the keys of the images' texts that have the words, in the state that is asked for."""
    findings, found = request.words_findings, [NOTHING]
    # Databases bound the number of values in a statement.
    for start in range(0, len(images), MAX_RANKED):
        keys = texts_with(session, images[start : start + MAX_RANKED], request.words or "")
        found.append(texts_saying(session, keys, findings) if findings else keys)
    return np.concatenate(found)


def _end(end: PageEnd, _confident: bool | None) -> PageEnd:
    return end
