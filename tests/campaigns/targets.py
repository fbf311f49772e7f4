"""What is fuzzed. A target is a function of a random generator and an empty folder.

It returns a description of the case, and what was wrong: nothing, if all was as it should be.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import sqlite3
import string
from collections.abc import Callable, Mapping
from contextlib import closing
from importlib.resources import files
from pathlib import Path
from random import Random
from unittest import mock

import numpy as np
import pyarrow.parquet as pq
from campaigns.decorations import decorate
from campaigns.mutations import EVENT_TABLES, damage_bytes, mutate_parquet, mutate_sqlite
from campaigns.outcomes import (
    CHECKS,
    Ended,
    checked,
    differs_from_rows,
    problems,
    run_recipe,
    signed,
)
from campaigns.samples import sample_report
from decoders import DECODERS, decoded_by
from nccl_payloads import SCHEMA_OF, SCHEMAS, add_payloads, call_blob
from quick_run import quick
from trace_builder import TraceBuilder

from nsys_llm.core.errors import ProfileError
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.manifest.manifest import recipe_names
from nsys_llm.profile.capture import read_facts
from nsys_llm.profile.parquet_profile import ParquetProfile
from nsys_llm.profile.sqlite import sqlite_profile
from nsys_llm.profile.sqlite.sqlite_profile import SqliteProfile
from nsys_llm.profile.tables import MOST_BYTES, TableSource, table_source
from nsys_llm.report import report_files

Case = tuple[str, list[str]]
#: Our names of all tables that anything reads.
NAMES = tuple(json.loads((files("nsys_llm.profile") / "data/nsys_tables.json").read_text("utf-8")))


def fuzz_sqlite(random: Random, folder: Path) -> Case:
    """A damaged SQLite export gives right numbers or one line, in every recipe."""
    path = sample_report(random).write_sqlite(folder / "rank0.sqlite")
    done = []
    if random.random() < 0.75:
        done += mutate_sqlite(path, random)
    if random.random() < 0.3:
        done += decorate(path, random.choice(EVENT_TABLES), random)
    if random.random() < 0.35:
        path.write_bytes(damage_bytes(path.read_bytes(), random))
        done.append("bytes")
    before = path.read_bytes()
    # The same table through the pages, or through the driver.
    large = random.choice((1, 1_000_000_000))
    with mock.patch.object(sqlite_profile, "_LARGE_ROWS", large):
        case, faults = _analysed(path, folder, random)
    if path.read_bytes() != before:
        faults.append("the input was changed")
    return f"{'; '.join(done)}; large from {large}; {case}", faults


def fuzz_parquet(random: Random, folder: Path) -> Case:
    """A damaged parquet export gives right numbers or one line, in every recipe."""
    path = sample_report(random).write_parquet(folder / "rank0_pqtdir")
    done = []
    if random.random() < 0.75:
        done += mutate_parquet(path, random)
    if random.random() < 0.35:
        files = sorted(path.glob("*.parquet"))
        file = random.choice(files)
        others = [random.choice(files).read_bytes()]
        file.write_bytes(damage_bytes(file.read_bytes(), random, others))
        done.append(f"bytes of {file.stem}")
    case, faults = _analysed(path, folder, random)
    return f"{'; '.join(done)}; {case}", faults


def fuzz_sqlite_reader(random: Random, folder: Path) -> Case:
    """Every column of every table of a damaged SQLite export is what SQLite says, or refused."""
    path = sample_report(random).write_sqlite(folder / "rank0.sqlite")
    done = mutate_sqlite(path, random) if random.random() < 0.5 else []
    if random.random() < 0.6:
        done += decorate(path, random.choice(EVENT_TABLES), random)
    if random.random() < 0.25:
        path.write_bytes(damage_bytes(path.read_bytes(), random))
        done.append("bytes")
    large = random.choice((1, 1_000_000_000))
    faults = []
    try:
        with (
            mock.patch.object(sqlite_profile, "_LARGE_ROWS", large),
            SqliteProfile(path) as report,
            closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as database,
        ):
            database.text_factory = lambda raw: raw.decode("utf-8", "backslashreplace")
            for decoder in DECODERS if large == 1 else DECODERS[:1]:
                with decoded_by(decoder):
                    for name in NAMES:
                        faults += _differs_from_sqlite(report, name, database)
            read_facts(report)
            report.texts(np.array([0, 1, 2, 2**63 - 1, -5]))
    except ProfileError as error:
        done.append(error.message)
    return f"{'; '.join(done)}; large from {large}", faults


def _differs_from_sqlite(
    report: SqliteProfile, name: str, database: sqlite3.Connection
) -> list[str]:
    """Read one table, if that can be done, and compare it with SQLite itself."""
    source = table_source(name)
    try:
        there = report.columns(name)
        columns = [column for column, exported in source.columns.items() if exported in there]
        table = report.read(name, columns) if columns else None
    except ProfileError:
        return []
    if table is None:
        return []
    names = ", ".join(_queried(source, column) for column in columns)
    try:
        query = f'SELECT {names} FROM "{source.nsys}" NOT INDEXED ORDER BY rowid'
        rows = database.execute(query).fetchall()
    except sqlite3.Error as error:
        return [f"{name}: read, and SQLite says {error}"]
    faults = []
    for place, column in enumerate(columns):
        is_text = source.is_text(column) and not source.is_bytes(column)
        if is_text and not all(isinstance(row[place], str | None) for row in rows):
            continue  # the driver writes out what is no text in its own way
        null = (None, "") if source.is_text(column) else (None, NULL_INT)
        said = [_digits(row[place]) if source.is_bytes(column) else row[place] for row in rows]
        said = [None if value in null else value for value in said]
        read = [None if value in null else value for value in table[column].tolist()]
        if read != said and not _damaged(database):
            faults.append(f"{name}.{column}: {read[:9]} is read, SQLite says {said[:9]}")
    return faults


def _queried(source: TableSource, column: str) -> str:
    """Return a column; of what is read as bytes those that SQLite takes for a text or a number."""
    name = f'"{source.columns[column]}"'
    return f"CAST({name} AS BLOB)" if source.is_bytes(column) else name


def _digits(value: bytes | None) -> str | None:
    return None if value is None else value[:MOST_BYTES].hex().upper()


def _damaged(database: sqlite3.Connection) -> bool:
    try:
        return bool(database.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",))
    except sqlite3.Error:
        return True


def fuzz_parquet_reader(random: Random, folder: Path) -> Case:
    """Every column of every table of a damaged parquet export is what Arrow says, or refused."""
    path = sample_report(random).write_parquet(folder / "rank0_pqtdir")
    done = mutate_parquet(path, random) if random.random() < 0.75 else []
    if random.random() < 0.5:
        file = random.choice(sorted(path.glob("*.parquet")))
        file.write_bytes(damage_bytes(file.read_bytes(), random))
        done.append(f"bytes of {file.stem}")
    faults = []
    try:
        with ParquetProfile(path) as report:
            for name in NAMES:
                faults += _differs_from_arrow(report, name)
            read_facts(report)
            report.texts(np.array([0, 1, 2, 2**63 - 1, -5]))
    except ProfileError as error:
        done.append(error.message)
    return "; ".join(done), faults


def _differs_from_arrow(report: ParquetProfile, name: str) -> list[str]:
    source = table_source(name)
    try:
        there = report.columns(name)
        columns = [column for column, nsys in source.columns.items() if nsys in there]
        table = report.read(name, columns) if columns else None
    except ProfileError:
        return []
    if table is None:
        return []
    names = sorted({source.columns[column] for column in columns})
    arrow = pq.ParquetFile(report.path / f"{source.nsys}.parquet").read(columns=names)
    faults = []
    for column in columns:
        if source.is_text(column):
            continue  # what is no UTF-8 cannot be compared so simply
        said = [signed(value) for value in arrow[source.columns[column]].to_pylist()]
        read = [None if value == NULL_INT else value for value in table[column].tolist()]
        if read != [None if value == NULL_INT else value for value in said]:
            faults.append(f"{name}.{column}: {read[:9]} is read, Arrow says {said[:9]}")
    return faults


def fuzz_payloads(random: Random, folder: Path) -> Case:
    """Damaged payloads of NCCL's calls and their schemas give sums that agree, or one line."""
    calls = [random.choice((*SCHEMA_OF, "ncclGroupStart", "ncclGroupEnd")) for _ in range(16)]
    done, paths = [], []
    for rank in range(random.choice((1, 2, 2, 3))):
        trace, payloads = TraceBuilder(hostname="node"), {}
        for at, name in enumerate(calls, 1):
            begin = 10_000 * at
            trace.nvtx(name, begin, begin + 900, domain="NCCL")
            trace.kernel(
                f"ncclDevKernel_{name.removeprefix('nccl')}(x)",
                start_ns=begin + 2_000 + rank,
                end_ns=begin + 5_000,
                launch=(begin + 100, begin + 800),
                stream_id=9,
            )
            if name in SCHEMA_OF and random.random() < 0.9:
                values = [
                    random.choice((0, 1, 2, 3, 70, 2**31 - 1)) for _ in SCHEMAS[SCHEMA_OF[name]]
                ]
                raw = call_blob(name, *values)
                payloads[name, begin] = damage_bytes(raw, random) if random.random() < 0.4 else raw
        path = trace.write_sqlite(folder / f"rank{rank}.sqlite")
        add_payloads(path, payloads, offsets=random.random() < 0.5, as_text=random.random() < 0.3)
        if random.random() < 0.6:
            done += mutate_sqlite(path, random, "NVTX_PAYLOAD")
        paths.append(path)
    what = f"{len(paths)} ranks; {'; '.join(done)}"
    try:
        tables = quick("comm_stats", *paths)
    except AssertionError:  # a profile is refused, with a line
        return what, []
    return what, checked(CHECKS["comm_stats"], tables)


