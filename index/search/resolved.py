"""What a request comes down to in one state of the catalogue."""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from index.catalogue import Catalogue, Kept, Remembered
from index.catalogue.collections import Generation, get_generation, require_collection
from index.errors import GenerationError
from index.filters.column_cache import Place
from index.scoring.background import Background
from index.search.cursors import Binding
from index.search.grouping import check_group_field, keys_left_out
from index.search.orders import NOTHING
from index.search.request import SearchRequest
from index.search.results import ActiveGeneration
from index.vectors.protocol import Keys
from index.views.manager import HeldView

# Requests that differ in more than their queries.
_MOST_KEPT: Final = 100
# What they leave out may be half of a collection.
_MOST_BYTES: Final = 64 * 1024 * 1024


class Ground(NamedTuple):
    """What is searched, and its background; None where nothing is held."""

    held: HeldView
    background: Background | None


@dataclass(slots=True)
class Prepared:
    """Everything about a search but its query and the page that is asked for.

    Attributes:
        generation: What is searched.
        sequence: The sequence number of its collection.
        version: The catalogue's version, of which this is; None if it moved on meanwhile.
        binding: What must be the same for all pages.
        passing: What the keys that pass the request's filter are remembered by; None without one.
        hidden: Keys that the request leaves out, rising.
        ground: What is searched, once that was looked up.
    """

    generation: Generation
    sequence: int
    version: Hashable | None
    binding: Binding
    passing: Place | None
    hidden: Keys
    ground: Ground | None = None


class PreparedRequests:
    """Prepares requests, and keeps what it has prepared until something is written; threads may share it."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._generations = Remembered(catalogue, get_generation)
        self._kept: Kept[Hashable, Prepared] = Kept(catalogue)

    def generation(self, active: ActiveGeneration, version: Hashable = None) -> tuple[Generation, int]:
        """Return the generation that a caller means, and the sequence number of its collection.

        Args:
            active: What the caller means.
            version: What the catalogue's version was a moment ago; by default it is looked at.

        Raises:
            UnknownCollectionError: The whole collection is gone.
            GenerationError: It is gone, or another one than the caller thinks.
        """
        try:
            generation, sequence = self._generations.get(active.generation, version)
            self._check(generation, active)
        except GenerationError:
            with self._catalogue.read() as session:
                require_collection(session, active.collection)
            raise
        return generation, sequence

    def _check(self, generation: Generation, active: ActiveGeneration) -> None:
        if (generation.collection, generation.digest) != (active.collection, active.digest):
            raise GenerationError(
                f"Generation {active.generation} is not one of {active.collection!r} by bundle "
                f"{active.digest}."
            )

    def of(self, active: ActiveGeneration, request: SearchRequest) -> Prepared:
        """Return what a request comes down to as the catalogue is now.

        Raises:
            UnknownCollectionError: The collection is gone.
            GenerationError: The generation is gone, or another one than the caller thinks.
            QueryError: The collection does not have the field that makes groups.
        """
        version = self._catalogue.version()
        kept = self._kept.at(version)
        filter_text = None if request.filter is None else request.filter.text
        place = (active.generation, active.collection, active.digest, filter_text, request.shape)
        prepared = kept.get(place)
        if prepared is None:
            prepared = self._prepare(active, request, version)
            if self._catalogue.version() != version:
                # It may be of a later state.
                return replace(prepared, version=None)
            held = sum(other.hidden.nbytes for other in kept.copy().values())
            if len(kept) >= _MOST_KEPT or held + prepared.hidden.nbytes > _MOST_BYTES:
                kept.clear()
            kept[place] = prepared
        return prepared

    def forget(self) -> None:
        """Let go of all that is kept, and with it of the views that it names."""
        self._kept.clear()

    def _prepare(self, active: ActiveGeneration, request: SearchRequest, version: Hashable) -> Prepared:
        generation, sequence = self.generation(active, version)
        passing = None
        if request.filter is not None:
            passing = Place(generation.collection_id, request.target, request.filter.text)
        binding = Binding(generation.uid, request.bound(), composed=request.kind is None)
        hidden = self._checked_and_hidden(generation.collection_id, request)
        return Prepared(generation, sequence, version, binding, passing, hidden)

    def _checked_and_hidden(self, collection_id: int, request: SearchRequest) -> Keys:
        """Return the keys that a request leaves out, once its groups are known to be of fields that exist."""
        if not (request.exclude or request.exclude_groups_of or request.group_by is not None):
            return NOTHING
        with self._catalogue.read() as session:
            if request.group_by is not None:
                check_group_field(session, collection_id, request.group_by, of="group_by")
            if request.exclude_groups_of:
                check_group_field(session, collection_id, request.exclude_groups_by, of="exclude_same_group")
            return keys_left_out(
                session,
                collection_id,
                request.target,
                request.exclude,
                request.exclude_groups_of,
                request.exclude_groups_by,
            )
