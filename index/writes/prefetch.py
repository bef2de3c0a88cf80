"""Work in threads, a few batches ahead of whoever takes the results."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Final, TypeVar

from training.common.host import decoding_threads

_PREFETCH_BATCHES: Final = 2

Item = TypeVar("Item")
Result = TypeVar("Result")


def prefetch(
    items: Iterable[Item],
    prepare: Callable[[Item], Result],
    batch_size: int,
    *,
    threads: int | None = None,
    prefetch_batches: int = _PREFETCH_BATCHES,
    give_up: Callable[[], None] | None = None,
) -> Generator[list[tuple[Item, Result]], None, None]:
    """Prepare items in their order, a few batches ahead, and give them in batches with their results.

    Args:
        items: Taken in the caller's thread.
        prepare: Called in the threads; what it raises is raised here.
        batch_size: Items in a batch.
        threads: Number of threads; None: one a core.
        prefetch_batches: Batches prepared, or in preparation, while the caller has one.
        give_up: Called where the caller stops before the end: lets calls of `prepare` end early.
    """
    waiting: deque[list[tuple[Item, Future[Result]]]] = deque()
    source = iter(items)
    pool = ThreadPoolExecutor(threads or decoding_threads(), thread_name_prefix="intake")
    try:
        while batch := [(item, pool.submit(prepare, item)) for item in islice(source, batch_size)]:
            waiting.append(batch)
            if len(waiting) > prefetch_batches:
                yield [(item, future.result()) for item, future in waiting.popleft()]
        for batch in waiting:
            yield [(item, future.result()) for item, future in batch]
    except BaseException:
        if give_up is not None:
            give_up()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
