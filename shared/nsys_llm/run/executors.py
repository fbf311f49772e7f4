"""Ways to run one function over chunks of profiles and merge what comes back.

Every executor gives the same result bit for bit: merging is associative and commutative, and
partials hold integers and strings only.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from itertools import pairwise
from multiprocessing import active_children, resource_tracker
from multiprocessing.util import _run_finalizers  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any, Final, TypeVar

from nsys_llm.core.errors import UsageError
from nsys_llm.core.stopping import end_everything
from nsys_llm.run.dask_errors import DaskErrors, dask_muted, refuse_other_versions
from nsys_llm.run.dask_workers import WorkerWatch, seconds_without_workers

T = TypeVar("T")

#: Modes of the standalone command, by the names that `nsys recipe` gives them.
MODES: Final = ("concurrent", "none", "dask-futures")

_CHUNKS_PER_WORKER: Final = 4
#: For the workers' programs of a terminated run, which has to end within 2 s.
_SECONDS_TO_END: Final = 0.5


class Executor(ABC):
    """Runs a function over chunks and merges the results.

    Attributes:
        mode: Name of the mode, as recorded.
    """

    mode: str

    @property
    @abstractmethod
    def workers_n(self) -> int:
        """How many chunks can be worked on at a time."""

    @abstractmethod
    def reduce(
        self,
        function: Callable[[Any], T],
        chunks: Sequence[Any],
        merge: Callable[[Sequence[T]], T],
        done: Callable[[int], None],
    ) -> T:
        """Return the merged results; `done` is told the size of each chunk as it is finished."""

    def start(self) -> None:  # noqa: B027 - most have nothing to start
        """Start the workers; from now on this process forks no more, and may have threads.

        Nothing to start where this process does the work, or where the workers run already.
        """

    def elsewhere(self, paths: Iterable[str]) -> str:
        """Return which of these paths, none of them here, are where the work is done; else "".

        Nowhere, where the work is done on this machine.
        """
        return ""


class Inline(Executor):
    """One chunk after the other in this process."""

    mode = "none"

    @property
    def workers_n(self) -> int:
        """This process."""
        return 1

    def reduce(
        self,
        function: Callable[[Any], T],
        chunks: Sequence[Any],
        merge: Callable[[Sequence[T]], T],
        done: Callable[[int], None],
    ) -> T:
        """See `Executor.reduce`."""
        results = []
        for chunk in chunks:
            results.append(function(chunk))
            done(len(chunk))
        return merge(results)


class Threads(Executor):
    """Dask's threaded scheduler: no processes to start, and the readers release the GIL."""

    mode = "concurrent"

    @property
    def workers_n(self) -> int:
        """The cores that this process may use."""
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1

    def reduce(
        self,
        function: Callable[[Any], T],
        chunks: Sequence[Any],
        merge: Callable[[Sequence[T]], T],
        done: Callable[[int], None],
    ) -> T:
        """See `Executor.reduce`."""
        if len(chunks) == 1:
            return Inline().reduce(function, chunks, merge, done)
        import dask
        from dask import threaded
        from dask.callbacks import Callback

        merged = dask.delayed(lambda left, right: merge([left, right]), pure=False)
        # The chunk is bound beforehand, because Dask would look for tasks in every argument.
        tasks = [
            dask.delayed(partial(function, chunk), pure=False)(dask_key_name=f"map-{i}")
            for i, chunk in enumerate(chunks)
        ]
        sizes = {f"map-{i}": len(chunk) for i, chunk in enumerate(chunks)}
        while len(tasks) > 1:
            pairs = [tasks[i : i + 2] for i in range(0, len(tasks), 2)]
            tasks = [merged(*pair) if len(pair) == 2 else pair[0] for pair in pairs]

        def finished(key: Any, *_: Any) -> None:
            if key in sizes:
                done(sizes[key])

        # By its name, Dask would import all of its cluster first.
        with Callback(posttask=finished):
            (result,) = dask.compute(tasks[0], scheduler=threaded.get, num_workers=self.workers_n)
        return result


class DaskFutures(Executor):
    """A Dask cluster. Partials are merged pairwise on the workers, so one comes back."""

    mode = "dask-futures"

    def __init__(self, client: Any, note: Callable[[str], None]) -> None:
        self._client = client
        self._note = note

    @property
    def workers_n(self) -> int:
        """Threads of all workers of the cluster."""
        with DaskErrors(self._client):
            return max(sum(self._client.nthreads().values()), 1)

    def start(self) -> None:
        """See `Executor.start`; the workers run already, but must have this version."""
        with DaskErrors(self._client):
            refuse_other_versions(self._client)

    def reduce(
        self,
        function: Callable[[Any], T],
        chunks: Sequence[Any],
        merge: Callable[[Sequence[T]], T],
        done: Callable[[int], None],
    ) -> T:
        """See `Executor.reduce`."""
        from distributed import as_completed

        with DaskErrors(self._client), WorkerWatch(self._client, self._note) as watch:
            tasks = self._client.map(function, chunks, pure=False)
            watch.add(tasks)
            sizes = {task.key: len(chunk) for task, chunk in zip(tasks, chunks, strict=True)}
            # Whatever nobody names any more, the cluster forgets: a partial goes once it is merged.
            mapped = as_completed(tasks)
            while len(tasks) > 1:
                pairs = [tasks[i : i + 2] for i in range(0, len(tasks), 2)]
                tasks = [
                    self._client.submit(merge, pair, pure=False) if len(pair) == 2 else pair[0]
                    for pair in pairs
                ]
            watch.add(tasks)
            for task in mapped:
                if task.status != "finished":
                    # The others need not be waited for: raises what went wrong.
                    task.result()
                done(sizes[task.key])
            # From the worker that has it: through the scheduler, its memory would hold it twice.
            return self._client.gather(tasks[0], direct=True)

    def elsewhere(self, paths: Iterable[str]) -> str:
        """See `Executor.elsewhere`."""
        for path in paths:
            with DaskErrors(self._client):
                there = self._client.run(os.path.exists, path)
            hosts = sorted({_host(worker) for worker, exists in there.items() if exists})
            if hosts:
                return f"{path} is there on {', '.join(hosts)}"
        return ""


