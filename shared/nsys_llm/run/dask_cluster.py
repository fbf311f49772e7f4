"""The client of a Dask cluster, which somebody else has started."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from nsys_llm.core.errors import UsageError

#: How long tasks wait for a worker, which is how long the first one is waited for here; Dask's own
#: default is for ever.
_NO_WORKERS_SETTING: Final = "distributed.scheduler.no-workers-timeout"
_NO_WORKERS_LIMIT: Final = "60s"


@contextmanager
def open_client(scheduler_file: str | None) -> Iterator[Any]:
    """Open a client of the cluster that `open_executor` describes, and close it.

    Raises:
        UsageError: There is none, or it cannot be used.
    """
    from dask import config
    from dask.utils import parse_timedelta
    from distributed import Client

    address = _scheduler_address(scheduler_file) if scheduler_file else None
    known = address or config.get("scheduler-address", None)
    if known is None:
        raise UsageError(
            "--mode dask-futures needs a Dask cluster that runs: name its --scheduler-file, or set "
            "DASK_SCHEDULER_ADDRESS. On one machine --mode concurrent uses all processors."
        )
    _require_answer(str(known))
    client: Any = None
    try:
        with _unusable_told():
            client = Client(address)
            limit = config.get(_NO_WORKERS_SETTING, None) or _NO_WORKERS_LIMIT
            client.wait_for_workers(1, timeout=parse_timedelta(limit))
        yield client
    finally:
        if client is not None:
            client.close()


@contextmanager
def _unusable_told() -> Iterator[None]:
    try:
        yield
    except (OSError, TimeoutError, ValueError, KeyError, RuntimeError) as error:
        reason = str(error) or type(error).__name__
        raise UsageError(f"the Dask cluster cannot be used ({reason}).") from error


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
