"""Keeps what was freed for the next array, in a process that is ours. For glibc; else nothing.

An analysis makes hundreds of arrays of a column's length, one after the other. By default each is
asked from the system and given back to it, which clears its pages every time: of 5 million kernels
that is a fifth of the processor time, and the peak is the same either way.
"""

from __future__ import annotations

import ctypes
from typing import Final

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
