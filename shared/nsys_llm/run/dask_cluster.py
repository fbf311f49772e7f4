"""The client of a Dask cluster: a running one, or a local one that ends with the run, however.

Workers of a local cluster are processes of this machine that nobody else ends.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing import active_children, resource_tracker
from multiprocessing.process import BaseProcess
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from nsys_llm.core.errors import UsageError
from nsys_llm.core.open_files import require_open_files
from nsys_llm.core.stopping import end_everything, ended_with_the_run
from nsys_llm.run.dask_workers import NO_WORKERS_SETTING, seconds_without_workers

#: For the workers' programs of a terminated run, which has to end within 2 s.
_SECONDS_TO_END: Final = 0.5
_STANDARD_ERROR: Final = 2
#: What the client, the scheduler and two output folders have open, and each worker of a local
#: cluster.
_FILES_OF_CLUSTER: Final = 32
_FILES_OF_WORKER: Final = 14


@contextmanager
def _environment_restored() -> Iterator[None]:
    """Take back what Dask sets for the workers that it starts, such as OMP_NUM_THREADS=1."""
    before = dict(os.environ)
    try:
        yield
    finally:
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


@contextmanager
def open_client(scheduler_file: str | None) -> Iterator[Any]:
    """Open a client of the cluster that `open_executor` describes, and close it.

    Raises:
        UsageError: The cluster cannot be used, or one here would need too many open files.
    """
    from dask import config
    from distributed import Client

    address = _scheduler_address(scheduler_file) if scheduler_file else None
    known = address or config.get("scheduler-address", None)
    local = known is None
    if known is None:
        _require_open_files()
    else:
        _require_answer(str(known))
    wait_s = seconds_without_workers()
    # A second local cluster on this machine finds the usual port of the dashboard taken.
    # Its workers, processes of their own, print when the scheduler ends before them.
    arguments = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL} if local else {}
    others = active_children()
    client: Any = None

    def kill() -> None:
        # What is orderly takes seconds, and the scheduler notices who is gone.
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STANDARD_ERROR)
        if local and client is not None:
            _ask_to_end_programs(client)
        _kill_local_workers(client, others)

    with ended_with_the_run(kill):
        try:
            with _unusable_told(wait_s), _environment_restored():
                # To connect to another machine may take half a minute, and starts no workers here.
                # A scheduler that is made here takes the limit; another one has its own.
                limit = config.set({NO_WORKERS_SETTING: f"{wait_s}s"})
                with limit, _interrupts_wait() if local else nullcontext():
                    client = Client(address, **arguments)
                client.wait_for_workers(1, timeout=wait_s)
            yield client
        except BaseException:
            if client is not None:
                _close(client, others, end_workers=local)
            raise
        _close(client, others)


def _close(client: Any, others: Sequence[BaseProcess], *, end_workers: bool = False) -> None:
    """Close a client, and its local cluster; in an orderly way, unless that is interrupted."""
    try:
        if end_workers:
            client.run(_end_worker, on_error="ignore")
        client.close()
    except BaseException:
        _kill_local_workers(client, others)
        raise


def _require_open_files() -> None:
    """Refuse a local cluster for which too few files may be open: it would print without end."""
    from distributed.deploy.utils import nprocesses_nthreads

    workers_n, _ = nprocesses_nthreads()
    needed_n = _FILES_OF_CLUSTER + _FILES_OF_WORKER * workers_n
    require_open_files(needed_n, f"a local Dask cluster of {workers_n}")


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
    _start_silent_tracker()
    interrupts: list[int] = []

    def note(number: int, _: object) -> None:
        interrupts.append(number)

    # Threads of libraries that run already do not block it.
    handler = signal.signal(signal.SIGINT, note)
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler)
        # Also where it failed: who interrupts a start need not know why it did.
        if interrupts:
            signal.raise_signal(signal.SIGINT)


def _start_silent_tracker() -> None:
    """Start the process that removes semaphores of processes which have been killed.

    It would print how many there are: it gets no standard error.
    """
    kept = os.dup(_STANDARD_ERROR)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, _STANDARD_ERROR)
    try:
        resource_tracker.ensure_running()
    finally:
        os.dup2(kept, _STANDARD_ERROR)
        os.close(kept)
        os.close(nowhere)


def _end_worker() -> None:
    """End the worker that this runs on, and first its programs, which no interrupt reaches."""
    end_everything()
    os._exit(0)


def _ask_to_end_programs(client: Any) -> None:
    """Have the workers of a local cluster end their programs and remove folders, who can at once.

    The call has no limit of its own, and waits for workers that do not answer.
    """
    asking = threading.Thread(
        target=lambda: client.run(end_everything, on_error="ignore"), daemon=True
    )
    asking.start()
    asking.join(_SECONDS_TO_END)


def _kill_local_workers(client: Any | None, others: Sequence[BaseProcess]) -> None:
    """Kill the workers of a local cluster, if there is one, and remove what they keep on disk.

    Args:
        client: None for a cluster that is half made.
        others: Children of this process that were there before the cluster.
    """
    import psutil
    from distributed.core import Status

    nannies = list(getattr(getattr(client, "cluster", None), "workers", {}).values())
    for nanny in nannies:
        nanny.status = Status.closing  # else it starts another worker
    for worker in active_children():
        if worker in others:
            continue
        with suppress(psutil.Error):  # it has ended
            for program in psutil.Process(worker.pid).children(recursive=True):
                program.kill()
        worker.kill()
    for nanny in nannies:
        shutil.rmtree(nanny.local_directory, ignore_errors=True)


def _require_answer(address: str) -> None:
    """Refuse a scheduler that does not answer; where a port only listens, a client never ends.

    Raises:
        UsageError: It does not, within the time that Dask's configuration allows to connect.
    """
    from dask import config
    from dask.utils import parse_timedelta
    from distributed import Security
    from distributed.comm import connect

    limit_s = float(parse_timedelta(config.get("distributed.comm.timeouts.connect", "30s")))

    async def answer() -> None:
        arguments = Security().get_connection_args("client")
        comm = await asyncio.wait_for(connect(address, **arguments), limit_s)
        comm.abort()

    def ask() -> None:
        try:
            asyncio.run(answer())
        except (OSError, asyncio.TimeoutError, ValueError, RuntimeError) as error:
            failures.put(error)
        else:
            failures.put(None)

    # A notebook has a loop of its own in this thread, and nobody waits for one that is interrupted.
    failures: SimpleQueue[Exception | None] = SimpleQueue()
    threading.Thread(target=ask, daemon=True).start()
    if (error := failures.get()) is not None:
        reason = str(error) or f"no answer from {address} within {limit_s:g} s"
        raise UsageError(f"the Dask cluster cannot be used ({reason}).") from error


def _scheduler_address(file: str) -> str:
    """Return the address in a scheduler file; Dask itself would wait for the file for ever."""
    try:
        return str(json.loads(Path(file).read_text("utf-8"))["address"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(
            f"--scheduler-file {file}: does not name a running scheduler ({type(error).__name__}); "
            f"start the cluster first: dask scheduler --scheduler-file {file}."
        ) from error
