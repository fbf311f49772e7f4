"""What tells a profile from any other in its place, so that a second read is of the same one."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from nsys_llm.core.errors import ProfileError

#: Of the begin of a file and of its end. SQLite's header and schema stand on the first pages;
#: parquet's schema, and where its row groups lie, at the end.
_EDGE_BYTES: Final = 1 << 16


class FileState(NamedTuple):
    """What differs once a file is written to, or another takes its place."""

    inode: int
    size_bytes: int
    modified_ns: int

    @classmethod
    def of(cls, reported: os.stat_result) -> FileState:
        """Take it from what the system reports."""
        return cls(reported.st_ino, reported.st_size, reported.st_mtime_ns)


#: Of each file of a profile: its name, state, and a checksum of its first and last bytes.
Fingerprint = frozenset[tuple[str, FileState, int]]


def fingerprint(files: Mapping[Path, FileState]) -> Fingerprint:
    """Return the fingerprint of a profile.

    Args:
        files: All of its files, with their states when it was opened.

    Raises:
        ProfileError: One of them cannot be read.
    """
    return frozenset((path.name, state, _checksum(path)) for path, state in files.items())


def refuse_changed(name: str, known: Fingerprint, now: Fingerprint) -> None:
    """Refuse a profile that is not the one that was read before; tables may have been added.

    Raises:
        ProfileError: It is another one, or was written to.
    """
    if not known <= now:
        raise ProfileError(f"{name}: changed since it was first read; run again.")


def _checksum(path: Path) -> int:
    try:
        with path.open("rb") as file:
            first = file.read(_EDGE_BYTES)
            file.seek(max(file.seek(0, os.SEEK_END) - _EDGE_BYTES, 0))
            return zlib.crc32(file.read(_EDGE_BYTES), zlib.crc32(first))
    except OSError as error:
        raise ProfileError(f"{path.name}: cannot be read ({error.strerror}).") from error
