"""The search engine that the service and the command line use."""

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import count, repeat
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from index.catalogue import Reading, ReadThroughCache
from index.catalogue.collections import (
    EMBEDDINGS,
    NOT_DELETED,
    TARGETS,
    Generation,
    Target,
    count_embeddings,
    find_generation,
    get_generation,
    next_sequence,
    preloading,
    require_active,
    require_collection,
)
from index.catalogue.full_text import matching, texts_with, unknown_words
from index.catalogue.images import StoredImage, read_image, require_image
from index.catalogue.lookup import count_images
from index.catalogue.tables import CollectionRow, EmbeddingRow, GenerationRow, ModelRow
from index.errors import SEARCH_ERRORS, GenerationError, QueryError, SearchError
from index.filters.column_cache import CollectionState, contains_sorted, read_keys
from index.filters.columns import known_fields
from index.filters.facets import FilteredFacets, Overview, Overviews, has_texts
from index.filters.grammar import And, Filter, Or
from index.filters.passing import FieldColumns, texts_saying
from index.home import Home
from index.scoring import (
    Background,
    Confidence,
    ScoreScale,
    TextEncoder,
    keep_confidence,
    measure_confidence,
    read_confidence,
)
from index.search.cursors import MAX_RANKED, Binding, PageEnd, PagePosition, decode_cursor
from index.search.grouping import (
    GroupColumn,
    GroupColumns,
    Groups,
    check_group_field,
    keys_left_out,
)
from index.search.orders import (
    BY_FINDINGS,
    BY_VECTOR,
    BY_WORDS,
    FUSED_DEPTH,
    LIST_ORDERS,
    DiverseRanking,
    FusedRanking,
    GroupedRanking,
    Ranked,
    Ranking,
    VectorRanking,
    WordList,
)
from index.search.request import BatchEntry, Parts, SearchRequest, compose, unit_query
from index.search.results import (
    ActiveGeneration,
    CollectionInfo,
    FieldInfo,
    FoundBy,
    Hit,
    HitImage,
    HitImages,
    MatchedText,
    ModelInfo,
    SearchPage,
    matched_texts,
)
from index.vectors.ann import OperatingPoint
from index.vectors.gpu import Gpu
from index.vectors.protocol import NOTHING, After, Keys, Neighbours, Vectors, ViewName, decode_vectors
from index.vectors.view import VectorView
from index.views.manager import Choice, ViewEntry, Views

# Attempts at a page whose hits are removed while it is made.
_TRIES: Final = 3
_LISTS: Final[tuple[tuple[int, FoundBy], ...]] = (
    (BY_VECTOR, "vector"),
    (BY_WORDS, "keywords"),
    (BY_FINDINGS, "findings"),
)
_FOUND_BY: Final[dict[int, tuple[FoundBy, ...]]] = {
    lists: tuple(name for bit, name in _LISTS if lists & bit) for lists in range(2 * BY_FINDINGS)
}
_NO_QUERY: Final[Vectors] = np.empty(0, dtype=np.float32)
_SEQUENCE: Final = select(CollectionRow.sequence).where(CollectionRow.id == bindparam("collection_id"))


class _Resolved(NamedTuple):
    """A query (D,) and a request, with its names looked up in one state of the catalogue.

    `version` is that state, None if something was written meanwhile; `hidden` are keys to leave out, rising.
    """

    query: Vectors
    generation: Generation
    sequence: int
    version: Hashable | None
    binding: Binding
    hidden: Keys


class _Search(NamedTuple):
    """A search or a list that has begun: its order, and what its pages need.

    `version` is None if not everything was read from one state of the catalogue; `newest` is the `newest` of
    `entry` when the search began. `findable` filters keys to those that can be hits, None for all; `nearest`
    is the order by likeness, None for a list; `fused` tells whether several lists are fused.
    """

    collection_id: int
    sequence: int
    binding: Binding
    query: Vectors
    position: PagePosition | None
    ranking: Ranking
    groups: Groups | None
    findable: Callable[[Keys], Keys | None]
    nearest: VectorRanking | None = None
    entry: ViewEntry | None = None
    newest: int = 0
    version: Hashable | None = None
    measure: Callable[[], ScoreScale] | None = None
    fused: bool = False


