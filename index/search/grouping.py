"""Groups of images, such as all of a patient or a study; an image without a group is a group of its own.

A group is what has the same value in a field: the built-in `group`, or any other that filters can name. Of
a list the first value counts.
"""

import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Select, and_, null, select
from sqlalchemy.orm import Session

from index.catalogue.collections import Target
from index.catalogue.tables import AttributeRow, ImageRow, TextRow
from index.errors import QueryError
from index.filters.column_cache import (
    CollectionCache,
    CollectionState,
    Numbered,
    all_keys,
    contains_sorted,
    kept_up,
    read_keys,
)
from index.filters.columns import TEXT_COLUMNS, known_fields
from index.filters.grammar import unknown_field
from index.search.request import SearchRequest
from index.vectors.protocol import NOTHING, Keys

# The group of each of some keys; see `GroupColumn`.
Numbers = NDArray[np.int64]

# Images with both fields are of studies of patients.
STUDY: Final = "study"
PATIENT: Final = "patient"

# Eight columns of a million images.
_CACHE_BYTES: Final = 256 * 1024 * 1024
_ROWS_AT_ONCE: Final = 10_000

_Rows = Select[*tuple[Any, ...]]


@dataclass(frozen=True, eq=False)
class GroupColumn(Numbered):
    """The groups of all images or texts of a collection, by number: negative where one has no group."""

    @property
    def nbytes(self) -> int:
        """Memory of the column and of the groups that were looked at."""
        return 2 * super().nbytes

    def lookup(self, keys: Keys) -> tuple[NDArray[np.bool_], Numbers]:
        """Return which of some keys (K,) are present, and the group numbers of these."""
        present = contains_sorted(self.keys, keys)
        return present, self.numbers[np.searchsorted(self.keys, keys[present])]

    def members(self, number: int) -> Keys:
        """Return the keys of a group, rising."""
        numbers, order = self._by_number
        return self.keys[order[np.searchsorted(numbers, number) : np.searchsorted(numbers, number, "right")]]

    def count(self, allowed: Keys | None) -> int:
        """Return how many groups have one of some keys, which rise; None for all."""
        numbers = self._by_number[0] if allowed is None else np.sort(self.lookup(allowed)[1])
        return int(np.count_nonzero(np.diff(numbers))) + bool(len(numbers))

    def firsts(self, allowed: Keys) -> Keys:
        """Return the lowest key of each group among some keys; both rise."""
        numbers, order = self._by_number
        kept = contains_sorted(allowed, self.keys)[order]
        numbers, keys = numbers[kept], self.keys[order[kept]]
        return np.sort(keys[np.flatnonzero(np.diff(numbers, prepend=~numbers[:1]))])

    @cached_property
    def _by_number(self) -> tuple[Numbers, NDArray[np.int64]]:
        order = np.argsort(self.numbers, kind="stable")
        return self.numbers[order], order


class GroupColumns:
    """LRU cache of columns of groups, refreshed after writes."""

    def __init__(self) -> None:
        self._cache: CollectionCache[GroupColumn] = CollectionCache(_CACHE_BYTES, newer=True)

    def get(self, state: CollectionState, field: str, target: Target) -> GroupColumn:
        """Return a column as it is at a sequence number or later, from memory but for later writes."""
        query = _values(state.collection_id, field, target)

        def read(since: int | None) -> GroupColumn:
            written = query if since is None else query.where(ImageRow.sequence > since)
            rows = state.session.execute(written.execution_options(yield_per=_ROWS_AT_ONCE))
            numbers = ((key, _number(image, _Value(*value))) for key, image, *value in rows)
            records = np.fromiter(numbers, dtype=[("key", np.int64), ("number", np.int64)])
            records = records[np.argsort(records["key"])]
            return GroupColumn(records["key"].copy(), records["number"].copy())

        return kept_up(self._cache, state, target, field, read)

    def keep(self, collections: Collection[int]) -> None:
        """Forget the columns of all other collections."""
        self._cache.keep(collections)


