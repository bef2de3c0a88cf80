"""The identity that binds a home folder and its catalogue.

Both hold the same random number, the folder in a file. A catalogue next to the images of another one, or a
folder that was moved while a process runs, would take writes that nobody finds again.
"""

import logging
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from sqlalchemy import select, text
from sqlalchemy.orm import Session

from index.catalogue import Catalogue
from index.catalogue.tables import HomeRow, ImageRow, OrphanRow
from index.errors import CatalogueBusyError, DiskFullError, HomeError
from index.files.image_store import ImageStore
from training.common.atomic import write_text

FILE: Final = "identity"
# Images whose files are looked up, to check that the folder belongs to the catalogue.
_LOOKED_FOR: Final = 100
_NOTE: Final = text("INSERT INTO home (id, uid) VALUES (1, :uid) ON CONFLICT DO NOTHING")

_log = logging.getLogger(__name__)


def bind_identity(catalogue: Catalogue, store: ImageStore, home: Path) -> None:
    """Refuse a folder of another catalogue, and from now on writes after either was moved or replaced.

    Two that are new, or older than identities, get one if they agree.

    Raises:
        CatalogueError: The catalogue cannot be used.
        HomeError: Folder and catalogue do not belong together.
    """
    with catalogue.read() as session:
        noted, written = _noted(session), _written(home)
        if noted is None or written is None:
            _refuse_strange(session, noted, catalogue, store, home)
    if noted is not None and written is not None and noted != written:
        raise HomeError(
            f"The home folder {home} belongs to another catalogue than {catalogue.url}: give the right "
            "--home or RECOQUEST_DATABASE_URL, or restore a backup into another home."
        )
    if noted is None or written is None:
        try:
            _write(catalogue, home, written or uuid.uuid4().hex)
        except (CatalogueBusyError, DiskFullError, OSError) as error:
            # Searches need none; the next start tries again.
            _log.warning("the home folder %s gets no identity yet: %s", home, error)
            return
    catalogue.guard = _watch(catalogue, home)


def _write(catalogue: Catalogue, home: Path, uid: str) -> None:
    with catalogue.write() as session:
        session.execute(_NOTE, {"uid": uid})
        # Concurrent processes agree on the identity of the first one.
        agreed = _noted(session)
    assert agreed is not None
    if _written(home) != agreed:
        write_text(home / FILE, agreed)


def _watch(catalogue: Catalogue, home: Path) -> Callable[[], None]:
    """Return what raises when the folder, or the file of the catalogue, is not any more where it was."""
    files = catalogue.files()
    paths = [home / FILE, *files]
    before, uid = _state(paths), _written(home)

    def check() -> None:
        # With the catalogue on a server, the folder may be mounted again.
        if _state(paths) != before and (files or _written(home) != uid):
            raise HomeError(
                f"The home folder {home} or its catalogue was moved or replaced while this process runs: "
                "bring it back, or start again with the right --home."
            )

    return check


def _written(home: Path) -> str | None:
    with suppress(FileNotFoundError):
        return (home / FILE).read_text().strip()
    return None


def _refuse_strange(
    session: Session, noted: str | None, catalogue: Catalogue, store: ImageStore, home: Path
) -> None:
    """Refuse a catalogue next to the images of another one, and one whose images are elsewhere."""
    images = session.execute(select(ImageRow.sha256).limit(_LOOKED_FOR)).scalars().all()
    if images and not any(map(store.has, images)):
        again = f"write {noted} into {home / FILE}" if noted else "restore a backup"
        raise HomeError(
            f"The catalogue {catalogue.url} has images, and no file of them is in {home}: give the right "
            f"--home, mount it or bring it back; if the files are lost, {again}."
        )
    if images or session.execute(select(OrphanRow.sha256).limit(1)).first():
        return
    if next(store.originals(), None) is not None:
        raise HomeError(
            f"The catalogue {catalogue.url} is empty, and {home} has images of another one: bring that one "
            "back, with `recoquest restore` or RECOQUEST_DATABASE_URL, or start again in another --home."
        )


def _noted(session: Session) -> str | None:
    return session.execute(select(HomeRow.uid)).scalar_one_or_none()


def _state(paths: list[Path]) -> list[tuple[int, int] | None]:
    state: list[tuple[int, int] | None] = []
    for path in paths:
        try:
            status = path.stat()
            state.append((status.st_dev, status.st_ino))
        except OSError:
            state.append(None)
    return state
