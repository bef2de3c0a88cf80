"""The sentence of a hit that fits the query's image best, with its place in the report."""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from index.catalogue.collections import require_collection
from index.catalogue.tables import REPORT_POSITION, FindingRow, ImageRow
from index.search.hit_reader import vectors_of
from index.search.results import ActiveGeneration, Hit
from index.vectors.protocol import Vectors
from training.clinical.findings import are_prior, prior_sentences
from training.clinical.reports.sections import place_in_report
from training.clinical.reports.sentences import split_sentences


class Sentence(NamedTuple):
    """A sentence of an image's texts or of its report.

    Attributes:
        text: The sentence.
        position: Position of the text; None: it is of the report alone.
        start: Offset of its first character in the report; None: the report has no such sentence.
        end: Offset behind its last character.
        prior: Whether it compares with an earlier examination, or tells of one.
    """

    text: str
    position: int | None
    start: int | None
    end: int | None
    prior: bool


class Told(NamedTuple):
    """Text of a hit: a sentence, and whether there is a report."""

    sentence: Sentence | None
    has_report: bool


def read_told(
    session: Session,
    active: ActiveGeneration,
    hits: Sequence[Hit],
    queries: Sequence[Vectors],
    query_keys: Collection[int],
) -> list[Told]:
    """Return for each hit the text nearest to its query, or a sentence with a finding that both have.

    Args:
        session: A read of the catalogue.
        active: Generation that was searched.
        hits: Hits, which are images.
        queries: Vector (D,) of the query of each hit.
        query_keys: Keys of the query's images.
    """
    collection = require_collection(session, active.collection)
    query = select(ImageRow.external_id, ImageRow.id, ImageRow.report).where(
        ImageRow.collection_id == collection.id, ImageRow.external_id.in_({hit.id for hit in hits})
    )
    rows = {name: (key, report) for name, key, report in session.execute(query)}
    keys = [key for key, _ in rows.values()]
    # Texts of blades, and of vectors without a sign, are not compared one by one.
    comparable = active.blades == 1 and not active.unsigned
    vectors = vectors_of(session, active, keys, texts=True) if comparable else {}
    shared = _shared_mentions(session, keys, query_keys)
    told = []
    for hit, vector in zip(hits, queries, strict=True):
        # The image may have been removed since it was found.
        key, report = rows.get(hit.id, (-1, None))
        places = [position for position in range(len(hit.image.texts)) if (key, position) in vectors]
        sentence = None
        if places:
            cosines = np.stack([vectors[key, position] for position in places]) @ vector
            best = places[int(np.argmax(cosines))]
            sentence = _of_text(hit.image.texts[best], best, report)
        elif report is not None and key in shared:
            sentence = _of_report(report, *shared[key])
        told.append(Told(sentence, report is not None))
    return told


def _shared_mentions(
    session: Session, keys: Collection[int], query_keys: Collection[int]
) -> Mapping[int, tuple[int, int]]:
    """Return the first mention, in each image's report, of a finding that the query has in the same state."""
    stated = select(FindingRow.image_finding).where(FindingRow.image_id.in_(query_keys)).distinct()
    names = list(session.execute(stated).scalars())
    if not names:
        return {}
    query = (
        select(FindingRow.image_id, FindingRow.start, FindingRow.stop)
        .where(
            FindingRow.image_id.in_(keys),
            FindingRow.position == REPORT_POSITION,
            FindingRow.image_finding.in_(names),
        )
        .order_by(FindingRow.image_id, FindingRow.start.desc())
    )
    return {key: (start, stop) for key, start, stop in session.execute(query)}


def _of_text(text: str, position: int, report: str | None) -> Sentence:
    prior = bool(prior_sentences(text))
    place = None if report is None else place_in_report(text, report)
    if place is None:
        return Sentence(text, position, None, None, prior)
    return Sentence(text, position, place, place + len(text), prior)


def _of_report(report: str, start: int, stop: int) -> Sentence:
    """Return the sentence around a mention; the mention alone where its sentence is not written so."""
    end = 0
    for sentence in split_sentences(report, fragments=True):
        begin = report.find(sentence, end)
        if begin < 0:
            continue
        end = begin + len(sentence)
        if begin <= start < end:
            return Sentence(sentence, None, begin, end, bool(prior_sentences(sentence)))
    return Sentence(report[start:stop], None, start, stop, *are_prior(report, [start]))
