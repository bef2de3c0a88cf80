"""Rows that follow from texts and reports: words, long words and findings, by the rules of today.

Migrations make their tables and leave the rows to this, so that none depends on rules that change. A change
of the tokenizer or of the rules of findings comes with a migration, empty if no table changes, and `RULES`
names it.
"""

import logging
from typing import Final

from sqlalchemy import Connection, delete, func, select, text
from sqlalchemy.orm import Session

from index.catalogue.full_text import add_stored_words
from index.catalogue.tables import FindingRow, ImageRow, TextRow, VocabularyRow
from index.writes.findings import Findings, add_findings, findings_of

# Revision that the rules came with: rows of a catalogue before it are of other rules.
RULES: Final = "0015"
_IMAGES_AT_ONCE: Final = 500
_IMAGES_PER_MESSAGE: Final = 50_000

logger = logging.getLogger(__name__)


def rebuild_derived(connection: Connection) -> None:
    """Make the rows of all images anew, in the caller's transaction."""
    with Session(connection) as session:
        postgresql = connection.dialect.name == "postgresql"
        if postgresql:
            # Without it, all rows are put into the index at once.
            session.execute(text("DROP INDEX ix_image_words"))
        session.execute(text("DELETE FROM image_words"))
        session.execute(delete(VocabularyRow))
        session.execute(delete(FindingRow))
        total = session.execute(select(func.count()).select_from(ImageRow)).scalar_one()
        after = done = 0
        while keys := _keys(session, after):
            add_stored_words(session, keys)
            _add_findings(session, keys)
            after, before, done = keys[-1], done, done + len(keys)
            if done // _IMAGES_PER_MESSAGE > before // _IMAGES_PER_MESSAGE:
                logger.warning("Words and findings of %d of %d images are taken in.", done, total)
        if postgresql:
            session.execute(text("CREATE INDEX ix_image_words ON image_words USING gin (words)"))


def _keys(session: Session, after: int) -> list[int]:
    query = select(ImageRow.id).where(ImageRow.id > after).order_by(ImageRow.id).limit(_IMAGES_AT_ONCE)
    return list(session.execute(query).scalars())


def _add_findings(session: Session, keys: list[int]) -> None:
    texts: dict[int, dict[int, str]] = {}
    written = select(TextRow.image_id, TextRow.position, TextRow.text).where(TextRow.image_id.in_(keys))
    for image, position, said in session.execute(written):
        texts.setdefault(image, {})[position] = said
    images = select(ImageRow.id, ImageRow.collection_id, ImageRow.report).where(ImageRow.id.in_(keys))
    found: dict[int, dict[int, Findings]] = {}
    for image, collection, report in session.execute(images):
        found.setdefault(collection, {})[image] = findings_of(texts.get(image, {}), report)
    for collection, own in found.items():
        add_findings(session, collection, own)
