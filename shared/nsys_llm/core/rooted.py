"""Opens files that lie below folders, whatever somebody makes of their names meanwhile.

Every folder on the way and the file are opened in the one before, and none of them may be a link:
what was found is what is read. Linux and macOS.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import BinaryIO, Final

_BELOW: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
#: By option name: which folders a run may read in, see `Roots`.
ROOTS: Final = "roots"


def open_below(root: Path, name: PurePath) -> BinaryIO:
    """Open a regular file below a folder; links and pipes are refused.

    Args:
        root: May be a link itself.
        name: Of the file, from there.

    Raises:
        OSError: There is none, or the name leads elsewhere.
    """
    if name.is_absolute() or not name.parts or ".." in name.parts:
        raise PermissionError(errno.EACCES, "not a name below the folder", str(name))
    *folders, last = name.parts
    inside = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in folders:
            outer, inside = inside, os.open(part, _BELOW | os.O_DIRECTORY, dir_fd=inside)
            os.close(outer)
        # A pipe without a writer would be waited for.
        file = os.fdopen(os.open(last, _BELOW | os.O_NONBLOCK, dir_fd=inside), "rb")
    finally:
        os.close(inside)
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise OSError(errno.EINVAL, "not a regular file", str(name))


@dataclass(frozen=True)
class Roots:
    """Folders in which files may be read, resolved; without any, everywhere."""

    folders: tuple[Path, ...] = ()

    def root_of(self, real: Path) -> Path | None:
        """Return the folder that a path without links lies in; None if it is in none."""
        return next((folder for folder in self.folders if real.is_relative_to(folder)), None)

    @contextmanager
    def opened(self, path: Path) -> Iterator[Path]:
        """Yield a path under which a file can be opened as long as the block lasts.

        Raises:
            OSError: It lies elsewhere, or is no file.
        """
        if not self.folders:
            yield path
            return
        real = Path(os.path.realpath(path))
        if (root := self.root_of(real)) is None:
            raise PermissionError(errno.EACCES, "outside of the folders that may be read")
        with open_below(root, real.relative_to(root)) as file:
            yield Path(f"/dev/fd/{file.fileno()}")

    @contextmanager
    def same(self, path: Path) -> Iterator[None]:
        """Require of a block that opens a file by its name that it opens what lies there.

        Raises:
            OSError: It opened another one, or this one lies elsewhere.
        """
        with self.opened(path) as place:
            before_n = _descriptors_n(place) if self.folders else 0
            yield
            if self.folders and _descriptors_n(place) == before_n:
                raise OSError(errno.ESTALE, "another file took its place")


#: No folder is set: what a command is given by its user may be anywhere.
EVERYWHERE: Final = Roots()


def _descriptors_n(file: Path) -> int:
    """Return how many descriptors of this process are of a file."""
    same_n, found = 0, file.stat()
    for name in os.listdir("/dev/fd"):
        with suppress(OSError):  # closed meanwhile
            same_n += os.path.samestat(os.fstat(int(name)), found)
    return same_n
