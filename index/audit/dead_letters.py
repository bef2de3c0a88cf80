"""Events that the audit trail never takes, whatever the state of the database: kept in a file of the home."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from index.audit.chain import Trail
from index.audit.event import Actor, Event

_NAME: Final = "audit-dead-letters.ndjson"


def dead_letters_of(home: Path) -> Path:
    """Return the file of the dead letters of a home."""
    return home / _NAME


def count_dead_letters(home: Path) -> int:
    """Return the number of the dead letters of a home."""
    try:
        with dead_letters_of(home).open("rb") as file:
            return sum(1 for _ in file)
    except FileNotFoundError:
        return 0


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """A file of events, one a line as JSON, with ids and queries as the trail would have them.

    Attributes:
        path: The file, readable by its owner alone.
        count: Told of each event.
    """

    path: Path
    count: Callable[[], None]

    def keep(self, trail: Trail, event: Event, error: Exception) -> Event:
        """Write an event to the disk; return the event that tells of it, with the SHA-256 of its line."""
        # The words of an error may quote ids.
        cause = error.__cause__ or getattr(error, "orig", None) or error
        letter = {
            "error": type(error).__name__,
            "cause": type(cause).__name__,
            "event": _record(trail, event),
        }
        line = json.dumps(letter, sort_keys=True).encode()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(line + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.count()
        return Event(
            action="audit",
            actor=Actor("service"),
            outcome="failure",
            details={"operation": "dead letter", "sha256": sha256(line).hexdigest()},
        )


def _record(trail: Trail, event: Event) -> dict[str, Any]:
    """Return the event as the trail would have it, with the words for what is no JSON."""
    query = {str(part): [*map(str, texts)] for part, texts in (event.query or {}).items()}
    plain = replace(
        event, objects=[*map(str, event.objects)], query=query or None, details=_plain(event.details)
    )
    return plain.record(trail.key, trail.queries)


def _plain(value: Any) -> Any:
    found: Any = json.loads(json.dumps(value, default=repr, skipkeys=True))
    return found
