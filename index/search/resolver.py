"""Looks up what a request names: its generation, groups and excluded images."""

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from index.catalogue import Catalogue, ReadThroughCache
from index.catalogue.collections import Generation, get_generation, require_collection
from index.errors import GenerationError
from index.search.cursors import Binding
from index.search.grouping import check_group_field, keys_left_out, keys_of_patients
from index.search.orders import NOTHING
from index.search.request import SearchRequest
from index.search.results import ActiveGeneration
from index.vectors.protocol import Keys


@dataclass(frozen=True, slots=True)
class ResolvedRequest:
    """A request with its names looked up in one state of the catalogue.

    Attributes:
        generation: Generation to search.
        sequence: Sequence number of its collection.
        version: The catalogue's version at which all of it was read; None if something was written meanwhile.
        binding: Parts of the request that all pages must share.
        hidden: Keys that the request leaves out, rising.
    """

    generation: Generation
    sequence: int
    version: Hashable | None
    binding: Binding
    hidden: Keys


class RequestResolver:
    """Looks the names of requests up in the catalogue; threads may share it."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._generations = ReadThroughCache(catalogue, get_generation)

    def generation(self, active: ActiveGeneration, version: Hashable = None) -> tuple[Generation, int]:
        """Return the generation that a caller means, and the sequence number of its collection.

        Args:
            active: Generation named by the caller.
            version: Version of the catalogue just read; None: read it now.

        Raises:
            UnknownCollectionError: The whole collection is gone.
            GenerationError: The generation is gone, or differs from the one that the caller named.
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

    def resolve(self, active: ActiveGeneration, request: SearchRequest) -> ResolvedRequest:
        """Look up the generation, the groups and the images that a request names.

        Raises:
            UnknownCollectionError: The collection is gone.
            GenerationError: The generation is gone, or another one than the caller thinks.
            QueryError: The collection does not have the field that makes groups.
        """
        version = self._catalogue.version()
        generation, sequence = self.generation(active, version)
        binding = Binding(generation.uid, request.bound(), composed=request.kind is None)
        hidden = self._checked_and_hidden(generation.collection_id, request)
        moved_on = self._catalogue.version() != version
        return ResolvedRequest(generation, sequence, None if moved_on else version, binding, hidden)

    def _checked_and_hidden(self, collection_id: int, request: SearchRequest) -> Keys:
        """Return the keys that a request leaves out, once its groups are known to be of fields that exist."""
        excluded = request.exclude or request.exclude_groups_of or request.exclude_patients_of
        if not excluded and request.group_by is None:
            return NOTHING
        with self._catalogue.read() as session:
            if request.group_by is not None:
                check_group_field(session, collection_id, request.group_by, of="group_by")
            if request.exclude_groups_of:
                check_group_field(session, collection_id, request.exclude_groups_by, of="exclude_same_group")
            hidden = keys_left_out(
                session,
                collection_id,
                request.target,
                request.exclude,
                request.exclude_groups_of,
                request.exclude_groups_by,
            )
            patients = keys_of_patients(session, collection_id, request.target, request.exclude_patients_of)
            return np.union1d(hidden, patients)
