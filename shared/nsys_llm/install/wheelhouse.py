"""The archive of wheels for machines without a network, and what stops pip.

Standard library only: install.py loads this from the checkout, before anything is installed.
"""

from __future__ import annotations

import gzip
import os
import tarfile
import zlib
from pathlib import Path, PurePosixPath
from typing import Final

from nsys_llm.core.errors import UsageError

_FOLDER: Final = "nsys-llm-recipes"

#: Many times what the wheels of all requirements have.
_MOST_BYTES: Final = 4 << 30
_MOST_MEMBERS: Final = 10_000
#: Of an archive at once. `tarfile` reads a long name or a pax header whole, whatever it claims.
_MOST_READ_BYTES: Final = 1 << 20

#: What reading an archive can raise; `tarfile` calls itself for each header before a file.
_DAMAGE: Final = (
    tarfile.TarError,
    zlib.error,
    EOFError,
    OSError,
    ValueError,
    OverflowError,
    RecursionError,
)

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

    Every member is looked at before the first is written.

    Raises:
        UsageError: It is no archive of ours, or a member would leave the folder.
    """
    try:
        with _Unpacked(archive) as stream, tarfile.open(fileobj=stream, mode="r:") as tar:
            members = _sound_members(tar, archive)
            for member in members:
                _write(tar, member, folder)
    except _DAMAGE as error:
        raise UsageError(f"{archive}: cannot be unpacked ({error})") from None
    if not any((folder / _FOLDER).glob("*.whl")):
        raise UsageError(f"{archive} holds no wheels; make it with: python3 install.py --tar")
    return folder / _FOLDER


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


class _Unpacked(gzip.GzipFile):
    """The bytes in an archive; a few kilobytes of it can claim, and unpack to, many gigabytes."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= _MOST_READ_BYTES:
            raise ValueError(f"it claims a header of {size or -1:,} bytes")
        return super().read(size)


def _sound_members(tar: tarfile.TarFile, archive: Path) -> list[tarfile.TarInfo]:
    """Return all members, each looked at before the next is read: a few bytes can claim much."""
    members: list[tarfile.TarInfo] = []
    size_bytes = 0
    for member in tar:
        _refuse(archive, member)
        members.append(member)
        size_bytes += member.size
        if size_bytes > _MOST_BYTES or len(members) > _MOST_MEMBERS:
            raise UsageError(
                f"{archive}: refused, it holds more than {_MOST_BYTES >> 30} GB or "
                f"{_MOST_MEMBERS:,} files; all wheels together have some 300 MB"
            )
    return members


def _refuse(archive: Path, member: tarfile.TarInfo) -> None:
    path = PurePosixPath(member.name)
    plain = (member.isfile() and not member.issparse()) or member.isdir()
    # A backslash and a drive are separators elsewhere.
    outside = path.is_absolute() or ".." in path.parts or any(c in member.name for c in "\\:")
    if not plain or outside:
        raise UsageError(
            f"{archive}: refused, {member.name!r} is "
            f"{'outside of its folder' if outside else 'neither a file nor a folder'}"
        )


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Write one member by ourselves, so that it brings no owner, mode or time along."""
    target = folder / member.name
    if member.isdir():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    source = tar.extractfile(member)
    if source is not None:
        with source, open(target, "wb") as file:
            while block := source.read(_MOST_READ_BYTES):
                file.write(block)
