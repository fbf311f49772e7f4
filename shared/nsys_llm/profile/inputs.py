"""From what was typed after --input to a list of profiles, and from a path to an open profile."""

from __future__ import annotations

import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from nsys_llm.core.errors import ProfileError, UsageError
from nsys_llm.core.rooted import EVERYWHERE, Roots
from nsys_llm.profile.export import open_export
from nsys_llm.profile.parquet_profile import ParquetProfile
from nsys_llm.profile.sqlite.sqlite_profile import SqliteProfile

_PROFILE_SUFFIXES: Final = (".nsys-rep", ".qdrep")
_SQLITE_SUFFIX: Final = ".sqlite"
_PARQUET_SUFFIX: Final = "_pqtdir"
_SUFFIXES: Final = (*_PROFILE_SUFFIXES, _SQLITE_SUFFIX, _PARQUET_SUFFIX)
#: Folders in folders that are looked into: job, node, attempt.
_MOST_DEEP: Final = 3


@dataclass(frozen=True)
class ProfileInput:
    """One profile to read.

    Attributes:
        path: Absolute, so that it means the same to a worker with another working folder.
        label: Name in every output; unique in the run.
        side: Which of the sets that a run compares it belongs to; "" where there is one only.
    """

    path: str
    label: str
    side: str = ""


def expand_inputs(entries: Sequence[str]) -> tuple[list[ProfileInput], list[str]]:
    """Return the profiles behind files, folders and `folder:n`, in natural order of their names.

    A profile and its exports beside it are one profile, and a path given twice is read once.

    Returns:
        The profiles, and one line for each thing that was left out.

    Raises:
        UsageError: An entry does not exist, is nothing we read, or is a folder without profiles.
    """
    path_of: dict[str, Path] = {}
    notes: list[str] = []
    for entry in entries:
        try:
            found = _profiles_behind(entry)
        except OSError as error:
            raise UsageError(f"{entry}: cannot be accessed ({error.strerror}).") from error
        for path in found:
            # A link keeps its own name, which may tell the rank; what it leads to is read once.
            target = os.path.realpath(path)
            if target not in path_of:
                path_of[target] = path
            elif path_of[target] == path:
                notes.append(f"{path.name}: given twice, read once.")
            else:
                notes.append(f"{path.name}: the same as {path_of[target].name}, read once.")
    paths, twins = _without_exports(list(path_of.values()))
    notes += [f"{twin.name}: left out, {kept.name} is the same profile." for twin, kept in twins]
    labels = label_profiles(paths)
    if any("/" in label for label in labels):
        notes.append("profiles of the same name are labeled with their folders.")
    return [
        ProfileInput(str(path), label) for path, label in zip(paths, labels, strict=True)
    ], notes


def expand_sides(sides: Mapping[str, Sequence[str]]) -> tuple[list[ProfileInput], list[str]]:
    """Return the profiles behind the entries of each side, and what was left out.

    A profile may be on several sides: it is read once for each.

    Args:
        sides: What was typed for each side; the only key "" for a run of one set.

    Raises:
        UsageError: See `expand_inputs`; the message begins with the side.
    """
    inputs: list[ProfileInput] = []
    notes: list[str] = []
    for side, entries in sides.items():
        before = f"{side}: " if side else ""
        try:
            profiles, left_out = expand_inputs(entries)
        except UsageError as error:
            raise UsageError(f"{before}{error.message}") from error
        inputs += [replace(profile, side=side) for profile in profiles]
        notes += [f"{before}{note}" for note in left_out]
    return (inputs if len(sides) == 1 else _labelled_apart(inputs)), notes


def _labelled_apart(profiles: Sequence[ProfileInput]) -> list[ProfileInput]:
    """Label profiles of several sides: by their folders, or by their side where it is the same."""
    paths = list(dict.fromkeys(profile.path for profile in profiles))
    labels = dict(zip(paths, label_profiles([Path(path) for path in paths]), strict=True))
    shared = Counter(labels[profile.path] for profile in profiles)
    named = ((profile, labels[profile.path]) for profile in profiles)
    return [
        replace(profile, label=f"{profile.side}:{label}" if shared[label] > 1 else label)
        for profile, label in named
    ]


def label_profiles(paths: Sequence[Path]) -> list[str]:
    """Return the shortest trailing parts of the paths, without suffix, that are all distinct."""
    labels = [_printable(_stem(path)) for path in paths]
    folders = [path.parent.relative_to(path.anchor).parts for path in paths]
    deepest = max(map(len, folders), default=0)
    depth = 0
    while len(set(labels)) < len(labels) and depth < deepest:
        depth += 1
        labels = [
            _printable("/".join([*above[-depth:], _stem(path)]))
            for path, above in zip(paths, folders, strict=True)
        ]
    return labels


def natural_key(text: str) -> tuple[list[tuple[int, int | str]], str]:
    """Return a sort key that puts rank2 before rank10, and orders rank1 and rank01 too."""
    parts = re.split(r"(\d+)", text)
    return [(0, int(part)) if part.isdecimal() else (1, part) for part in parts if part], text


