"""A Dask cluster whose workers are all gone: a note, and an end instead of waiting for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Final
from weakref import WeakSet

from nsys_llm.core.errors import UsageError

#: Dask's own setting; a scheduler since 2024.8 has it too, and drops what waits for longer.
NO_WORKERS_VARIABLE: Final = "DASK_DISTRIBUTED__SCHEDULER__NO_WORKERS_TIMEOUT"
_NO_WORKERS_SETTING: Final = "distributed.scheduler.no-workers-timeout"
#: A worker that is started anew takes some seconds; a batch system may take longer.
_DEFAULT_LIMIT: Final = "60s"

#: What its scheduler raises then.
_DROPPED: Final = frozenset({"NoValidWorkerError", "NoWorkerError"})

_SECONDS_BETWEEN_LOOKS: Final = 1.0
_SECONDS_UNTIL_NOTE: Final = 5.0


def seconds_without_workers() -> float:
    """Return how long a cluster may be without any worker, as Dask's configuration has it.

    Raises:
        UsageError: What it has is no time.
    """
    from dask import config
    from dask.utils import parse_timedelta

    # Dask's own default is null: for ever.
    given = config.get(_NO_WORKERS_SETTING, None) or _DEFAULT_LIMIT
    try:
        return float(parse_timedelta(given))
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{NO_WORKERS_VARIABLE}: '{given}' is not a time; write like 60s.") from (
            error
        )


class WorkerWatch:
    """Around what waits for tasks of a cluster: gives them up once it has no worker for long."""

    def __init__(self, client: Any, note: Callable[[str], None]) -> None:
        self._client = client
        self._note = note
        self._limit_s = seconds_without_workers()
        # A task that nobody waits for any more is the cluster's to forget.
        self._tasks: WeakSet[Any] = WeakSet()
        self._over = threading.Event()
        self._gave_up = False
        self._thread = threading.Thread(target=self._look, name="dask-workers", daemon=True)

    def add(self, tasks: Iterable[Any]) -> None:
        """Watch tasks (futures) that will be waited for."""
        self._tasks.update(tasks)

    def __enter__(self) -> WorkerWatch:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the watch, and put the reason in the place of the cluster's error.

        Raises:
            UsageError: The tasks were given up for want of workers, here or by the scheduler.
        """
        self._over.set()
        self._thread.join(_SECONDS_BETWEEN_LOOKS)
        dropped = type(error).__name__ in _DROPPED
        if dropped or (self._gave_up and isinstance(error, Exception)):
            raise UsageError(
                f"no Dask worker was left, and none came within {self._limit_s:g} s "
                f"({NO_WORKERS_VARIABLE}); nothing was written; start workers, then run again."
            ) from error

    def _look(self) -> None:
        since_s: float | None = None
        noted = False
        while not self._over.wait(min(_SECONDS_BETWEEN_LOOKS, self._limit_s / 2)):
            if self._has_workers():
                since_s, noted = None, False
                continue
            now_s = time.monotonic()
            since_s = now_s if since_s is None else since_s
            if now_s - since_s >= self._limit_s:
                self._gave_up = True
                # Cancelling them makes the scheduler fail: it would drop what depends on them, too.
                for task in list(self._tasks):
                    task.release()
                return
            if now_s - since_s >= _SECONDS_UNTIL_NOTE and not noted:
                noted = True
                self._note(f"no Dask worker is left; waiting {self._limit_s:g} s for others")

    def _has_workers(self) -> bool:
        """Return whether there is a worker; also where the scheduler, being gone, does not say."""
        try:
            return self._client.status != "running" or bool(self._client.nthreads())
        except (OSError, TimeoutError, RuntimeError, ValueError):
            return True
