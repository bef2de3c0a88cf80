"""Refusals of searches that cost next to nothing, so that any number of them leaves time for the others.

Parsing, routing and logging a refusal takes half a millisecond: at ten times the capacity, all that there is.
"""

import re
import time
from dataclasses import dataclass
from typing import Final

import structlog

from app.edge.server.admission import Stage, Stages, raw_refusal

_SEARCH: Final = re.compile(rb"POST /[^ ?]*/search HTTP/1\.1\r\n")
_FORM: Final = re.compile(rb"\r\ncontent-type:[ \t]*multipart/", re.IGNORECASE)
_LENGTH: Final = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,9})[ \t]*\r\n", re.IGNORECASE)
# A page of another origin reads no answer without the headers that allow it; the others change what is sent.
_SPECIAL: Final = re.compile(rb"\r\n(?:origin|transfer-encoding|expect|upgrade):", re.IGNORECASE)
_CLOSE: Final = re.compile(rb"\r\nconnection:[^\r]*close", re.IGNORECASE)
_END: Final = b"\r\n\r\n"
_LOG_EVERY_S: Final = 5.0

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Bytes of an answer, and whether the connection can carry another request."""

    answer: bytes
    keep: bool


class Shedding:
    """Looks at the first bytes of a request while all places of searches are taken."""

    def __init__(self, stages: Stages) -> None:
        self._stages = stages
        self._kept = raw_refusal(stages.root_path, close=False)
        self._closed = raw_refusal(stages.root_path, close=True)
        self._unlogged = 0
        self._logged_at = float("-inf")

    def refuse(self, received: bytes) -> Refusal | None:
        """The refusal of a request that begins with these bytes; None: it goes the usual way."""
        by_text, by_image = self._stages.searches, self._stages.image_searches
        if not (by_text.places.is_full or by_image.places.is_full) or not _SEARCH.match(received):
            return None
        end = received.find(_END)
        if end < 0 or _SPECIAL.search(received, 0, end):
            return None
        stage = by_image if _FORM.search(received, 0, end) else by_text
        if not stage.places.is_full:
            return None
        self._count(stage)
        length = _LENGTH.search(received, 0, end + 2)
        whole = length is not None and len(received) == end + len(_END) + int(length[1])
        if whole and not _CLOSE.search(received, 0, end):
            return Refusal(self._kept, keep=True)
        return Refusal(self._closed, keep=False)

    def _count(self, stage: Stage) -> None:
        stage.refused(stage.places.kind)
        self._unlogged += 1
        now = time.monotonic()
        if now - self._logged_at >= _LOG_EVERY_S:
            _log.warning("searches were refused: too many are at work", number=self._unlogged)
            self._unlogged, self._logged_at = 0, now
