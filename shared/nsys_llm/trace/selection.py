"""One rank out of a profile: its rows, without broken ones, and what the filters leave of them.

Sums and busy time are clipped to the windows; counts and percentiles take whole operations that
start in them. `coverage` counts what was there before any filter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.grouping import distinct, is_constant, joined
from nsys_llm.numeric.intervals import IntArray, clipped_lengths, starts_inside
from nsys_llm.profile.tables import Table, Trace, process_of_thread
from nsys_llm.taxonomy.cuda_codes import migration_kinds
from nsys_llm.trace.attribution import duplicate_keys, join_launches
from nsys_llm.trace.coverage import CoverageRow, count_coverage
from nsys_llm.trace.filters import (
    NVTX_OPTIONS,
    RANGE_OPTIONS,
    STEP_OPTIONS,
    Finders,
    OpLaunches,
    Selection,
    select,
)
from nsys_llm.trace.ranges import Ranges, read_ranges
from nsys_llm.trace.rank_trace import (
    GRAPH_NODE_TABLES,
    HOST_TABLES,
    OP_TABLES,
    OVERHEAD_TABLES,
    RankTrace,
    latest_end_ns,
    sound_rows,
)

_PROCESS_TABLES: Final = (*OP_TABLES, "memory_events", "synchronizations", "cuda_events")
_THREAD_TABLES: Final = (
    *HOST_TABLES,
    *OVERHEAD_TABLES,
    *GRAPH_NODE_TABLES,
    "nvtx_events",
    "payloads",
    "thread_switches",
    "cpu_samples",
)

#: Ranges that `--trace=python-gil` writes of the interpreter's lock; the program opened none.
_HOLDS_LOCK: Final = "Holding GIL"
_WAITS_FOR_LOCK: Final = "Waiting for GIL"
_LOCK: Final = frozenset({_HOLDS_LOCK, _WAITS_FOR_LOCK})

#: Of a profile that are analyzed.
MOST_PROCESSES: Final = 256


def gpu_processes(trace: Trace) -> list[int]:
    """Return the processes with GPU operations, as globalPid, sorted.

    Rows that name no process belong to the only one that the profile has; where it has none or
    several, they are a process of their own, NULL_INT.
    """
    global_pids: set[int] = set()
    for name in OP_TABLES:
        if name in trace and len(trace[name]):
            global_pids |= set(distinct(trace[name]["global_pid"]).tolist())
    named = global_pids - {NULL_INT}
    return sorted(named if len(named) == 1 else global_pids)


def used_devices(trace: Trace, process: int) -> tuple[int, ...]:
    """Return the devices that a process of `gpu_processes` has operations on, of all it may see."""
    tables = [trace[name] for name in OP_TABLES if name in trace and len(trace[name])]
    own = (op["device_id"][op["global_pid"] == process] for op in tables)
    return tuple(sorted({device for some in own for device in distinct(some).tolist()}))


def busiest(trace: Trace, processes: Sequence[int]) -> list[int]:
    """Return those of the processes of `gpu_processes` with most GPU time, if there are too many.

    No machine has so many at work; a file may, and each takes some 20 ms of an overview.
    """
    ids, busy_ns = np.array(processes, dtype=np.int64), np.zeros(len(processes))
    if ids.size <= MOST_PROCESSES:
        return list(processes)
    for op in (trace[name] for name in OP_TABLES if name in trace):
        own_ns = np.maximum(op["end_ns"] - op["start_ns"], 0)
        busy_ns += np.bincount(np.searchsorted(ids, op["global_pid"]), own_ns, ids.size)
    return sorted(ids[np.argsort(-busy_ns, kind="stable")[:MOST_PROCESSES]].tolist())


def select_rank(
    trace: Trace,
    global_pid: int,
    options: Mapping[str, Any],
    finders: Finders | None = None,
    *,
    alone: bool | None = None,
) -> tuple[RankTrace, tuple[CoverageRow, ...], tuple[str, ...]]:
    """Cut one process out of a profile and apply the filters.

    Args:
        finders: How steps and phases are found; not needed without filters by them.
        alone: Whether no other process has GPU work; None: it is looked up.

    Returns:
        The rank's rows, its coverage, and notes on filters that found nothing to act on.
    """
    rank_tables, ops, timeless = _rows(trace, global_pid, alone)
    calls = rank_tables.get("api_calls")
    broken_n = {name: len(rank_tables[name]) - len(op) for name, op in ops.items()}
    if "graph_traces" in ops:
        ops["graph_traces"] = _without_nodes(ops)
    filtered = _by_ranges(options) or options.get("filter_time") is not None
    # Lined up, the operations take as much room again.
    launches = _launches(ops if filtered else {}, calls if _by_ranges(options) else None)
    whole = RankTrace({**rank_tables, **ops}, trace.strings, None, ops, _devices(ops, options))
    selection = _selection(whole, launches, options, finders)
    kept = _kept(ops, launches, selection, options.get("device"))
    selected = {name: table.take(kept[name]) for name, table in ops.items()}
    rank_trace = RankTrace(
        {**rank_tables, **selected},
        trace.strings,
        selection.windows_ns,
        ops,
        whole.device_ids,
        _chosen_calls(rank_tables, selection),
        kept,
        selection.there_n,
        selection.others,
        timeless,
    )
    coverage = _coverage(trace, rank_tables, rank_trace, broken_n)
    return rank_trace, coverage, tuple(selection.notes)


def whole_process(trace: Trace, global_pid: int, *, alone: bool | None = None) -> RankTrace:
    """Return the rows of a process as `select_rank` does without filters; it may have no GPU work.

    Of `tables` those of GPU work hold broken rows too.
    """
    rank_tables, ops, timeless = _rows(trace, global_pid, alone)
    return RankTrace(rank_tables, trace.strings, None, ops, _devices(ops, {}), timeless=timeless)


def _rows(
    trace: Trace, global_pid: int, alone: bool | None
) -> tuple[dict[str, Table], dict[str, Table], IntArray]:
    """Return a process's rows of all tables, its sound operations, and `RankTrace.timeless`."""
    chosen = [global_pid]
    if gpu_processes(trace) == chosen if alone is None else alone:
        chosen.append(NULL_INT)
    rank_tables = {name: _of_processes(name, table, chosen) for name, table in trace.tables.items()}
    rank_tables |= _without_lock(rank_tables, trace.strings)
    calls, latest_ns = rank_tables.get("api_calls"), latest_end_ns(trace)
    ops, timeless = {}, [np.empty(0, dtype=np.int64)]
    for name in (name for name in OP_TABLES if name in rank_tables):
        sound = sound_rows(rank_tables[name], latest_ns)
        ops[name] = _with_launches(rank_tables[name].take(sound), calls)
        if not sound.all():
            broken = _with_launches(rank_tables[name].take(~sound), calls)
            timeless.append(broken["launch_row"][broken["launch_row"] >= 0])
    if "memcpys" in ops:
        ops["memcpys"] = _with_migrations(ops["memcpys"])
    return rank_tables, ops, np.concatenate(timeless)


