"""Teaching files: a case list as a zip of pictures and a table, without what names a film or a person."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Final

import structlog

from app.cases.case_table import Case, CaseTable
from app.cases.streamed_zip import StreamedZip
from app.edge.http.problems import RequestError
from app.images.renditions import make
from app.services import Services
from index.cases import CaseEntry
from index.errors import StoreError, UnknownImageError
from index.files.renditions import Rendition
from index.search.results import StoredImage
from training.imaging.processes.errors import (
    DecodersBusyError,
    DecoderStartError,
    DecodingTimeoutError,
)

# Tries at a picture while others keep the service busy, and the pause between two.
_TRIES: Final = 5
_PAUSE_S: Final = 1.0
_BUSY: Final = (DecodersBusyError, DecodingTimeoutError, DecoderStartError)
_PICTURE: Final = Rendition("image/png")

_log = structlog.stdlib.get_logger(__name__)


class TeachingFile:
    """The zip file of a case list, made as it is read.

    Args:
        services: Shared objects of the service.
        collection: Name of the collection.
        name: Name of the list.
        entries: Images of the list.
    """

    def __init__(self, services: Services, collection: str, name: str, entries: Sequence[CaseEntry]) -> None:
        self._services = services
        self._collection = collection
        self._name = name
        self._entries = entries

    async def pieces(self) -> AsyncGenerator[bytes]:
        """Yield the bytes of the file: at once those of a picture.

        Raises:
            RecoquestError: A picture cannot be made now.
        """
        written, table, unreadable = StreamedZip(), CaseTable(), 0
        for entry in self._entries:
            try:
                case, picture = await self._read(entry)
            except UnknownImageError:
                continue
            except (StoreError, RequestError) as error:
                _log.warning("an image is left out of a teaching file", reason=type(error).__name__)
                unreadable += 1
                continue
            file = f"images/{len(table) + 1:04}.png"
            table.add(case, file)
            yield written.add(file, picture)
        removed = len(self._entries) - len(table) - unreadable
        yield written.add("cases.csv", table.as_csv(), compressed=True)
        yield written.add("README.txt", _readme(self._name, len(table), removed, unreadable).encode())
        yield written.close()

    async def _read(self, entry: CaseEntry) -> tuple[Case, bytes]:
        """Read an image and make its picture; both are of one state of it.

        Raises:
            UnknownImageError: The image is gone.
            StoreError: Its file is missing or damaged.
            RequestError: It takes more memory or work than a picture may.
            RecoquestError: The picture cannot be made now.
        """
        lost, tries = "", 0
        while True:
            image, case = await self._services.threads.read(self._case, entry)
            try:
                return case, await make(self._services, image, _PICTURE)
            except StoreError:
                # The image may have been replaced or removed since.
                if image.sha256 == lost:
                    raise
                lost = image.sha256
            except _BUSY:
                tries += 1
                if tries == _TRIES or self._services.stopping.is_set():
                    raise
                await asyncio.sleep(_PAUSE_S)

    def _case(self, entry: CaseEntry) -> tuple[StoredImage, Case]:
        engine = self._services.engine
        image, (found,) = engine.image(self._collection, entry.image), engine.images_of([entry.key])
        if found is None:
            raise UnknownImageError(self._collection, entry.image)
        return image, Case(found, image.report, entry.note)


def _readme(name: str, count: int, removed: int, unreadable: int) -> str:
    left_out = "".join(
        f"{number} image{'' if number == 1 else 's'} of the list {reason}.\n"
        for number, reason in ((removed, "was removed meanwhile"), (unreadable, "cannot be read"))
        if number
    )
    return f"""Teaching file: {name}

images/    {count} pictures of 8 bits, as recoquest shows them, without metadata.
cases.csv  One row for each picture, in UTF-8. Patients are numbered within this file; "days" counts
           from the first film of the patient in it, and "age" is in tens of years. An apostrophe
           before a sign such as = keeps spreadsheets from taking the text for a formula.
{left_out}
This is no diagnostic device: not for diagnosis or treatment, but for teaching.

Reports, notes and the name of the list were written by people, and pictures may have text burnt in.
Ids, UIDs, dates and names were left out where the service knows them as such. Read everything before
you pass this file on.
"""
