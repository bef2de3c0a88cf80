"""What tests do meanwhile: before a call, while one waits, or in threads; and what is called in the end."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event
from typing import Any

import pytest
from sqlalchemy import Engine, event
from sqlalchemy.orm import Session

SECONDS = 60


def at_first(
    patch: pytest.MonkeyPatch, target: Any, name: str, act: Callable[[], object], *, behind: bool = False
) -> None:
    """Do something right before or behind the first call of a function of a module, a class or an object."""
    call = getattr(target, name)

    def overtaken(*arguments: Any, **options: Any) -> Any:
        patch.setattr(target, name, call)
        if not behind:
            act()
        result = call(*arguments, **options)
        if behind:
            act()
        return result

    patch.setattr(target, name, overtaken)


def note_calls(
    patch: pytest.MonkeyPatch, target: Any, name: str, note: Callable[..., Any] = lambda *_, **__: None
) -> list[Any]:
    """Note something of the arguments of each call of a function, before it is called."""
    call, noted = getattr(target, name), list[Any]()

    def noting(*arguments: Any, **options: Any) -> Any:
        noted.append(note(*arguments, **options))
        return call(*arguments, **options)

    patch.setattr(target, name, noting)
    return noted


def hold_up(patch: pytest.MonkeyPatch, target: Any, name: str) -> tuple[Event, Event]:
    """Have each call of a function set the first event, and wait for the second."""
    begun, go_on = Event(), Event()

    def wait(*_: Any, **__: Any) -> None:
        begun.set()
        assert go_on.wait(SECONDS)

    note_calls(patch, target, name, wait)
    return begun, go_on


@contextmanager
def statements(of: Any = Engine) -> Iterator[list[tuple[str, Any]]]:
    """What is sent to databases, or by one connection, in a block: statements with their values."""
    sent: list[tuple[str, Any]] = []

    def note(_connection: object, _cursor: object, statement: str, values: object, *_: object) -> None:
        sent.append((statement, values))

    event.listen(of, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(of, "before_cursor_execute", note)


def plans_of(session: Session, sent: list[tuple[str, Any]]) -> list[list[str]]:
    """The steps of SQLite's plan of each statement that was sent."""
    explain = session.connection().exec_driver_sql
    return [[row[3] for row in explain(f"EXPLAIN QUERY PLAN {sql}", values)] for sql, values in list(sent)]


@contextmanager
def concurrently(*work: Callable[[Event], object]) -> Iterator[None]:
    """Run functions in threads, from before a block on; each is given an event that is set at its end.

    What they raise is raised behind the block.
    """
    over = Event()
    with ThreadPoolExecutor(len(work)) as threads:
        running = [threads.submit(one, over) for one in work]
        try:
            yield
        finally:
            over.set()
        for one in running:
            one.result(SECONDS)
