"""Exports of `.nsys-rep` and `.qdrep` files: finds a valid one, or has `nsys export` make it."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from glob import glob
from pathlib import Path
from typing import Final

from nsys_llm.core.errors import ProfileError
from nsys_llm.core.rooted import EVERYWHERE, Roots
from nsys_llm.core.scratch import alone_in, scratch_folder
from nsys_llm.core.stopping import program_of_the_run
from nsys_llm.profile.file_state import FileState
from nsys_llm.profile.parquet_profile import ParquetProfile
from nsys_llm.profile.sqlite.sqlite_profile import SqliteProfile
from nsys_llm.profile.tables import table_source

#: Tables that the frame itself reads of every profile, in our names.
ALWAYS_EXPORTED: Final = (
    *("capture", "capture_spans", "cuda_devices", "export", "gpus"),
    *("mpi_ranks", "processes", "session", "strings", "system"),
)

# Tables that only some releases know, or only some export types write; their absence from a folder
# of parquet files does not tell that they were not exported.
_NOT_ALWAYS_WRITTEN: Final = (
    *("capture", "cuda_devices", "graph_traces", "mpi_ranks"),
    *("payload_schemas", "payload_entries"),
)

# Parameters of an export that leave out time or move it.
_PARTIAL_KEYS: Final = (
    "EXPORT_PARAM_TIMES_TO_EXPORT",
    "EXPORT_PARAM_TIME_NORMALIZE",
    "EXPORT_PARAM_TIME_SHIFT",
)

#: Exports the payloads of NVTX ranges too; nsys of 2023.4 does not know it.
_BLOBS: Final = "--include-blobs=true"
#: How long an export may take: 10 minutes, and a second for each megabyte, where nsys takes 0.1 s.
_EXPORT_SECONDS: Final = 600.0
_EXPORT_BYTES_PER_SECOND: Final = 1_000_000
#: Of a disk with less, nobody can tell what an export lacks.
_LEAST_FREE_BYTES: Final = 1 << 20

_INSTALL_PATTERNS: Final = (
    "/opt/nvidia/nsight-systems/*/bin/nsys",
    "/opt/nvidia/nsight-systems-cli/*/bin/nsys",
)


def find_nsys(given: str | None = None) -> str | None:
    """Return the `nsys` to export with, or None.

    Args:
        given: The one that runs us, if any; it wins. Then `NSYS_DIR`, PATH, and the newest below
            `/opt/nvidia`.
    """
    candidates: list[str | None] = [given]
    if folder := os.environ.get("NSYS_DIR"):
        candidates += [f"{folder}/nsys", f"{folder}/bin/nsys", *glob(f"{folder}/target-*/nsys")]
    candidates.append(shutil.which("nsys"))
    for pattern in _INSTALL_PATTERNS:
        candidates += [*sorted(glob(pattern), key=_version, reverse=True)]
    usable = (path for path in candidates if path and os.access(path, os.X_OK))
    return next((path for path in usable if Path(path).is_file()), None)


@contextmanager
def open_export(
    profile: Path,
    tables: Sequence[str],
    *,
    export_dir: str | None,
    nsys: str | None,
    again: bool = False,
    roots: Roots = EVERYWHERE,
) -> Iterator[ParquetProfile | SqliteProfile]:
    """Open a valid export of a profile, making one if there is none.

    Looked for beside the profile, or in `export_dir` where given: parquet that has the tables, else
    SQLite, both not older than the profile. A new export holds the tables in parquet; where neither
    folder can be written, it lives in a temporary folder for as long as it is open. An empty
    profile only says that there is one: its export is used, and none can be made.

    Args:
        again: Make none: an export takes longer than all that follows.

    Raises:
        ProfileError: The profile cannot be read or exported.
    """
    state = _state_of(profile, roots)
    written_ns = state.st_mtime_ns
    folder = Path(export_dir) if export_dir else profile.parent
    name = _name_elsewhere(profile) if export_dir else profile.stem
    parquet, sqlite = folder / f"{name}_pqtdir", folder / f"{name}.sqlite"
    # Files that another run is about to put there would be taken for a change.
    with alone_in(parquet):
        export = _valid_export(parquet, sqlite, tables, written_ns, roots)
    if export is not None:
        with export:
            yield export
        return
    if again:
        raise ProfileError(f"{profile.name}: its export was not kept; give --export-dir.")
    if not state.st_size:
        raise ProfileError(
            f"{profile.name}: the file is empty; profile again, or give an export of it."
        )
    if (found := find_nsys(nsys)) is None:
        raise ProfileError(
            f"{profile.name}: needs an export, and no nsys was found on PATH or below /opt/nvidia; "
            f"make one where nsys is: nsys export --type sqlite --lazy false {profile.name}."
        )
    with _new_export(profile, parquet, tables, found, roots) as made:
        if FileState.of(_state_of(profile, roots)) != FileState.of(state):
            raise ProfileError(f"{profile.name}: changed while it was exported; run again.")
        yield made


@contextmanager
def _new_export(
    profile: Path, parquet: Path, tables: Sequence[str], nsys: str, roots: Roots
) -> Iterator[ParquetProfile]:
    with ExitStack() as stack:
        target = parquet
        try:
            # An export of a part stays as it is: mixed with ours, nobody could tell what is whole.
            # One that leads elsewhere may be anywhere.
            kept = parquet.is_symlink() if roots.folders else False
            kept = kept or (parquet.is_dir() and _is_partial(parquet))
            if kept or not _writable(parquet.parent):
                scratch = scratch_folder(Path(tempfile.gettempdir()), "nsys-llm-export")
                target = stack.enter_context(scratch) / parquet.name
            _export(profile, target, tables, nsys)
        except OSError as error:
            where = Path(error.filename or target.parent).name
            raise ProfileError(
                f"{profile.name}: cannot be exported with nsys ({where}: {error.strerror}); give "
                "--export-dir, or export it in a writable place."
            ) from error
        made = stack.enter_context(ParquetProfile(target))
        made.stays_made = target == parquet
        yield made


def _valid_export(
    parquet: Path,
    sqlite: Path | None,
    tables: Sequence[str],
    written_ns: int,
    roots: Roots = EVERYWHERE,
) -> ParquetProfile | SqliteProfile | None:
    """Open the export beside a profile, if it is newer, whole and readable."""
    export: ParquetProfile | SqliteProfile
    try:
        if parquet.is_dir() and _has_tables(parquet, tables, written_ns):
            export = ParquetProfile(parquet, roots)
            for table in tables:
                export.columns(table)  # reads the end of the file, where a cut-off one shows
        elif sqlite and sqlite.is_file() and sqlite.stat().st_mtime_ns >= written_ns:
            export = SqliteProfile(sqlite, roots)
        else:
            return None
    except (ProfileError, PermissionError):
        # An export that was interrupted, or is another user's; the profile itself may be good.
        return None
    if _is_whole(export):
        return export
    with export:
        return None


def _is_partial(folder: Path) -> bool:
    try:
        return not _is_whole(ParquetProfile(folder))
    except ProfileError:
        return False  # an empty or half-made folder holds nothing to spoil


def _is_whole(export: ParquetProfile | SqliteProfile) -> bool:
    """Return whether an export holds all of the capture's time, in the capture's own clock."""
    values = dict(export.key_values("export", _PARTIAL_KEYS))
    return not any(value not in ("", "0", "false") for value in values.values())


def _name_elsewhere(profile: Path) -> str:
    """Return a name that profiles of the same name from different folders do not share."""
    origin = hashlib.sha256(os.fsencode(profile.resolve())).hexdigest()
    return f"{profile.stem}-{origin[:8]}"


def _has_tables(folder: Path, tables: Sequence[str], written_ns: int) -> bool:
    """Return whether each table was exported after the profile was written."""
    listed = _tables_exported(folder, written_ns)
    for table in (*tables, "strings"):
        name = table_source(table).nsys
        file = folder / f"{name}.parquet"
        fresh = file.is_file() and file.stat().st_mtime_ns >= written_ns
        # An export of this table left no file: it had no rows, or its nsys does not know it.
        known_empty = listed is not None and (not listed or name in listed) and not file.is_file()
        optional = listed is not None and table in _NOT_ALWAYS_WRITTEN
        if not (fresh or known_empty or optional):
            return False
    return True


def _tables_exported(folder: Path, written_ns: int) -> frozenset[str] | None:
    """Return the tables that the last full record says it exported; empty: all; None: no record."""
    record = folder / f"{table_source('export').nsys}.parquet"
    if not record.is_file() or record.stat().st_mtime_ns < written_ns:
        return None
    if not (folder / f"{table_source('strings').nsys}.parquet").is_file():
        return None
    rows = ParquetProfile(folder).key_values("export", ("EXPORT_PARAM_TABLES_TO_EXPORT",))
    names = rows[0][1] if rows else ""
    return frozenset(names.replace(",", " ").split())


def _export(profile: Path, target: Path, tables: Sequence[str], nsys: str) -> None:
    """Export into a sibling folder, then move file by file: a reader never sees half a table.

    What another run has exported meanwhile stays, as it may be reading it.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    wanted = dict.fromkeys([*tables, *ALWAYS_EXPORTED])
    names = ",".join(dict.fromkeys(table_source(table).nsys for table in wanted))
    written_ns = profile.stat().st_mtime_ns
    with scratch_folder(target.parent, target.name) as scratch:
        made = scratch / target.name
        command = [nsys, "export", "--type", "parquetdir", "--lazy", "false", "--force-overwrite"]
        command += ["true", "--tables", names, "--output", str(made)]
        if "payloads" in tables:
            known = _run([nsys, "export", "--help"], profile).stdout
            command += [_BLOBS] if _BLOBS.partition("=")[0] in known else []
        done = _run([*command, str(profile)], profile)
        whole = done.returncode == 0 and made.is_dir() and _opens(made)
        if shutil.disk_usage(scratch).free < _LEAST_FREE_BYTES:
            # Also where nsys noticed nothing: what it could not write looks like an empty table.
            raise ProfileError(
                f"{profile.name}: cannot be exported, the disk is full ({target.parent.name}); "
                "make room, or give --export-dir."
            )
        if not whole:
            raise ProfileError(
                f"{profile.name}: nsys export failed ({_last_words(done, profile, scratch)}); "
                f"check the file with: nsys stats {profile.name}."
            )
        target.mkdir(exist_ok=True)
        with alone_in(target):
            if not _is_exported(target, tables, written_ns):
                for file in made.iterdir():
                    # As old as the profile, where the clock of the profile's host is ahead.
                    if file.stat().st_mtime_ns < written_ns:
                        os.utime(file, ns=(written_ns, written_ns))
                _move(made, target)


