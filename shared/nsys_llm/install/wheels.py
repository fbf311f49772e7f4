"""The compiled library of a wheel, and what stops pip.

Standard library only: install.py loads this from the checkout, before anything is installed.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

_LIBRARY: Final = "nsys_llm/profile/sqlite/_leaf.so"

#: A text in pip's output, and what we say about it. The first that fits counts.
_ADVICE: Final = (
    ("externally-managed-environment", "{} takes no packages itself (PEP 668); use --venv DIR"),
    ("No module named pip", "{} has no pip; use --venv DIR, or: apt install python3-pip"),
    ("Permission denied", "no permission to write for {}; use --venv DIR, a folder of yours"),
    ("connection broken", "no network, it seems; check it, or name a mirror in PIP_INDEX_URL"),
    (
        "No matching distribution",
        "the package index or --find-links lacks something, or there is no network",
    ),
    ("", "could not install into {}"),
)


@contextmanager
def built_library(
    python: str,
    wheels: str | None,
    copy_sources: Callable[[Path], Path],
    run: Callable[..., object],
) -> Iterator[Path | None]:
    """Have the compiled library of a wheel of this run within the block; None where it has none.

    Args:
        python: The one whose pip builds it.
        wheels: A folder of wheels to take it from instead.
        copy_sources: Copies the checkout into a folder.
        run: Runs a command, with variables added to its environment.
    """
    if os.environ.get("NSYS_LLM_NATIVE", "").lower() in ("0", "false", "no", "off"):
        yield None
        return
    with TemporaryDirectory(prefix="nsys-llm-") as temporary:
        folder = Path(temporary)
        built = Path(wheels).expanduser() if wheels else folder / "wheels"
        if not wheels:
            source = str(copy_sources(folder / "source"))
            # Without pip or a network it goes without: nobody waits for what is optional.
            words = ("--no-deps", "--retries", "0", "--timeout", "5", "-w", str(built), source)
            with suppress(OSError):
                run([python, "-m", "pip", "wheel", "-q", *words], TMPDIR=str(folder))
        yield _library(built, folder)


def _library(wheels: Path, folder: Path) -> Path | None:
    for wheel in wheels.glob("nsys_llm_recipes-*.whl"):
        with zipfile.ZipFile(wheel) as file:
            if _LIBRARY in file.namelist():
                return Path(file.extract(_LIBRARY, folder))
    return None


def pip_advice(output: str) -> str:
    """Return what to do about a failure of pip; `{}` stands for the Python."""
    return next(advice for sign, advice in _ADVICE if sign in output)


def last_line(output: str) -> str:
    """Return the last line that reports an error, else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error: ")]
    # Says only that another program, whose words stand above, has failed.
    errors = [line for line in errors if not line.endswith("subprocess-exited-with-error")]
    return (errors or lines or ["no message"])[-1]
