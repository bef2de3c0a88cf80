"""A trail with events of each kind."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import text

from index.audit.chain import Trail
from index.audit.event import Actor, Event
from index.audit.verify import Verified, verify_trail
from index.catalogue import Catalogue
from tests.index.homes import execute, in_read

KEY = b"k" * 32
READER = Actor("key", "7f", "Jo Doe", "192.0.2.7")


def some_events(count: int, *, day: int = 1) -> list[Event]:
    """Return searches with hits and a query, each a second after the one before."""
    return [
        Event(
            action="search",
            actor=READER,
            collection="ward",
            objects=[f"image-{number}", "image-0"],
            query={"text": ["Größe des Ergusses \n\x1f😀"], "filter": ['{"eq": 1.5, "field": "age"}']},
            model="m" * 64,
            generation=3,
            request=f"r{number}",
            details={"k": 10, "words": ["a", "b"]},
            time=f"2026-01-{day:02}T00:00:{number:02}.000000+00:00",
        )
        for number in range(count)
    ]


def verify(catalogue: Catalogue, head: str | None = None) -> Verified:
    """Verify the trail of a catalogue."""
    return in_read(catalogue, verify_trail, key=KEY, head=head)


def trail_of(catalogue: Catalogue, count: int = 0) -> Trail:
    """Return the trail of a catalogue, with some events."""
    trail = Trail(catalogue, KEY)
    trail.append(some_events(count))
    return trail


@contextmanager
def taking_no_events(catalogue: Catalogue) -> Iterator[None]:
    """Let each transaction that writes an event fail at that, until the block ends."""
    execute(catalogue, text("ALTER TABLE audit_head RENAME TO audit_head_away"))
    try:
        yield
    finally:
        execute(catalogue, text("ALTER TABLE audit_head_away RENAME TO audit_head"))
