"""How many files a run may have open: raised where that is allowed, and told where it is too few.

What fails for want of them looks like anything: a module, a driver, a profile that is not there.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from types import ModuleType
from typing import Final

from nsys_llm.core.errors import UsageError

resource: ModuleType | None
try:
    import resource
except ImportError:  # Windows, which has no such limit
    resource = None

#: Libraries print tracebacks of their own below: two threads and their profiles need 20, a local
#: Dask cluster of two workers 48.
_LEAST: Final = 64
#: A thread has up to ten files of its profile open; most systems begin with 1,024 for a process.
_WANTED: Final = 4096
_REASONS: Final = (errno.EMFILE, errno.ENFILE)


def allow_open_files() -> None:
    """Raise this process's limit of open files as far as the system lets it and a run may need.

    Raises:
        UsageError: Too few are left for anything.
    """
    if resource is None:
        return
    limit, highest = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = resource.RLIM_INFINITY
    if limit != unlimited and limit < _WANTED:
        wanted = _WANTED if highest == unlimited else min(_WANTED, highest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, highest))
        limit = wanted
    if limit != unlimited and limit < _LEAST:
        raise UsageError(
            f"only {limit} files may be open at a time, and a run needs {_LEAST}; raise the limit "
            "(ulimit -n)."
        )


def no_more_open_files() -> UsageError:
    """Return the error that ends a run where no more files can be opened."""
    allowed = ""
    if resource is not None:
        allowed = f" than the {resource.getrlimit(resource.RLIMIT_NOFILE)[0]:,} allowed"
    return UsageError(
        f"needs more open files{allowed}; raise the limit (ulimit -n), or read fewer profiles at a "
        "time (--mode none)."
    )


def is_want_of_open_files(error: BaseException) -> bool:
    """Return whether an error, or what led to it, is that no more files may be opened.

    Drivers and loaders of libraries say so in words alone.
    """
    words = [os.strerror(reason) for reason in _REASONS]
    return any(
        getattr(cause, "errno", None) in _REASONS or any(word in str(cause) for word in words)
        for cause in _causes(error)
    )


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
