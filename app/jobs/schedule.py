"""Scheduled jobs: retrainings at certain times or after enough judgements, and syncs with an archive."""

import shlex
from datetime import UTC, datetime, timedelta

import yaml
from cronsim import CronSim
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.jobs.queue import RETRAIN, SYNC, last_retraining, last_sync
from app.settings import Settings
from index.catalogue import Catalogue
from index.catalogue.collections import find_active
from index.catalogue.jobs import Job, add_job
from index.catalogue.tables import CollectionRow, ModelRow
from index.feedback import count_usable


def give_retrainings(settings: Settings, catalogue: Catalogue, at: datetime | None = None) -> list[Job]:
    """Give the retrainings that are due; asked again, or by another worker, nothing is given twice.

    Args:
        settings: Settings with the collections and times.
        catalogue: Catalogue of jobs and feedback.
        at: The time, in UTC; None: now.

    Raises:
        CatalogueError: The catalogue cannot be used.
    """
    minute = (at or datetime.now(UTC)).replace(second=0, microsecond=0)
    given = []
    for collection in settings.retrain:
        with catalogue.write() as session:
            row = select(CollectionRow.id).where(CollectionRow.name == collection)
            if session.execute(row).first() is not None and _is_due(session, settings, collection, minute):
                promote = ["--promote"] if settings.retrain_promote else []
                given.append(add_job(session, RETRAIN, [collection, *promote]))
    return given


def give_sync(settings: Settings, catalogue: Catalogue, at: datetime | None = None) -> Job | None:
    """Give the sync with an image archive that is due, unless the one before still goes on.

    Args:
        settings: Settings with its arguments and times.
        catalogue: Catalogue of jobs.
        at: The time, in UTC; None: now.

    Raises:
        CatalogueError: The catalogue cannot be used.
    """
    if settings.pacs_sync is None or settings.pacs_sync_at is None:
        return None
    minute = (at or datetime.now(UTC)).replace(second=0, microsecond=0)
    if not _fits(settings.pacs_sync_at, minute):
        return None
    arguments = shlex.split(settings.pacs_sync)
    with catalogue.write() as session:
        last = last_sync(session, arguments)
        if last is not None and (
            not last.has_ended or last.created >= minute.isoformat(timespec="microseconds")
        ):
            return None
        return add_job(session, SYNC, arguments)


def _is_due(session: Session, settings: Settings, collection: str, minute: datetime) -> bool:
    last = last_retraining(session, collection)
    if last is not None and not last.has_ended:
        return False
    since = "" if last is None else last.created
    is_later = since < minute.isoformat(timespec="microseconds")
    if settings.retrain_at is not None and is_later and _fits(settings.retrain_at, minute):
        return True
    if settings.retrain_feedback is None:
        return False
    if not _learns_from_feedback(session, collection):
        return False
    return count_usable(session, collection, since=since).usable >= settings.retrain_feedback


def _learns_from_feedback(session: Session, collection: str) -> bool:
    """Whether the recipe of the model that is searched with takes texts one by one, as judged ones are."""
    found = find_active(session, collection)
    if found is None:
        return False
    query = select(ModelRow.recipe).where(ModelRow.digest == found[0].digest)
    recipe = yaml.safe_load(session.execute(query).scalar_one()) or {}
    return bool((recipe.get("data") or {}).get("text_unit", "sentence") == "sentence")


def _fits(crontab: str, minute: datetime) -> bool:
    """Tell whether a minute is one of the times of a crontab."""
    return next(CronSim(crontab, minute - timedelta(minutes=1))) == minute
