"""What tells whether a file was written to while it was read."""

from __future__ import annotations

import os
from typing import NamedTuple


class FileState(NamedTuple):
    """What differs once a file is written to, or another takes its place."""

    inode: int
    size_bytes: int
    modified_ns: int

    @classmethod
    def of(cls, reported: os.stat_result) -> FileState:
        """Take it from what the system reports."""
        return cls(reported.st_ino, reported.st_size, reported.st_mtime_ns)
