"""Events that the audit trail can't store in any state of the database; kept in a file of the home."""

import json
import os
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Final

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


def keep_dead_letter(
    path: Path, count: Callable[[], None], trail: Trail, event: Event, error: Exception
) -> Event:
    """Write an event to the end of a file that its owner alone can read, as JSON and a line.

    Ids and queries are as the trail would have them, and what is no JSON is in words.

    Args:
        path: File of dead letters; the event is on the disk when this returns.
        count: Called with the event.
        trail: Trail that does not take it.
        event: The event.
        error: Why it is not taken.

    Returns:
        The event that reports it, with the SHA-256 of its line.
    """
    query = {str(part): [*map(str, texts)] for part, texts in (event.query or {}).items()}
    details = json.loads(json.dumps(event.details, default=repr, skipkeys=True))
    plain = replace(event, objects=[*map(str, event.objects)], query=query or None, details=details)
    # The words of an error may quote ids.
    cause = error.__cause__ or getattr(error, "orig", None) or error
    letter = {
        "error": type(error).__name__,
        "cause": type(cause).__name__,
        "event": plain.record(trail.key, trail.queries),
    }
    line = json.dumps(letter, sort_keys=True).encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(line + b"\n")
        file.flush()
        os.fsync(file.fileno())
    count()
    return Event(
        action="audit",
        actor=Actor("service"),
        outcome="failure",
        details={"operation": "dead letter", "sha256": sha256(line).hexdigest()},
    )
