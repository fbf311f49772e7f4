"""How a run on hostile input may end: right numbers with the loss counted, or one clear line."""

from __future__ import annotations

import contextlib
import io
import sqlite3
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from results import read_frames, read_results

from nsys_llm.run.cli import main
from nsys_llm.taxonomy.wall_classes import WALL_CLASSES

_NULL_TEXT = str(-(2**63))
#: Beyond this, a time cannot be added up (see `nsys_llm.trace.rank_trace`).
_LARGEST_TIME_NS = 1 << 53
_LONGEST_LINE = 2_000


@dataclass(frozen=True)
class Ended:
    """How a run ended, and the lines on standard error."""

    code: int
    said: tuple[str, ...]


def run_recipe(recipe: str, *words: object) -> Ended:
    said = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                code = main([recipe, "--mode", "none", *map(str, words)])
        except SystemExit as stopped:  # argparse
            code = int(stopped.code or 0)
    return Ended(code, tuple(said.getvalue().splitlines()))


def problems(ended: Ended, recipe: str, output: Path) -> list[str]:
    """Return what is wrong with how a run ended; nothing, if it is as it should be."""
    faults = [f"said: {line}" for line in ended.said if not line.isprintable()]
    faults += [f"a long line: {line[:200]}" for line in ended.said if len(line) > _LONGEST_LINE]
    faults += [f"said: {line}" for line in ended.said if "fault of" in line or "Traceback" in line]
    if ended.code == 2:
        if output.exists():
            faults.append("exit 2 with an output folder")
        if not any("error: " in line for line in ended.said):
            faults.append(f"exit 2 without a line: {ended.said}")
    elif ended.code in (0, 3):
        faults += _wrong_sums(recipe, output)
    else:
        faults.append(f"exit {ended.code}: {ended.said}")
    left = [path.name for path in output.parent.iterdir() if path.name.startswith(".")]
    return [*faults, *(f"left behind: {name}" for name in left)]


def _wrong_sums(recipe: str, output: Path) -> list[str]:
    """Return what does not add up in a result, and in those of an overview's recipes."""
    written = read_results(output)
    problems = [f"{name}: {odd}" for name, table in written.items() for odd in _odd_cells(table)]
    tables = _Frames(written)
    of_time: Mapping[str, Check] = {"wall": _wall} if "wall" in written else {}
    problems += checked({"coverage": _coverage, **of_time, **CHECKS.get(recipe, {})}, tables)
    parts = output / "parts"
    for part in sorted(set(CHECKS) & {file.name for file in parts.glob("*")}):
        problems += [f"{part}/{problem}" for problem in _wrong_sums(part, parts / part)]
    return problems


def checked(checks: Mapping[str, Check], tables: Any) -> list[str]:
    """Return what does not add up in some tables."""
    return [
        f"{name}: {problem}"
        for name, check in checks.items()
        for problem in check(tables[name], tables)
    ]


class _Frames:
    """Tables as frames, each made when it is asked for."""

    def __init__(self, tables: Mapping[str, pa.Table]) -> None:
        self._tables = tables

    def __getitem__(self, name: str) -> pd.DataFrame:
        return self._tables[name].to_pandas()


def _odd_cells(table: pa.Table) -> Iterator[str]:
    """Find what no cell of a table may be: NULL's stand-in, a count below 0."""
    for name, column in zip(table.column_names, table.columns, strict=True):
        if pa.types.is_string(column.type):
            if pc.any(pc.match_substring(column, _NULL_TEXT)).as_py():
                yield f"{name} holds the stand-in of NULL"
        elif pa.types.is_int64(column.type):
            least = pc.min(column).as_py()
            if least == -(2**63):
                yield f"{name} holds the stand-in of NULL"
            elif least is not None and least < 0 and name.endswith("_n"):
                yield f"{name} counts {least}"


def _adds_up(table: pd.DataFrame, whole: str, *parts: str) -> Iterator[str]:
    sums = sum(table[part].fillna(0).astype("int64") for part in parts)
    known = table[whole].notna()
    wrong = table[known & (table[whole].fillna(0).astype("int64") != sums)]
    if len(wrong):
        shown = wrong.iloc[0][[whole, *parts]].to_dict()
        yield f"{whole} is not the sum of its parts in {len(wrong)} rows: {shown}"


def _same_total(first: pd.DataFrame, other: pd.DataFrame, *columns: str) -> Iterator[str]:
    for column in columns:
        left, right = (int(table[column].fillna(0).sum()) for table in (first, other))
        if left != right:
            yield f"{column}: {left} in all, and {right} in the parts"


Tables = _Frames
Check = Callable[[pd.DataFrame, Tables], Iterator[str]]


