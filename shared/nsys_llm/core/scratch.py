"""Temporary folders that a killed run cannot leave behind for good.

Whoever fills one holds a lock on it, which the system takes back when the process ends, however it
ends. The next run that wants a temporary folder of the same name removes those that nobody holds.
"""

from __future__ import annotations

import hashlib
import os
import platform
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final

from nsys_llm.core.open_files import can_open_files, no_more_open_files
from nsys_llm.core.stopping import ended_with_the_run, hold_if_stopped

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # there is none on Windows; nothing is locked or removed there
    fcntl = None


_PARTIAL: Final = "partial"
#: Letters that `tempfile` appends.
_RANDOM_LETTERS: Final = 8
_ATTEMPTS: Final = 100


class Held:
    """A lock on a folder, kept until `release` or the end of the process.

    Forked children let go of it: those of a pool outlive a parent that is killed.

    Attributes:
        descriptor: To be handed to a program that works in the folder too, which then holds it as
            long as it runs; None where the file system knows no locks.
    """

    def __init__(self, descriptor: int | None) -> None:
        self.descriptor = descriptor
        if descriptor is not None:
            _let_go_in_children()
            _HELD.add(self)

    def release(self) -> None:
        """Let go of the folder, whatever became of it."""
        if self.descriptor is not None:
            os.close(self.descriptor)
            self.descriptor = None


#: What a fork has to let go of.
_HELD: Final[weakref.WeakSet[Held]] = weakref.WeakSet()


@cache
def _let_go_in_children() -> None:
    """Have every later fork release all locks in the child; the parent's stay."""
    os.register_at_fork(after_in_child=_release_all)


def _release_all() -> None:
    for held in list(_HELD):
        held.release()


def hold(folder: Path) -> Held | None:
    """Lock a folder; None if another process holds it, or it is gone."""
    if fcntl is None:
        return Held(None)
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except OSError:  # some network file systems
        os.close(descriptor)
        return Held(None)
    held = Held(descriptor)
    with suppress(OSError):
        if os.path.samestat(os.stat(folder, follow_symlinks=False), os.fstat(descriptor)):
            return held
    held.release()
    return None


def scratch_place(parent: Path, name: str) -> Path:
    """Return where a temporary folder may be made in a parent, for what will be called `name`."""
    return parent / f"{_prefix(name, _PARTIAL)}{secrets.token_hex(_RANDOM_LETTERS // 2)}"


def made_folder(folder: Path) -> Held:
    """Make a temporary folder at its place, and lock it.

    Raises:
        OSError: It cannot be made.
        UsageError: It cannot be locked, because no more files can be opened.
    """
    for _ in range(_ATTEMPTS):
        folder.mkdir(mode=0o700)
        try:
            # Another run may have taken it for an abandoned one before it was locked.
            if (held := hold(folder)) is not None:
                return held
            if not can_open_files():
                raise no_more_open_files()
        except BaseException:
            with suppress(OSError):
                folder.rmdir()  # which opens no file
            raise
    raise FileExistsError(f"no temporary folder could be kept in {folder.parent}")


@contextmanager
def scratch_folder(parent: Path, name: str) -> Iterator[tuple[Path, Held]]:
    """Make a temporary folder that ends with the block; remove those of killed runs before.

    Raises:
        OSError: It cannot be made.
    """
    hold_if_stopped()
    remove_abandoned(parent, name)
    folder = scratch_place(parent, name)
    # Known before it is there, so that a run which is terminated leaves none.
    with ended_with_the_run(lambda: shutil.rmtree(folder, ignore_errors=True)):
        held = made_folder(folder)
        try:
            yield folder, held
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            held.release()


def abandoned(parent: Path, name: str, kind: str = _PARTIAL) -> Iterator[tuple[Path, Held]]:
    """Lock and return the temporary folders of a name that runs of this host left behind.

    None where folders cannot be locked, because it cannot be told then who still works in them.
    """
    prefix = _prefix(name, kind)
    try:
        names = sorted(entry for entry in os.listdir(parent) if entry.startswith(prefix))
    except OSError:
        return
    for entry in names:
        if len(entry) != len(prefix) + _RANDOM_LETTERS:
            continue
        if (held := hold(parent / entry)) is None:
            continue
        try:
            if held.descriptor is not None:
                yield parent / entry, held
        finally:
            held.release()


def remove_abandoned(parent: Path, name: str) -> None:
    """Remove what killed runs left of temporary folders of a name; what cannot be, stays."""
    for folder, _ in abandoned(parent, name):
        shutil.rmtree(folder, ignore_errors=True)


def discard(folder: Path, name: str) -> None:
    """Delete a folder beside the place of `name`; what cannot be deleted stays.

    It gets the name of a temporary folder first: one half deleted, by a run that is killed then, is
    never taken for whole.
    """
    doomed = folder
    with suppress(OSError):
        doomed = Path(tempfile.mkdtemp(prefix=_prefix(name, _PARTIAL), dir=folder.parent))
        os.rename(folder, doomed)
    for item in (doomed, folder):
        shutil.rmtree(item, ignore_errors=True)


def _prefix(name: str, kind: str) -> str:
    # A lock may be known to its own host alone.
    host = hashlib.sha256(platform.node().encode("utf-8", "replace")).hexdigest()[:8]
    return f".{name}.{kind}-{host}-"


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait for whoever else is in a folder likewise; for nobody where nothing can be locked."""
    with ExitStack() as stack:
        if fcntl is not None:
            with suppress(OSError):
                descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
                stack.callback(Held(descriptor).release)
                fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