def _coverage(
    trace: Trace, rank_tables: Mapping[str, Table], rank: RankTrace, broken_n: Mapping[str, int]
) -> tuple[CoverageRow, ...]:
    """Return the coverage of each table of operations of a rank, before any filter."""
    calls, ops = rank_tables.get("api_calls"), rank.unfiltered
    no_calls = np.empty(0, dtype=np.int64)
    duplicates = duplicate_keys(no_calls if calls is None else calls["correlation_id"])
    return tuple(
        count_coverage(
            name,
            rank_tables[name],
            ops[name],
            broken_n[name],
            rank,
            name not in trace.absent,
            duplicates,
        )
        for name in ops
    )


def _devices(ops: Mapping[str, Table], options: Mapping[str, Any]) -> tuple[int, ...]:
    by_table = [distinct(op["device_id"]) for op in ops.values()]
    used = np.unique(joined(by_table)).tolist()
    wanted = options.get("device")
    return tuple(device for device in used if wanted is None or device in wanted)


def _of_processes(name: str, table: Table, selected: Sequence[int]) -> Table:
    if name not in (*_PROCESS_TABLES, *_THREAD_TABLES):
        return table
    ids = table["global_pid" if name in _PROCESS_TABLES else "global_tid"]
    if is_constant(ids):
        ids = ids[:1]
    processes = ids if name in _PROCESS_TABLES else process_of_thread(ids)
    rows = processes == selected[0]
    if rows.all():
        return table
    for other in selected[1:]:
        rows |= processes == other
    return table.take(np.broadcast_to(rows, (len(table),)))


def _without_lock(tables: Mapping[str, Table], strings: Mapping[int, str]) -> dict[str, Table]:
    """Return the ranges without those of Python's interpreter lock, and the waits for it apart."""
    events = tables.get("nvtx_events", Table({}))
    if "text" not in events or "text_id" not in events:
        return {}
    texts = events["text"] if (events["text_id"] == NULL_INT).any() else events["text"][:0]
    if _LOCK.isdisjoint(strings.values()) and _LOCK.isdisjoint(texts.tolist()):
        return {}

    def named(name: str) -> npt.NDArray[np.bool_]:
        ids = [key for key, text in strings.items() if text == name]
        return np.isin(events["text_id"], ids) | (events["text"] == name)

    waits = named(_WAITS_FOR_LOCK)
    others = events.take(~(waits | named(_HOLDS_LOCK)))
    return {"nvtx_events": others, "lock_waits": events.take(waits)}


