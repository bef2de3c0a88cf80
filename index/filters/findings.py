"""Images and texts by what they say of findings."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from index.catalogue.collections import Target
from index.catalogue.tables import FindingRow, TextRow
from index.filters.column_cache import CollectionState, contains_sorted
from index.filters.field_columns import FieldColumns
from index.filters.grammar import FINDING_FIELD, And, HasFinding, Or
from index.filters.passing_keys import PassingKeys
from index.vectors.protocol import Keys
from training.clinical.findings import STATES

# Databases bound the number of values in a statement.
_TEXTS_AT_ONCE: Final = 10_000


class FindingCounts(NamedTuple):
    """How many images say of a finding that it is present, uncertain or absent."""

    finding: str
    present: int
    uncertain: int
    absent: int


class FindingKeys:
    """Looks up the images of a collection by findings, or their texts.

    Args:
        passing: Keys that pass filters.
        state: Read of the collection.
    """

    def __init__(self, passing: PassingKeys, state: CollectionState) -> None:
        self._passing = passing
        self._state = state

    def with_all(self, findings: Sequence[HasFinding], target: Target, allowed: Keys | None) -> Keys:
        """Return the keys, rising, of allowed images that say all of these, or of their texts."""
        return self._among(And(filters=tuple(findings)), target, allowed)

    def with_any(self, findings: Sequence[HasFinding], allowed: Keys | None) -> Keys:
        """Return the keys, rising, of allowed images that say one of these."""
        return self._among(Or(filters=tuple(findings)), "images", allowed)

    def _among(self, filter: And | Or, target: Target, allowed: Keys | None) -> Keys:
        keys = self._passing.get(self._state, filter, target)
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


def count_findings(
    state: CollectionState, fields: FieldColumns, passing: Keys | None
) -> tuple[FindingCounts, ...]:
    """Count the images of a collection by what they say of findings, those of most images first.

    Args:
        state: Read of the collection.
        fields: Fields in memory.
        passing: Keys of the images that are counted, rising; None for all.
    """
    column = fields.column(state, FINDING_FIELD, "text")
    if column is not None:
        assert column.texts is not None
        places, images, _ = column.counts(passing)
        stated = {column.texts[int(place)]: int(count) for place, count in zip(places, images, strict=True)}
    else:
        stated = dict(_counted_by_database(state.session, state.collection_id, passing))
    states: dict[str, dict[str, int]] = {}
    for said, count in stated.items():
        name, _, its_state = said.rpartition(": ")
        states.setdefault(name, dict.fromkeys(STATES, 0))[its_state] = count
    counts = [FindingCounts(name, **own) for name, own in states.items()]
    return tuple(sorted(counts, key=lambda one: (-(one.present + one.uncertain + one.absent), one.finding)))


def _counted_by_database(
    session: Session, collection_id: int, passing: Keys | None
) -> Iterator[tuple[str, int]]:
    """Give what images say of findings, as the catalogue has it, and how many say so."""
    said, here = FindingRow.image_finding, FindingRow.collection_id == collection_id
    if passing is None:
        images = func.count(FindingRow.image_id.distinct())
        for finding, count in session.execute(select(said, images).where(here).group_by(said)):
            yield finding, count
        return
    for finding in session.execute(select(said).where(here).distinct()).scalars().all():
        query = select(FindingRow.image_id).where(here, said == finding).distinct()
        keys = np.fromiter(session.execute(query).scalars(), dtype=np.int64)
        if count := int(np.count_nonzero(contains_sorted(passing, keys))):
            yield finding, count
