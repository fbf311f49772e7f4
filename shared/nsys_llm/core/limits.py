"""What the system lets a run have, open files and address space; and that freed memory is kept."""

from __future__ import annotations

import ctypes
import os
import resource
from contextlib import suppress
from typing import Final

from nsys_llm.core.errors import UsageError

#: Most systems begin with 1,024 for a process and let it have more.
_WANTED: Final = 4096
#: With fewer, libraries fail in words of their own: what a run of one rank opens, twice.
_LEAST_FILES: Final = 32
#: With less, libraries end the process when they are loaded; measured with two cores.
_LEAST_BYTES: Final = 1 << 29


def require_limits() -> None:
    """Raise this process's limit of open files as far as a run may need and the system allows.

    Raises:
        UsageError: It may have too few, or too little address space to load what a run is made of.
    """
    limit, highest = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < _WANTED:
        wanted = _WANTED if highest == resource.RLIM_INFINITY else min(_WANTED, highest)
        with suppress(OSError, ValueError):  # forbidden to processes in some containers
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, highest))
            limit = wanted
        if limit < _LEAST_FILES:
            raise UsageError(
                f"only {limit} files may be open at a time, and a run needs {_LEAST_FILES}; "
                "raise that limit (ulimit -n)."
            )
    space = resource.getrlimit(resource.RLIMIT_AS)[0]
    if space == resource.RLIM_INFINITY:
        return
    if space < _LEAST_BYTES:
        raise UsageError(
            f"only {space >> 20} MB of address space may be used, and a run needs "
            f"{_LEAST_BYTES >> 20}; raise that limit (ulimit -v)."
        )
    # Where it gets no stack for a thread, it interrupts the process.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


#: Parameters of mallopt(3), and their values: arrays of up to 1 GiB come from an arena, of which
#: threads share one, and up to 2 GiB of what is free at its end is kept.
_SETTINGS: Final = (
    (-3, 1 << 30),  # M_MMAP_THRESHOLD
    (-1, (1 << 31) - 1),  # M_TRIM_THRESHOLD
    (-8, 1),  # M_ARENA_MAX
)


def keep_freed() -> bool:
    """Set this for the whole process, as long as it runs; return whether it was done."""
    try:
        library = ctypes.CDLL(None)
        set_option, _ = library.mallopt, library.gnu_get_libc_version
    except (AttributeError, OSError, TypeError):
        return False  # another C library
    return all([set_option(parameter, value) for parameter, value in _SETTINGS])
