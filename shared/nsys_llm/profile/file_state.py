"""What tells whether a file was written to while it was read, or between two reads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from nsys_llm.core.errors import ProfileError


class FileState(NamedTuple):
    """What differs once a file is written to, or another takes its place."""

    inode: int
    size_bytes: int
    modified_ns: int

    @classmethod
    def of(cls, reported: os.stat_result) -> FileState:
        """Take it from what the system reports."""
        return cls(reported.st_ino, reported.st_size, reported.st_mtime_ns)


#: Name and state of each file of a profile.
Fingerprint = frozenset[tuple[str, FileState]]


def fingerprint(files: Mapping[Path, FileState]) -> Fingerprint:
    """Return what tells a profile from any other in its place, by its files as they were opened."""
    return frozenset((path.name, state) for path, state in files.items())


def refuse_changed(name: str, known: Fingerprint, now: Fingerprint) -> None:
    """Refuse a profile that is not the one that was read before; tables may have been added.

    Raises:
        ProfileError: It is another one, or was written to.
    """
    if not known <= now:
        raise ProfileError(f"{name}: changed since it was first read; run again.")
