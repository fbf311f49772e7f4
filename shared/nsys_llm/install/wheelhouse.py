"""The archive of wheels for machines without a network, and what stops pip.

Standard library only: install.py loads this from the checkout, before anything is installed.
"""

from __future__ import annotations

import os
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from nsys_llm.core.errors import UsageError

_FOLDER: Final = "nsys-llm-recipes"
_LIBRARY: Final = "nsys_llm/profile/sqlite/_leaf.so"

#: A text in pip's output, and what we say about it. The first that fits counts.
_ADVICE: Final = (
    ("externally-managed-environment", "{} takes no packages itself (PEP 668); use --venv DIR"),
    ("No module named pip", "{} has no pip; use --venv DIR, or: apt install python3-pip"),
    ("Permission denied", "no permission to write for {}; use --venv DIR, a folder of yours"),
    ("connection broken", "no network, it seems; check it, or name a mirror in PIP_INDEX_URL"),
    ("No matching distribution", "the package index lacks something, or there is no network"),
    ("", "could not install into {}"),
)


def pack(wheels: Path, archive: Path) -> None:
    """Write the wheels of a folder to an archive, which appears whole or not at all.

    Raises:
        UsageError: The archive exists.
    """
    if os.path.lexists(archive):
        raise UsageError(f"{archive} exists; move it away")
    temporary = archive.with_name(f".{archive.name}.new")
    try:
        with tarfile.open(temporary, "w:gz") as tar:
            for wheel in sorted(wheels.glob("*.whl")):
                tar.add(wheel, f"{_FOLDER}/{wheel.name}")
        os.replace(temporary, archive)
    finally:
        temporary.unlink(missing_ok=True)


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack an archive of wheels into a folder, and return where they are.

    Raises:
        UsageError: It is no archive of ours, or a member would leave the folder.
    """
    if not hasattr(tarfile, "data_filter"):
        raise UsageError("this Python cannot unpack safely; use 3.10.12, 3.11.4 or newer")
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    except (tarfile.TarError, zlib.error, EOFError, OSError, ValueError) as error:
        reason = str(error).partition("\n")[0].rstrip(":")
        raise UsageError(f"{archive}: cannot be unpacked ({reason})") from None
    if not any((folder / _FOLDER).glob("*.whl")):
        raise UsageError(f"{archive} holds no wheels; make it with: python3 install.py --tar")
    return folder / _FOLDER


@contextmanager
def built_library(
    python: str,
    archive: str | None,
    copy_sources: Callable[[Path], Path],
    run: Callable[..., object],
) -> Iterator[Path | None]:
    """Have the compiled library of a wheel of this run within the block; None where it has none.

    Args:
        python: The one whose pip builds it.
        archive: Of wheels, to take it from instead.
        copy_sources: Copies the checkout into a folder.
        run: Runs a command, with variables added to its environment.
    """
    if os.environ.get("NSYS_LLM_NATIVE", "").lower() in ("0", "false", "no", "off"):
        yield None
        return
    with TemporaryDirectory(prefix="nsys-llm-") as temporary:
        folder = Path(temporary)
        wheels = folder / "wheels"
        if archive:
            wheels = unpack(Path(archive).expanduser(), folder)
        else:
            source = str(copy_sources(folder / "source"))
            # Without pip or a network it goes without: nobody waits for what is optional.
            words = ("--no-deps", "--retries", "0", "--timeout", "5", "-w", str(wheels), source)
            with suppress(OSError):
                run([python, "-m", "pip", "wheel", "-q", *words], TMPDIR=str(folder))
        yield _library(wheels, folder)


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