def _host(worker: str) -> str:
    """Return the host in a worker's address, `tcp://10.0.0.7:41233`."""
    return worker.partition("://")[2].rpartition(":")[0]


@contextmanager
def open_executor(
    mode: str, scheduler_file: str | None, note: Callable[[str], None]
) -> Iterator[Executor]:
    """Open the executor of the standalone command for a mode.

    Args:
        mode: One of `MODES`.
        scheduler_file: Where a Dask scheduler wrote how to reach it. Without it, Dask's own
            configuration (`DASK_SCHEDULER_ADDRESS`, `DASK_*`) decides, else a local cluster.
        note: Prints a line that the user may want to know.

    Raises:
        UsageError: The cluster cannot be reached.
    """
    if mode == "none":
        yield Inline()
    elif mode == "concurrent":
        yield Threads()
    else:
        with dask_muted(), _open_client(scheduler_file) as client:
            yield DaskFutures(client, note)


@contextmanager
def _open_client(scheduler_file: str | None) -> Iterator[Any]:
    """Open a client of the cluster that `open_executor` describes, and close it."""
    from dask import config
    from distributed import Client

    address = _scheduler_address(scheduler_file) if scheduler_file else None
    local = address is None and config.get("scheduler-address", None) is None
    wait_s = seconds_without_workers()
    # A second local cluster on this machine finds the usual port of the dashboard taken.
    # Its workers, processes of their own, print when the scheduler ends before them.
    arguments = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL} if local else {}
    client = None
    try:
        try:
            with _unusable_told(wait_s):
                # To connect to another machine may take half a minute, and starts no workers here.
                with _interrupts_wait() if local else nullcontext():
                    client = Client(address, **arguments)
                client.wait_for_workers(1, timeout=wait_s)
            yield client
        except SystemExit:
            if local and client is not None:
                _end_local_programs(client)
            raise
        except BaseException:
            if client is not None:
                if local:
                    client.run(_end_worker, on_error="ignore")
                client.close()
            raise
        client.close()
    except SystemExit:
        # Terminated: what is orderly takes seconds, and the scheduler notices who is gone.
        _kill_local_workers(client)
        raise


@contextmanager
def _unusable_told(wait_s: float) -> Iterator[None]:
    """Tell in one line why a cluster cannot be used."""
    try:
        yield
    except (OSError, TimeoutError, ValueError, RuntimeError) as error:
        reason = str(error) or f"no worker within {wait_s:g} s"
        raise UsageError(f"the Dask cluster cannot be used ({reason}).") from error


@contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Keep SIGINT from threads and processes that start here, for good; raise it at the end.

    A terminal sends it to the workers of a local cluster, too, each of which would print a
    traceback; and one that is half made could not be closed.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if not (in_main and hasattr(signal, "pthread_sigmask")):
        yield
        return
    # Started with the first process, it would unblock the signal again in many releases of Python.
    resource_tracker.ensure_running()
    interrupts: list[int] = []
    # Threads of libraries that run already do not block it.
    handler = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
        # Also where it failed: who interrupts a start need not know why it did.
        if interrupts:
            signal.raise_signal(signal.SIGINT)


def _end_worker() -> None:
    """End the worker that this runs on, and first its programs, which no interrupt reaches."""
    end_everything()
    os._exit(0)


def _end_local_programs(client: Any) -> None:
    """Have the workers of a local cluster end their programs; who cannot at once is left."""
    # It has no limit of its own, and waits for workers that do not answer.
    asking = threading.Thread(
        target=lambda: client.run(end_everything, on_error="ignore"), daemon=True
    )
    asking.start()
    asking.join(_SECONDS_TO_END)


def _kill_local_workers(client: Any | None) -> None:
    """Kill the workers of a local cluster, if there is one, and remove what they keep on disk."""
    logging.disable()
    for worker in getattr(getattr(client, "cluster", None), "workers", {}).values():
        with suppress(OSError, TypeError):  # it has ended, or not begun
            os.kill(worker.pid, signal.SIGKILL)
        shutil.rmtree(worker.local_directory, ignore_errors=True)
    # Nobody else knows those of a cluster that is half made; they would miss what is removed next.
    for process in active_children():
        if process.daemon:  # Python ends these with us
            process.kill()
    # The semaphores shared with them; Python would print that they are left.
    _run_finalizers(0)


def _scheduler_address(file: str) -> str:
    """Return the address in a scheduler file; Dask itself would wait for the file for ever."""
    try:
        return str(json.loads(Path(file).read_text("utf-8"))["address"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(
            f"--scheduler-file {file}: does not name a running scheduler ({type(error).__name__}); "
            f"start the cluster first: dask scheduler --scheduler-file {file}."
        ) from error


def chunked(items: Sequence[T], workers_n: int) -> list[Sequence[T]]:
    """Split into about four chunks a worker, none empty; a chunk is merged where it is mapped."""
    chunks_n = min(len(items), _CHUNKS_PER_WORKER * workers_n)
    bounds = [len(items) * i // chunks_n for i in range(chunks_n + 1)] if chunks_n else [0]
    return [items[low:high] for low, high in pairwise(bounds)]
