"""How many files a run may have open: raised where that is allowed, and told where it is too few.

What fails for want of them looks like anything: a module, a driver, a profile that is not there.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from types import ModuleType, TracebackType
from typing import Final

from nsys_llm.core.errors import NsysLlmError, OpenFilesError, UsageError

resource: ModuleType | None
try:
    import resource
except ImportError:  # Windows, which has no such limit
    resource = None

#: Workers of a small cluster and their scheduler; threads for as many profiles need less.
_LEAST: Final = 256
#: Most systems begin with 1,024 for a process and let it have more.
_WANTED: Final = 4096
#: What SQLite and its driver may open for one query.
_OF_A_QUERY: Final = 8
_REASONS: Final = (errno.EMFILE, errno.ENFILE)


def raise_limit() -> None:
    """Raise this process's limit of open files as far as a run may need and the system allows."""
    if resource is None:
        return
    limit, highest = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or limit >= _WANTED:
        return
    wanted = _WANTED if highest == resource.RLIM_INFINITY else min(_WANTED, highest)
    with suppress(OSError, ValueError):  # forbidden to processes in some containers
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, highest))


def require_open_files() -> None:
    """Refuse to begin what will not end well.

    Raises:
        UsageError: Too few files may be open.
    """
    limit = _limit()
    if limit is not None and limit < _LEAST:
        raise UsageError(
            f"only {limit:,} files may be open at a time, and a run needs {_LEAST}; raise the "
            "limit (ulimit -n)."
        )


def no_more_open_files(error: BaseException | None = None) -> OpenFilesError:
    """Return the error that ends a run where no more files can be opened, by what said so.

    It names this host; a worker that has said so already is taken at its word.
    """
    for cause in _causes(error):
        if isinstance(cause, OpenFilesError):
            return cause
    limit = _limit()
    allowed = "" if limit is None else f" than the {limit:,} allowed"
    return OpenFilesError(
        f"needs more open files{allowed} on {socket.gethostname()}; raise the limit (ulimit -n), "
        "or read fewer profiles at a time (--mode none)."
    )


def is_out_of_files(error: BaseException) -> bool:
    """Return whether an error, or what led to it, is that no more files can be opened."""
    return any(isinstance(cause, OpenFilesError) or _says_so(cause) for cause in _causes(error))


def raise_if_out_of_files(error: Exception) -> None:
    """Put the error that ends the run in the place of one that is about open files.

    Raises:
        UsageError: It is.
    """
    if is_out_of_files(error):
        raise no_more_open_files(error) from error


def can_open_files() -> bool:
    """Return whether as many more files can be opened as a query of SQLite needs.

    SQLite and its driver have one word for every reason why a file is not opened.
    """
    with ExitStack() as opened:
        try:
            for _ in range(_OF_A_QUERY):
                opened.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            return not is_out_of_files(error)
    return True


class OutOfFilesTold:
    """Around work: whatever fails for want of open files ends with the line that says so."""

    def __enter__(self) -> OutOfFilesTold:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Put another error in the place of one of the system.

        Raises:
            UsageError: No more files can be opened.
        """
        if isinstance(error, Exception):
            raise_if_out_of_files(error)


def _limit() -> int | None:
    """Return how many files this process may have open; None for any number."""
    if resource is None:
        return None
    limit = int(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    return None if limit == resource.RLIM_INFINITY else limit


def _says_so(error: BaseException) -> bool:
    """Return whether an error is about open files; our own quote names, and are not.

    Loaders of libraries and drivers put the reason at the end of their words.
    """
    if isinstance(error, NsysLlmError):
        return False
    number = getattr(error, "errno", None)
    if number is not None:
        return number in _REASONS
    return str(error).endswith(tuple(f": {os.strerror(reason)}" for reason in _REASONS))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
