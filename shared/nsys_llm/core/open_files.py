"""How many files a run may have open."""

from __future__ import annotations

import resource
from contextlib import suppress
from typing import Final

#: Most systems begin with 1,024 for a process and let it have more.
_WANTED: Final = 4096


def raise_limit() -> None:
    """Raise this process's limit of open files as far as a run may need and the system allows."""
    limit, highest = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY or limit >= _WANTED:
        return
    wanted = _WANTED if highest == resource.RLIM_INFINITY else min(_WANTED, highest)
    with suppress(OSError, ValueError):  # forbidden to processes in some containers
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, highest))
