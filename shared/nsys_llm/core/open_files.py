"""How many files a run may have open: raised where that is allowed, refused where it is too few."""

from __future__ import annotations

from contextlib import suppress
from types import ModuleType
from typing import Final

from nsys_llm.core.errors import UsageError

resource: ModuleType | None
try:
    import resource
except ImportError:  # Windows, which has no such limit
    resource = None

#: Workers of a small cluster and their scheduler; threads for as many profiles need less.
_LEAST: Final = 256
#: Most systems begin with 1,024 for a process and let it have more.
_WANTED: Final = 4096


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
    if resource is None:
        return
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit != resource.RLIM_INFINITY and limit < _LEAST:
        raise UsageError(
            f"only {limit:,} files may be open at a time, and a run needs {_LEAST}; raise the "
            "limit (ulimit -n)."
        )
