"""A search from its query vector to the page of hits."""

import math
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count, repeat, starmap
from typing import Final, NamedTuple

import numpy as np
from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from index.catalogue import Catalogue, Reading, ReadThroughCache
from index.catalogue.collections import TARGETS, Generation, Target, get_generation
from index.catalogue.full_text import matching, texts_with
from index.catalogue.tables import CollectionRow, EmbeddingRow, TextEmbeddingRow
from index.errors import SEARCH_ERRORS, QueryError, SearchError
from index.filters.column_cache import CollectionState, contains_sorted
from index.filters.findings import FindingKeys, texts_saying
from index.filters.passing_keys import PassingKeys
from index.scoring.background import Background, Backgrounds, ScoreScale
from index.scoring.confidence import (
    Confidence,
    TextEncoder,
    keep_confidence,
    measure_confidence,
    read_confidence,
)
from index.search.browser import Browser
from index.search.cursors import MAX_RANKED, PageEnd, PagePosition, decode_cursor
from index.search.grouping import GroupColumn, GroupColumns, Groups
from index.search.hit_reader import FoundImages
from index.search.matches import NO_WORDS, match_words
from index.search.orders import (
    BY_FINDINGS,
    BY_VECTOR,
    BY_WORDS,
    FUSED_PLACES,
    NOTHING,
    DiverseRanking,
    FusedRanking,
    GroupedRanking,
    Ranked,
    Ranking,
    Scope,
    VectorRanking,
    by_vector,
)
from index.search.query_vector import Parts, compose
from index.search.request import BatchEntry, SearchRequest
from index.search.resolver import RequestResolver, ResolvedRequest
from index.search.results import ActiveGeneration, FoundBy, FoundImage, Hit, MatchedText, SearchPage
from index.vectors.protocol import After, Keys, Neighbours, Vectors
from index.views.manager import ViewEntry, Views

# Attempts at a page whose hits are removed meanwhile.
_TRIES: Final = 3
_LISTS: Final[tuple[tuple[int, FoundBy], ...]] = (
    (BY_VECTOR, "vector"),
    (BY_WORDS, "keywords"),
    (BY_FINDINGS, "findings"),
)
_FOUND_BY: Final[dict[int, tuple[FoundBy, ...]]] = {
    lists: tuple(name for bit, name in _LISTS if lists & bit) for lists in range(BY_VECTOR, 2 * BY_FINDINGS)
}
_SEQUENCE: Final = select(CollectionRow.sequence).where(CollectionRow.id == bindparam("collection_id"))


class _Search(NamedTuple):
    """A search that has begun; `version` is None where it is not all of one state of the catalogue.

    `newest` is that of the view when it began. `fused` tells whether several lists are fused, and `remade`
    whether the order is made again for every page.
    """

    resolved: ResolvedRequest
    version: Hashable | None
    held: ViewEntry
    newest: int
    scope: Scope
    ranking: Ranking
    groups: Groups | None
    measure: Callable[[], ScoreScale] | None
    place: PagePosition | None
    fused: bool
    remade: bool


