"""Teaching files: a case list as a zip of pictures and a table, without what names a film or a person.

The file is sent while it is made: no more than one of its pictures is in memory.
"""

import asyncio
import csv
import io
import re
import zipfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from datetime import date
from typing import Final, NamedTuple

import structlog
from fastapi.responses import StreamingResponse
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from app.edge.admission import Budget, BusyError
from app.edge.problems import RequestError
from app.images.renditions import make
from app.metadata_values import age_band, day_of, text_of
from app.services import Services
from index.cases import CaseEntry
from index.catalogue.images import StoredImage
from index.errors import StoreError, UnknownImageError
from index.files.renditions import Rendition
from index.search.grouping import PATIENT
from index.search.results import HitImage
from training.clinical.findings import STATES
from training.common.errors import RecoquestError
from training.common.manifest import MetadataValue
from training.imaging.processes.pool import DecodersBusyError, DecoderStartError, DecodingTimeoutError

# Tries at a picture while others keep the service busy, and the pause between two.
_TRIES: Final = 5
_PAUSE_S: Final = 1.0
_BUSY: Final = (DecodersBusyError, DecodingTimeoutError, DecoderStartError)
_PICTURE: Final = Rendition("image/png")
_PIECE: Final = 256 << 10
# Attempts to get capacity for a picture that other callers still use, and the pause between two.
_ROOM_TRIES: Final = 10
_ROOM_PAUSE_S: Final = 0.5
# Files have no creation time.
_NO_TIME: Final = (1980, 1, 1, 0, 0, 0)
COLUMNS: Final = (
    "number", "file", "patient", "days", "view", "laterality", "age", "sex", "modality", "body_part",
    "findings", "report", "note",
)  # fmt: skip
# Codes of DICOM and words like them: other texts may be anything that somebody wrote.
_CODE: Final = re.compile(r"[A-Za-z0-9 _]{1,16}")
# A spreadsheet takes cells for formulas that begin so, some also behind spaces.
_FORMULA: Final = re.compile(r"[\s\x00-\x1f]*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]")

_log = structlog.stdlib.get_logger(__name__)


class _Case(NamedTuple):
    """An image of a teaching file."""

    image: HitImage
    report: str | None
    note: str


async def teaching_file(
    services: Services, collection: str, name: str, entries: Sequence[CaseEntry]
) -> AsyncGenerator[bytes]:
    """Yield the bytes of the zip file of a case list: at once those of a picture.

    Raises:
        RecoquestError: A picture cannot be made now.
    """
    written, unreadable = _StreamedZip(), 0
    cases: list[_Case] = []
    for entry in entries:
        try:
            case, picture = await _read(services, collection, entry)
        except UnknownImageError:
            continue
        except (StoreError, RequestError) as error:
            _log.warning("an image is left out of a teaching file", reason=type(error).__name__)
            unreadable += 1
            continue
        cases.append(case)
        yield written.add(_file(len(cases)), picture)
    removed = len(entries) - len(cases) - unreadable
    yield written.add("cases.csv", _table(cases), compressed=True)
    yield written.add("README.txt", _readme(name, len(cases), removed, unreadable).encode())
    written.close()
    yield written.sent.take()


async def _read(services: Services, collection: str, entry: CaseEntry) -> tuple[_Case, bytes]:
    """Read an image and make its picture; both are of one state of it."""
    engine = services.engine

    def read() -> tuple[StoredImage, _Case]:
        image, (hit_image,) = engine.image(collection, entry.image), engine.images_of([entry.key])
        if hit_image is None:
            raise UnknownImageError(collection, entry.image)
        return image, _Case(hit_image, image.report, entry.note)

    lost, tries = "", 0
    while True:
        image, case = await services.threads.read(read)
        try:
            return case, await make(services, image, _PICTURE)
        except StoreError:
            # The image may have been replaced or removed since.
            if image.sha256 == lost:
                raise
            lost = image.sha256
        except _BUSY:
            tries += 1
            if tries == _TRIES or services.stopping.is_set():
                raise
            await asyncio.sleep(_PAUSE_S)


def _file(number: int) -> str:
    return f"images/{number:04}.png"


