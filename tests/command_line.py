"""What the contract tests share: running the command in this process, and looking at files."""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from nsys_llm.run.cli import main


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
    return pq.read_table(folder / f"{table}.parquet").to_pylist()


def row(folder: Path, table: str, **where: object) -> dict[str, Any]:
    """Return the one row of a table that has these values."""
    (found,) = (
        one for one in rows(folder, table) if all(one[key] == value for key, value in where.items())
    )
    return found


def snapshot(folder: Path) -> dict[str, tuple[int, str]]:
    """Return every file and folder below one, with its time of change and its content's hash."""
    found = {}
    for path in sorted(folder.rglob("*")):
        content = path.read_bytes() if path.is_file() else b""
        state = path.lstat().st_mtime_ns if path.is_file() else 0
        found[str(path.relative_to(folder))] = (state, hashlib.sha256(content).hexdigest())
    return found


@contextlib.contextmanager
def unprivileged() -> Iterator[None]:
    """Do without the rights of root, which may read and write everything."""
    if os.geteuid() != 0:
        yield
        return
    nobody = 65534
    try:
        os.setresuid(nobody, nobody, 0)
    except OSError:
        pytest.skip("root here cannot become another user, and root may read everything")
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)


@contextlib.contextmanager
def open_folder() -> Iterator[Path]:
    """Make a folder that every user may write to, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o777)
        yield folder
        for path in folder.rglob("*"):
            if path.is_dir():
                path.chmod(0o755)