@contextmanager
def open_profile(
    path: str,
    tables: Sequence[str],
    *,
    export_dir: str | None = None,
    nsys: str | None = None,
    again: bool = False,
    roots: Roots = EVERYWHERE,
) -> Iterator[ParquetProfile | SqliteProfile]:
    """Open a profile of any kind, exporting it first where that is needed.

    Args:
        path: A `.nsys-rep`, `.qdrep` or `.sqlite` file, or a `_pqtdir` folder.
        export_dir: Where exports go and are looked for; None: beside the profile.
        again: It was open before in this run: what was not kept is not exported a second time.

    Raises:
        ProfileError: The profile cannot be read.
    """
    file = Path(path)
    if _is_folder(file):
        with ParquetProfile(file, roots) as parquet:
            yield parquet
    elif file.name.endswith(_PROFILE_SUFFIXES):
        where = {"export_dir": export_dir, "nsys": nsys}
        with open_export(file, tables, **where, again=again, roots=roots) as exported:
            yield exported
    else:
        with SqliteProfile(file, roots) as sqlite:
            yield sqlite


def _is_folder(file: Path) -> bool:
    """Return whether a profile is a folder; else it is a file.

    Raises:
        ProfileError: It is not there, may not be looked at, or is neither.
    """
    try:
        mode = file.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        if file.is_symlink():
            raise ProfileError(f"{file.name}: a link to what is not there.") from error
        raise ProfileError(
            f"{file.name}: no longer found: removed during the run, or in a folder that this Dask "
            "worker does not see; all workers must see the same folders."
        ) from error
    except OSError as error:
        raise ProfileError(f"{file.name}: cannot be accessed ({error.strerror}).") from error
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
        raise ProfileError(f"{file.name}: neither a file nor a folder.")  # a pipe, say: no end
    return stat.S_ISDIR(mode)


def _profiles_behind(entry: str) -> list[Path]:
    path, limit = Path(entry), None
    if not _exists(path) and (match := re.fullmatch(r"(.+):(\d+)", entry, re.DOTALL)):
        path, limit = Path(match[1]), int(match[2])
    if not _exists(path):
        raise UsageError(f"{entry}: does not exist; give profiles, or folders that hold them.")
    if limit == 0:
        raise UsageError(f"{entry}: ':0' selects no profiles; write :1 or more.")
    path = Path(os.path.abspath(path))
    if path.is_file():
        if limit is not None:
            raise UsageError(f"{entry}: ':n' is for folders, and this is a file.")
        if not path.name.endswith((*_PROFILE_SUFFIXES, _SQLITE_SUFFIX)):
            raise UsageError(f"{entry}: not a profile; give .nsys-rep, .qdrep, .sqlite or _pqtdir.")
        return [path]
    if not path.is_dir():
        raise UsageError(f"{entry}: neither a file nor a folder.")
    if path.name.endswith(_PARQUET_SUFFIX) or (path / "StringIds.parquet").is_file():
        return [path]
    if profiles := _profiles_below(path):
        return _without_exports(profiles)[0][:limit]
    raise UsageError(
        f"{entry}: no profiles in this folder (.nsys-rep, .qdrep, .sqlite, _pqtdir), nor in "
        "folders in it."
    )


def _exists(path: Path) -> bool:
    """Return whether a path exists; unlike Path.exists, say so if that cannot be told."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _profiles_below(folder: Path, depth: int = 0) -> list[Path]:
    """Return the profiles in a folder, or where it has none, those in each folder in it."""
    names = sorted(folder.iterdir(), key=lambda path: natural_key(path.name))
    # A link to nowhere is kept, so that its rank is listed as failed and not left out.
    folders = [path for path in names if path.is_dir()]
    files = [path for path in names if path not in folders]
    profiles = [path for path in files if path.name.endswith((*_PROFILE_SUFFIXES, _SQLITE_SUFFIX))]
    profiles += [path for path in folders if path.name.endswith(_PARQUET_SUFFIX)]
    if profiles or depth == _MOST_DEEP:
        return profiles
    return [path for below in folders for path in _profiles_below(below, depth + 1)]


def _without_exports(paths: Sequence[Path]) -> tuple[list[Path], list[tuple[Path, Path]]]:
    """Keep one path a profile: the profile itself, else its SQLite export, else its parquet one.

    Returns:
        The kept paths in natural order; and the others, each with the one kept in its place.
    """
    by_profile: dict[Path, list[Path]] = {}
    for path in sorted(paths, key=_preference):
        by_profile.setdefault(path.with_name(_stem(path)), []).append(path)
    firsts = (same[0] for same in by_profile.values())
    kept = sorted(firsts, key=lambda path: natural_key(str(path)))
    twins = [(twin, same[0]) for same in by_profile.values() for twin in same[1:]]
    return kept, twins


def _preference(path: Path) -> int:
    return next((i for i, suffix in enumerate(_SUFFIXES) if path.name.endswith(suffix)), 9)


def _printable(name: str) -> str:
    """Return a file name as text that any file can hold: bytes that are no UTF-8 are escaped."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _stem(path: Path) -> str:
    for suffix in _SUFFIXES:
        if path.name.endswith(suffix) and path.name != suffix:
            return path.name.removesuffix(suffix)
    return path.name
