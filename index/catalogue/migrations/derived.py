"""Rows that follow from texts and reports: words, long words and findings, by the rules of today."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.metadata import version
from time import sleep
from typing import Final

from packaging.version import Version
from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from index.catalogue.collections import lock_names
from index.catalogue.full_text import add_stored_words, remove_words
from index.catalogue.schema import RULES, DerivedRow
from index.catalogue.tables import CollectionRow, ImageRow, TextRow, VocabularyRow
from index.writes.images import Findings, findings_of, put_findings

# Writers wait for so many.
_IMAGES_AT_ONCE: Final = 200
_IMAGES_PER_MESSAGE: Final = 50_000
_PAUSE_SECONDS: Final = 0.01

logger = logging.getLogger(__name__)


def rebuild_derived(write: Callable[[], AbstractContextManager[Session]], name: str) -> None:
    """Rebuild the rows of all images, batch by batch, if they follow outdated rules.

    Processes that do so at the same time share the batches; one that was killed is followed up by the next.
    Rows of rules of a newer version of recoquest are left alone.

    Args:
        write: Gives a session whose transaction writes.
        name: Name of the database in messages.
    """
    begun, done, reached = False, 0, None
    while not begun or reached is not None:
        if begun:
            sleep(_PAUSE_SECONDS)
        with write() as session:
            state = session.execute(select(DerivedRow).with_for_update()).scalar_one()
            if state.rules != str(RULES):
                own = version("recoquest")
                # If two versions meet, one gives way, so that they don't undo each other's work for ever.
                if begun or Version(state.version) > Version(own):
                    logger.warning(
                        "Words and findings of the catalogue %s follow the rules of recoquest %s, and stay "
                        "so: use one version.",
                        name,
                        state.version,
                    )
                    return
                _lock_all(session)
                session.execute(delete(VocabularyRow))
                state.rules, state.version, state.reached = str(RULES), own, 0
            before, done = done, done + _rebuild_batch(session, state)
            reached = state.reached
            if reached is not None and (
                not begun or done // _IMAGES_PER_MESSAGE > before // _IMAGES_PER_MESSAGE
            ):
                logger.warning(
                    "Words and findings of %d of %d images of the catalogue %s are made again by new rules.",
                    _count(session, reached),
                    _count(session, None),
                    name,
                )
            begun = True


def _rebuild_batch(session: Session, state: DerivedRow) -> int:
    """Rebuild the rows of the next images, and return how many; the last batch completes the work."""
    if state.reached is None:
        return 0
    _lock_all(session)
    query = select(ImageRow.id).where(ImageRow.id > state.reached).order_by(ImageRow.id)
    keys = list(session.execute(query.limit(_IMAGES_AT_ONCE)).scalars())
    # Long words are counted of the images that were reached: not yet of these.
    remove_words(session, keys)
    state.reached = keys[-1] if len(keys) == _IMAGES_AT_ONCE else None
    session.flush()
    add_stored_words(session, keys)
    _replace_findings(session, keys)
    return len(keys)


def _lock_all(session: Session) -> None:
    """Let no other transaction write images: each locks its collection, or makes it under a lock."""
    lock_names(session)
    session.execute(select(CollectionRow.id).order_by(CollectionRow.id).with_for_update(key_share=True)).all()


def _count(session: Session, reached: int | None) -> int:
    query = select(func.count()).select_from(ImageRow)
    return session.execute(query if reached is None else query.where(ImageRow.id <= reached)).scalar_one()


def _replace_findings(session: Session, keys: list[int]) -> None:
    texts: dict[int, dict[int, str]] = {}
    written = select(TextRow.image_id, TextRow.position, TextRow.text).where(TextRow.image_id.in_(keys))
    for image, position, written_text in session.execute(written):
        texts.setdefault(image, {})[position] = written_text
    images = select(ImageRow.id, ImageRow.collection_id, ImageRow.report).where(ImageRow.id.in_(keys))
    findings: dict[int, dict[int, Findings]] = {}
    for image, collection, report in session.execute(images):
        findings.setdefault(collection, {})[image] = findings_of(texts.get(image, {}), report)
    for collection, own in findings.items():
        put_findings(session, collection, own)
