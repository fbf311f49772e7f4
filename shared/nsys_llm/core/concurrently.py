"""Parts of an analysis that do not need each other, two at a time.

Sorting, looking up and adding up release Python's lock, so that threads run at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

#: From so many rows on, a second thread pays.
_LARGE_ROWS: Final = 200_000
#: More would hold more of what each part makes on its way.
_THREADS_N: Final = 2


def concurrently(rows_n: int, *parts: Callable[[], Any]) -> list[Any]:
    """Call functions and return what they return, in their order.

    Args:
        rows_n: How many rows they go over; of few, one function is called after the other.
        parts: Independent of each other; the longest first, so that two threads end together.
    """
    if rows_n < _LARGE_ROWS:
        return [part() for part in parts]
    threads = ThreadPoolExecutor(max_workers=_THREADS_N)
    try:
        results = [threads.submit(part) for part in parts]
        return [result.result() for result in results]
    finally:
        # Interrupted, or with one part failed, what has not begun never does.
        threads.shutdown(cancel_futures=True)