def _analysed(path: Path, folder: Path, random: Random) -> Case:
    """Run some recipe on a damaged report, perhaps beside a sound one."""
    recipe, output = random.choice(recipe_names()), folder / "out"
    words: list[object] = ["--output", output]
    inputs: list[object] = [path]
    if random.random() < 0.3 or recipe == "trace_diff":
        name = "sound/rank0.sqlite" if recipe == "trace_diff" else "rank1.sqlite"
        (folder / "sound").mkdir()
        sound = sample_report(random).write_sqlite(folder / name)
        inputs.insert(random.randint(0, 1), sound)
    for extra, chance in _EXTRA:
        if random.random() < chance:
            words += extra
    # What people read takes most of the time of a run; the tables hold what it tells.
    written = mock.patch.object(report_files, "write_report", return_value=((), {}))
    with contextlib.nullcontext() if random.random() < 0.15 else written:
        ended = run_recipe(recipe, *words, "--input", *inputs)
    faults = problems(ended, recipe, output)
    if not faults and len(inputs) == 1 and "--ranks" not in words and ended.code == 0:
        faults = differs_from_rows(path, output)
    shutil.rmtree(output, ignore_errors=True)
    return f"{recipe} {' '.join(map(str, words[2:]))}, {len(inputs)} reports", faults


