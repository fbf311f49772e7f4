"""A Dask cluster that somebody else has started: its client, and what it may do to a run.

Other versions or a lost scheduler are told in one line each. Dask's errors are recognized by name,
because distributed is imported only where it is used.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final, TypeVar

from nsys_llm import __version__
from nsys_llm.core.errors import NsysLlmError, UsageError
from nsys_llm.core.option_files import read_option_file

T = TypeVar("T")

#: In this time a scheduler answers, and a worker that died is back.
PATIENCE_S: Final = 20.0
_LOOK_S: Final = 2.0
#: What Dask's client raises once its scheduler is gone, or has dropped the work.
_LOST: Final = frozenset({"CancelledError", "CommClosedError"})
#: What its scheduler raises for tasks that have waited for a worker in vain.
_DROPPED: Final = frozenset({"NoValidWorkerError", "NoWorkerError"})
#: The client prints tracebacks while it tries to reach a scheduler that is gone, the scheduler of a
#: local cluster every task that it cannot place, and others connections that end with the run.
_LOGGERS: Final = ("", ".client", ".nanny", ".scheduler")
#: How long the first worker is waited for; Dask's own default is for ever.
_NO_WORKERS_S: Final = 60.0
_CLOSE_S: Final = 2.0


@contextmanager
def open_client(scheduler_file: str | None) -> Iterator[Any]:
    """Open a client of the cluster that `open_executor` describes, and close it.

    Raises:
        UsageError: There is none, or it cannot be used.
    """
    from multiprocessing import TimeoutError as NoAnswer

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
        try:
            client = _asked(partial(Client, address)).get(PATIENCE_S)
            client.wait_for_workers(1, timeout=_no_workers_s(_NO_WORKERS_S))
        except (OSError, TimeoutError, ValueError, KeyError, RuntimeError, NoAnswer) as error:
            reason = str(error) or "no answer in time"
            raise UsageError(f"the Dask cluster cannot be used ({reason}).") from error
        yield client
    finally:
        if client is not None:
            with suppress(TimeoutError):  # nobody answers: what there is to tell is told
                client.close(timeout=_CLOSE_S)


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


def mute_dask() -> None:
    """Keep Dask from printing what this package says in a line.

    For good: a scheduler may be lost also once all is back.
    """
    import distributed  # noqa: F401 - it sets levels itself when it is imported

    for name in _LOGGERS:
        logging.getLogger(f"distributed{name}").setLevel(logging.CRITICAL)


def refuse_other_versions(client: Any) -> None:
    """Refuse a cluster of which a worker has another version of this package, or none.

    Such a worker may end without a word when it unpacks a task, and the run would wait for ever.

    Raises:
        UsageError: There is one.
    """
    # A lambda travels as code; a function of this package would be theirs, if they have it.
    versions = client.run(
        lambda package: __import__(package).__version__, "nsys_llm", on_error="return"
    )
    for worker, version in sorted(versions.items()):
        if isinstance(version, OSError):
            continue  # it died when it was asked
        if isinstance(version, ImportError):
            version = "(not installed)"
        if not isinstance(version, str):
            # With another Python it cannot even run the question.
            raise UsageError(
                f"the worker at {worker} cannot say which nsys-llm-recipes it has "
                f"({type(version).__name__}); install the same Python and the same packages on all "
                "workers. Nothing was written."
            )
        if version != __version__:
            raise UsageError(
                f"the worker at {worker} has nsys-llm-recipes {version}, but this command is "
                f"{__version__}; install the same version on all workers. Nothing was written."
            )


def _no_workers_s(default: float) -> float:
    """Return how long workers are waited for, in seconds, as Dask's configuration has it here."""
    from dask import config
    from dask.utils import parse_timedelta

    return float(
        parse_timedelta(config.get("distributed.scheduler.no-workers-timeout", None) or default)
    )


def _asked(ask: Callable[[], T]) -> Any:
    """Ask in a thread, which ends with the process: Dask itself may wait without end."""
    from multiprocessing.pool import ThreadPool

    threads = ThreadPool(1)
    answer = threads.apply_async(ask)
    threads.close()
    return answer


def answered(client: Any, ask: Callable[[], T]) -> T:
    """Return what is asked of a cluster.

    Raises:
        UsageError: Its scheduler is silent, or it has no workers any more.
    """
    answer, alone_s, limit_s = _asked(ask), 0.0, _no_workers_s(PATIENCE_S)
    while not answer.ready():
        answer.wait(_LOOK_S)
        looked = _asked(client.nthreads)
        looked.wait(PATIENCE_S)
        if not (looked.ready() or answer.ready()):
            raise _lost()
        alone_s = 0.0 if answer.ready() or looked.get() else alone_s + _LOOK_S
        if alone_s >= limit_s:
            raise _deserted()
    result: T = answer.get()
    return result


class DaskErrors:
    """Around what is asked of a cluster: tells in one line what is wrong with that.

    Raises:
        UsageError: The scheduler or all workers are gone, or a worker has another version.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def __enter__(self) -> DaskErrors:
        # A task sent to a scheduler that is gone would be waited for without end.
        if self._client.status != "running":
            raise _lost()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if type(error).__name__ in _DROPPED:
            raise _deserted() from error
        # A question while the client tries to connect again gets a timeout, as of any file.
        unanswered = isinstance(error, (OSError, RuntimeError)) and self._client.status != "running"
        if unanswered or _LOST & {base.__name__ for base in type(error).__mro__}:
            raise _lost() from error
        if isinstance(error, Exception) and not isinstance(error, NsysLlmError):
            # What other code raises may be anything: it may not even know an argument.
            with suppress(OSError, RuntimeError):  # nobody answers: what there is to tell is this
                refuse_other_versions(self._client)


def _deserted() -> UsageError:
    return UsageError(
        "no Dask worker was left, and none joined in time; nothing was written; start workers, "
        "then run again."
    )


def _lost() -> UsageError:
    return UsageError(
        "the Dask scheduler was lost during the run, or it dropped the work; nothing was written; "
        "start the cluster again, then run again."
    )