def _coverage(table: pd.DataFrame, _: Tables) -> Iterator[str]:
    for unit in ("n", "ns"):
        parts = (f"api_missing_{unit}", f"range_missing_{unit}", f"attributed_{unit}")
        yield from _adds_up(table, f"total_{unit}", *parts)
        if (table[f"selected_{unit}"] > table[f"total_{unit}"]).any():
            yield f"more {unit} selected than there are"


def _kernels(table: pd.DataFrame, tables: Tables) -> Iterator[str]:
    for other in ("rank_kernels", "categories", "operations"):
        yield from _same_total(table, tables[other], "launches_n", "total_ns", "exclusive_ns")
    of_kernels = tables["coverage"][tables["coverage"]["op"] == "kernel"]
    selected, total = int(of_kernels["selected_ns"].sum()), int(table["total_ns"].sum())
    if selected != total:
        yield f"{total} ns of kernels, and {selected} ns of them covered"
    if int(table["exclusive_ns"].sum()) != int(tables["devices"]["kernel_busy_ns"].sum()):
        yield "exclusive time is not the time in which kernels run"


def _overlap(table: pd.DataFrame, tables: Tables) -> Iterator[str]:
    yield from _adds_up(
        table,
        "busy_ns",
        "compute_only_ns",
        "communication_only_ns",
        "copy_only_ns",
        "compute_communication_ns",
        "compute_copy_ns",
        "communication_copy_ns",
        "compute_communication_copy_ns",
        "graph_ns",
    )
    yield from _same_total(tables["devices"], table, "busy_ns")


def _apis(table: pd.DataFrame, tables: Tables) -> Iterator[str]:
    yield from _same_total(table, tables["apis"], "calls_n", "total_ns")


def _idle_devices(table: pd.DataFrame, tables: Tables) -> Iterator[str]:
    yield from _adds_up(table, "window_ns", "busy_ns", "overhead_ns", "idle_ns")
    yield from _same_total(table, tables["rank_causes"], "idle_ns")


def _phases(table: pd.DataFrame, tables: Tables) -> Iterator[str]:
    yield from _same_total(table, tables["rank_phases"], "ops_n", "gpu_ns", "exclusive_ns")
    yield from _same_total(table, tables["attribution"], "ops_n", "gpu_ns")
    covered = int(tables["coverage"]["selected_ns"].sum())
    if int(table["gpu_ns"].sum()) != covered:
        yield f"{int(table['gpu_ns'].sum())} ns in phases, and {covered} ns covered"
    kernels = tables["phase_kernels"]
    if int(kernels["total_ns"].sum()) != int(table["gpu_ns"].sum()):
        yield "the kernels of phases do not add up to phases"


def _diff_kernels(table: pd.DataFrame, _: Tables) -> Iterator[str]:
    yield from _adds_up(table, "change_ns", "count_effect_ns", "per_call_effect_ns")
    input_ns, other = table["input_total_ns"].sum(), table["baseline_total_ns"].sum()
    if int(input_ns - other) != int(table["change_ns"].sum()):
        yield "the change is not the difference of both runs"


def _tails(table: pd.DataFrame, tables: Tables) -> Iterator[str]:
    yield from _same_total(table, tables["rank_tails"], "launches_n", "total_ns")
    of_kernels = tables["coverage"][tables["coverage"]["op"] == "kernel"]
    if int(of_kernels["selected_n"].sum()) != int(table["launches_n"].sum()):
        yield "launches are not the kernels covered"


def _collectives(table: pd.DataFrame, _: Tables) -> Iterator[str]:
    known = table[table["wait_ns"].notna()]
    yield from _adds_up(known, "total_ns", "wait_ns", "transfer_rank_ns", "end_skew_ns")


def _wall(table: pd.DataFrame, _: Tables) -> Iterator[str]:
    gpus = table.groupby(list({"run", "rank", "device_id"} & set(table)))
    wrong = gpus["time_ns"].sum() != gpus["span_ns"].first()
    if wrong.any():
        yield f"the classes of {int(wrong.sum())} GPUs are not their span"


_STATES = ("busy_compute_ns", "busy_communication_ns", "busy_copy_ns", "overhead_ns", "idle_ns")
#: Columns of device_steps that are no class of time on the path.
_NO_CLASSES = {*_STATES, "start_ns", "end_ns", "window_ns", "certain_ns"}


def _classes(table: pd.DataFrame) -> list[str]:
    return [
        name for name in table if name.endswith("_ns") and name not in {*_NO_CLASSES, "wall_ns"}
    ]


def _job_steps(table: pd.DataFrame, _: Tables) -> Iterator[str]:
    yield from _adds_up(table, "wall_ns", *_classes(table))
    yield from _bounded(table, "certain_ns", "wall_ns")


