"""The identity that binds a home folder and its catalogue.

Both hold the same random number, the folder in a file. A catalogue beside the images of another one, or a
folder that was moved while a process runs, would take writes that nobody finds again.
"""

import logging
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from sqlalchemy import select, text
from sqlalchemy.orm import Session

from index.catalogue import Catalogue
from index.catalogue.tables import HomeRow, ImageRow, OrphanRow
from index.errors import CatalogueBusyError, DiskFullError, HomeError
from index.files.image_store import ImageStore
from training.common.atomic import atomic_file

FILE: Final = "identity"
# Images whose files are looked for, to tell whose folder this is.
_LOOKED_FOR: Final = 100
_NOTE: Final = text("INSERT INTO home (id, uid) VALUES (1, :uid) ON CONFLICT DO NOTHING")

_log = logging.getLogger(__name__)
_State = tuple[tuple[int, int] | None, ...]


class HomeIdentity:
    """Compares the identities of a folder and of a catalogue.

    Args:
        catalogue: The catalogue.
        store: The image files in the folder.
        home: The folder.
    """

    def __init__(self, catalogue: Catalogue, store: ImageStore, home: Path) -> None:
        self._catalogue = catalogue
        self._store = store
        self._home = home

    def bind(self) -> None:
        """Refuse a folder of another catalogue, and from now on writes after either was moved or replaced.

        Two that are new, or older than identities, get one if they agree.

        Raises:
            CatalogueError: The catalogue cannot be used.
            HomeError: Folder and catalogue do not belong together.
        """
        with self._catalogue.read() as session:
            noted, written = _noted(session), self._written()
            if noted is None or written is None:
                self._refuse_strange(session, noted)
        if noted is not None and written is not None and noted != written:
            raise HomeError(
                f"The home folder {self._home} belongs to another catalogue than {self._catalogue.url}: "
                "give the right --home or RECOQUEST_DATABASE_URL, or restore a backup into another home."
            )
        if noted is None or written is None:
            try:
                self._write(written or uuid.uuid4().hex)
            except (CatalogueBusyError, DiskFullError, OSError) as error:
                # Searches need none; the next start tries again.
                _log.warning("the home folder %s gets no identity yet: %s", self._home, error)
                return
        self._catalogue.guard = self._watch()

    def _write(self, uid: str) -> None:
        with self._catalogue.write() as session:
            session.execute(_NOTE, {"uid": uid})
            # Concurrent processes agree on the identity of the first one.
            agreed = _noted(session)
        assert agreed is not None
        if self._written() != agreed:
            with atomic_file(self._home / FILE) as file:
                file.write(f"{agreed}\n".encode())

    def _watch(self) -> Callable[[], None]:
        """Return what raises when the folder, or the file of the catalogue, is not any more where it was."""
        files = self._catalogue.files()
        paths = [self._home / FILE, *files]
        before, uid = _state(paths), self._written()

        def check() -> None:
            # With the catalogue on a server, the folder may be mounted anew.
            if _state(paths) != before and (files or self._written() != uid):
                raise HomeError(
                    f"The home folder {self._home} or its catalogue was moved or replaced while this process "
                    "runs: bring it back, or start again with the right --home."
                )

        return check

    def _written(self) -> str | None:
        with suppress(FileNotFoundError):
            return (self._home / FILE).read_text().strip()
        return None

    def _refuse_strange(self, session: Session, noted: str | None) -> None:
        """Refuse a catalogue beside the images of another one, and one whose images are elsewhere."""
        images = session.execute(select(ImageRow.sha256).limit(_LOOKED_FOR)).scalars().all()
        if images and not any(map(self._store.has, images)):
            again = f"write {noted} into {self._home / FILE}" if noted else "restore a backup"
            raise HomeError(
                f"The catalogue {self._catalogue.url} has images, and no file of them is in {self._home}: "
                f"give the right --home, mount it or bring it back; if the files are lost, {again}."
            )
        if images or session.execute(select(OrphanRow.sha256).limit(1)).first():
            return
        if next(self._store.originals(), None) is not None:
            raise HomeError(
                f"The catalogue {self._catalogue.url} is empty, and {self._home} has images of another one: "
                "bring that one back, with `recoquest restore` or RECOQUEST_DATABASE_URL, or begin anew in "
                "another --home."
            )


def _noted(session: Session) -> str | None:
    return session.execute(select(HomeRow.uid)).scalar_one_or_none()


def _state(paths: list[Path]) -> _State:
    return tuple(_states(paths))


def _states(paths: list[Path]) -> Iterator[tuple[int, int] | None]:
    for path in paths:
        try:
            found = path.stat()
        except OSError:
            yield None
        else:
            yield found.st_dev, found.st_ino
