"""Temporary folders beside what they will become, and those that killed runs have left."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, Literal

from nsys_llm.core.stopping import ended_with_the_run, hold_if_stopped

#: What is being made, or deleted; and what another folder is taking the place of.
Kind = Literal["partial", "replaced"]

_RANDOM_BYTES_N: Final = 4
#: Nobody works in a folder for as long: whoever made it was killed.
_ABANDONED_SECONDS: Final = 24 * 3600


def scratch_place(parent: Path, name: str, kind: Kind = "partial") -> Path:
    """Return where a temporary folder may be made in a parent, for what is called `name`."""
    return parent / f".{name}.{kind}-{secrets.token_hex(_RANDOM_BYTES_N)}"


@contextmanager
def scratch_folder(parent: Path, name: str) -> Iterator[Path]:
    """Make a temporary folder that ends with the block, or with the run.

    Raises:
        OSError: It cannot be made.
    """
    hold_if_stopped()
    remove_abandoned(parent, name)
    folder = scratch_place(parent, name)
    # Known before it is there, so that a run which is terminated leaves none.
    with ended_with_the_run(lambda: shutil.rmtree(folder, ignore_errors=True)):
        try:
            folder.mkdir(mode=0o700)
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def temporary_folders(parent: Path, name: str, kind: Kind) -> list[Path]:
    """Return the temporary folders of a name, whoever made them; of other names none."""
    prefix = f".{name}.{kind}-"
    try:
        entries = [entry for entry in os.scandir(parent) if entry.name.startswith(prefix)]
    except OSError:
        return []
    length = len(prefix) + 2 * _RANDOM_BYTES_N
    return [
        Path(entry.path)
        for entry in entries
        if len(entry.name) == length and entry.is_dir(follow_symlinks=False)
    ]


def remove_abandoned(parent: Path, name: str) -> None:
    """Remove temporary folders of a name that nobody has written to for a day."""
    for folder in temporary_folders(parent, name, "partial"):
        with suppress(OSError):
            if time.time() - folder.stat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)


def discard(folder: Path, doomed: Path) -> None:
    """Delete a folder; what cannot be deleted stays.

    It gets the name of a temporary folder first: one half deleted, by a run that is killed then, is
    never taken for whole.
    """
    with suppress(OSError):
        os.rename(folder, doomed)
    for item in (doomed, folder):
        shutil.rmtree(item, ignore_errors=True)


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait for whoever else is in a folder likewise; for nobody where nothing can be locked.

    The system lets go when a process ends, however it ends.
    """
    with ExitStack() as stack:
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
