"""The client of a Dask cluster, which somebody else has started."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
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
    if (address or config.get("scheduler-address", None)) is None:
        raise UsageError(
            "--mode dask-futures needs a Dask cluster that runs: name its --scheduler-file, or set "
            "DASK_SCHEDULER_ADDRESS. On one machine --mode concurrent uses all processors."
        )
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


def _scheduler_address(file: str) -> str:
    """Return the address in a scheduler file; Dask itself would wait for the file for ever."""
    try:
        return str(json.loads(Path(file).read_text("utf-8"))["address"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(
            f"--scheduler-file {file}: does not name a running scheduler ({type(error).__name__}); "
            f"start the cluster first: dask scheduler --scheduler-file {file}."
        ) from error