class Searcher:
    """Answers searches over the views of a catalogue's generations; threads may share it.

    Args:
        catalogue: Catalogue to read.
        views: Views of its generations.
        passing: Keys that pass filters.

    Attributes:
        browser: Lists what passes without a query.
    """

    def __init__(self, catalogue: Catalogue, views: Views, passing: PassingKeys) -> None:
        self._catalogue = catalogue
        self._views = views
        self._passing = passing
        self._columns = GroupColumns()
        self._backgrounds = Backgrounds()
        self._confidences = ReadThroughCache(catalogue, read_confidence)
        self.images = FoundImages(catalogue)
        self._resolver = RequestResolver(catalogue)
        self.browser = Browser(catalogue, self._passing, self._columns, self.images)

    def warm(self, reading: Reading, generation: Generation, sequence: int) -> None:
        """Load the views of a generation and measure their backgrounds, or bring them up to date."""
        for target in TARGETS:
            view = self._views.current(reading, generation, sequence, target)
            self._backgrounds.of(reading, generation, view, target)

    def confidence(self, generation: int) -> Confidence | None:
        """Return what was measured of a generation; None where nothing was."""
        return self._confidences.get(generation)

    def measure_confidence(self, generation: int, encoder: TextEncoder, *, grown: bool) -> None:
        """Measure which scores count in a generation; see `SearchEngine.measure_confidence`."""
        with self._catalogue.reading() as reading:
            found, sequence = get_generation(reading.session, generation)
            view = self._views.current(reading, found, sequence, "images")
            background = self._backgrounds.of(reading, found, view)
            known = self.confidence(generation)
            if background is None or (grown and known is not None and known.fits(len(view))):
                return
            measured = measure_confidence(reading.session, found, view, background.knows, encoder)
        with self._catalogue.write() as session:
            keep_confidence(session, generation, measured)

    def _scale(self, background: Background, generation: int, query: Vectors, text: str | None) -> ScoreScale:
        scale = background.scale(query)
        confidence = None if text is None else self.confidence(generation)
        if text is None or confidence is None:
            return scale
        return scale._replace(least=confidence.least(known=background.knows(text)))

    def retire(self, collection_id: int, active: int) -> None:
        """Free what is held of a collection's other generations that nobody has used for a while."""
        if self._views.retire(collection_id, active):
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
            GenerationError: The generation is gone, or differs from the one that the caller named.
        """
        return self._resolver.generation(active)

    def compose(self, active: ActiveGeneration, parts: Parts, target: Target) -> Vectors:
        """Make one query vector of several; see `SearchEngine.compose`."""
        if parts.single is not None:
            return parts.single.vector
        generation, sequence = self.generation(active)
        with self._catalogue.reading() as reading:
            view = self._views.current(reading, generation, sequence, target)
            background = self._backgrounds.of(reading, generation, view, target)
        if background is None:
            # An empty view has no mean: all parts weigh the same.
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
        query, resolved = unit_query(vector, active.dim), self._resolver.resolve(active, request)
        for _ in range(_TRIES):
            search = self._begin(resolved, query, request, text)
            page = self._page(search, request, started)
            # Rows that another thread has added since the search began might come twice: search again.
            if search.place is None or search.held.newest == search.newest:
                break
        return page

    def pages(
        self, active: ActiveGeneration, entries: Sequence[BatchEntry]
    ) -> list[SearchPage | SearchError]:
        """Return a page of hits for each entry; see `SearchEngine.search_batch`."""
        searches: dict[int, _Search] = {}
        answers: dict[int, SearchPage | SearchError] = {}
        for place, (vector, request, text) in enumerate(entries):
            try:
                request.check()
                query = unit_query(vector, active.dim)
                resolved = self._resolver.resolve(active, request)
                searches[place] = self._begin(resolved, query, request, text)
            except SEARCH_ERRORS as error:
                answers[place] = error
        firsts = self._nearest_together(searches, entries)
        for place, search in searches.items():
            try:
                started = time.perf_counter()
                answers[place] = self._page(search, entries[place].request, started, firsts.get(place))
            except SEARCH_ERRORS as error:
                answers[place] = error
        return [answers[place] for place in range(len(entries))]

    def _nearest_together(
        self, searches: Mapping[int, _Search], entries: Sequence[BatchEntry]
    ) -> dict[int, Ranked]:
        """Return the first hits, by place, of searches by likeness alone, made together."""
        alike: dict[tuple[int, int], list[int]] = {}
        for place, search in searches.items():
            scope = search.scope
            if search.place is None and not search.remade and not len(scope.hidden):
                alike.setdefault((id(scope.view), id(scope.allowed)), []).append(place)
        firsts = {}
        for places in alike.values():
            scope = searches[places[0]].scope
            most = max(entries[place].request.k for place in places) + 1
            queries = np.stack([searches[place].scope.query for place in places])
            near = scope.view.search_many(queries, most, allowed=scope.allowed)
            for place, (keys, scores, exact) in zip(places, near, strict=True):
                k = entries[place].request.k + 1
                found = searches[place].scope.near_enough(Neighbours(keys[:k], scores[:k], exact))
                firsts[place] = by_vector(found)
            # Read together, they are kept for the pages one by one.
            every = np.unique(np.concatenate([firsts[place].keys for place in places])).tolist()
            self.images.of(every, entries[places[0]].request.target, searches[places[0]].resolved.version)
        return firsts

    def _page(
        self, search: _Search, request: SearchRequest, started: float, first: Ranked | None = None
    ) -> SearchPage:
        before = 0 if search.place is None else search.place.after.rank
        k = request.k
        if search.remade:
            k = max(1, min(k, MAX_RANKED - before))
        found, images = self._found(search, k, request.target, first)
        matches = NO_WORDS
        if request.words is not None:
            keys = found.keys[: len(images[:k])].tolist()
            of = search.resolved.generation.collection_id
            matches = match_words(self._catalogue, of, request.words, keys, images[:k], request.target)
        hits = _hits(search, found, images[:k], before, matches.texts)
        end = None if len(images) <= k else partial(_end, search, found, k)
        told = search.measure, found.exact, (time.perf_counter() - started) * 1000, search.fused
        return SearchPage(hits, search.place, end, *told, unknown_words=matches.unknown)

    def _begin(
        self, resolved: ResolvedRequest, query: Vectors, request: SearchRequest, text: str | None
    ) -> _Search:
        generation, place = resolved.generation, None
        if request.cursor is not None:
            query, place = decode_cursor(request.cursor, resolved.binding, query)
        # Reads are of the resolved state or of a later one; often there are none.
        with self._catalogue.reading() as reading:
            view = self._views.current(reading, generation, resolved.sequence, request.target)
            background = self._backgrounds.of(reading, generation, view, request.target)
            held = self._views.entry(generation, request.target)
            newest, hidden = held.newest, resolved.hidden
            # Rows rewritten since the first page could repeat.
            if place is not None and newest > place.sequence:
                written = _written_since(reading.session, generation, place.sequence, request.target)
                hidden = np.union1d(hidden, written)
            state = CollectionState(reading, generation.collection_id, resolved.sequence)
            allowed = self._allowed(state, request, request.target)
            scope = Scope.of(view, query, allowed, hidden, request.min_score)
            ranking: Ranking = VectorRanking(scope)
            saying = NOTHING
            if request.stated:
                findings = FindingKeys(self._passing, state)
                saying = findings.with_all(request.stated, request.target, scope.allowed)
            fused = request.words is not None or len(saying) > 0
            if place is not None and request.stated and not request.is_remade:
                # Also after later writes, all pages are of the order of the first.
                fused = len(place.seen) > 0
            if fused:
                ranking = FusedRanking(scope, self._matches(state, request, hidden), saying)
        groups = None
        if request.group_by is not None:
            column = partial(self._column, generation, request.group_by, request.target)
            groups = Groups(column)
            ranking = GroupedRanking(ranking, groups, scope)
        if request.diversity is not None:
            ranking = DiverseRanking(
                ranking,
                view,
                request.diversity,
                blades=generation.blades,
                unsigned=generation.unsigned,
            )
        measure = None
        if background is not None:
            judged = text if request.target == "images" else None
            measure = partial(self._scale, background, generation.id, query, judged)
        version = None if reading.opened else resolved.version
        remade = fused or request.is_remade
        return _Search(resolved, version, held, newest, scope, ranking, groups, measure, place, fused, remade)

    def _column(self, generation: Generation, field: str, target: Target) -> GroupColumn:
        """Return the groups of a collection as the catalogue is now."""
        collection_id = generation.collection_id
        with self._catalogue.read() as session:
            sequence = session.execute(_SEQUENCE, {"collection_id": collection_id}).scalar() or 0
            return self._columns.get(session, collection_id, sequence, field, target)

    def _allowed(self, state: CollectionState, request: SearchRequest, target: Target) -> Keys | None:
        return None if request.filter is None else self._passing.get(state, request.filter, target)

    def _matches(self, state: CollectionState, request: SearchRequest, hidden: Keys) -> Keys:
        """Return the keys that match the request's words, best first, without those that are left out."""
        if request.words is None:
            return NOTHING
        words, images = request.words, self._allowed(state, request, "images")
        session, collection_id = state.session, state.collection_id
        findings = request.words_findings
        if findings:
            images = FindingKeys(self._passing, state).with_any(findings, images)
        if request.target == "images":
            limit = FUSED_PLACES + len(hidden)
            keys = matching(session, collection_id, words, limit, images)
        else:
            # The words may be in another text of the image, or in its report.
            keys = matching(session, collection_id, words, MAX_RANKED, images)
            keys = texts_with(session, keys, words)
            if findings:
                keys = texts_saying(session, keys, findings)
        return keys[~contains_sorted(hidden, keys)][:FUSED_PLACES]

    def _found(
        self, search: _Search, k: int, target: Target, first: Ranked | None
    ) -> tuple[Ranked, list[FoundImage]]:
        """Return more than `k` hits if there are more, and what the catalogue holds of each.

        Args:
            search: Resolved search.
            k: Hits on the page.
            target: Whether they are images or texts.
            first: The first `k + 1` hits, where they are known.
        """
        wanted = k + 1
        for _ in range(_TRIES):
            found = search.ranking.page(wanted, search.place) if first is None else first
            first = None
            # A view with later writes needs the present state of its hits.
            beyond = search.held.newest > search.resolved.sequence
            held = self.images.of(found.keys.tolist(), target, None if beyond else search.version)
            images = [image for image in held if image is not None]
            if len(images) > k or len(found) < wanted:
                break
            wanted += len(found) - len(images)
        if len(images) < len(held):
            found = found.take(np.flatnonzero([image is not None for image in held]))
        return found, images