def _opens(made: Path) -> bool:
    """Return whether an export has tables, and each of them all of its rows."""
    from pyarrow import ArrowException
    from pyarrow.parquet import read_metadata

    try:
        tables = [read_metadata(file) for file in made.glob("*.parquet")]
    except (OSError, ArrowException):
        return False
    return bool(tables) and all(
        table.num_rows == sum(table.row_group(n).num_rows for n in range(table.num_row_groups))
        for table in tables
    )


def _is_exported(folder: Path, tables: Sequence[str], written_ns: int) -> bool:
    export = _valid_export(folder, None, tables, written_ns)
    if export is None:
        return False
    with export:
        return True


def _move(made: Path, target: Path) -> None:
    # The record of what was exported goes last; it vouches for the others.
    files = sorted(made.iterdir(), key=lambda file: file.stem == table_source("export").nsys)
    for file in files:
        os.replace(file, target / file.name)


def _run(command: Sequence[str], profile: Path) -> subprocess.CompletedProcess[str]:
    limit_s = _EXPORT_SECONDS + profile.stat().st_size / _EXPORT_BYTES_PER_SECOND
    start = partial(
        subprocess.Popen,
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
    )
    with program_of_the_run(start) as program:
        try:
            printed, said = program.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired as error:
            raise ProfileError(
                f"{profile.name}: nsys export was stopped after {limit_s:,.0f} s; export it by "
                f"hand: nsys export --type sqlite --lazy false {profile.name}."
            ) from error
    return subprocess.CompletedProcess(command, program.returncode, printed, said)


def _last_words(done: subprocess.CompletedProcess[str], profile: Path, scratch: Path) -> str:
    lines = [line for line in (done.stderr + "\n" + done.stdout).splitlines() if line.strip()]
    telling = [line for line in lines if not line.lstrip().startswith(("Processing", "["))]
    words = " ".join((telling or lines or ["no message"])[-1].split("\r")[-1].split())
    for folder in (scratch, profile.parent):
        words = words.replace(f"{folder}{os.sep}", "")
    return f"exit {done.returncode}: {words[:200]}"


def _writable(folder: Path) -> bool:
    existing = folder
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    return os.access(existing, os.W_OK | os.X_OK)


def _state_of(profile: Path, roots: Roots) -> os.stat_result:
    try:
        with roots.opened(profile) as place, place.open("rb") as file:
            return os.fstat(file.fileno())
    except OSError as error:
        raise ProfileError(f"{profile.name}: cannot be read ({error.strerror}).") from error


def _version(path: str) -> list[int]:
    return [int(part) for part in Path(path).parts[-3].split(".") if part.isdigit()]