_EXTRA: tuple[tuple[list[object], float], ...] = (
    (["--filter-time", "10/5000"], 0.1),
    (["--filter-nvtx", "step"], 0.1),
    (["--filter-projected-nvtx", "decode"], 0.05),
    (["--csv"], 0.1),
    (["--html"], 0.03),
    (["--perfetto"], 0.05),
    (["--perfetto", "--perfetto-window", "all"], 0.1),
    (["--base"], 0.1),
    (["--ranks", "0"], 0.05),
    (["--device", "0"], 0.1),
    (["--allow-missing-ranks"], 0.2),
)


_WORDS = (
    "step", "decode", ", seq = 7", ", op_id = 12", "::", "<", ">", "(", ")", "nvjet_", "128x64_",
    "64x6_", "2x1_", "v_bz_", "TNT", "ncclDevKernel_", "AllReduce", "_Sum_bf16", "void ", "kernel",
    "re:", "^a+$", "(a+)+", "[", "\\", "*", "`", "$", "|", "\n", "\x1b[31m", "\u202e", "%",
    "@", "/", "0", "-1", "99999999999999999999", "1e9", "5s", "/7s", "1s2ms3us4ns", "+3%", "ns",
    "idle_time_per_step", ":", "'", '"', "{}", "{0}", "=", "ä", "数", "\U0001f600", "\udcff",
)  # fmt: skip


def _text(random: Random) -> str:
    """Return a text of words that mean something to some parser."""
    parts = [
        random.choice(_WORDS) if random.random() < 0.8 else random.choice(string.printable)
        for _ in range(random.choice((0, 1, 2, 3, 6, 20)))
    ]
    if random.random() < 0.1:
        parts *= random.choice((50, 3_000))
    return "".join(parts)


_TEXT_OPTIONS = (
    "--filter-time", "--filter-nvtx", "--filter-projected-nvtx", "--start", "--end", "--steps",
    "--step", "--device", "--ranks", "--top", "--world-size", "--gate",
    "--alpha", "--min-effect", "--min-gap-ns", "--output",
    "--input", "--export-dir", "--phase-map", "--weights", "--rank-map", "--tokens-per-step",
    "--baseline", "--baselines", "--step-kernel", "--scheduler-file",
)  # fmt: skip


def fuzz_options(random: Random, folder: Path) -> Case:
    """No text of an option ends in anything but a run, or one line and exit 2."""
    report = sample_report(random).write_sqlite(folder / "rank0.sqlite")
    recipe, output = random.choice(recipe_names()), folder / "out"
    option, text = random.choice(_TEXT_OPTIONS), _text(random)
    if option in ("--output", "--export-dir"):
        text = text.replace("/", "_").replace("\x00", "")[:100] or "x"
        text = f"{folder}/{text}"
    words = ["--output", str(output), "--input", str(report)]
    if option in ("--output", "--input"):
        place = words.index(option) + 1
        words[place] = text
        words.append("--quiet")
    else:
        words.append(f"{option}={text}")
    before = {path.name for path in folder.iterdir()}
    ended = run_recipe(recipe, *words)
    return f"{recipe} {option} {text!r:.150}", _refused_well(ended, folder, before, output, option)


def _refused_well(
    ended: Ended, folder: Path, before: set[str], output: Path, option: str
) -> list[str]:
    faults = [f"said: {line}" for line in ended.said if "Traceback" in line or "fault of" in line]
    if ended.code not in (0, 1, 2, 3):
        faults.append(f"exit {ended.code}: {ended.said}")
    made = {path.name for path in folder.iterdir()} - before
    if ended.code == 2 and made:
        faults.append(f"exit 2, and there is {sorted(made)}")
    if any(name.startswith(".") for name in made) and option != "--output":
        faults.append(f"left behind: {sorted(made)}")
    return faults


TARGETS: Mapping[str, Callable[[Random, Path], Case]] = {
    "sqlite": fuzz_sqlite,
    "sqlite-reader": fuzz_sqlite_reader,
    "parquet": fuzz_parquet,
    "parquet-reader": fuzz_parquet_reader,
    "options": fuzz_options,
    "payloads": fuzz_payloads,
}
