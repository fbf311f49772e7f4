"""What the contract tests share: running the command in this process, and looking at files."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import io
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nsys_llm.run.cli import main
from nsys_llm.view.results import Results


@dataclass(frozen=True)
class Run:
    """How a run ended: exit code, and the lines on standard output and standard error."""

    code: int
    printed: list[str]
    said: list[str]

    @property
    def errors(self) -> list[str]:
        return [line for line in self.said if line.startswith("error: ")]


def run(*arguments: object, recipe: str = "llm_hotspots") -> Run:
    """Run `nsys-llm RECIPE` here; an exception that gets out would be a traceback there."""
    printed, said = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said):
        code = main([recipe, *map(str, arguments)])
    return Run(code, printed.getvalue().splitlines(), said.getvalue().splitlines())


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    """Return the rows of one table of a result."""
    frame = Results(folder).table(table).astype(object)
    return frame.where(frame.notna(), None).to_dict("records")


def row(folder: Path, table: str, **where: object) -> dict[str, Any]:
    """Return the one row of a table that has these values."""
    (match,) = (
        candidate
        for candidate in rows(folder, table)
        if all(candidate[key] == value for key, value in where.items())
    )
    return match


def snapshot(folder: Path) -> dict[str, tuple[int, str]]:
    """Return every file and folder below one, with its time of change and its content's hash."""
    states = {}
    for path in sorted(folder.rglob("*")):
        content = path.read_bytes() if path.is_file() else b""
        state = path.lstat().st_mtime_ns if path.is_file() else 0
        states[str(path.relative_to(folder))] = (state, hashlib.sha256(content).hexdigest())
    return states


class _CapHeader(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _CapSets(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable"))


#: Of linux/capability.h: the version with two words a set, and what lets root ignore modes.
_CAP_VERSION = 0x20080522
_IGNORES_MODES = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH


@contextlib.contextmanager
def unprivileged() -> Iterator[None]:
    """Do without the right of root to ignore the modes of files.

    Root stays the owner of its files. Another user could not import what is imported on the way
    where Python itself lies in root's home.
    """
    if os.geteuid() != 0:
        yield
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header, sets = _CapHeader(_CAP_VERSION, 0), (_CapSets * 2)()
    if libc.capget(ctypes.byref(header), sets):
        pytest.skip("root here cannot tell its rights, and root may read everything")
    before = sets[0].effective
    try:
        sets[0].effective = before & ~_IGNORES_MODES
        assert libc.capset(ctypes.byref(header), sets) == 0
        yield
    finally:
        sets[0].effective = before
        assert libc.capset(ctypes.byref(header), sets) == 0
