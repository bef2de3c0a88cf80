"""Log lines on standard error, JSON or readable on a terminal, and what they show of errors."""

import logging
import sys
import traceback
from typing import TextIO

import structlog

_SHARED: tuple[structlog.types.Processor, ...] = (
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
)
_OURS = ("app", "index", "training", "uvicorn.error")


def configure_logging(level: str, stream: TextIO | None = None) -> None:
    """Send lines at or above `level` to `stream`, by default standard error; called once at the start."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=False,
    )
    stream = stream or sys.stderr
    renderer = structlog.dev.ConsoleRenderer() if stream.isatty() else structlog.processors.JSONRenderer()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=list(_SHARED),
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _name_exception,
                renderer,
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    # Lines that libraries write for their own makers may quote addresses, statements and values.
    root.setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[level.upper()]))
    for name in _OURS:
        logging.getLogger(name).setLevel(level.upper())
    # Uvicorn's lines hold paths and query strings, which may name patients; the service logs requests itself.
    logging.getLogger("uvicorn.access").disabled = True


def where(error: BaseException) -> list[str]:
    """Frames of an error's traceback, without its message, which may quote a query or a report."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in frames]


def _name_exception(
    _logger: object, _method: str, line: structlog.types.EventDict
) -> structlog.types.EventDict:
    """Replace a traceback by the exception's type and location."""
    exc_info = line.pop("exc_info", None)
    error = exc_info[1] if isinstance(exc_info, tuple) else exc_info
    if isinstance(error, BaseException):
        line.update(error=type(error).__name__, at=where(error))
    return line


def let_go(error: BaseException) -> None:
    """Drop the tracebacks of an error and of those that led to it.

    Their frames hold the body of the request, and futures in them the error: only a garbage collection would
    free such a ring, and until then the bodies of refused requests are in no budget.
    """
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in seen:
            continue
        seen.add(id(one))
        one.__traceback__ = None
        waiting += (one.__cause__, one.__context__)
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions
