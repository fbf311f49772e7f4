"""Opens files that lie below folders, whatever somebody makes of their names meanwhile.

Every folder on the way and the file are opened in the one before, and none of them may be a link:
what was found is what is read. Linux and macOS.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import BinaryIO, Final, TypeVar

_BELOW: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPENING: Final = threading.Lock()
#: A descriptor that another thread closes may be the next to be opened, and look like an old one.
_TRIES: Final = 64
_T = TypeVar("_T")
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

    def made(self, path: Path, make: Callable[[], _T], close: Callable[[_T], object]) -> _T:
        """Return what opens a file by its name, if that is the file that lies there.

        Args:
            make: Opens it; called again where another thread closed a file meanwhile.

        Raises:
            OSError: It opens another one, or this one lies elsewhere.
        """
        if not self.folders:
            return make()
        with self.opened(path) as place:
            for _ in range(_TRIES):
                # What threads open meanwhile would count for each other.
                with _OPENING:
                    before, made = _descriptors(place), make()
                    if _descriptors(place) - before:
                        return made
                close(made)
        raise OSError(errno.ESTALE, "another file took its place")


#: No folder is set: what a command is given by its user may be anywhere.
EVERYWHERE: Final = Roots()


def _descriptors(file: Path) -> set[str]:
    """Return which descriptors of this process are of a file."""
    same, found = set(), file.stat()
    for name in os.listdir("/dev/fd"):
        with suppress(OSError):  # closed meanwhile
            if os.path.samestat(os.fstat(int(name)), found):
                same.add(name)
    return same
