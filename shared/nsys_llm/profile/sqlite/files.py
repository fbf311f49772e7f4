"""An SQLite file before it is opened: what it is, how to open it, and what goes wrong with it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final
from urllib.parse import quote

from nsys_llm.core.errors import ProfileError
from nsys_llm.core.rooted import Roots
from nsys_llm.profile.file_state import FileState

_MAGIC: Final = b"SQLite format 3\x00"
_WAL_MODE: Final = b"\x02\x02"


def file_state(path: Path, known: FileState | None = None) -> FileState:
    """Return the state of a file, which must be the known one if there is one.

    Raises:
        ProfileError: It is not: parts that were read before do not fit those that come now.
    """
    state = FileState.of(path.stat())
    if known not in (None, state):
        raise ProfileError(
            f"{path.name}: changed while it was read; wait until its writer has finished, and run "
            "again."
        )
    return state


def read_only_uri(path: Path) -> str:
    """Return the URI that opens a database without changing it or creating anything beside it.

    Raises:
        ProfileError: Rows of it stand in a log beside it, or its journal is no file.
    """
    file = path.resolve()
    journal = file.with_name(f"{file.name}-journal")
    # Of a file whose name is so long that it can have no journal, Path.exists raises.
    if os.path.exists(journal) and not journal.is_file():
        # SQLite would open a pipe, and wait for ever.
        raise ProfileError(f"{path.name}: {journal.name} beside it is not a file; remove it.")
    # Percent-encoding keeps '?', '#' and '%' of a file name out of the URI's syntax.
    uri = f"file:{quote(os.fsencode(file))}?mode=ro"
    with file.open("rb") as opened:
        if opened.read(20)[18:20] != _WAL_MODE:
            return uri
    log = file.with_name(f"{file.name}-wal")
    if log.exists() and log.stat().st_size > 0:
        raise ProfileError(
            f"{path.name}: {log.name} beside it holds rows that are not in it yet; "
            f"wait for its writer, or run: sqlite3 {path.name} 'PRAGMA wal_checkpoint'."
        )
    # Opening a database in WAL mode creates files beside it, unless it is said not to change.
    return f"{uri}&immutable=1"


def check_file(path: Path, roots: Roots) -> FileState:
    """Return the state of a file; refuse what is no SQLite file, or not all of one.

    Raises:
        ProfileError: The file is missing, empty, truncated, or no database.
    """
    try:
        with roots.opened(path) as place, place.open("rb") as file:
            header = file.read(100)
            state = FileState.of(os.fstat(file.fileno()))
    except OSError as error:
        raise ProfileError(f"{path.name}: cannot be read ({error.strerror}).") from error
    if state.size_bytes == 0:
        raise ProfileError(f"{path.name}: the file is empty; export the profile again.")
    if not header.startswith(_MAGIC) or len(header) < 100:
        raise ProfileError(
            f"{path.name}: not an SQLite database; give a .nsys-rep, or an export made with: "
            "nsys export --type sqlite REPORT.nsys-rep."
        )
    page_bytes = int.from_bytes(header[16:18], "big")
    page_bytes = 65536 if page_bytes == 1 else page_bytes
    pages_n = int.from_bytes(header[28:32], "big")
    # The page count is valid only if the two counters agree (SQLite file format, 1.3.7).
    if header[24:28] == header[92:96] and pages_n * page_bytes > state.size_bytes:
        raise ProfileError(
            f"{path.name}: truncated, {state.size_bytes:,} of {pages_n * page_bytes:,} bytes are "
            "there; copy or export it again."
        )
    return state


def explained(path: Path, error: Exception) -> str:
    """Return the one line that describes an error of SQLite or of its driver."""
    if isinstance(error, UnicodeDecodeError):
        return f"{path.name}: damaged (a name is not text); copy or export it again."
    if isinstance(error, MemoryError):
        return (
            f"{path.name}: needs more memory than is available, or is damaged; read fewer profiles "
            "at a time (--mode none), or copy or export it again."
        )
    text = str(error)
    if "Type mismatch" in text:
        return f"{path.name}: holds text where integers belong ({' '.join(text.split())})."
    if "locked" in text or "busy" in text:
        return f"{path.name}: locked by another program; wait until its export has finished."
    if text == "interrupted":
        return f"{path.name}: damaged (its pages form a cycle); copy or export it again."
    if "malformed" in text or "not a database" in text or "CORRUPT" in text.upper():
        return f"{path.name}: damaged ({text}); copy or export it again."
    return f"{path.name}: cannot be read ({' '.join(text.split())}); export the profile again."
