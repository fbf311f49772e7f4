"""A Dask cluster whose workers are all gone: Dask's own time limit, in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from nsys_llm.core.errors import UsageError

#: Dask's own setting; a scheduler since 2024.8 has it too, and drops what waits for longer.
NO_WORKERS_VARIABLE: Final = "DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT"
NO_WORKERS_SETTING: Final = "distributed.scheduler.no-workers-timeout"
#: A worker that is started anew takes some seconds; a batch system may take longer.
_DEFAULT_LIMIT: Final = "60s"

#: What its scheduler raises then.
_DROPPED: Final = frozenset({"NoValidWorkerError", "NoWorkerError"})


def seconds_without_workers() -> float:
    """Return how long a cluster may be without any worker, as Dask's configuration has it.

    Raises:
        UsageError: What it has is no time.
    """
    from dask import config
    from dask.utils import parse_timedelta

    # Dask's own default is null: for ever.
    given = config.get(NO_WORKERS_SETTING, None) or _DEFAULT_LIMIT
    try:
        return float(parse_timedelta(given))
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{NO_WORKERS_VARIABLE}: '{given}' is not a time; write like 60s.") from (
            error
        )


@contextmanager
def dropped_explained() -> Iterator[None]:
    """Explain in one line that a scheduler dropped tasks for want of workers.

    Raises:
        UsageError: It did.
    """
    try:
        yield
    except Exception as error:
        if type(error).__name__ not in _DROPPED:
            raise
        raise UsageError(
            f"no Dask worker was left, and none came in time ({NO_WORKERS_VARIABLE}); nothing was "
            "written; start workers, then run again."
        ) from error
