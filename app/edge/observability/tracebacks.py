"""Tracebacks of errors that have been answered."""


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
