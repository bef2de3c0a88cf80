"""Reports brought to the images of their studies: by a command, or as messages of HL7 over MLLP."""

import asyncio
import re
import socket
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import lru_cache, partial
from threading import Lock
from typing import Final, Literal, SupportsIndex

import structlog

from app.audit.trail import ImageChanges
from app.generations.build import load_bulk_encoder
from app.settings import Settings
from index.catalogue.collections import get_generation, lock_collection, require_collection
from index.engine import SearchEngine
from index.errors import GenerationError, StaleWriteError, UnknownImageError
from index.reports import (
    add_reports,
    count_waiting,
    find_study,
    forget_waiting,
    images_of,
    received_for,
    remove_report,
    reports_after,
    set_study,
)
from index.search.results import ActiveGeneration
from index.writes.live import change_image
from index.writes.vectors import Embedder, ImageEncoder
from training.clinical.reports.current import NO_REPORT, CurrentReport, current_report
from training.clinical.reports.hl7 import parse_message, read_message
from training.clinical.reports.study_report import (
    DATA_TYPE_ERROR,
    ReportError,
    StudyReport,
    deidentified,
    study_key,
)
from training.common.errors import RecoquestError
from training.importing.reports import with_report

# Attempts: another writer, or a change of the model, may come between the read and the write.
_TRIES: Final = 3
_STUDIES_KEPT: Final = 64
_START: Final = b"\x0b"
_END: Final = b"\x1c\r"
# A message of which nothing has come for so long counts as silence.
_STALLED_S: Final = 1.0
# Accepted; an error that sending it again may mend; rejected for good.
Code = Literal["AA", "AE", "AR"]
_INTERNAL_ERROR: Final = "207^Application internal error"
_LONGEST_ID: Final = 199
# Ends an id: a separator, or a control character.
_SEPARATOR: Final = re.compile(r"[|^~\\&\x00-\x1f\x7f]")
_MSH: Final = re.compile(r"MSH([^\w\s])")
_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Taken:
    """Outcomes of some reports.

    Attributes:
        waiting: Number of reports whose study has no image yet; they are kept.
        differing: Indices of reports whose study only has images of another patient;
            they are not kept, and their `mismatch` says why.
        without_text: Indices of matched reports without a text that describes the image.
    """

    matched: int = 0
    waiting: int = 0
    differing: tuple[int, ...] = ()
    changed: tuple[str, ...] = ()
    without_text: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Model:
    """The model that a collection is searched with.

    Attributes:
        vectors: Returns vectors of sentences by their texts; caches those of recent studies.
    """

    active: ActiveGeneration
    encoder: ImageEncoder
    embedder: Embedder
    vectors: Callable[[tuple[str, ...]], dict[str, bytes]]


