"""A search from its query vector to the page of hits."""

import math
import time
from collections.abc import Collection, Hashable, Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import Final, NamedTuple

import numpy as np
from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from index.background import Background, Backgrounds, ScoreScale
from index.catalogue import Catalogue, Reading
from index.catalogue.tables import CollectionRow, EmbeddingRow, TextEmbeddingRow
from index.composing import Parts, compose
from index.cursors import MOST_RANKED, PageEnd, Place, decode_cursor
from index.errors import QueryError
from index.filter_query import PassingKeys
from index.followed import holds
from index.generations import TARGETS, Generation, Target
from index.groups import GroupColumn, GroupColumns, Groups
from index.images import FoundImage, FoundImages
from index.prepared import Prepared, PreparedRequests
from index.ranking import (
    BY_VECTOR,
    BY_WORDS,
    FUSED_PLACES,
    NOTHING,
    Diverse,
    Fused,
    Grouped,
    Plain,
    Ranked,
    Ranking,
    Scope,
    by_vector,
)
from index.request import SearchRequest
from index.results import ActiveGeneration, FoundBy, Hit, SearchPage
from index.vectors.protocol import After, Keys, Vectors
from index.views import Views
from index.words import matching, texts_with

# How often a page is made again because something on it was removed meanwhile.
_TRIES: Final = 3
_FOUND_BY: Final[dict[int, tuple[FoundBy, ...]]] = {
    BY_VECTOR: ("vector",),
    BY_WORDS: ("words",),
    BY_VECTOR | BY_WORDS: ("vector", "words"),
}
_SEQUENCE: Final = select(CollectionRow.sequence).where(CollectionRow.id == bindparam("collection_id"))


class _Search(NamedTuple):
    """A search that has begun; `version` is None where it is not all of one state of the catalogue."""

    prepared: Prepared
    version: Hashable | None
    scope: Scope
    ranking: Ranking
    groups: Groups | None
    scale: ScoreScale | None
    place: Place | None