def _with_launches(op: Table, calls: Table | None) -> Table:
    if calls is None:
        rows = np.full(len(op), -1, dtype=np.int64)
    else:
        starts = calls.columns.get("start_ns")
        rows = join_launches(op["correlation_id"], calls["correlation_id"], starts)
    # Kept as long as the trace: a table of 2^31 rows does not fit into memory.
    return op.plus(launch_row=rows.astype(np.int32))


def _with_migrations(copies: Table) -> Table:
    """Return copies whose kind also says why a page was migrated."""
    if "migration_cause" not in copies:
        return copies
    causes = copies["migration_cause"]
    if is_constant(causes) and causes[0] <= 0:
        return copies
    return copies.plus(copy_kind=migration_kinds(copies["copy_kind"], causes))


def _without_nodes(ops: Mapping[str, Table]) -> Table:
    """Leave out whole-graph rows whose nodes were recorded too: their time would count twice."""
    graphs = ops["graph_traces"]
    nodes = [op["correlation_id"] for name, op in ops.items() if name != "graph_traces"]
    if not nodes or not len(graphs):
        return graphs
    twice = np.isin(graphs["correlation_id"], np.concatenate(nodes))
    return graphs.take(~(twice & (graphs["correlation_id"] != NULL_INT)))


def _launches(ops: Mapping[str, Table], calls: Table | None) -> OpLaunches:
    """Line up the operations of all tables, in the order of `ops`."""
    starts, ends, rows = (
        np.concatenate([np.empty(0, dtype=np.int64), *(op[column] for op in ops.values())])
        for column in ("start_ns", "end_ns", "launch_row")
    )
    if calls is None or "start_ns" not in calls or not len(calls):
        nothing = np.zeros_like(starts)
        return OpLaunches(starts, ends, nothing, nothing, np.zeros(starts.shape, dtype=bool))
    return OpLaunches(starts, ends, calls["start_ns"][rows], calls["global_tid"][rows], rows >= 0)


def _selection(
    rank: RankTrace, launches: OpLaunches, options: Mapping[str, Any], finders: Finders | None
) -> Selection:
    steps = phase = None
    if any(options.get(name) for name in (*STEP_OPTIONS, "phase")):
        if finders is None:
            raise ValueError("filters by step or phase need finders.")
        if any(options.get(name) for name in STEP_OPTIONS):
            steps = finders.steps(rank, options)
        if options.get("phase"):
            phase = finders.phase(rank, options)
    return select(launches, _ranges(rank, options), options, steps, phase)


def _ranges(rank: RankTrace, options: Mapping[str, Any]) -> Ranges | None:
    events = rank.tables.get("nvtx_events")
    if events is None or not any(options.get(name) for name in NVTX_OPTIONS):
        return None
    return read_ranges(events, rank.strings, rank.last_end_ns)


def _by_ranges(options: Mapping[str, Any]) -> bool:
    return any(options.get(name) for name in RANGE_OPTIONS)


def _chosen_calls(
    rank_tables: Mapping[str, Table], selection: Selection
) -> dict[str, npt.NDArray[np.bool_]]:
    """Return which calls on the host the range filters choose; nothing without such a filter."""
    if not selection.chooses_calls:
        return {}  # the times of calls may not even have been read
    return {
        name: selection.chooses(rank_tables[name]["start_ns"], rank_tables[name]["global_tid"])
        for name in HOST_TABLES
        if name in rank_tables
    }


def _kept(
    ops: Mapping[str, Table],
    launches: OpLaunches,
    selection: Selection,
    devices: Sequence[int] | None,
) -> dict[str, npt.NDArray[np.bool_]]:
    keep = np.ones(sum(map(len, ops.values())), dtype=bool)
    if selection.launched is not None:
        keep &= selection.launched
    if (windows := selection.windows_ns) is not None:
        reaches = clipped_lengths(launches.start_ns, launches.end_ns, windows) > 0
        keep &= reaches | starts_inside(launches.start_ns, windows)
    bounds = np.cumsum([len(table) for table in ops.values()])[:-1]
    parts = dict(zip(ops, np.split(keep, bounds), strict=True))
    if devices is None:
        return parts
    return {name: part & np.isin(ops[name]["device_id"], devices) for name, part in parts.items()}
