"""Backups that were written or restored, so that an erasure can name them."""

import hashlib
from pathlib import Path

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from index.backup.contents import Summary
from index.catalogue.audit_tables import BackupRow
from index.catalogue.tables import ImageRow


def last_image(session: Session) -> int:
    """Return the highest key of an image, 0 without any."""
    return session.execute(select(func.max(ImageRow.id))).scalar() or 0


def note_backup(session: Session, path: Path, summary: Summary, last: int) -> None:
    """Note a backup, in the caller's transaction.

    Args:
        session: Session of a transaction.
        path: Path of its file.
        summary: Contents of the backup.
        last: The highest key of an image in it.
    """
    digest = hashlib.sha256(summary.model_dump_json(indent=2).encode()).hexdigest()
    row = BackupRow(digest=digest, path=str(path.absolute()), created=summary.created, last_image=last)
    session.merge(row)