class Groups:
    """The groups of what a search finds; `newest` returns the column as the catalogue is now."""

    def __init__(self, newest: Callable[[], GroupColumn]) -> None:
        self._newest = newest
        self.column = newest()

    def lookup(self, keys: Keys) -> tuple[NDArray[np.bool_], Numbers]:
        """Return which of some keys (K,) the catalogue still has, and the group numbers of these."""
        present, numbers = self.column.lookup(keys)
        if not present.all():
            # The view may hold images written after the search began.
            self.column = self._newest()
            present, numbers = self.column.lookup(keys)
        return present, numbers

    def first_indices(self, keys: Keys) -> NDArray[np.int64]:
        """Return the indices at which a group occurs first; removed keys have none."""
        present, numbers = self.lookup(keys)
        firsts = np.unique(numbers, return_index=True)[1]
        firsts.sort()
        return np.flatnonzero(present)[firsts]

    def others(self, keys: Keys, findable: Keys | None) -> dict[int, int]:
        """Return for keys how many more of their groups could be found.

        `findable` are the keys that a search may find, rising; None for all.
        """
        present, numbers = self.lookup(keys)
        counts = {}
        for key, number in zip(keys[present].tolist(), numbers.tolist(), strict=True):
            members = self.column.members(number)
            if findable is not None:
                members = members[contains_sorted(findable, members)]
            counts[key] = len(members) - int(contains_sorted(members, np.array([key]))[0])
        return counts


def check_group_field(session: Session, collection_id: int, field: str, *, request_field: str) -> None:
    """Refuse to group by a field that a collection does not have.

    `of` is the part of the request that names it.
    """
    fields = known_fields(session, collection_id)
    if field not in fields:
        raise QueryError(unknown_field(field, sorted(fields), "to group by"), field=request_field)


def keys_left_out(session: Session, collection_id: int, request: SearchRequest) -> Keys:
    """Return the keys of the images or texts that a request leaves out, rising.

    An image of `exclude_groups_of` that has no group is left out alone. `exclude_patients_of` leaves out
    nothing in a collection without studies or patients, and for an image without a patient.
    """
    target, groups_of, patients_of = request.target, request.exclude_groups_of, request.exclude_patients_of
    queries: list[Select[int]] = []
    if request.exclude or groups_of:
        named = ImageRow.external_id.in_([*request.exclude, *groups_of])
        queries.append(all_keys(collection_id, target).where(named))
    if groups_of:
        queries += _alike(session, collection_id, target, request.exclude_groups_by, groups_of)
    if patients_of and {STUDY, PATIENT} <= known_fields(session, collection_id).keys():
        queries += _alike(session, collection_id, target, PATIENT, patients_of)
    # Queries of their own: one with "or" would look at every image.
    return np.unique(np.concatenate([NOTHING, *(read_keys(session, query) for query in queries)]))


class _Value(NamedTuple):
    """Value of a field of an image; all None where there is none."""

    kind: str | None
    text: str | None
    number: float | None


def _values(collection_id: int, field: str, target: Target) -> _Rows:
    """Select the key of every image or text, that of the image, and what the field of the image holds."""
    key = ImageRow.id if target == "images" else TextRow.id
    query: _Rows
    if field in TEXT_COLUMNS:
        query = select(key, ImageRow.id, null(), TEXT_COLUMNS[field], null())
    else:
        query = select(
            key, ImageRow.id, AttributeRow.kind, AttributeRow.text_value, AttributeRow.number_value
        )
    query = query.select_from(ImageRow).where(ImageRow.collection_id == collection_id)
    if target == "texts":
        query = query.join(TextRow, TextRow.image_id == ImageRow.id)
    if field in TEXT_COLUMNS:
        return query
    first = and_(AttributeRow.image_id == ImageRow.id, AttributeRow.name == field, AttributeRow.position == 0)
    return query.outerjoin(AttributeRow, first)


def _alike(
    session: Session, collection_id: int, target: Target, field: str, images: Collection[str]
) -> Iterator[Select[int]]:
    """Select the keys of what has the value of one of these images in a field."""
    examples = _values(collection_id, field, "images").where(ImageRow.external_id.in_(images))
    values = {_Value(*value) for _, _, *value in session.execute(examples)}
    texts = [value.text for value in values if value.text is not None]
    if field in TEXT_COLUMNS:
        if texts:
            yield all_keys(collection_id, target).where(TEXT_COLUMNS[field].in_(texts))
        return
    query = select(AttributeRow.image_id)
    if target == "texts":
        query = select(TextRow.id).join(AttributeRow, AttributeRow.image_id == TextRow.image_id)
    query = query.where(
        AttributeRow.collection_id == collection_id, AttributeRow.name == field, AttributeRow.position == 0
    )
    if texts:
        yield query.where(AttributeRow.text_value.in_(texts))
    for value in values:
        if value.number is not None:
            yield query.where(AttributeRow.kind == value.kind, AttributeRow.number_value == value.number)


def _number(image: int, value: _Value) -> int:
    """Return the number of an image's group: 63 bits that Python, in this process, makes of the value."""
    if value.text is not None:
        return hash((value.text,)) & sys.maxsize
    if value.number is None:
        return -1 - image
    # Hashed as text, since distant numbers may have the same hash; the sum makes 0.0 of -0.0.
    return hash((value.kind, repr(value.number + 0.0))) & sys.maxsize
