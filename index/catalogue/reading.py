"""A read of the catalogue that begins when it is needed."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType

from sqlalchemy.orm import Session


class Reading:
    """Opens a session when that is first asked for: to open one takes longer than a search that needs none.

    Args:
        read: What gives the session.
    """

    def __init__(self, read: Callable[[], AbstractContextManager[Session]]) -> None:
        self._read = read
        self._opened: AbstractContextManager[Session] | None = None
        self._session: Session | None = None

    @property
    def session(self) -> Session:
        """The session, whose queries all see one state of the catalogue."""
        if self._session is None:
            opened = self._read()
            self._session = opened.__enter__()
            self._opened = opened
        return self._session

    @property
    def opened(self) -> bool:
        """Whether the session was asked for."""
        return self._session is not None

    def __enter__(self) -> "Reading":
        """Begin nothing yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the session, if there is one; its errors come out as those of the catalogue."""
        if self._opened is not None:
            self._opened.__exit__(kind, error, trace)
