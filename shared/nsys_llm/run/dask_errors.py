"""What a Dask cluster itself may do to a run, in one line each: other versions, a lost scheduler.

Dask's errors are recognized by name, because distributed is imported only where it is used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from nsys_llm import __version__
from nsys_llm.core.errors import NsysLlmError, UsageError

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
_LOGGERS: Final = (
    "distributed",
    "distributed.client",
    "distributed.nanny",
    "distributed.scheduler",
)


def mute_dask() -> None:
    """Keep Dask from printing what this package says in a line.

    For good: a scheduler may be lost also once all is back.
    """
    import distributed  # noqa: F401 - it sets levels itself when it is imported

    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)


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


def no_workers_s(default: float) -> float:
    """Return how long workers are waited for, in seconds, as Dask's configuration has it here."""
    from dask import config
    from dask.utils import parse_timedelta

    return float(
        parse_timedelta(config.get("distributed.scheduler.no-workers-timeout", None) or default)
    )


def asked(ask: Callable[[], T]) -> Any:
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
    answer, alone_s, limit_s = asked(ask), 0.0, no_workers_s(PATIENCE_S)
    while not answer.ready():
        answer.wait(_LOOK_S)
        looked = asked(client.nthreads)
        looked.wait(PATIENCE_S)
        if not (looked.ready() or answer.ready()):
            raise _lost()
        alone_s = 0.0 if answer.ready() or looked.get() else alone_s + _LOOK_S
        if alone_s >= limit_s:
            raise _deserted()
    result: T = answer.get()
    return result


class DaskErrors:
    """Around what is asked of a cluster: tells in one line what is wrong with that."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __enter__(self) -> DaskErrors:
        """Begin.

        Raises:
            UsageError: The scheduler is gone; a task sent now would be waited for without end.
        """
        if self._client.status != "running":
            raise _lost()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Put another error in the place of the cluster's.

        Raises:
            UsageError: The scheduler or all workers are gone, or a worker of another version has
                come.
        """
        if type(error).__name__ in _DROPPED:
            raise _deserted() from error
        if error is not None and self._is_lost(error):
            raise _lost() from error
        if isinstance(error, Exception) and not isinstance(error, NsysLlmError):
            # What other code raises may be anything: it may not even know an argument.
            with suppress(OSError, RuntimeError):  # nobody answers: what there is to tell is this
                refuse_other_versions(self._client)

    def _is_lost(self, error: BaseException) -> bool:
        # A question while the client tries to connect again gets a timeout, as of any file.
        unanswered = isinstance(error, (OSError, RuntimeError)) and self._client.status != "running"
        return unanswered or bool(_LOST & {base.__name__ for base in type(error).__mro__})


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
