"""The search engine: what the service and the command line ask."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from sqlalchemy import select
from sqlalchemy.orm import Session

from index.catalogue import ReadThroughCache
from index.catalogue.collections import (
    NOT_DELETED,
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
from index.catalogue.lookup import count_images
from index.catalogue.tables import CollectionRow, EmbeddingRow, GenerationRow, ModelRow
from index.errors import GenerationError, SearchError
from index.filters.column_cache import CollectionState
from index.filters.facets import FilteredFacets, Overview, Overviews
from index.filters.field_columns import FieldColumns
from index.filters.grammar import Filter
from index.filters.passing_keys import PassingKeys
from index.filters.sql import known_fields
from index.home import Home
from index.scoring.confidence import Confidence, TextEncoder
from index.search.hit_reader import read_image, require_image
from index.search.query_vector import Parts
from index.search.request import BatchEntry, SearchRequest
from index.search.results import (
    ActiveGeneration,
    CollectionInfo,
    FieldInfo,
    FoundImage,
    ModelInfo,
    SearchPage,
    StoredImage,
)
from index.search.searcher import Searcher
from index.vectors.ann.search import OperatingPoint
from index.vectors.codec import decode_vectors
from index.vectors.gpu import Gpu
from index.vectors.protocol import Vectors, ViewName
from index.views.choose import Choice
from index.views.manager import Views


class SearchEngine:
    """Searches the collections of a catalogue; threads may share it.

    Args:
        home: Catalogue and files.
        gpu: GPU that may hold vectors; None: the CPU searches all of them.
    """

    def __init__(self, home: Home, *, gpu: Gpu | None = None) -> None:
        self.home = home
        self._catalogue = home.catalogue
        self._views = Views(home.snapshots_folder, gpu)
        fields = FieldColumns()
        self._passing = PassingKeys(fields)
        self._searcher = Searcher(self._catalogue, self._views, self._passing)
        self._active = ReadThroughCache(self._catalogue, self._read_active)
        self._counts: dict[int, tuple[int, int]] = {}
        self._overviews = Overviews(self._catalogue, fields, self._passing)

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
        """Return one collection.

        Raises:
            UnknownCollectionError: No collection has this name.
        """
        with self._catalogue.read() as session:
            return _describe(session, require_collection(session, name).id, name)

    def overview(self, collection: str) -> Overview:
        """Return the values of a collection's fields and a few of its images; kept until it changes.

        Raises:
            UnknownCollectionError: No collection has this name.
        """
        return self._overviews.of(collection)

    def has_texts(self, collection: str) -> bool:
        """Return whether any image of a collection has a text, so that words can be looked up there.

        Raises:
            UnknownCollectionError: No collection has this name.
        """
        return self._overviews.has_texts(collection)

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

    def active(self, collection: str) -> ActiveGeneration:
        """Return the generation that is searched, and the bundle that queries must go through.

        Raises:
            UnknownCollectionError: No collection has this name.
            NoActiveGenerationError: The collection has no active generation yet.
        """
        generation, active = self._active.get(collection)
        self._searcher.retire(generation.collection_id, generation.id)
        return active

    def compose(self, active: ActiveGeneration, parts: Parts, target: Target = "images") -> Vectors:
        """Make one query vector (D,) of length one; see `index.search.query_vector.compose`.

        Args:
            active: Generation to search; the parts must come from its bundle.
            parts: Vectors of the query's texts, images and examples.
            target: Whether images or texts are searched.

        Raises:
            QueryError: The parts cannot be one vector.
            GenerationError: The generation is gone.
        """
        return self._searcher.compose(active, parts, target)

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
            UnknownCollectionError: The collection is gone.
            GenerationError: The generation is gone.
        """
        return self._searcher.page(active, vector, request, text)

    def browse(self, collection: str, request: SearchRequest) -> SearchPage:
        """List what passes the filter and has the words, without a query; see `Browser.page`."""
        return self._searcher.browser.page(collection, request)

    def count(self, collection: str, request: SearchRequest) -> int:
        """Count what passes the filter and has the words; see `Browser.count`."""
        return self._searcher.browser.count(collection, request)

    def facets(
        self,
        collection: str,
        filter: Filter | None = None,
        field: str | None = None,
        containing: str = "",
        words: SearchRequest | None = None,
    ) -> FilteredFacets:
        """Count values of fields, with `words` of what that request lists; see `Overviews.facets`."""
        among = None if words is None else partial(self._searcher.browser.keys, words)
        return self._overviews.facets(collection, filter, field, containing, among)

    def search_batch(
        self, active: ActiveGeneration, entries: Sequence[BatchEntry]
    ) -> list[SearchPage | SearchError]:
        """Find what is nearest to each of many queries, faster than one by one; see `search`.

        A search that is wrong, by itself or for this collection, gives its error in place of its page.

        Raises:
            UnknownCollectionError: The collection is gone.
            GenerationError: The generation is gone.
        """
        return self._searcher.pages(active, entries)

    def vector_of(self, active: ActiveGeneration, image_id: str) -> Vectors:
        """Return the vector (D,) of a stored image.

        Raises:
            UnknownImageError: The collection has no such image.
            GenerationError: The image is not in this generation, or the generation is gone.
        """
        generation, _ = self._searcher.generation(active)
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

    def confidence(self, active: ActiveGeneration) -> Confidence | None:
        """Return which scores count in a generation, and how that was measured; None where it was not."""
        return self._searcher.confidence(active.generation)

    def measure_confidence(self, generation: int, encoder: TextEncoder, *, grown: bool = False) -> None:
        """Measure from which score on a text query of a generation is confident, and keep it with that.

        Args:
            generation: Number of the generation.
            encoder: Encoder of its bundle; one without texts measures nothing.
            grown: Measure only if that was never done, or the collection has grown or shrunk since.

        Raises:
            GenerationError: The generation is gone.
        """
        if "text" in encoder.modalities:
            self._searcher.measure_confidence(generation, encoder, grown=grown)

    def images_of(self, keys: Sequence[int]) -> list[FoundImage | None]:
        """Return images as hits tell of them, in the order of their keys; None for one that is gone."""
        return self._searcher.images.of(keys)

    def image(self, collection: str, image_id: str) -> StoredImage:
        """Return everything that is known of an image.

        Raises:
            UnknownCollectionError: No collection has this name.
            UnknownImageError: The collection has no image of this id.
        """
        with self._catalogue.read() as session:
            return read_image(session, collection, image_id)

    def image_path(self, collection: str, image_id: str) -> Path:
        """Return the file of an image, exactly as it came in.

        Raises:
            UnknownCollectionError: No collection has this name.
            UnknownImageError: The collection has no image of this id.
            StoreError: The file is missing.
        """
        return self.home.store.path(self.image(collection, image_id).sha256)

    def save_snapshot(self, collection: str) -> None:
        """Write the snapshot of a collection's active generation, so that the next start reads it."""
        with self._catalogue.read() as session:
            row = require_collection(session, collection)
            generation = find_generation(session, row.id, "active")
            if generation is not None:
                self._views.save(session, generation, row.sequence)

    def save_snapshot_of(self, generation: Generation) -> None:
        """Write the snapshot of any generation, so that whoever searches it next reads it."""
        with self._catalogue.read() as session:
            found, sequence = get_generation(session, generation.id)
            self._views.save(session, found, sequence)

    def explain_views(self, collection: str) -> list[Choice]:
        """Return what views a collection could have, and why one was chosen.

        Raises:
            UnknownCollectionError: No collection has this name.
            NoActiveGenerationError: The collection has no active generation yet.
        """
        with self._catalogue.read() as session:
            generation, _ = require_active(session, collection)
            return self._views.explain(session, generation)

    def operating_point(self, collection: str) -> OperatingPoint | None:
        """Return how much of a collection's codes is searched, and the recall that was measured.

        Raises:
            UnknownCollectionError: No collection has this name.
            NoActiveGenerationError: The collection has no active generation yet.
        """
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
        """Choose the view of a collection; None leaves it to size and memory again.

        Raises:
            UnknownCollectionError: No collection has this name.
        """
        with self._catalogue.write() as session:
            row = require_collection(session, collection)
            # A new number makes every process look at its view again.
            next_sequence(session, row.id)
            row.view = view

    def warm(self, generation: int) -> None:
        """Load and measure what searches of a generation need, or bring it up to date, before one needs it.

        Raises:
            GenerationError: The generation is gone.
        """
        with self._catalogue.reading() as reading:
            found, sequence = get_generation(reading.session, generation)
            self._searcher.warm(reading, found, sequence)

    def warm_filters(self, generation: int) -> None:
        """Read the fields of a generation's collection, and count their values, before a request needs them.

        Raises:
            GenerationError: The generation is gone.
        """
        with self._catalogue.reading() as reading:
            found, sequence = get_generation(reading.session, generation)
            state = CollectionState(reading, found.collection_id, sequence)
            self._passing.warm(state)
            self._overviews.current(state)

    def forget_removed(self) -> None:
        """Free what is held of collections and generations that were removed, by whatever process."""
        with self._catalogue.read() as session:
            collections = set(session.execute(select(CollectionRow.id).where(NOT_DELETED)).scalars())
            query = select(GenerationRow.id).where(GenerationRow.collection_id.in_(collections))
            generations = set(session.execute(query).scalars())
        self._searcher.keep(collections, generations)
        self._overviews.keep(collections)
        for generation in list(self._counts):
            if generation not in generations:
                self._counts.pop(generation, None)

    def preloading(self) -> list[ActiveGeneration]:
        """Return the generations to preload, of all collections."""
        with self._catalogue.read() as session:
            return [self.describe(generation) for generation in preloading(session)]

    def describe(self, generation: Generation, count: int = 0) -> ActiveGeneration:
        """Return what a query must know of a generation."""
        return ActiveGeneration(
            collection=generation.collection,
            generation=generation.id,
            model=generation.model,
            digest=generation.digest,
            dim=generation.dim,
            blades=generation.blades,
            unsigned=generation.unsigned,
            bundle=self.home.bundles_folder / generation.digest,
            count=count,
        )

    def _read_active(self, session: Session, collection: str) -> tuple[Generation, ActiveGeneration]:
        generation, sequence = require_active(session, collection)
        return generation, self.describe(generation, self._count(session, generation, sequence))

    def _count(self, session: Session, generation: Generation, sequence: int) -> int:
        """Return the number of embeddings, counted again only when something was written."""
        place, count = self._counts.get(generation.id, (-1, 0))
        if place != sequence:
            count = count_embeddings(session, generation)
            self._counts[generation.id] = (sequence, count)
        return count


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
