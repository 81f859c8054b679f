"""Work on many images in threads, with results in order."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
_AHEAD = 16  # results per thread that wait for an earlier one: more would hold a data set in memory


def map_in_order(work: Callable[[int], T], items: Iterable[int], workers: int) -> Iterator[T]:
    """`map` with threads: results in order, a bounded number of them ahead."""
    with ThreadPoolExecutor(workers) as pool:
        pending: deque[Future[T]] = deque()
        try:
            for item in items:
                pending.append(pool.submit(work, item))
                if len(pending) >= _AHEAD * workers:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for job in pending:
                job.cancel()