def _table(cases: Sequence[_Case]) -> bytes:
    """Return the table: UTF-8 with a mark at its beginning, by which spreadsheets know it."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    patients: dict[str, int] = {}
    examined = [(text_of(case.image.metadata, PATIENT), day_of(case.image.metadata)) for case in cases]
    first: dict[str, date] = {}
    for patient, day in examined:
        if patient is not None and day is not None:
            first[patient] = min(day, first.get(patient, day))
    for number, (case, (patient, day)) in enumerate(zip(cases, examined, strict=True), 1):
        metadata = case.image.metadata
        days = "" if patient is None or day is None else str((day - first[patient]).days)
        cells = [
            "" if patient is None else str(patients.setdefault(patient, len(patients) + 1)),
            days,
            _code(metadata, "view"),
            _code(metadata, "laterality"),
            age_band(metadata) or "",
            _code(metadata, "sex"),
            _code(metadata, "modality"),
            _code(metadata, "body_part"),
            "; ".join(f"{name}: {state}" for state in STATES for name in case.image.findings[state]),
            "\n".join(case.image.texts) if case.report is None else case.report,
            case.note,
        ]
        writer.writerow([number, _file(number), *map(_plain, cells)])
    return text.getvalue().encode("utf-8-sig")


def _code(metadata: Mapping[str, MetadataValue], name: str) -> str:
    text = text_of(metadata, name) or ""
    return text if _CODE.fullmatch(text) else ""


def _plain(cell: str) -> str:
    """Return a cell that no spreadsheet takes for a formula."""
    return f"'{cell}" if _FORMULA.match(cell) else cell


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
Ids, UIDs, dates and names that the service recognizes were left out. Read everything before
you pass this file on.
"""


class _StreamedZip(zipfile.ZipFile):
    """A zip file whose bytes are taken as its files are added."""

    def __init__(self) -> None:
        self.sent = _Window()
        super().__init__(self.sent, "w", zipfile.ZIP_STORED)

    def add(self, name: str, content: bytes, *, compressed: bool = False) -> bytes:
        """Add a file, and return the bytes that can be sent."""
        self.writestr(zipfile.ZipInfo(name, _NO_TIME), content, zipfile.ZIP_DEFLATED if compressed else None)
        return self.sent.take()


class _Window(io.BytesIO):
    """The end of a file, behind what was taken of it: within it a writer may seek, to complete headers."""

    _taken = 0

    def tell(self) -> int:
        return self._taken + super().tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        return super().seek(offset - self._taken, whence) + self._taken

    def take(self) -> bytes:
        """Return all bytes, and keep none."""
        content = self.getvalue()
        self._taken += len(content)
        super().seek(0)
        self.truncate()
        return content


class ZipResponse(StreamingResponse):
    """A streamed file; one that cannot be finished breaks the connection, so that the caller notices."""

    def __init__(self, first: bytes, rest: AsyncGenerator[bytes]) -> None:
        self._rest = rest
        headers = {
            "Content-Disposition": 'attachment; filename="teaching-file.zip"',
            "Cache-Control": "no-store",
        }
        super().__init__(_complete(first, rest), media_type="application/zip", headers=headers)

    @classmethod
    async def begin(cls, contents: AsyncGenerator[bytes], budget: Budget) -> "ZipResponse":
        """Make the first bytes, so that what fails at once is answered as a problem.

        Raises:
            RecoquestError: The first bytes cannot be made now.
            BusyError: Other callers have not taken theirs.
        """
        pieces = _within(contents, budget)
        return cls(await anext(pieces), pieces)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file; its making ends also when the caller goes away."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._rest.aclose()


async def _complete(first: bytes, rest: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    yield first
    try:
        async for piece in rest:
            yield piece
    except (RecoquestError, BusyError) as error:
        _log.warning("a teaching file was not finished", reason=type(error).__name__)
        raise ClientDisconnect from None


async def _within(contents: AsyncGenerator[bytes], budget: Budget) -> AsyncGenerator[bytes]:
    """Yield small pieces; more is made when they are taken."""
    async with aclosing(contents):
        async for content in contents:
            for _ in range(_ROOM_TRIES):
                if budget.reserve(len(content)):
                    break
                await asyncio.sleep(_ROOM_PAUSE_S)
            else:
                raise BusyError
            try:
                for start in range(0, len(content), _PIECE):
                    yield content[start : start + _PIECE]
            finally:
                budget.free(len(content))
