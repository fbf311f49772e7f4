"""The client of a Dask cluster, which somebody else has started."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import TimeoutError as NoAnswer
from typing import Any, Final

from nsys_llm.core.errors import UsageError
from nsys_llm.core.option_files import read_option_file
from nsys_llm.run.dask_errors import PATIENCE_S, asked, no_workers_s

#: How long the first worker is waited for; Dask's own default is for ever.
_NO_WORKERS_S: Final = 60.0
_CLOSE_S: Final = 2.0


@contextmanager
def open_client(scheduler_file: str | None) -> Iterator[Any]:
    """Open a client of the cluster that `open_executor` describes, and close it.

    Raises:
        UsageError: There is none, or it cannot be used.
    """
    from dask import config
    from distributed import Client

    address = _scheduler_address(scheduler_file) if scheduler_file else None
    if (address or config.get("scheduler-address", None)) is None:
        raise UsageError(
            "--mode dask-futures needs a running Dask cluster: give its --scheduler-file, or set "
            "DASK_SCHEDULER_ADDRESS. On one machine --mode concurrent uses all processors."
        )
    client: Any = None
    try:
        with _unusable_told():
            client = asked(partial(Client, address)).get(PATIENCE_S)
            client.wait_for_workers(1, timeout=no_workers_s(_NO_WORKERS_S))
        yield client
    finally:
        if client is not None:
            with suppress(TimeoutError):  # nobody answers: what there is to tell is told
                client.close(timeout=_CLOSE_S)


@contextmanager
def _unusable_told() -> Iterator[None]:
    try:
        yield
    except (OSError, TimeoutError, ValueError, KeyError, RuntimeError, NoAnswer) as error:
        reason = str(error) or "no answer in time"
        raise UsageError(f"the Dask cluster cannot be used ({reason}).") from error


def _scheduler_address(file: str) -> str:
    """Return the address in a scheduler file; Dask itself would wait for the file for ever."""
    try:
        return str(json.loads(read_option_file(file))["address"])
    except (UsageError, ValueError, KeyError, TypeError, RecursionError) as error:
        reason = str(error).rstrip(".") or type(error).__name__
        raise UsageError(
            f"--scheduler-file {file}: does not name a running scheduler ({reason}); "
            f"start the cluster first: dask scheduler --scheduler-file {file}."
        ) from error
