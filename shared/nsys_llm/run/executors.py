"""Ways to run one function over chunks of profiles and merge what comes back.

Every executor gives the same result bit for bit: merging is associative and commutative, and
facts hold integers and strings only.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, Final, TypeVar

from nsys_llm.core.errors import UsageError
from nsys_llm.run.dask_cluster import (
    DaskErrors,
    answered,
    mute_dask,
    open_client,
    refuse_other_versions,
)

T = TypeVar("T")
Chunks = Sequence[Any]
Mapper = Callable[[Any], T]
Merger = Callable[[Sequence[T]], T]
#: Is told the size of each chunk as it is finished.
Done = Callable[[int], None]

#: Modes of the standalone command, by the names that `nsys recipe` gives them.
MODES: Final = ("concurrent", "none", "dask-futures")

#: The variable that says how many workers `nsys recipe` has.
WORKERS: Final = "NSYS_CONCURRENT_MAX_WORKERS"

_CHUNKS_PER_WORKER: Final = 4


class Executor(ABC):
    """Runs a function over chunks and merges the results.

    Attributes:
        mode: Name of the mode, as recorded.
        in_process: Whether it works in the process that was started.
    """

    mode: str
    in_process: bool = False

    @property
    @abstractmethod
    def workers_n(self) -> int:
        """How many chunks can be worked on at a time."""

    @abstractmethod
    def reduce(self, function: Mapper[T], chunks: Chunks, merge: Merger[T], done: Done) -> T:
        """Return the merged results of the function for each chunk."""


class Inline(Executor):
    """One chunk after the other in this process."""

    mode = "none"
    in_process = True

    @property
    def workers_n(self) -> int:
        """This process."""
        return 1

    def reduce(self, function: Mapper[T], chunks: Chunks, merge: Merger[T], done: Done) -> T:
        """See `Executor.reduce`."""
        results = []
        for chunk in chunks:
            results.append(function(chunk))
            done(len(chunk))
        return merge(results)


class Threads(Executor):
    """Threads: no processes to start, and the readers release the GIL."""

    mode = "concurrent"
    in_process = True

    def __init__(self, workers: str | None = None) -> None:
        """Take how many workers `nsys recipe` is told to use; see `WORKERS`.

        Raises:
            UsageError: That is no number above 0.
        """
        self._workers = workers or None
        if workers and not (workers.isdecimal() and int(workers)):
            raise UsageError(f"{WORKERS}: '{workers}' is not a number above 0.")

    @property
    def workers_n(self) -> int:
        """The cores that this process may use, or as many as it is told to use."""
        cores_n = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
        return int(self._workers or cores_n)

    def reduce(self, function: Mapper[T], chunks: Chunks, merge: Merger[T], done: Done) -> T:
        """See `Executor.reduce`."""
        if len(chunks) <= 1:
            return Inline().reduce(function, chunks, merge, done)
        threads = ThreadPoolExecutor(max_workers=min(len(chunks), self.workers_n))
        try:
            tasks = {threads.submit(function, chunk): chunk for chunk in chunks}
            for task in as_completed(tasks):
                task.result()
                done(len(tasks[task]))
            return merge([task.result() for task in tasks])
        finally:
            # When interrupted, or with one chunk failed, what has not begun never does.
            threads.shutdown(wait=False, cancel_futures=True)


class DaskFutures(Executor):
    """A Dask cluster. Results are merged pairwise on the workers, so one comes back.

    Raises:
        UsageError: The scheduler is gone, or a worker has another version of this package.
    """

    mode = "dask-futures"

    def __init__(self, client: Any) -> None:
        self._client = client
        with DaskErrors(client):
            answered(client, lambda: refuse_other_versions(client))

    @property
    def workers_n(self) -> int:
        """Threads of all workers of the cluster."""
        with DaskErrors(self._client):
            return max(sum(answered(self._client, self._client.nthreads).values()), 1)

    def reduce(self, function: Mapper[T], chunks: Chunks, merge: Merger[T], done: Done) -> T:
        """See `Executor.reduce`."""
        with DaskErrors(self._client):
            return answered(self._client, lambda: self._reduced(function, chunks, merge, done))

    def _reduced(self, function: Mapper[T], chunks: Chunks, merge: Merger[T], done: Done) -> T:
        from distributed import as_completed

        tasks = self._client.map(function, chunks, pure=False)
        sizes = {task.key: len(chunk) for task, chunk in zip(tasks, chunks, strict=True)}
        # Whatever nobody names any more, the cluster forgets: a result goes once it is merged.
        mapped = as_completed(tasks)
        while len(tasks) > 1:
            pairs = [tasks[i : i + 2] for i in range(0, len(tasks), 2)]
            tasks = [
                self._client.submit(merge, pair, pure=False) if len(pair) == 2 else pair[0]
                for pair in pairs
            ]
        for task in mapped:
            if task.status != "finished":
                # The others need not be waited for: raises what went wrong.
                task.result()
            done(sizes[task.key])
        # From the worker that has it: through the scheduler, its memory would hold it twice.
        result: T = self._client.gather(tasks[0], direct=True)
        return result


@contextmanager
def open_executor(mode: str, scheduler_file: str | None) -> Iterator[Executor]:
    """Open the executor of the standalone command for a mode.

    Args:
        scheduler_file: Where a Dask scheduler wrote how to reach it. Without it, Dask's own
            configuration names the scheduler (`DASK_SCHEDULER_ADDRESS`).

    Raises:
        UsageError: The cluster cannot be reached, or Dask is not installed.
    """
    if mode == "none":
        yield Inline()
    elif mode == "concurrent":
        yield Threads()
    elif find_spec("distributed") is None:
        raise UsageError("--mode dask-futures needs Dask: pip install dask distributed.")
    else:
        mute_dask()
        with open_client(scheduler_file) as client:
            yield DaskFutures(client)


def chunked(items: Sequence[T], workers_n: int) -> list[Sequence[T]]:
    """Split into about four chunks a worker, none empty; a chunk is merged where it is mapped."""
    chunks_n = min(len(items), _CHUNKS_PER_WORKER * workers_n)
    bounds = [len(items) * i // chunks_n for i in range(chunks_n + 1)] if chunks_n else [0]
    return [items[low:high] for low, high in pairwise(bounds)]