class Searcher:
    """Answers searches over the views of a catalogue's generations; threads may share it."""

    def __init__(self, catalogue: Catalogue, views: Views) -> None:
        self._catalogue = catalogue
        self._views = views
        self._passing = PassingKeys()
        self._columns = GroupColumns()
        self._backgrounds = Backgrounds()
        self._images = FoundImages(catalogue)
        self._requests = PreparedRequests(catalogue)

    def warm(self, reading: Reading, generation: Generation, sequence: int) -> None:
        """Load the views of a generation and measure their backgrounds, or bring them up to date."""
        for target in TARGETS:
            view = self._views.current(reading, generation, sequence, target)
            self._backgrounds.of(reading, generation, view, target)

    def retire(self, collection_id: int, active: int) -> None:
        """Free what is held of a collection's other generations that nobody has used for a while."""
        self._views.retire(collection_id, active)
        self._backgrounds.keep(self._views.held())

    def keep(self, collections: Collection[int], generations: Collection[int]) -> None:
        """Free what is held of all other collections and generations."""
        self._passing.keep(collections)
        self._columns.keep(collections)
        self._views.keep(generations)
        self._backgrounds.keep(generations)

    def generation(self, active: ActiveGeneration) -> tuple[Generation, int]:
        """Return the generation that a caller means, and the sequence number of its collection.

        Raises:
            GenerationError: It is gone, or another one than the caller thinks.
        """
        return self._requests.generation(active)

    def compose(self, active: ActiveGeneration, parts: Parts, target: Target) -> Vectors:
        """Make one query vector of several; see `SearchEngine.compose`."""
        if parts.single is not None:
            return parts.single.vector
        generation, sequence = self.generation(active)
        with self._catalogue.reading() as reading:
            view = self._views.current(reading, generation, sequence, target)
            background = self._backgrounds.of(reading, generation, view, target)
        if background is None:
            # Nothing is held yet: all parts weigh the same.
            background = Background(
                np.zeros((1, active.dim), dtype=np.float32), 0, blades=active.blades, unsigned=active.unsigned
            )
        return compose(parts, background)

    def page(
        self, active: ActiveGeneration, vector: Vectors, request: SearchRequest, text: str | None = None
    ) -> SearchPage:
        """Return a page of hits; see `SearchEngine.search`."""
        started = time.perf_counter()
        request.check()
        query, prepared = unit_query(vector, active.dim), self._requests.of(active, request)
        return self._page(self._begin(prepared, query, request, text), request, started)

    def pages(
        self,
        active: ActiveGeneration,
        vectors: Vectors,
        request: SearchRequest,
        texts: Sequence[str] | None = None,
    ) -> list[SearchPage]:
        """Return a page of hits for each query; see `SearchEngine.search_many`."""
        request.check()
        queries = [unit_query(vector, active.dim) for vector in vectors]
        prepared = self._requests.of(active, request)
        searches = [
            self._begin(prepared, query, request, text)
            for query, text in zip(queries, texts or repeat(None, len(queries)), strict=True)
        ]
        firsts: list[Ranked | None] = [None] * len(searches)
        if searches and request.is_plain:
            near = searches[0].scope.view.search_many(np.stack(queries), request.k + 1)
            firsts = [by_vector(found) for found in near]
            # Read together, they are kept for the pages one by one.
            self._images.of(
                np.unique(np.concatenate([found.keys for found in near])).tolist(),
                request.target,
                prepared.version,
            )
        return [
            self._page(search, request, time.perf_counter(), first)
            for search, first in zip(searches, firsts, strict=True)
        ]

    def _page(
        self, search: _Search, request: SearchRequest, started: float, first: Ranked | None = None
    ) -> SearchPage:
        before = 0 if search.place is None else search.place.after.rank
        k = request.k
        if request.is_remade:
            k = max(1, min(k, MOST_RANKED - before))
        found, images = self._found(search, k, request.target, first)
        more = len(found) > k
        if more:
            found = found.take(slice(k))
        hits = self._hits(search, found, images, before)
        confident = None if search.place is None else search.place.confident
        if search.place is None and search.scale is not None and len(found):
            confident = search.scale.confident(max(hit.cosine for hit in hits))
        end = None
        if more:
            place = self._end(search, request, found, before + k, confident)
            end = PageEnd(search.prepared.binding, search.scope.query, place)
        took_ms = (time.perf_counter() - started) * 1000
        return SearchPage(hits, end, found.exact, took_ms, confident, fused=request.words is not None)

    def _end(
        self, search: _Search, request: SearchRequest, found: Ranked, rank: int, confident: bool | None
    ) -> Place:
        """Return where a page of these hits ends."""
        last = After(float(found.scores[-1]), int(found.keys[-1]), rank)
        seen = NOTHING if search.place is None else search.place.seen
        if request.is_remade:
            seen = np.append(seen, found.keys)
        began = search.prepared.sequence if search.place is None else search.place.sequence
        return Place(last, began, confident, seen)

    def _begin(self, prepared: Prepared, query: Vectors, request: SearchRequest, text: str | None) -> _Search:
        generation, place = prepared.generation, None
        if request.cursor is not None:
            query, place = decode_cursor(request.cursor, prepared.binding, query)
        # What has to be read is of the prepared state or of a later one; often nothing has to be.
        with self._catalogue.reading() as reading:
            view = self._views.current(reading, generation, prepared.sequence, request.target)
            background = self._backgrounds.of(reading, generation, view, request.target)
            hidden = prepared.hidden
            # Else what comes to another place could come twice.
            if place is not None and self._views.beyond(generation, place.sequence, request.target):
                written = _written_since(reading.session, generation, place.sequence, request.target)
                hidden = np.union1d(hidden, written)
            allowed = self._allowed(reading, prepared, request, request.target)
            scope = Scope.of(view, query, allowed, hidden)
            ranking: Ranking = Plain(scope)
            if request.words is not None:
                ranking = Fused(scope, self._matches(reading, prepared, request, hidden))
        groups = None
        if request.group_by is not None:
            column = partial(self._column, generation, request.group_by, request.target)
            groups = Groups(column)
            ranking = Grouped(ranking, groups, scope)
        if request.diversity is not None:
            ranking = Diverse(
                ranking,
                view,
                request.diversity,
                blades=generation.blades,
                unsigned=generation.unsigned,
            )
        scale = None if background is None else background.scale(query, request.kind, text)
        version = None if reading.opened else prepared.version
        return _Search(prepared, version, scope, ranking, groups, scale, place)

    def _column(self, generation: Generation, field: str, target: Target) -> GroupColumn:
        """Return the groups of a collection as the catalogue is now."""
        collection_id = generation.collection_id
        with self._catalogue.read() as session:
            sequence = session.execute(_SEQUENCE, {"collection_id": collection_id}).scalar() or 0
            return self._columns.get(session, collection_id, sequence, field, target)

    def _allowed(
        self, reading: Reading, prepared: Prepared, request: SearchRequest, target: Target
    ) -> Keys | None:
        if request.filter is None or prepared.filter_name is None:
            return None
        return self._passing.get(
            reading,
            prepared.generation.collection_id,
            prepared.sequence,
            request.filter,
            prepared.filter_name,
            target,
        )

    def _matches(self, reading: Reading, prepared: Prepared, request: SearchRequest, hidden: Keys) -> Keys:
        """Return the keys that match the request's words, best first, without those that are left out."""
        words, images = request.words or "", self._allowed(reading, prepared, request, "images")
        session, collection_id = reading.session, prepared.generation.collection_id
        if request.target == "images":
            limit = FUSED_PLACES + len(hidden)
            keys = matching(session, collection_id, words, limit, images)
        else:
            # The words may be in another text of the image, or in its report.
            keys = matching(session, collection_id, words, MOST_RANKED, images)
            keys = texts_with(session, keys, words)
        return keys[~holds(hidden, keys)][:FUSED_PLACES]

    def _found(
        self, search: _Search, k: int, target: Target, first: Ranked | None
    ) -> tuple[Ranked, dict[int, FoundImage]]:
        """Return more than `k` hits if there are more, and what the catalogue holds of them.

        Args:
            search: What is searched for.
            k: Hits on the page.
            target: Whether they are images or texts.
            first: The first `k + 1` hits, where they are known.
        """
        wanted, prepared = k + 1, search.prepared
        for _ in range(_TRIES):
            found = search.ranking.page(wanted, search.place) if first is None else first
            first = None
            # Where the view holds what was written after the search began, these are as they are now.
            beyond = self._views.beyond(prepared.generation, prepared.sequence, target)
            images = self._images.of(found.keys.tolist(), target, None if beyond else search.version)
            held = found
            if len(images) < len(found):
                held = found.take(np.flatnonzero(np.isin(found.keys, list(images))))
            if len(held) > k or len(found) < wanted:
                break
            wanted += len(found) - len(held)
        return held, images

    def _hits(
        self,
        search: _Search,
        found: Ranked,
        images: dict[int, FoundImage],
        before: int,
    ) -> tuple[Hit, ...]:
        keys, cosines = found.keys.tolist(), found.cosines.tolist()
        others: Iterable[int | None] = repeat(None, len(keys))
        if search.groups is not None:
            counts = search.groups.others(found.keys, search.scope.findable(search.groups.column.keys))
            others = [counts.get(key) for key in keys]
        unusual: Iterable[float | None] = repeat(None, len(keys))
        if search.scale is not None:
            unusual = search.scale.unusual(cosines)
        found_by = [_FOUND_BY[lists] for lists in found.lists.tolist()]
        its = found.scores.tolist(), cosines, unusual, found_by, others
        shown = zip(map(images.__getitem__, keys), *its, strict=True)
        # By place: by name it takes twice the time, and there may be hundreds.
        return tuple(
            [
                Hit(
                    image.id,
                    rank,
                    score,
                    cosine,
                    above,
                    lists,
                    image.text,
                    image.group,
                    more,
                    image.texts,
                    image.labels,
                    image.metadata,
                )
                for rank, (image, score, cosine, above, lists, more) in enumerate(shown, before + 1)
            ]
        )


def unit_query(vector: Vectors, dim: int) -> Vectors:
    """Return a query vector (D,) at length one.

    Raises:
        QueryError: It has another shape, or no direction.
    """
    if vector.shape != (dim,):
        numbers = " by ".join(map(str, vector.shape))
        raise QueryError(f"The query vector has {numbers} numbers, the collection's have {dim}.")
    wide = vector.astype(np.float64)
    length = math.sqrt(np.vecdot(wide, wide))
    if not math.isfinite(length) or length == 0:
        raise QueryError("The query vector must have finite numbers that are not all zero.")
    # In float32 the length of large numbers would be infinite.
    query: Vectors = (wide / length).astype(np.float32)
    return query


def _written_since(session: Session, generation: Generation, sequence: int, target: Target) -> Keys:
    """Return the keys of all vectors that were written after a sequence number, in no order."""
    table = EmbeddingRow if target == "images" else TextEmbeddingRow
    key = EmbeddingRow.image_id if target == "images" else TextEmbeddingRow.text_id
    query = select(key).where(table.generation_id == generation.id, table.sequence > sequence)
    return np.fromiter(session.execute(query).scalars(), dtype=np.int64)
