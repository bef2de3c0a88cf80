"""A read of the catalogue that begins when it is needed."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType

from sqlalchemy.orm import Session


class Reading:
    """Opens a session when that is first asked for: to open one takes longer than a search that needs none.

    Args:
        read: What gives the session.

    Attributes:
        opened: Whether the session was asked for.
    """

    def __init__(self, read: Callable[[], AbstractContextManager[Session]]) -> None:
        self._read = read
        self._open: AbstractContextManager[Session] | None = None
        self._session: Session | None = None
        self.opened = False

    @property
    def session(self) -> Session:
        """The session, whose queries all see one state of the catalogue."""
        if self._session is None:
            opened = self._read()
            self._session = opened.__enter__()
            self._open, self.opened = opened, True
        return self._session

    def __enter__(self) -> "Reading":
        """Begin nothing yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the session, if there is one; its errors come out as those of the catalogue."""
        if self._open is not None:
            self._open.__exit__(kind, error, trace)