class SearchEngine:
    """Searches the collections of a catalogue; threads may share it.

    Args:
        home: Catalogue and files.
        gpu: GPU that may hold vectors; None: the CPU searches all of them.
        is_main: Whether this process of several learns codes and writes snapshots; None: there is one.
    """

    def __init__(
        self, home: Home, *, gpu: Gpu | None = None, is_main: Callable[[], bool] | None = None
    ) -> None:
        self.home = home
        self._catalogue = home.catalogue
        self._views = Views(home.snapshots_folder, gpu, is_main)
        self._fields = FieldColumns()
        self._columns = GroupColumns()
        self._overviews = Overviews(self._catalogue, self._fields)
        self._images = HitImages(self._catalogue)
        self._active = ReadThroughCache(self._catalogue, self._read_active)
        self._generations = ReadThroughCache(self._catalogue, get_generation)
        self._confidences = ReadThroughCache(self._catalogue, read_confidence)
        self._counts: dict[int, tuple[int, int]] = {}

    def close(self) -> None:
        """Wait for what is being built, and close the catalogue."""
        self._views.close()
        self._catalogue.close()

    def names(self) -> list[str]:
        """Return the names of all collections; unlike `collections`, nothing in them is counted."""
        with self._catalogue.read() as session:
            names = select(CollectionRow.name).where(NOT_DELETED).order_by(CollectionRow.name)
            return list(session.execute(names).scalars())

    def collections(self) -> list[CollectionInfo]:
        """Return all collections, by name."""
        with self._catalogue.read() as session:
            sql = select(CollectionRow.id, CollectionRow.name).where(NOT_DELETED).order_by(CollectionRow.name)
            return [_describe(session, key, name) for key, name in session.execute(sql).all()]

    def collection(self, name: str) -> CollectionInfo:
        """Return one collection."""
        with self._catalogue.read() as session:
            return _describe(session, require_collection(session, name).id, name)

    def models(self) -> list[ModelInfo]:
        """Return all registered encoders, the latest first."""
        with self._catalogue.read() as session:
            used = (
                select(GenerationRow.model_id, CollectionRow.name)
                .join(CollectionRow, CollectionRow.id == GenerationRow.collection_id)
                .where(GenerationRow.state == "active")
                .order_by(CollectionRow.name)
            )
            searched: dict[int, list[str]] = {}
            for model_id, name in session.execute(used):
                searched.setdefault(model_id, []).append(name)
            rows = session.execute(select(ModelRow).order_by(ModelRow.id.desc())).scalars()
            return [
                ModelInfo(
                    name=row.name,
                    digest=row.digest,
                    dim=row.dim,
                    blades=row.blades,
                    unsigned=row.unsigned,
                    recipe=row.recipe,
                    created=row.created,
                    metrics=row.metrics,
                    collections=tuple(searched.get(row.id, ())),
                )
                for row in rows
            ]

    def overview(self, collection: str) -> Overview:
        """Return the values of a collection's fields and a few of its images; kept until it changes."""
        with self._catalogue.reading() as reading:
            row = require_collection(reading.session, collection)
            return self._overviews.current(CollectionState(reading, row.id, row.sequence))

    def has_texts(self, collection: str) -> bool:
        """Return whether any image of a collection has a text, so that words can be looked up there."""
        with self._catalogue.read() as session:
            return has_texts(session, require_collection(session, collection).id)

    def image(self, collection: str, image_id: str) -> StoredImage:
        """Return everything that is stored about an image."""
        with self._catalogue.read() as session:
            return read_image(session, collection, image_id)

    def image_path(self, collection: str, image_id: str) -> Path:
        """Return the file of an image, exactly as it came in."""
        return self.home.store.path(self.image(collection, image_id).sha256)

    def active(self, collection: str) -> ActiveGeneration:
        """Return the generation that is searched, and the bundle that queries must go through."""
        return self._active.get(collection)

    def cached_active(self, collection: str) -> ActiveGeneration | None:
        """Return what `active` does if it is cached; otherwise None."""
        return self._active.cached(collection)

    def vector_of(self, active: ActiveGeneration, image_id: str) -> Vectors:
        """Return the vector (D,) of a stored image.

        Raises:
            GenerationError: The image is not in this generation, or the generation is gone.
        """
        generation, _ = self._generation(active)
        with self._catalogue.read() as session:
            image = require_image(session, active.collection, image_id)
            value = session.execute(
                select(EmbeddingRow.vector).where(
                    EmbeddingRow.generation_id == generation.id, EmbeddingRow.image_id == image.id
                )
            ).scalar_one_or_none()
        if value is None:
            raise GenerationError(
                f"Image {image_id!r} has no embedding by {active.model!r} yet: search for it again later."
            )
        vector: Vectors = decode_vectors([value], active.dim)[0]
        return vector

    def compose(self, active: ActiveGeneration, parts: Parts, target: Target = "images") -> Vectors:
        """Make one query vector (D,) of length one; see `index.search.request.compose`.

        Raises:
            QueryError: The parts cannot be one vector.
        """
        if parts.single is not None:
            return parts.single.vector
        generation, sequence = self._generation(active)
        with self._catalogue.reading() as reading:
            _, _, background = self._ready(reading, generation, sequence, target)
        if background is None:
            # An empty view has no mean: all parts weigh the same.
            background = Background(
                np.zeros((1, active.dim), dtype=np.float32), 0, blades=active.blades, unsigned=active.unsigned
            )
        return compose(parts, background)

    def search(
        self, active: ActiveGeneration, vector: Vectors, request: SearchRequest, text: str | None = None
    ) -> SearchPage:
        """Find the images or texts nearest to a query.

        Args:
            active: Generation to search; the query must come from its bundle.
            vector: The query (D,); its length does not matter.
            request: Filter, page and order of the search.
            text: Text of the query, where it is one text: whether the page is confident depends on its words.

        Raises:
            QueryError: The vector or the request cannot be searched for.
            FilterError: The filter does not fit the collection.
            CursorError: The cursor is damaged or of another search.
        """
        started = time.perf_counter()
        resolved = self._resolve(active, vector, request)
        for _ in range(_TRIES):
            search = self._begin(resolved, request, text)
            page = self._page(search, request, started)
            # Rows that another thread added since the search began could repeat: search again.
            if search.position is None or search.entry is None or search.entry.newest == search.newest:
                break
        return page

    def search_batch(
        self, active: ActiveGeneration, entries: Sequence[BatchEntry]
    ) -> list[SearchPage | SearchError]:
        """Run many searches together, faster than one by one; see `search`.

        An invalid search gets its error instead of a page.
        """
        searches: dict[int, _Search] = {}
        answers: dict[int, SearchPage | SearchError] = {}
        for index, (vector, request, text) in enumerate(entries):
            try:
                resolved = self._resolve(active, vector, request)
                searches[index] = self._begin(resolved, request, text)
            except SEARCH_ERRORS as error:
                answers[index] = error
        firsts = self._nearest_together(searches, entries)
        for index, search in searches.items():
            try:
                started = time.perf_counter()
                answers[index] = self._page(search, entries[index].request, started, firsts.get(index))
            except SEARCH_ERRORS as error:
                answers[index] = error
        return [answers[index] for index in range(len(entries))]

    def _generation(self, active: ActiveGeneration, version: Hashable = None) -> tuple[Generation, int]:
        """Return the generation that a caller means, and the sequence number of its collection."""
        try:
            generation, sequence = self._generations.get(active.generation, version)
            if (generation.collection, generation.digest) != (active.collection, active.digest):
                raise GenerationError(
                    f"Generation {active.generation} is not one of {active.collection!r} by bundle "
                    f"{active.digest}."
                )
        except GenerationError:
            with self._catalogue.read() as session:
                require_collection(session, active.collection)
            raise
        return generation, sequence

    def _ready(
        self, reading: Reading, generation: Generation, sequence: int, target: Target
    ) -> tuple[ViewEntry, VectorView, Background | None]:
        """Return the entry of a generation's view, the view at a sequence number, and its background."""
        entry, view = self._views.current(reading, generation, sequence, target)
        return entry, view, entry.background.get(reading, generation, view, target)

    def _resolve(self, active: ActiveGeneration, vector: Vectors, request: SearchRequest) -> _Resolved:
        """Check a search, and look up the generation, the groups and the images that it names."""
        request.check()
        if request.sort is not None:
            raise QueryError("sort goes with a list: leave it out, or what is searched for.", field="sort")
        query, version = unit_query(vector, active.dim), self._catalogue.version()
        generation, sequence = self._generation(active, version)
        binding = Binding(generation.uid, request.bound(), composed=request.kind is None)
        hidden, collection_id = NOTHING, generation.collection_id
        excluded = request.exclude or request.exclude_groups_of or request.exclude_patients_of
        if excluded or request.group_by is not None:
            with self._catalogue.read() as session:
                if request.group_by is not None:
                    check_group_field(session, collection_id, request.group_by, request_field="group_by")
                if request.exclude_groups_of:
                    by = request.exclude_groups_by
                    check_group_field(session, collection_id, by, request_field="exclude_same_group")
                hidden = keys_left_out(session, collection_id, request)
        moved_on = self._catalogue.version() != version
        return _Resolved(query, generation, sequence, None if moved_on else version, binding, hidden)

    def _begin(self, resolved: _Resolved, request: SearchRequest, text: str | None) -> _Search:
        """Bring the view up to date, evaluate the filter, and put the order of the hits together."""
        query, generation, position = resolved.query, resolved.generation, None
        if request.cursor is not None:
            query, position = decode_cursor(request.cursor, resolved.binding, query)
        # Reads are of the resolved state or of a later one; often there are none.
        with self._catalogue.reading() as reading:
            entry, view, background = self._ready(reading, generation, resolved.sequence, request.target)
            newest, hidden = entry.newest, resolved.hidden
            # Rows rewritten since the first page could repeat.
            if position is not None and newest > position.sequence:
                table, key = EMBEDDINGS[request.target]
                written = select(key).where(
                    table.generation_id == generation.id, table.sequence > position.sequence
                )
                hidden = np.union1d(hidden, read_keys(reading.session, written))
            state = CollectionState(reading, generation.collection_id, resolved.sequence)
            allowed, stating = None, NOTHING
            if request.filter is not None:
                allowed = self._fields.passing(state, request.filter, request.target)
            nearest = VectorRanking(view, query, allowed, hidden, request.min_score)
            if len(hidden):
                nearest = nearest.with_few_hidden()
            ranking: Ranking = nearest
            if request.stated:
                stated = And(filters=request.stated)
                stating = self._fields.passing_among(state, stated, request.target, nearest.allowed)
            fused = request.words is not None or len(stating) > 0
            if position is not None and request.stated and not request.is_remade:
                # Also after later writes, all pages are of the order of the first.
                fused = len(position.seen) > 0
            if fused:
                ranking = FusedRanking(nearest, self._matches(state, request, hidden), stating)
        groups = None
        if request.group_by is not None:
            groups = Groups(partial(self._newest_groups, generation, request.group_by, request.target))
            ranking = GroupedRanking(ranking, groups, nearest.findable)
        if request.diversity is not None:
            ranking = DiverseRanking(ranking, view, request.diversity, generation.blades, generation.unsigned)
        measure = None
        if background is not None:
            judged = text if request.target == "images" else None
            measure = partial(self._scale, background, generation.id, query, judged)
        return _Search(
            generation.collection_id,
            resolved.sequence,
            resolved.binding,
            query,
            position,
            ranking,
            groups,
            nearest.findable,
            nearest,
            entry,
            newest,
            None if reading.opened else resolved.version,
            measure,
            fused,
        )

    def _newest_groups(self, generation: Generation, field: str, target: Target) -> GroupColumn:
        """Return the groups of a collection as the catalogue is now."""
        collection_id = generation.collection_id
        with self._catalogue.reading() as reading:
            sequence = reading.session.execute(_SEQUENCE, {"collection_id": collection_id}).scalar() or 0
            return self._columns.get(CollectionState(reading, collection_id, sequence), field, target)

    def _matches(self, state: CollectionState, request: SearchRequest, hidden: Keys) -> Keys:
        """Return the keys that match the request's words, best first, without those that are left out."""
        if request.words is None:
            return NOTHING
        limit = FUSED_DEPTH + len(hidden) if request.target == "images" else MAX_RANKED
        images = None if request.filter is None else self._fields.passing(state, request.filter, "images")
        keys = self._with_words(state, request, limit, images)
        return keys[~contains_sorted(hidden, keys)][:FUSED_DEPTH]

    def _with_words(
        self, state: CollectionState, request: SearchRequest, limit: int, images: Keys | None
    ) -> Keys:
        """Return the keys that have the request's words, best first, of at most `limit` of some images."""
        words, findings = request.words or "", request.words_findings
        if findings:
            images = self._fields.passing_among(state, Or(filters=findings), "images", images)
        keys = matching(state.session, state.collection_id, words, limit, images)
        if request.target == "images":
            return keys
        # The words may be in another text of the image, or in its report.
        matched = [NOTHING]
        # Databases bound the number of values in a statement.
        for start in range(0, len(keys), MAX_RANKED):
            texts = texts_with(state.session, keys[start : start + MAX_RANKED], words)
            matched.append(texts_saying(state.session, texts, findings) if findings else texts)
        return np.concatenate(matched)

    def _nearest_together(
        self, searches: Mapping[int, _Search], entries: Sequence[BatchEntry]
    ) -> dict[int, Ranked]:
        """Return the first hits of searches by vector alone, run together, by index in `searches`."""
        alike: dict[tuple[int, int], dict[int, VectorRanking]] = {}
        for index, search in searches.items():
            order = search.ranking
            if isinstance(order, VectorRanking) and search.position is None and not len(order.hidden):
                alike.setdefault((id(order.view), id(order.allowed)), {})[index] = order
        firsts = {}
        for orders in alike.values():
            indices, one = list(orders), next(iter(orders.values()))
            most = max(entries[index].request.k for index in indices) + 1
            queries = np.stack([order.query for order in orders.values()])
            near = one.view.search_many(queries, most, allowed=one.allowed)
            for index, (keys, scores, exact) in zip(indices, near, strict=True):
                k = entries[index].request.k + 1
                firsts[index] = orders[index].near_enough(Neighbours(keys[:k], scores[:k], exact))
            # Read together, they are kept for the pages one by one.
            every = np.unique(np.concatenate([firsts[index].keys for index in indices])).tolist()
            self._images.get(every, entries[indices[0]].request.target, searches[indices[0]].version)
        return firsts

    def _page(
        self, search: _Search, request: SearchRequest, started: float, first: Ranked | None = None
    ) -> SearchPage:
        """Return a page; `first` are its first `request.k + 1` hits if the caller already has them."""
        position, ranking, k = search.position, search.ranking, request.k
        before = 0 if position is None else position.after.rank
        if ranking.is_remade:
            k = max(1, min(k, MAX_RANKED - before))
        ranked, images, is_last = self._hits_and_images(search, request, k, first)
        shown, keys = images[:k], ranked.keys[:k]
        unknown: tuple[str, ...] = ()
        matched: Iterable[MatchedText | None] = repeat(None)
        if request.words is not None:
            with self._catalogue.read() as session:
                unknown = unknown_words(session, search.collection_id, request.words)
            matched = matched_texts(self._catalogue, request.words, keys.tolist(), shown, request.target)
        others: Iterable[int | None] = repeat(None)
        if search.groups is not None:
            findable = search.findable(search.groups.column.keys)
            others = map(search.groups.others(keys, findable).get, keys.tolist())
        found_by = map(_FOUND_BY.__getitem__, ranked.lists.tolist())
        scores, cosines = ranked.scores.tolist(), ranked.cosines.tolist()
        hits = tuple(map(Hit, shown, count(before + 1), scores, cosines, found_by, others, matched))
        return SearchPage(
            hits,
            position,
            None if is_last or not hits else partial(_end, search, ranked, len(hits)),
            search.measure,
            ranked.exact,
            (time.perf_counter() - started) * 1000,
            search.fused,
            ranking.total() if search.nearest is None else None,
            unknown,
        )

    def _hits_and_images(
        self, search: _Search, request: SearchRequest, k: int, first: Ranked | None
    ) -> tuple[Ranked, list[HitImage], bool]:
        """Return more than `k` hits if there are more, their images, and whether the page is the last."""
        needed = k + 1
        for _ in range(_TRIES):
            ranked = search.ranking.page(needed, search.position) if first is None else first
            first = None
            # A view with later writes needs the present state of its hits.
            beyond = search.entry is not None and search.entry.newest > search.sequence
            version = None if beyond else search.version
            images_or_none = self._images.get(ranked.keys.tolist(), request.target, version)
            images = list(filter(None, images_or_none))
            if len(images) > k or len(ranked) < needed:
                break
            needed += len(ranked) - len(images)
        is_last = len(images) <= k and len(ranked) < needed
        if len(images) < len(images_or_none):
            ranked = ranked.take(np.flatnonzero([image is not None for image in images_or_none]))
        return ranked, images, is_last

    def browse(self, collection: str, request: SearchRequest) -> SearchPage:
        """List the images or texts that pass the filter and have the words, without a query vector.

        Hits have no scores. No generation need be active. The order is that of the request's `sort`, without
        it that of the words, if any, otherwise the first of `LIST_ORDERS`.

        Raises:
            QueryError: The request cannot be answered without a query.
            FilterError: The filter does not fit the collection.
            CursorError: The cursor is damaged or of another request.
        """
        started = time.perf_counter()
        request.check()
        for field in ("diversity", "min_score"):
            if getattr(request, field) is not None:
                raise QueryError(
                    f"{field} goes with a query: give a text, an image or examples.", field=field
                )
        with self._catalogue.reading() as reading:
            row = require_collection(reading.session, collection)
            state = CollectionState(reading, row.id, row.sequence)
            return self._page(self._list(state, request, MAX_RANKED), request, started)

    def count(self, collection: str, request: SearchRequest) -> int:
        """Count the images, texts or groups that pass the filter and have the words.

        Raises:
            QueryError: There is no word, or no such field to group by.
            FilterError: The filter does not fit the collection.
        """
        request.check()
        with self._catalogue.reading() as reading:
            row = require_collection(reading.session, collection)
            total = self._list(CollectionState(reading, row.id, row.sequence), request, None).ranking.total()
        assert total is not None
        return total

    def facets(
        self,
        collection: str,
        filter: Filter | None = None,
        field: str | None = None,
        containing: str = "",
        words: SearchRequest | None = None,
    ) -> FilteredFacets:
        """Count values of fields, with `words` of what that request lists; see `Overviews.facets`."""
        among = None
        if words is not None:
            words.check()
            among = partial(self._listed, request=words, most=None)
        return self._overviews.facets(collection, filter, field, containing, among)

    def _listed(self, state: CollectionState, request: SearchRequest, most: int | None) -> Keys:
        """Return the keys of what passes the filter, rising; with words, of what has them, best first.

        Of the keys with words, at most `most` are ranked; None ranks all.
        """
        if request.words is None:
            return self._fields.passing(state, request.filter, request.target)
        # With keys to choose from, no word is left out for being common.
        images = None
        if request.filter is not None or most is None:
            images = self._fields.passing(state, request.filter, "images")
        limit = len(images) if most is None and images is not None else MAX_RANKED
        keys = self._with_words(state, request, limit, images)
        return keys[:most] if request.target == "texts" else keys

    def _list(self, state: CollectionState, request: SearchRequest, most: int | None) -> _Search:
        """Begin a request without a query; `most` as in `_listed`."""
        if request.sort is not None and request.sort not in LIST_ORDERS:
            raise QueryError(f"sort must be one of {', '.join(LIST_ORDERS)}.", field="sort")
        binding, position, groups = Binding(f"browse {state.collection_id}", request.bound()), None, None
        if request.cursor is not None:
            position = decode_cursor(request.cursor, binding, _NO_QUERY)[1]
        if request.group_by is not None:
            check_group_field(state.session, state.collection_id, request.group_by, request_field="group_by")
            groups = Groups(partial(self._columns.get, state, request.group_by, request.target))

        def findable(_every: Keys) -> Keys:
            return self._fields.passing(state, request.filter, request.target)

        ranking: Ranking
        if request.words is not None and request.sort is None:
            ranking = WordList(self._listed(state, request, most), most)
            ranking = ranking if groups is None else GroupedRanking(ranking, groups, findable)
        else:
            keys, lists = self._listed(state, request, None), 0
            if request.words is not None:
                keys, lists = np.sort(keys), BY_WORDS
            ranking = LIST_ORDERS[request.sort or "added"](keys, groups, lists, findable)
        return _Search(
            state.collection_id, state.sequence, binding, _NO_QUERY, position, ranking, groups, findable
        )

    def confidence(self, active: ActiveGeneration) -> Confidence | None:
        """Return which scores count in a generation, and how that was measured; None where it was not."""
        return self._confidences.get(active.generation)

    def measure_confidence(self, generation: int, encoder: TextEncoder, *, grown: bool = False) -> None:
        """Measure from which score on a text query of a generation is confident, and keep it with that.

        Args:
            generation: Number of the generation.
            encoder: Encoder of its bundle; one without texts measures nothing.
            grown: Measure only if that was never done, or the collection has grown or shrunk since.
        """
        if "text" not in encoder.modalities:
            return
        with self._catalogue.reading() as reading:
            row, sequence = get_generation(reading.session, generation)
            _, view, background = self._ready(reading, row, sequence, "images")
            previous = self._confidences.get(generation)
            if background is None or (grown and previous is not None and previous.fits(len(view))):
                return
            measured = measure_confidence(reading.session, row, view, background.knows, encoder)
        with self._catalogue.write() as session:
            keep_confidence(session, generation, measured)

    def _scale(self, background: Background, generation: int, query: Vectors, text: str | None) -> ScoreScale:
        scale = background.scale(query)
        confidence = None if text is None else self._confidences.get(generation)
        if text is None or confidence is None:
            return scale
        return scale._replace(least=confidence.least(known=background.knows(text)))

    def images_of(self, keys: Sequence[int]) -> list[HitImage | None]:
        """Return images as hits describe them, in the order of their keys; None for one that was removed."""
        return self._images.get(keys)

    def save_snapshot(self, collection: str) -> None:
        """Write the snapshot of a collection's active generation, so that the next start reads it."""
        with self._catalogue.read() as session:
            row = require_collection(session, collection)
            generation = find_generation(session, row.id, "active")
            if generation is not None:
                self._views.save(session, generation, row.sequence)

    def save_snapshot_of(self, generation: Generation) -> None:
        """Write the snapshot of any generation, so that the next process that searches it reads it."""
        with self._catalogue.read() as session:
            current, sequence = get_generation(session, generation.id)
            self._views.save(session, current, sequence)

    def explain_views(self, collection: str) -> list[Choice]:
        """Return what views a collection could have, and why one was chosen."""
        with self._catalogue.read() as session:
            generation, _ = require_active(session, collection)
            return self._views.explain(session, generation)

    def operating_point(self, collection: str) -> OperatingPoint | None:
        """Return how much of a collection's codes is searched, and the recall that was measured."""
        with self._catalogue.read() as session:
            generation, _ = require_active(session, collection)
        return self._views.stored_operating_point(generation)

    def measured_recalls(self) -> list[tuple[str, Target, OperatingPoint]]:
        """Return collection, target and operating point of all views of this process that have codes."""
        points = self._views.operating_points()
        with self._catalogue.read() as session:
            query = (
                select(GenerationRow.id, CollectionRow.name)
                .join(CollectionRow, CollectionRow.id == GenerationRow.collection_id)
                .where(GenerationRow.state == "active", NOT_DELETED)
            )
            names = dict(session.execute(query).all())
        return [
            (names[generation], target, point)
            for (generation, target), point in points.items()
            if generation in names
        ]

    def set_view(self, collection: str, view: ViewName | None) -> None:
        """Choose the view of a collection; None leaves it to size and memory again."""
        with self._catalogue.write() as session:
            row = require_collection(session, collection)
            # A new number makes every process look at its view again.
            next_sequence(session, row.id)
            row.view = view

    def warm(self, generation: int) -> None:
        """Load and measure what searches of a generation need, or bring it up to date."""
        with self._catalogue.reading() as reading:
            current, sequence = get_generation(reading.session, generation)
            for target in TARGETS:
                self._ready(reading, current, sequence, target)
                self._views.share(reading.session, current, target)

    def warm_filters(self, generation: int) -> None:
        """Read the fields of a generation's collection, or bring them up to date."""
        with self._catalogue.reading() as reading:
            current, sequence = get_generation(reading.session, generation)
            self._fields.warm(CollectionState(reading, current.collection_id, sequence))

    def forget_removed(self) -> None:
        """Free what is cached of collections and generations that any process has removed.

        Views of generations that are neither active nor about to be are freed a minute after their last use.
        """
        with self._catalogue.read() as session:
            collections = set(session.execute(select(CollectionRow.id).where(NOT_DELETED)).scalars())
            query = select(GenerationRow.id, GenerationRow.state)
            rows = session.execute(query.where(GenerationRow.collection_id.in_(collections))).all()
            in_use = {generation.id for generation in preloading(session)}
        generations = {row.id for row in rows}
        in_use.update(row.id for row in rows if row.state == "active")
        for cache in (self._fields, self._columns, self._overviews):
            cache.keep(collections)
        self._views.keep(generations, in_use)
        for generation in list(self._counts):
            if generation not in generations:
                self._counts.pop(generation, None)

    def preloading(self) -> list[ActiveGeneration]:
        """Return the generations to preload, of all collections."""
        with self._catalogue.read() as session:
            return list(map(self.describe, preloading(session)))

    def describe(self, generation: Generation, count: int = 0) -> ActiveGeneration:
        """Return what a query needs from a generation."""
        bundle = self.home.bundles_folder / generation.digest
        return ActiveGeneration(**asdict(generation), bundle=bundle, count=count)

    def _read_active(self, session: Session, collection: str) -> ActiveGeneration:
        generation, sequence = require_active(session, collection)
        counted, count = self._counts.get(generation.id, (-1, 0))
        # Most writes are to other collections.
        if counted != sequence:
            count = count_embeddings(session, generation)
            self._counts[generation.id] = (sequence, count)
        return self.describe(generation, count)


def _describe(session: Session, collection_id: int, name: str) -> CollectionInfo:
    generation = find_generation(session, collection_id, "active")
    fields = known_fields(session, collection_id)
    return CollectionInfo(
        name=name,
        count=count_images(session, collection_id),
        generation=None if generation is None else generation.id,
        model=None if generation is None else generation.model,
        digest=None if generation is None else generation.digest,
        fields=tuple(FieldInfo(field, tuple(sorted(kinds))) for field, kinds in fields.items()),
    )


def _end(search: _Search, ranked: Ranked, k: int, confident: bool | None) -> PageEnd:
    before, seen, began = 0, NOTHING, search.sequence
    if search.position is not None:
        before, seen, began = search.position.after.rank, search.position.seen, search.position.sequence
    score = float(ranked.scores[k - 1]) if len(search.query) else 0.0
    last = After(score, int(ranked.keys[k - 1]), before + k)
    seen = search.ranking.seen_after(seen, ranked.keys[:k])
    return PageEnd(search.binding, search.query, PagePosition(last, began, confident, seen))
