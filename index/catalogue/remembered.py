"""What was read of a catalogue, remembered until something is written to it."""

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from sqlalchemy.orm import Session

from index.catalogue.database import Catalogue

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Remembered(Generic[Key, Value]):
    """Values by key that are read again after every write of any process; threads may share it.

    Args:
        catalogue: What is read.
        read: Reads a value; its errors are passed on and not remembered.
    """

    def __init__(self, catalogue: Catalogue, read: Callable[[Session, Key], Value]) -> None:
        self._catalogue = catalogue
        self._read = read
        self._lock = threading.Lock()
        self._version: Hashable = None
        self._values: dict[Key, Value] = {}

    def get(self, key: Key) -> Value:
        """Return the value of a key as it is now."""
        version = self._catalogue.version()
        with self._lock:
            if version != self._version:
                self._version, self._values = version, {}
            values = self._values
        if key not in values:
            # What is written before it is read makes the version another, and so is read once more.
            with self._catalogue.read() as session:
                values[key] = self._read(session, key)
        return values[key]
