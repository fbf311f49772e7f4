"""Tables of sums that are compared: categories, copies, API calls, phases, idle time, runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.report.columns import Columns, nullable, percent
from nsys_llm.taxonomy.api_classes import classify_api
from nsys_llm.taxonomy.cuda_codes import MoveKind
from nsys_llm.taxonomy.idle_causes import CAUSE_NAMES, CAUSES, IDLE_CAUSES_N
from nsys_llm.trace.rank_sets import COMPARED

from ..partials import NamedSums, RankSums, idle_total_ns
from .kernels import (
    BOTH,
    NEW,
    VANISHED,
    NamedKernels,
    amounts,
    by_change,
    change_columns,
    sum_columns,
)
from .runs import Run, Runs
from .step_kernels import CopyKind

#: Number, time in ns, and bytes.
CopyAmounts = tuple[float, float, float]


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


def memop_columns(runs: Runs, of_steps: Sequence[Mapping[CopyKind, CopyAmounts]]) -> Columns:
    """Return the table memops.

    Args:
        runs: All runs.
        of_steps: Of baseline and input, the copies of a step and rank; see `step_copies`.
    """
    sides = [_moves(run) for run in runs.compared]
    codes = sorted(set(sides[0]) | set(sides[1]))
    (n0, t0, b0), (n1, t1, b1) = (
        np.array([side.get(code, (0, 0, 0)) for code in codes], np.int64).reshape(-1, 3).T
        for side in sides
    )
    kinds = [MoveKind.of(code) for code in codes]
    columns = {
        "kind": [kind.kind for kind in kinds],
        "source_memory": [kind.source for kind in kinds],
        "target_memory": [kind.target for kind in kinds],
        **sum_columns("operations", (n0, t0), (n1, t1)),
        "operations_change_pct": percent(n1 - n0, n0),
        "baseline_size_bytes": b0,
        "input_size_bytes": b1,
        "size_change_pct": percent(b1 - b0, b0),
    }
    for name, side in zip(COMPARED, of_steps, strict=True):
        every = [[side.get((code, blocks), (0.0, 0.0, 0.0)) for blocks in (False, True)]
                 for code in codes]  # fmt: skip
        for place, part in enumerate(("step_moves", "step_ns", "step_size")):
            columns[f"{name}_{part}"] = [sum(row[place] for row in rows) for rows in every]
        columns[f"{name}_blocking_moves"] = [rows[1][0] for rows in every]
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
    sides = [run.idle_ns for run in runs.compared]
    codes = [
        code
        for code in range(IDLE_CAUSES_N)
        if any(side is not None and side[code] for side in sides)
    ]
    times = [
        np.array([NULL_INT if side is None else side[code] for code in codes], dtype=np.int64)
        for side in sides
    ]
    known = sides[0] is not None and sides[1] is not None
    windows = [run.total(lambda device: device.window_ns) for run in runs.compared]
    shares = [
        np.full(len(codes), np.nan) if side is None else percent(time, window)
        for side, time, window in zip(sides, times, windows, strict=True)
    ]
    change = times[1] - times[0] if known else np.full(len(codes), NULL_INT, dtype=np.int64)
    columns = {
        "cause": [CAUSE_NAMES[code] for code in codes],
        "meaning": [CAUSES[CAUSE_NAMES[code]] for code in codes],
        "baseline_total_ns": nullable(times[0]),
        "input_total_ns": nullable(times[1]),
        "baseline_window_pct": shares[0],
        "input_window_pct": shares[1],
        "window_change_pp": shares[1] - shares[0],
    }
    ordered = by_change({**columns, "change_ns": change}, "cause")
    return {**ordered, "change_ns": nullable(ordered["change_ns"])}


def run_columns(runs: Runs) -> Columns:
    """Return the table runs."""
    rows = [{**_run_row(run), "tells_noise": run in runs.noise} for run in runs.all]
    columns: Columns = {name: [row[name] for row in rows] for name in rows[0]}
    nulls = ("steps_n", "tokens_n", "idle_ns")
    return {**columns, **{name: pd.array(columns[name], dtype="Int64") for name in nulls}}


def _run_row(run: Run) -> dict[str, Any]:
    window_ns, idle_ns = run.total(lambda device: device.window_ns), idle_total_ns(run.devices)
    reports = {rank.key.path for rank, _ in run.ranks} | {rank.key.path for rank in run.others}
    apis = run.summed_names(lambda sums: sums.apis)
    return {
        "run": run.side,
        "reports_n": len(reports),
        "ranks_n": len(run.ranks),
        "window_ns": window_ns,
        "steps_n": run.steps_n,
        "step": run.step,
        "step_note": run.step_note,
        "tokens_n": run.tokens_n,
        "launches_n": run.launches_n,
        "whole_graphs_n": run.whole_graphs_n,
        "kernel_ns": run.kernel_ns,
        "communication_ns": run.total(lambda device: device.communication_ns),
        "exposed_communication_ns": run.total(lambda device: device.exposed_ns),
        "copy_ns": run.total(lambda device: device.copy_ns),
        "busy_ns": run.total(lambda device: device.busy_ns),
        "idle_ns": idle_ns,
        "idle_pct": 100.0 * idle_ns / window_ns if idle_ns is not None and window_ns else np.nan,
        "api_ns": sum(total for _, total in apis.values()),
    }


def _moves(run: Run) -> dict[int, tuple[int, int, int]]:
    by_kind: dict[int, tuple[int, int, int]] = {}
    for _, sums in run.ranks:
        moves = sums.moves
        columns = (moves.moves_n, moves.total_ns, moves.size_bytes)
        rows = zip(moves.kind.tolist(), *(column.tolist() for column in columns), strict=True)
        for code, n, total_ns, size in rows:
            before = by_kind.get(code, (0, 0, 0))
            by_kind[code] = before[0] + n, before[1] + total_ns, before[2] + size
    return by_kind


def _named(runs: Runs, what: str, of: Callable[[RankSums], NamedSums]) -> tuple[list[str], Columns]:
    """Return the names that a run has calls of or time in, and sums over all ranks."""
    sides = [run.summed_names(of) for run in runs.compared]
    some = [name for side in sides for name, sums in side.items() if sums != (0, 0)]
    names = sorted(set(some))
    rows = (amounts([side.get(name, (0, 0)) for name in names]) for side in sides)
    return names, sum_columns(what, *rows)
