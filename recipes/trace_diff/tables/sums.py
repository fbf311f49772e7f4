"""Tables of sums that are compared: categories, copies, calls, phases, idle time, runs, ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.report.columns import Columns, nullable, percent
from nsys_llm.taxonomy.api_classes import classify_api
from nsys_llm.taxonomy.categories import Classification
from nsys_llm.taxonomy.cuda_codes import MoveKind
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES, CAUSES, IDLE_CAUSES_N
from nsys_llm.trace.rank_sets import COMPARED

from ..partials import DeviceSums, NamedSums, RankSums
from ..per_rank.operations import CopyKind
from .kernels import BOTH, NEW, VANISHED, NamedKernels, by_change, change_columns, sum_columns
from .runs import Runs, RunSums
from .step_splits import FloatArray

#: Columns of copies of a step.
_STEP: Final = ("moves", "ns", "size")


def category_columns(kernels: NamedKernels) -> Columns:
    """Return the table categories: sums over the kernels of each."""
    columns = change_columns(kernels.before, kernels.after)
    frame = pd.DataFrame({**columns, "category": [item.category for item in kernels.classes]})
    for status, name in ((BOTH, "kernels_n"), (NEW, "new_n"), (VANISHED, "vanished_n")):
        frame[name] = (kernels.status == status).astype(np.int64)
    frame["new_ns"] = frame["change_ns"] * frame["new_n"]
    frame["vanished_ns"] = frame["change_ns"] * frame["vanished_n"]
    sums = frame.groupby("category").sum()
    before_ns, after_ns = (sums[f"{side}_total_ns"].to_numpy() for side in COMPARED)
    columns = {
        **{name: sums[name].to_numpy() for name in sums.columns},
        "category": sums.index.tolist(),
        "change_pct": percent(sums["change_ns"].to_numpy(), before_ns),
        "baseline_share_pct": percent(before_ns, int(before_ns.sum())),
        "input_share_pct": percent(after_ns, int(after_ns.sum())),
    }
    return by_change(columns, "category")


def memop_columns(runs: Runs, of_steps: Sequence[Mapping[CopyKind, FloatArray]]) -> Columns:
    """Return the table memops; of both runs the copies of a step and rank are given, too."""
    before, after = (run.moves for run in runs.compared)
    codes = sorted({*before, *after})
    kinds = [MoveKind.of(code) for code in codes]
    operations = sum_columns("operations", codes, before, after)
    size0, size1 = (
        np.array([side.get(code, (0, 0, 0))[2] for code in codes], np.int64)
        for side in (before, after)
    )
    n0, n1 = (operations[f"{side}_operations_n"] for side in COMPARED)
    columns = {
        "kind": [kind.kind for kind in kinds],
        "source_memory": [kind.source for kind in kinds],
        "target_memory": [kind.target for kind in kinds],
        **operations,
        "operations_change_pct": percent(n1 - n0, n0),
        "baseline_size_bytes": size0,
        "input_size_bytes": size1,
        "size_change_pct": percent(size1 - size0, size0),
    }
    for name, side in zip(COMPARED, of_steps, strict=True):
        async_copies, blocking = (
            np.array([side.get((code, blocks), np.zeros(3)) for code in codes]).reshape(-1, 3).T
            for blocks in (False, True)
        )
        for part, values in zip(_STEP, async_copies + blocking, strict=True):
            columns[f"{name}_step_{part}"] = values
        columns[f"{name}_blocking_moves"] = blocking[0]
    return by_change(columns, "kind")


def api_columns(runs: Runs) -> Columns:
    """Return the table apis."""
    names, columns = _named(runs, "calls", lambda sums: sums.apis)
    return by_change(
        {"api": names, "class": [classify_api(name) for name in names], **columns}, "api"
    )


def phase_columns(runs: Runs) -> Columns:
    """Return the table phases: GPU time by phase, and how it is spread over the steps."""
    names, columns = _named(runs, "operations", lambda sums: sums.phases)
    nothing = np.full(len(names), np.nan)
    for place, (side, run) in enumerate(zip(COMPARED, runs.compared, strict=True)):
        steps = runs.steps
        mean = nothing if steps is None else columns[f"{side}_total_ns"] / steps[place]
        columns[f"{side}_step_ns"] = mean
        for item in (50, 99):
            percentiles = [run.phase_percentile(name, item) for name in names]
            values = [math.nan if value is None else float(value) for value in percentiles]
            columns[f"{side}_p{item}_ns"] = np.array(values, dtype=np.float64)
    return by_change({"phase": names, **columns}, "phase")


def idle_columns(runs: Runs) -> Columns:
    """Return the table idle; without rows where no side knows its idle time."""
    sides = [run.whole.idle_ns for run in runs.compared]
    seen = [side[:IDLE_CAUSES_N] != 0 for side in sides if side is not None]
    codes = np.flatnonzero(np.any(seen, axis=0)) if seen else np.empty(0, dtype=np.int64)
    unknown = np.full(codes.size, NULL_INT, dtype=np.int64)
    times = [unknown if side is None else side[codes] for side in sides]
    shares = [
        np.full(codes.size, np.nan)
        if run.whole.idle_ns is None
        else percent(time, run.whole.window_ns)
        for time, run in zip(times, runs.compared, strict=True)
    ]
    names = [CAUSE_NAMES[code] for code in codes.tolist()]
    columns = {
        "cause": names,
        "meaning": [CAUSES[name] for name in names],
        "baseline_total_ns": nullable(times[0]),
        "input_total_ns": nullable(times[1]),
        "baseline_window_pct": shares[0],
        "input_window_pct": shares[1],
        "window_change_pp": shares[1] - shares[0],
        "change_ns": unknown if len(seen) < len(sides) else times[1] - times[0],
    }
    ordered = by_change(columns, "cause")
    return {**ordered, "change_ns": nullable(ordered["change_ns"])}


def run_columns(runs: Runs) -> Columns:
    """Return the table runs."""
    rows = [{**_run_row(run), "tells_noise": run in runs.noise} for run in runs.all]
    columns: Columns = {name: [row[name] for row in rows] for name in rows[0]}
    nulls = ("steps_n", "tokens_n", "idle_ns")
    return {**columns, **{name: pd.array(columns[name], dtype="Int64") for name in nulls}}


def _run_row(run: RunSums) -> dict[str, Any]:
    whole, idle_ns = run.whole, run.whole.idle_total_ns
    reports = {rank.key.path for rank in (*(rank for rank, _ in run.ranks), *run.others)}
    apis = run.summed_names(lambda sums: sums.apis)
    return {
        "run": run.side,
        "reports_n": len(reports),
        "ranks_n": len(run.ranks),
        "window_ns": whole.window_ns,
        "steps_n": run.steps_n,
        "step": run.step,
        "step_note": run.step_note,
        "tokens_n": run.tokens_n,
        "launches_n": run.launches_n,
        "whole_graphs_n": run.whole_graphs_n,
        "kernel_ns": run.kernel_ns,
        "communication_ns": whole.communication_ns,
        "exposed_communication_ns": whole.exposed_ns,
        "copy_ns": whole.copy_ns,
        "busy_ns": whole.busy_ns,
        "idle_ns": idle_ns,
        "idle_pct": 100.0 * idle_ns / whole.window_ns
        if idle_ns is not None and whole.window_ns
        else np.nan,
        "api_ns": sum(total for _, total in apis.values()),
    }


def _named(runs: Runs, what: str, of: Callable[[RankSums], NamedSums]) -> tuple[list[str], Columns]:
    """Return the names that a run has calls of or time in, and sums over all ranks."""
    sides = [run.summed_names(of) for run in runs.compared]
    names = sorted({name for side in sides for name, sums in side.items() if sums != (0, 0)})
    return names, sum_columns(what, names, *sides)


_SUMMED = ("baseline_launches_n", "input_launches_n", "baseline_total_ns", "input_total_ns",
           "change_ns", "count_effect_ns", "per_call_effect_ns", "compute_change_ns",
           "communication_change_ns")  # fmt: skip


def rank_kernel_columns(runs: Runs, classes: Mapping[str, Classification]) -> Columns:
    """Return the table rank_kernels: ranks in order, of each the largest change first."""
    before, after = (
        {(number, name): sums for number, pair in runs.pairs.items()
         for name, sums in pair[side][1].kernels.items()}
        for side in (0, 1)
    )  # fmt: skip
    keys = sorted({*before, *after})
    frame = pd.DataFrame(
        {
            "rank": np.array([number for number, _ in keys], dtype=np.int64),
            "name": [name for _, name in keys],
            **sum_columns("launches", keys, before, after),
            "category": [classes[name].category for _, name in keys],
        }
    )
    frame = frame.assign(size=frame["change_ns"].abs())
    frame = frame.sort_values(["rank", "size", "name"], ascending=[True, False, True])
    return {name: frame[name] for name in frame.columns if name not in ("size", "change_pct")}


def rank_columns(runs: Runs, rank_kernels: Columns, kernels: NamedKernels) -> Columns:
    """Return the table ranks."""
    numbers = list(runs.pairs)
    before, after = ([pair[side] for pair in runs.pairs.values()] for side in (0, 1))
    frame = pd.DataFrame(rank_kernels)
    communication = dict(zip(kernels.names, kernels.communication.tolist(), strict=True))
    talks = frame["name"].map(communication).astype(bool)
    frame = frame.assign(
        compute_change_ns=frame["change_ns"].where(~talks, 0),
        communication_change_ns=frame["change_ns"].where(talks, 0),
    )
    sums = frame.groupby("rank")[[*_SUMMED]].sum().reindex(numbers, fill_value=0)
    # Of each rank the largest change stands first.
    largest = frame.drop_duplicates("rank").set_index("rank").reindex(numbers)
    wholes = [[DeviceSums.total(sums.devices) for _, sums in side] for side in (before, after)]
    idle = [pd.Series([item.idle_total_ns for item in side], dtype="Int64") for side in wholes]
    exposed_ns = [np.array([item.exposed_ns for item in side], np.int64) for side in wholes]
    return {
        "rank": numbers,
        "baseline_file": [rank.file for rank, _ in before],
        "input_file": [rank.file for rank, _ in after],
        **{name: sums[name].to_numpy(np.int64) for name in _SUMMED},
        "change_pct": percent(sums["change_ns"].to_numpy(), sums["baseline_total_ns"].to_numpy()),
        "baseline_idle_ns": idle[0].array,
        "input_idle_ns": idle[1].array,
        "idle_change_ns": (idle[1] - idle[0]).array,
        "exposed_change_ns": exposed_ns[1] - exposed_ns[0],
        "largest_kernel": [None if value != value else value for value in largest["name"]],
        "largest_change_ns": largest["change_ns"].fillna(0).to_numpy(np.int64),
    }