def _device_steps(table: pd.DataFrame, _: Tables) -> Iterator[str]:
    yield from _adds_up(table, "window_ns", *_STATES)
    yield from _adds_up(table, "window_ns", *_classes(table))
    yield from _bounded(table, "certain_ns", "window_ns")


def _bounded(table: pd.DataFrame, part: str, whole: str) -> Iterator[str]:
    if ((table[part] < 0) | (table[part] > table[whole])).any():
        yield f"{part} is below 0 or above {whole}"


def _gpus(table: pd.DataFrame, _: Tables) -> Iterator[str]:
    yield from _adds_up(table, "span_ns", *(f"{name}_ns" for name in WALL_CLASSES))


def _opportunities(table: pd.DataFrame, _: Tables) -> Iterator[str]:
    yield from _bounded(table, "gain_ns", "span_ns")


def _bubbles(table: pd.DataFrame, _: Tables) -> Iterator[str]:
    parts = ("compute_ns", "transfer_ns", "wait_stage_ns", "wait_own_ns", "not_matched_ns")
    yield from _adds_up(table, "window_ns", *parts, "copy_ns", "overhead_ns", "idle_ns")


def _message_sizes(table: pd.DataFrame, tables: Tables) -> Iterator[str]:
    yield from _same_total(tables["transfers"], table, "bytes", "size_bytes")
    if table["collectives_n"].sum() != len(tables["transfers"]):
        yield "not every transfer is of one group and size"


def _batch_steps(table: pd.DataFrame, _: Tables) -> Iterator[str]:
    known = table[table["window_ns"].notna()]
    yield from _adds_up(known, "window_ns", "between_ns", "cost_ns")
    yield from _adds_up(known, "cost_ns", "busy_ns", "idle_ns")


CHECKS: Mapping[str, Mapping[str, Check]] = {
    "comm_stats": {"bubbles": _bubbles, "message_sizes": _message_sizes},
    "serving_steps": {"batch_steps": _batch_steps},
    "llm_overview": {"ranks": _gpus, "opportunities": _opportunities},
    "step_budget": {"job_steps": _job_steps, "device_steps": _device_steps},
    "llm_hotspots": {"kernels": _kernels, "overlap": _overlap, "rank_apis": _apis},
    "idle_gaps": {"devices": _idle_devices},
    "nvtx_phase_attribution": {"phases": _phases},
    "trace_diff": {"kernels": _diff_kernels},
    "tail_stats": {"tails": _tails, "collectives": _collectives},
}


def differs_from_rows(report: Path, output: Path) -> list[str]:
    """Compare what is counted of kernels with what the rows of a report say by themselves.

    Args:
        report: As it was read.
        output: The results of a recipe that found it readable.
    """
    if (rows := _kernel_rows(report)) is None:
        return []  # no such table or column; the run has said so
    sane_n, total_ns = 0, 0
    for start_ns, end_ns, device_id in rows:
        if None in (start_ns, end_ns, device_id) or -(2**63) in (start_ns, end_ns, device_id):
            continue
        if -_LARGEST_TIME_NS < start_ns <= end_ns < _LARGEST_TIME_NS:
            sane_n += 1
            total_ns += end_ns - start_ns
    coverage = read_frames(output)["coverage"]
    kernels = coverage[coverage["op"] == "kernel"]
    counted = (int(kernels["total_n"].sum()), int(kernels["total_ns"].sum()))
    faults = []
    if counted != (sane_n, total_ns):
        faults.append(f"{counted} kernels and ns are counted, the rows say {(sane_n, total_ns)}")
    if int(kernels["broken_n"].sum()) + sane_n != len(rows) and len(kernels):
        broken_n = int(kernels["broken_n"].sum())
        faults.append(f"of {len(rows)} rows {sane_n} are sound, {broken_n} broken")
    return faults


_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"


def _kernel_rows(report: Path) -> list[Any] | None:
    if report.is_dir():
        try:
            table = pq.read_table(report / f"{_KERNELS}.parquet")
            columns = [table[name].to_pylist() for name in ("start", "end", "deviceId")]
        except (OSError, KeyError, pa.ArrowInvalid):
            return None
        return [tuple(map(signed, row)) for row in zip(*columns, strict=True)]
    with closing(sqlite3.connect(f"{report.as_uri()}?mode=ro", uri=True)) as database:
        database.text_factory = bytes
        listed = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND rootpage AND name = ?"
        if database.execute(listed, (_KERNELS,)).fetchone() is None:
            return None
        try:
            query = f'SELECT start, "end", deviceId FROM {_KERNELS}'
            return database.execute(query).fetchall()
        except sqlite3.OperationalError:
            return None


def signed(value: Any) -> Any:
    """Return an unsigned number of 64 bits as SQLite holds it."""
    return value - 2**64 if isinstance(value, int) and value >= 2**63 else value
