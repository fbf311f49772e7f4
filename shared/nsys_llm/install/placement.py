"""Folders of ours inside a folder of somebody else: placed, replaced and removed whole.

A record beside them names every file, and nothing that is not in it is ever replaced or removed.
New folders are made complete in a temporary sibling and then renamed into place. The record is the
first that is written and the last that is removed, so that whoever is stopped in the middle leaves
nothing that the next call cannot tell from other people's files, and replace.

Standard library only: install.py loads this from the checkout, before anything is installed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final

from nsys_llm.core.errors import OutputError, UsageError

#: The record, in the folder that ours are placed in.
RECORD: Final = "nsys-llm-recipes.json"
#: Beside it while a placement runs: what waits to be renamed.
STAGING: Final = ".nsys-llm-recipes.new"

_CACHE: Final = "__pycache__"


class NotWritableError(OutputError):
    """There is no permission to change a folder; nothing was changed."""


@dataclass(frozen=True)
class Record:
    """What was written; until a placement is done, what may be there of two versions.

    Attributes:
        folders: Those that are ours as a whole, relative; each needs what stands before it.
        files: All files in them, relative to the same.
    """

    version: str
    folders: list[str]
    files: list[str]


def newer(version: str, other: str) -> bool:
    """Return whether a version is newer than another; 1.0rc1 is older than 1.0."""

    def key(version: str) -> tuple[list[int], bool, str]:
        numbers, rest = re.fullmatch(r"([\d.]*)(.*)", version, re.DOTALL).groups()  # type: ignore[union-attr]
        return [int(number) for number in numbers.split(".") if number], not rest, rest

    return key(version) > key(other)


def read_record(root: Path) -> Record | None:
    """Return what was placed in a folder, or None.

    Raises:
        UsageError: The record cannot be understood, or names something outside the folder.
    """
    try:
        content = json.loads((root / RECORD).read_text("utf-8"))
        record = Record(**{name: content[name] for name in Record.__dataclass_fields__})
        paths = [PurePosixPath(path) for path in [*record.folders, *record.files]]
        if any(path.is_absolute() or ".." in path.parts or not path.parts for path in paths):
            raise ValueError
        below = [PurePosixPath(folder) for folder in record.folders]
        if not all(set(path.parents) & set(below) for path in paths[len(below) :]):
            raise ValueError
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise UsageError(f"{root / RECORD} is damaged; remove by hand what it lists") from None
    return record


def place(root: Path, folders: Mapping[str, Mapping[str, Path]], version: str) -> str | None:
    """Place folders in a folder, in place of those of an older or the same version.

    Args:
        folders: For each folder of ours its files, both relative to what they lie in. A folder
            comes after those that it needs.

    Returns:
        The version that was replaced, or None.

    Raises:
        NotWritableError: There is no permission.
        UsageError: Something there is newer, or is not ours.
    """
    old = read_record(root)
    _refuse(root, old, folders, version)
    files = [f"{folder}/{name}" for folder, sources in folders.items() for name in sources]
    everything = list(dict.fromkeys([*folders, *(old.folders if old else ())]))
    before = old.files if old else []
    _write_record(root, Record(version, everything, list(dict.fromkeys([*files, *before]))))
    staging = root / STAGING
    try:
        shutil.rmtree(staging, ignore_errors=True)
        _stage(staging, folders)
        for folder in reversed(everything):
            shutil.rmtree(root / folder, ignore_errors=True)
        for folder in folders:
            os.rename(staging / folder, root / folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    _write_record(root, Record(version, list(folders), files))
    return old.version if old else None


def remove(root: Path) -> list[str] | None:
    """Remove what is recorded in a folder, and the caches that Python made below it.

    Returns:
        What was kept, because somebody added it; None where nothing is recorded.

    Raises:
        NotWritableError: There is no permission.
        UsageError: The record is damaged.
    """
    record = read_record(root)
    if record is None:
        return None
    _check_writable([root, *((root / folder).parent for folder in record.folders)])
    for folder in reversed(record.folders):
        if not (root / folder).is_symlink():
            _remove_folder(root, folder, record)
    shutil.rmtree(root / STAGING, ignore_errors=True)
    if kept := [name for folder in record.folders for name in _content(root, folder)]:
        # Known until they are gone: else nobody could tell later that a folder was ours.
        _write_record(root, replace(record, files=[]))
        return kept
    (root / RECORD).unlink()
    return []


def _refuse(
    root: Path, old: Record | None, folders: Mapping[str, Mapping[str, Path]], version: str
) -> None:
    if old and newer(old.version, version):
        raise UsageError(
            f"{root} has nsys-llm-recipes {old.version}, and this is {version}, which is older; "
            f"remove that one first, with its --uninstall"
        )
    if os.path.lexists(root / STAGING) and old is None:
        raise UsageError(f"{root / STAGING} was not made by install.py; move it away")
    for folder in {**folders, **dict.fromkeys(old.folders if old else ())}:
        for name in _content(root, folder):
            if old is None or name not in old.files or (root / name).is_symlink():
                raise UsageError(f"{root / name} was not written by install.py; move it away")
    _check_writable([root, *((root / folder).parent for folder in folders)])


def _check_writable(folders: list[Path]) -> None:
    for folder in folders:
        if folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
            raise NotWritableError(f"no permission to write to {folder}")


def _content(root: Path, folder: str) -> Iterator[str]:
    """Yield the relative paths of all files and links in a folder but those of Python's caches."""
    if (root / folder).is_symlink() or (root / folder).is_file():
        yield folder
    for parent, folders, files in os.walk(root / folder):
        links = [name for name in folders if os.path.islink(os.path.join(parent, name))]
        for name in sorted([*links, *files]):
            if not (os.path.basename(parent) == _CACHE and ".pyc" in name):
                yield Path(parent, name).relative_to(root).as_posix()


def _stage(staging: Path, folders: Mapping[str, Mapping[str, Path]]) -> None:
    """Copy all files, readable by everybody whatever the umask: other users run them."""
    for folder, sources in folders.items():
        for name, source in sources.items():
            target = staging / folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    for parent, _, files in os.walk(staging):
        os.chmod(parent, 0o755)
        for name in files:
            os.chmod(os.path.join(parent, name), 0o644)


def _write_record(root: Path, record: Record) -> None:
    temporary = root / f"{RECORD}.new"
    text = json.dumps({"package": "nsys-llm-recipes", **asdict(record)}, indent=1)
    temporary.write_text(f"{text}\n", "utf-8")
    os.chmod(temporary, 0o644)
    os.replace(temporary, root / RECORD)


def _remove_folder(root: Path, folder: str, record: Record) -> None:
    for name in record.files:
        path = root / name
        inside = PurePosixPath(folder) in PurePosixPath(name).parents
        if inside and path.is_file() and not path.is_symlink():
            path.unlink()
    for parent, _, files in os.walk(root / folder, topdown=False):
        if os.path.basename(parent) == _CACHE:
            for name in files:
                if ".pyc" in name:
                    os.unlink(os.path.join(parent, name))
        if not os.listdir(parent):
            os.rmdir(parent)
