"""Images and texts by what they say of findings."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from index.catalogue import Reading
from index.catalogue.collections import Target
from index.catalogue.tables import FindingRow, TextRow
from index.filters.column_cache import CacheKey, contains_sorted
from index.filters.grammar import And, HasFinding, Or
from index.filters.passing_keys import PassingKeys
from index.vectors.protocol import Keys
from training.reports import STATES

# Databases bound the number of values in a statement.
_TEXTS_AT_ONCE: Final = 10_000


class FindingKeys:
    """Looks up the images of a collection by findings, or their texts, at a sequence number.

    Args:
        passing: Keys that pass filters.
        reading: Read transaction of the catalogue at `sequence`.
        collection_id: Key of the collection.
        sequence: The collection's sequence number.
    """

    def __init__(self, passing: PassingKeys, reading: Reading, collection_id: int, sequence: int) -> None:
        self._passing = passing
        self._reading = reading
        self._collection_id = collection_id
        self._sequence = sequence

    def with_all(self, findings: Sequence[HasFinding], target: Target, allowed: Keys | None) -> Keys:
        """Return the keys, rising, of allowed images that say all of these, or of their texts."""
        return self._among(And(filters=tuple(findings)), target, allowed)

    def with_any(self, findings: Sequence[HasFinding], allowed: Keys | None) -> Keys:
        """Return the keys, rising, of allowed images that say one of these."""
        return self._among(Or(filters=tuple(findings)), "images", allowed)

    def _among(self, filter: And | Or, target: Target, allowed: Keys | None) -> Keys:
        place = CacheKey(self._collection_id, target, filter.text)
        keys = self._passing.get(self._reading, place, self._sequence, filter)
        return keys if allowed is None else keys[contains_sorted(allowed, keys)]


def texts_saying(session: Session, keys: Keys, findings: Sequence[HasFinding]) -> Keys:
    """Return those of some texts, by their keys (N,), that say one of these, in their order.

    A text that mentions a finding in several states says the first of `STATES` that it has.
    """
    query = (
        select(TextRow.id, FindingRow.finding, FindingRow.state)
        .join(
            FindingRow,
            (FindingRow.image_id == TextRow.image_id) & (FindingRow.position == TextRow.position),
        )
        .where(FindingRow.finding.in_({finding.finding for finding in findings}))
    )
    states: dict[tuple[int, str], str] = {}
    for start in range(0, len(keys), _TEXTS_AT_ONCE):
        some = query.where(TextRow.id.in_(keys[start : start + _TEXTS_AT_ONCE].tolist()))
        for key, finding, state in session.execute(some):
            states[key, finding] = min(state, states.get((key, finding), state), key=STATES.index)
    wanted = {(finding.finding, finding.state) for finding in findings}
    saying = {key for (key, finding), state in states.items() if (finding, state) in wanted}
    return np.array([key for key in keys.tolist() if key in saying], dtype=np.int64)
