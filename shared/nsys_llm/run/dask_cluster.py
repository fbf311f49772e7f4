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
from nsys_llm.core.stopping import end_everything, ended_with_the_run

#: For the workers' programs of a terminated run, which has to end within 2 s.
_SECONDS_TO_END: Final = 0.5
_STANDARD_ERROR: Final = 2
#: How long tasks wait for a worker. Dask's own default is for ever; one that is started anew takes
#: some seconds.
_NO_WORKERS_SETTING: Final = "distributed.scheduler.no-workers-timeout"
_NO_WORKERS_LIMIT: Final = "60s"


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
        UsageError: The cluster cannot be used.
    """
    from dask import config
    from dask.utils import parse_timedelta
    from distributed import Client

    address = _scheduler_address(scheduler_file) if scheduler_file else None
    known = address or config.get("scheduler-address", None)
    local = known is None
    if known is not None:
        _require_answer(str(known))
    # A second local cluster on this machine finds the usual port of the dashboard taken.
    # Its workers, processes of their own, print when the scheduler ends before them.
    arguments = {"dashboard_address": ":0", "silence_logs": logging.CRITICAL} if local else {}
    others = active_children()
    client: Any = None

    def kill() -> None:
        # What is orderly takes seconds.
        if local and client is not None:
            _ask_to_end_programs(client)
        _kill_local_workers(client, others)

    with ended_with_the_run(kill):
        try:
            with _unusable_told(), _environment_restored():
                # A scheduler that is made here takes the limit; another one has its own.
                limit = config.get(_NO_WORKERS_SETTING, None) or _NO_WORKERS_LIMIT
                limited = config.set({_NO_WORKERS_SETTING: limit})
                with limited, _interrupts_blocked() if local else nullcontext():
                    client = Client(address, **arguments)
                client.wait_for_workers(1, timeout=parse_timedelta(limit))
            yield client
        finally:
            if client is not None:
                client.close()


@contextmanager
def _unusable_told() -> Iterator[None]:
    """Tell in one line why a cluster cannot be used."""
    try:
        yield
    except (OSError, TimeoutError, ValueError, KeyError, RuntimeError) as error:
        reason = str(error) or type(error).__name__
        raise UsageError(f"the Dask cluster cannot be used ({reason}).") from error


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """Keep SIGINT from threads and processes that start here, for good.

    A terminal sends it to the workers of a local cluster, too, each of which would print a
    traceback.
    """
    # Started with the first process, it would unblock the signal again in many releases of Python.
    _start_silent_tracker()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


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
        with suppress(ValueError):  # its nanny has closed it
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
