"""Caches of catalogue reads, dropped with the next write."""

import threading
from collections import deque
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from sqlalchemy.orm import Session

from index.catalogue.database import Catalogue

_PAST: Final = 8
Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class VersionedCache(Generic[Key, Value]):
    """Values by key, dropped with the next write of any process; threads may share it."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._lock = threading.Lock()
        # Replaced as one: reads need no lock.
        self._latest: tuple[Hashable, dict[Key, Value]] = (None, {})
        # Readers on an older version must not evict newer entries.
        self._past: deque[Hashable] = deque(maxlen=_PAST)

    def clear(self) -> None:
        """Drop all, and with it what threads put in that have looked already."""
        with self._lock:
            self._latest = (None, {})

    def now(self) -> dict[Key, Value]:
        """Return what is kept of the catalogue as it is now; see `at`."""
        return self.at(self._catalogue.version())

    def at(self, version: Hashable) -> dict[Key, Value]:
        """Return what is kept of the catalogue at a version that was looked at a moment ago.

        What is read after that look may be put in: if something was written in between, it is dropped with
        the rest.
        """
        latest, values = self._latest
        if version == latest:
            return values
        with self._lock:
            latest, values = self._latest
            if version == latest:
                return values
            if version in self._past:
                return {}
            self._past.append(latest)
            self._latest = version, {}
            return self._latest[1]


class ReadThroughCache(Generic[Key, Value]):
    """Values by key that are read again after every write of any process; threads may share it.

    Args:
        catalogue: Catalogue to read.
        read: Reads a value; its errors are passed on and not remembered.
    """

    def __init__(self, catalogue: Catalogue, read: Callable[[Session, Key], Value]) -> None:
        self._catalogue = catalogue
        self._read = read
        self._kept: VersionedCache[Key, Value] = VersionedCache(catalogue)

    def get(self, key: Key, version: Hashable = None) -> Value:
        """Return the value of a key as it is now, or not older than a version of a moment ago."""
        values = self._kept.now() if version is None else self._kept.at(version)
        if key not in values:
            with self._catalogue.read() as session:
                values[key] = self._read(session, key)
        return values[key]
