"""What a run that is stopped ends at once, because nobody waits for its threads any more.

That are the programs that threads wait for, and the temporary folders that they would remove.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

#: By a key of each, in the order in which they began.
_ENDINGS: Final[dict[object, Callable[[], None]]] = {}
#: Threads go on for a moment, and may begin something more.
_STOPPED: Final = threading.Event()


@contextmanager
def ended_with_the_run(end: Callable[[], None]) -> Iterator[None]:
    """Have `end` called if the run is stopped within the block.

    Where it has been stopped already, the block is never entered: its thread ends with the process.
    """
    key = object()
    _ENDINGS[key] = end
    try:
        if _STOPPED.is_set():
            end_everything()
            threading.Event().wait()
        yield
    finally:
        # Another thread may be stopping the run.
        _ENDINGS.pop(key, None)


def end_everything() -> None:
    """End what is still going on, the latest first: a program before the folder that it fills.

    The process must end after it: threads that begin something more are held up until then.
    """
    _STOPPED.set()
    while _ENDINGS:
        with suppress(KeyError, OSError):
            _, end = _ENDINGS.popitem()
            end()
