"""Files in the store that no image may be using: listed before they are written, and collected.

A file may be used by images of any collection, and one process may be about to use what another is about to
remove. Both do so under one lock: on SQLite that of every write, on PostgreSQL one of its own, which those
who use files share. Users of files check under it whether they exist, and restore missing ones.

Every writer of a file has its own note, from before the file exists until an image uses it or the write
is abandoned: somebody else's removal of the same file does not take that note away, so a process that is
killed at any moment leaves no unnoted file.
"""

from collections.abc import Callable, Collection
from time import sleep, time_ns
from typing import Final

from sqlalchemy import Select, delete, or_, select, text
from sqlalchemy.orm import Session

from index.catalogue import PAUSE_SECONDS, Catalogue
from index.catalogue.tables import ImageRow, OrphanRow
from index.files.image_store import ImageStore

# All others who write wait while so many files are removed.
_AT_ONCE: Final = 50
# Any constant that other users of the same PostgreSQL server are unlikely to lock.
_POSTGRESQL_LOCK: Final = 7_236_911_046
# Nobody takes so long from the note of a file to the commit of its image.
_LONGEST_PUT_NS: Final = 3600 * 10**9
_NOTE: Final = text("INSERT INTO loose_files (sha256, begun) VALUES (:sha256, :begun) ON CONFLICT DO NOTHING")


def mark_orphans(session: Session, digests: Collection[str], begun: int = 0) -> None:
    """Note files that no image may be using once the transaction has ended; `begun` is that of a put."""
    if digests:
        session.execute(_NOTE, [{"sha256": digest, "begun": begun} for digest in sorted(digests)])


def begin_put(session: Session, digests: Collection[str]) -> int:
    """Note files before they are written; return what `keep_files` or `collect_orphans` ends the note by."""
    begun = time_ns()
    mark_orphans(session, digests, begun)
    return begun


def keep_files(
    session: Session,
    store: ImageStore,
    digests: Collection[str],
    read: Callable[[str], bytes],
    begun: Collection[int],
) -> None:
    """Make sure that the files of images which this transaction has written are there to stay.

    Args:
        session: Session of a transaction.
        store: Store of the files.
        digests: Digests of the files.
        read: Reads the file of a digest, where it was removed meanwhile.
        begun: What `begin_put` has returned for them.

    Raises:
        DiskFullError: The disk has no space left.
        StoreError: The disk does not take a file.
    """
    if not digests:
        return
    _lock(session, shared=True)
    ours = OrphanRow.begun.in_([0, *begun])
    session.execute(delete(OrphanRow).where(OrphanRow.sha256.in_(list(digests)), ours))
    for digest in digests:
        if not store.has(digest):
            store.put(read(digest))


def forget_used(session: Session) -> None:
    """Take back the notes of files that images use; nobody may be removing files meanwhile."""
    session.execute(delete(OrphanRow).where(OrphanRow.sha256.in_(select(ImageRow.sha256))))


def collect_orphans(
    catalogue: Catalogue,
    store: ImageStore,
    digests: Collection[str] | None = None,
    begun: Collection[int] = (),
) -> None:
    """Remove those files that were noted and that no image uses.

    Args:
        catalogue: Catalogue with the notes.
        store: Store of the files.
        digests: Digests to check; None: all, such as those of a killed process.
        begun: What `begin_put` has returned for writes that were given up.

    Raises:
        CatalogueError: The catalogue cannot be used.
        DiskFullError: The disk has no space left for the catalogue.
        StoreError: The disk does not remove a file; it stays noted.
    """
    query = select(OrphanRow.sha256).distinct().order_by(OrphanRow.sha256).limit(_AT_ONCE)
    if digests is None:
        last = ""
        while noted := _remove(catalogue, store, query.where(OrphanRow.sha256 > last), begun):
            last = noted[-1]
            sleep(PAUSE_SECONDS)
        return
    pending = sorted(digests)
    for start in range(0, len(pending), _AT_ONCE):
        if start:
            sleep(PAUSE_SECONDS)
        part = pending[start : start + _AT_ONCE]
        _remove(catalogue, store, query.where(OrphanRow.sha256.in_(part)), begun)


def _remove(catalogue: Catalogue, store: ImageStore, query: Select[str], begun: Collection[int]) -> list[str]:
    """Remove the unused ones among the noted files that a query finds, and return what it finds."""
    with catalogue.read() as session:
        # Most often there is nothing, and nobody has to wait for a lock.
        if not session.execute(query).first():
            return []
    with store.removing() as allowed, catalogue.write() as session:
        if not allowed:
            # A backup is reading them; they stay noted.
            return []
        _lock(session, shared=False)
        noted = list(session.execute(query).scalars())
        used = session.execute(select(ImageRow.sha256).where(ImageRow.sha256.in_(noted))).scalars()
        store.remove(sorted(set(noted) - set(used)))
        # A note of somebody who may write the file yet stays.
        ended = or_(OrphanRow.begun.in_([0, *begun]), OrphanRow.begun < time_ns() - _LONGEST_PUT_NS)
        session.execute(delete(OrphanRow).where(OrphanRow.sha256.in_(noted), ended))
    return noted


def _lock(session: Session, *, shared: bool) -> None:
    if session.get_bind().dialect.name == "postgresql":
        name = "pg_advisory_xact_lock_shared" if shared else "pg_advisory_xact_lock"
        session.execute(text(f"SELECT {name}(:key)"), {"key": _POSTGRESQL_LOCK})