def _hits(
    search: _Search,
    found: Ranked,
    images: list[FoundImage],
    before: int,
    matched: Sequence[MatchedText | None],
) -> tuple[Hit, ...]:
    """Return the hit of each image; `before` hits of earlier pages rank above them."""
    shown = len(images)
    others: Iterable[int | None] = repeat(None)
    if search.groups is not None:
        counts = search.groups.others(found.keys[:shown], search.scope.findable(search.groups.column.keys))
        others = map(counts.get, found.keys[:shown].tolist())
    ranks, found_by = count(before + 1), map(_FOUND_BY.__getitem__, found.lists.tolist())
    columns = ranks, found.scores.tolist(), found.cosines.tolist(), found_by, others, matched or repeat(None)
    return tuple(starmap(Hit, zip(images, *columns, strict=False)))


def _end(search: _Search, found: Ranked, k: int, confident: bool | None) -> PageEnd:
    """Return where a page of the first `k` of these hits ends."""
    before, seen, began = 0, NOTHING, search.resolved.sequence
    if search.place is not None:
        before, seen, began = search.place.after.rank, search.place.seen, search.place.sequence
    if search.remade:
        seen = np.append(seen, found.keys[:k])
    last = After(float(found.scores[k - 1]), int(found.keys[k - 1]), before + k)
    return PageEnd(search.resolved.binding, search.scope.query, PagePosition(last, began, confident, seen))


def unit_query(vector: Vectors, dim: int) -> Vectors:
    """Return a query vector (D,) at length one.

    Raises:
        QueryError: The vector has another shape, or no direction.
    """
    if vector.shape != (dim,):
        numbers = " by ".join(map(str, vector.shape))
        raise QueryError(f"The query vector has {numbers} numbers, the collection's have {dim}.")
    wide = vector.astype(np.float64)
    length = math.sqrt(wide.dot(wide))
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