@dataclass
class ReportIntake:
    """Writes reports to one collection; opens its encoder where a text has to be embedded.

    Attributes:
        command: Name of the command, for the audit trail.
    """

    engine: SearchEngine
    settings: Settings
    collection: str
    command: str
    _looked: date | None = field(default=None, init=False, repr=False)
    _model: Model | None = field(default=None, init=False, repr=False)
    _lock: Lock = field(default_factory=Lock, init=False, repr=False)

    @property
    def changes(self) -> ImageChanges:
        """What writes the events of changed images."""
        return ImageChanges(self.settings, self.engine.home.catalogue, self.collection, self.command)

    def model(self, active: ActiveGeneration | None = None) -> Model:
        """Return the model that is searched with, or that of a generation; threads may share it.

        Raises:
            GenerationError: The collection is searched with another model by now.
        """
        active = active or self.engine.active(self.collection)
        with self._lock:
            if self._model is None or self._model.active.generation != active.generation:
                with self.engine.home.catalogue.read() as session:
                    generation, _ = get_generation(session, active.generation)
                encoder = load_bulk_encoder(self.engine.home, active.bundle, self.settings.device)
                embedder = Embedder(generation, encoder)
                self._model = Model(active, encoder, embedder, lru_cache(_STUDIES_KEPT)(embedder.texts))
            return self._model

    def take(self, reports: Sequence[StudyReport]) -> Taken:
        """Store reports, and attach them to the images of their studies; repeated reports change nothing.

        All is in the catalogue when it returns.
        """
        # A collection that cannot be searched takes no reports.
        self.engine.active(self.collection)
        self._drop_late()
        return self._match(reports, new=True)

    def take_waiting(self, *, all_again: bool = False) -> Iterator[Taken]:
        """Attach stored reports to images that came after them, some at a time.

        `all_again`: also those that were brought to images before, which may have got others since.
        """
        self._drop_late()
        after = 0
        while True:
            with self.engine.home.catalogue.read() as session:
                collection_id = require_collection(session, self.collection).id
                some = reports_after(session, collection_id, after, waiting=not all_again)
            if not some:
                return
            after = some[-1][0]
            yield self._match([report for _, report in some], new=False)

    def _match(self, reports: Sequence[StudyReport], *, new: bool) -> Taken:
        studies: dict[str, None] = {}
        with self.engine.home.catalogue.write() as session:
            collection_id = require_collection(session, self.collection).id
            lock_collection(session, collection_id)
            studies_found = [find_study(session, collection_id, report) for report in reports]
            accepted = [
                report for report, (_, others) in zip(reports, studies_found, strict=True) if not others
            ]
            if new:
                # Others may have been erased meanwhile.
                add_reports(session, collection_id, accepted)
            for report, (study, _) in zip(reports, studies_found, strict=True):
                if study is not None:
                    set_study(session, collection_id, report.digest, study)
                    studies[study] = None
        matched = sum(study is not None for study, _ in studies_found)
        return Taken(
            matched,
            len(accepted) - matched,
            tuple(index for index, (_, others) in enumerate(studies_found) if others),
            self._bring(studies),
            tuple(
                index
                for index, (study, _) in enumerate(studies_found)
                if study and not reports[index].describes
            ),
        )

    def take_again(self, uids: Iterable[str]) -> None:
        """Bring the reports of studies to their new images."""
        self._bring([study_key(uid) for uid in uids])

    def remove(self, digests: Iterable[str]) -> None:
        """Remove reports; the images of their studies get the remaining reports of the study."""
        with self.engine.home.catalogue.write() as session:
            collection_id = require_collection(session, self.collection).id
            removed = [remove_report(session, collection_id, digest) for digest in digests]
        removed_reports = list(filter(None, removed))
        self._bring(
            dict.fromkeys(study for study, _ in removed_reports), [report for _, report in removed_reports]
        )

    def waiting(self) -> int:
        """Return the number of reports that wait for images."""
        with self.engine.home.catalogue.read() as session:
            return count_waiting(session, require_collection(session, self.collection).id)

    def _drop_late(self) -> None:
        """Remove the reports that wait longer than the settings say; once a day."""
        days, today = self.settings.keep_waiting_reports_days, datetime.now(UTC).date()
        if days and self._looked != today:
            self._looked = today
            self.drop_waiting(days)

    def drop_waiting(self, days: int = 0) -> int:
        """Remove the reports that have waited for images for some days, and return their number."""
        return forget_waiting(self.engine.home, self.collection, days, self.changes.forgotten)

    def _bring(self, studies: Iterable[str], gone: Sequence[StudyReport] = ()) -> tuple[str, ...]:
        """Write the current reports of studies to their images, and return the ids of changed ones.

        `gone`: reports of these that were removed; images that had one and get no other have none.
        """
        changed: list[str] = []
        for study in studies:
            with self.engine.home.catalogue.read() as session:
                collection_id = require_collection(session, self.collection).id
                received = received_for(session, collection_id, study)
                images = images_of(session, collection_id, study)
            patients = set(images.values())
            for patient in patients:
                own_reports = [report for report in received if report.may_be_of(patient, patients)]
                had = any(report.may_be_of(patient, patients) for report in gone)
                current = current_report(own_reports) or (NO_REPORT if had else None)
                if current is not None:
                    patient_images = (image for image, one in images.items() if one == patient)
                    changed += (image for image in patient_images if self._change(image, current))
        return tuple(changed)

    def _change(self, image: str, current: CurrentReport) -> bool:
        for attempt in range(_TRIES):
            active = self.engine.active(self.collection)
            try:
                sentences = tuple(current.sentences)
                vectors = self.model(active).vectors(sentences) if sentences else {}
                change = partial(with_report, current=current)
                record = partial(self.changes.changed, ids=[image])
                changed = change_image(self.engine.home, active, image, change, vectors, also=record)
                return changed.outcome != "unchanged"
            except UnknownImageError:
                # Removed meanwhile.
                return False
            except (StaleWriteError, GenerationError):
                if attempt == _TRIES - 1:
                    raise
        raise AssertionError("unreachable")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a listener.

    Attributes:
        connections: Connections at the same time; one more closes the one that has been silent longest.
        message_s: Seconds from the first byte of a message to its last.
        idle_s: Seconds that a connection may be silent between messages.
    """

    message_bytes: int = 4 * 2**20
    connections: int = 32
    message_s: float = 30.0
    idle_s: float = 600.0


class _Sender(asyncio.StreamReader):
    """What comes from an open connection.

    Attributes:
        heard: Time of its latest byte, or of its beginning.
        has_sent: Whether it has sent a complete message.
        in_message: Whether a message has begun and is not complete.
        is_answered: Whether its message is being written.
    """

    heard = 0.0
    has_sent = in_message = is_answered = False

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        """Take what the connection has sent."""
        self.heard = asyncio.get_running_loop().time()
        super().feed_data(data)


class FrameError(Exception):
    """Bytes that are no frame of MLLP, or one beyond the limits; the connection ends."""


class Listener:
    """Takes messages from connections to a socket, and writes the reports in them to a collection.

    `key` is the secret of the home folder, for keyed hashes.
    """

    def __init__(self, intake: ReportIntake, key: bytes, limits: Limits = Limits()) -> None:
        self._intake = intake
        self._key = key
        self._limits = limits
        self._open: dict[asyncio.Task[None], _Sender] = {}
        # Messages are written one at a time: the newest version of a report is the one that came last.
        self._writer = ThreadPoolExecutor(1, "reports")

    def run(self, taken: socket.socket, on_stop: Callable[[Callable[[], None]], None]) -> None:
        """Serve until stopped; messages that are being written are finished and acknowledged.

        `on_stop`: is called with the function that stops it, to be called in the thread of this function's
        loop.
        """
        asyncio.run(self._serve(taken, on_stop))

    async def _serve(self, taken: socket.socket, on_stop: Callable[[Callable[[], None]], None]) -> None:
        loop, stopping = asyncio.get_running_loop(), asyncio.Event()

        def begin() -> asyncio.StreamReaderProtocol:
            sender = _Sender(self._limits.message_bytes)
            sender.heard = loop.time()
            return asyncio.StreamReaderProtocol(sender, self._accept)

        on_stop(stopping.set)
        server = await loop.create_server(begin, sock=taken)
        try:
            await stopping.wait()
        finally:
            server.close()
            for task in self._open:
                task.cancel()
            await asyncio.gather(*self._open, return_exceptions=True)
            self._writer.shutdown()

    async def _accept(self, sender: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        assert isinstance(sender, _Sender)
        if not self._has_room():
            _log.warning("connection refused: too many are open", open=len(self._open))
            writer.close()
            return
        self._open[task] = sender
        try:
            await self._converse(sender, writer)
        except FrameError as error:
            _log.warning("connection ended", reason=str(error))
        except (ConnectionError, TimeoutError) as error:
            _log.info("connection ended", reason=type(error).__name__)
        except asyncio.CancelledError:
            # The listener stops, or another sender needs the connection.
            return
        finally:
            self._open.pop(task, None)
            writer.close()
            with suppress(ConnectionError, TimeoutError):
                await writer.wait_closed()

    def _has_room(self) -> bool:
        """Whether there is room for one more; if necessary, the longest silent connection is closed."""
        if len(self._open) < self._limits.connections:
            return True
        now = asyncio.get_running_loop().time()
        silent = [
            (sender.has_sent, sender.heard, task)
            for task, sender in self._open.items()
            if not sender.is_answered and (not sender.in_message or now - sender.heard >= _STALLED_S)
        ]
        if not silent:
            return False
        # Senders of messages keep their connections open between them: others go first.
        _, heard, longest = min(silent, key=lambda one: one[:2])
        _log.warning("connection closed: another sender needs it", silent_s=round(now - heard, 1))
        del self._open[longest]
        longest.cancel()
        return True

    async def _converse(self, sender: _Sender, writer: asyncio.StreamWriter) -> None:
        while True:
            try:
                message = await self._next(sender)
            except FrameError as error:
                await self._send(writer, acknowledgement("AR", b"", str(error)))
                raise
            if message is None:
                return
            # A message that is being written is acknowledged, also when the listener stops.
            sender.has_sent = sender.is_answered = True
            answer = asyncio.ensure_future(self._answer(message, writer))
            try:
                await asyncio.shield(answer)
            except asyncio.CancelledError:
                await answer
                raise
            sender.is_answered, sender.heard = False, asyncio.get_running_loop().time()

    async def _answer(self, message: bytes, writer: asyncio.StreamWriter) -> None:
        loop = asyncio.get_running_loop()
        code, *reason = await loop.run_in_executor(self._writer, self.take, message)
        await self._send(writer, acknowledgement(code, message, *reason))

    async def _send(self, writer: asyncio.StreamWriter, answer: bytes) -> None:
        writer.write(_START + answer + _END)
        async with asyncio.timeout(self._limits.message_s):
            await writer.drain()

    async def _next(self, sender: _Sender) -> bytes | None:
        """Return the next message; None at the end of the connection."""
        try:
            async with asyncio.timeout(self._limits.idle_s):
                while (first := await sender.read(1)) in (b"\r", b"\n"):
                    pass
        except TimeoutError:
            return None
        if not first:
            return None
        if first != _START:
            raise FrameError("a message begins with the byte 0B")
        sender.in_message = True
        try:
            async with asyncio.timeout(self._limits.message_s):
                return (await sender.readuntil(_END)).removesuffix(_END)
        except TimeoutError:
            raise FrameError(f"a message took more than {self._limits.message_s:g} seconds") from None
        except asyncio.LimitOverrunError:
            raise FrameError(f"a message has at most {self._limits.message_bytes:,} bytes") from None
        except asyncio.IncompleteReadError:
            raise FrameError("the connection ended within a message") from None
        finally:
            sender.in_message = False

    def take(self, message: bytes) -> tuple[Code, str, str]:
        """Write the reports of a message, and return what to acknowledge, why, and the error condition."""
        try:
            reports = [deidentified(one, self._key) for one in read_message(parse_message(message))]
            taken = self._intake.take(reports)
        except ReportError as error:
            _log.warning("message rejected", reason=str(error))
            return "AR", f"The message is not taken: {error}.", error.condition
        except RecoquestError as error:
            _log.error("message not written", error=type(error).__name__)
            return "AE", f"The report is not written: {type(error).__name__}. Send it again later.", ""
        except Exception as error:  # noqa: BLE001 - the sender keeps what is not accepted
            # A trace could quote the statement with its report.
            _log.error("message not written", error=type(error).__name__, defect=True)
            return "AE", "The report is not written, by a defect of the receiver. Send it again later.", ""
        if taken.differing:
            report = reports[taken.differing[0]]
            _log.warning("message rejected", reason=report.mismatch)
            other = "The patient is another one than that of the study's images."
            reason = other if report.patient else f"The message is not taken: {report.mismatch}."
            return "AR", reason, "204^Unknown key identifier"
        counts = {"matched": taken.matched, "waiting": taken.waiting, "without_text": len(taken.without_text)}
        _log.info("message taken", **counts, images=len(taken.changed))
        return "AA", "", ""


def acknowledgement(code: Code, message: bytes, reason: str = "", condition: str = DATA_TYPE_ERROR) -> bytes:
    """Return the message ACK for a message, which may be damaged.

    `reason`: a sentence for the operator of the sender; nothing of the message.
    `condition`: error condition of a rejection (table 0357), for ERR-3.
    """
    kind, control_id, version = _head(message)
    now = datetime.now(UTC).strftime("%Y%m%d%H%M%S")
    text = re.sub(r"[|^~\\&\r\n]", " ", reason)
    segments = [
        f"MSH|^~\\&|recoquest||||{now}||ACK^{kind}^ACK|{now}{control_id[-8:]}|P|{version}",
        f"MSA|{code}|{control_id}|{text}",
    ]
    if code != "AA":
        segments.append(f"ERR|||{_INTERNAL_ERROR if code == 'AE' else condition}^HL70357|E||||{text}")
    return ("\r".join(segments) + "\r").encode()


def _head(message: bytes) -> tuple[str, str, str]:
    """Return event, control id and version of a message, as far as these can be read."""
    line = re.split(rb"[\r\n]", message.strip(b"\x0b\x1c\r\n \t"), maxsplit=1)[0].decode("latin-1")
    match = _MSH.match(line)
    fields = line.split(match[1]) if match else []
    # MSH-1 is the separator itself, so MSH-9 is the ninth part.
    parts = [fields[index] if index < len(fields) else "" for index in (8, 9, 11)]
    event = parts[0].split(fields[1][:1])[1:2] if match and len(fields) > 1 and fields[1] else []
    kind = event[0] if event and event[0].isalnum() else "R01"
    control_id, version = (_SEPARATOR.split(part, maxsplit=1)[0] for part in parts[1:])
    return kind[:3], control_id[:_LONGEST_ID], version[:10] or "2.5.1"
