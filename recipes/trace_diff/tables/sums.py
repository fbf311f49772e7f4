"""Tables of sums that are compared: copies, calls, phases, runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from nsys_llm.facts.compared.operations import CopyKind
from nsys_llm.facts.compared.rank import RankSums
from nsys_llm.numeric.by_key import ByKey
from nsys_llm.report.columns import Columns
from nsys_llm.taxonomy.api_classes import classify_api
from nsys_llm.taxonomy.cuda_codes import MoveKind
from nsys_llm.trace.rank_sets import COMPARED

from .kernels import by_change, sum_columns
from .runs import Runs, RunSums
from .step_splits import FloatArray

#: Columns of copies of a step.
_STEP: Final = ("moves", "ns", "size")


def memop_columns(runs: Runs, of_steps: Sequence[Mapping[CopyKind, FloatArray]]) -> Columns:
    """Return the table memops; of both runs the copies of a step and rank are given, too."""
    before, after = (run.moves for run in runs.compared)
    codes = sorted({*before, *after})
    kinds = [MoveKind.of(code) for code in codes]
    size0, size1 = (
        np.array([side.get(code, (0, 0, 0))[2] for code in codes], np.int64)
        for side in (before, after)
    )
    columns = {
        "kind": [kind.kind for kind in kinds],
        "source_memory": [kind.source for kind in kinds],
        "target_memory": [kind.target for kind in kinds],
        **sum_columns("operations", codes, before, after),
        "baseline_size_bytes": size0,
        "input_size_bytes": size1,
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
    """Return the table phases: GPU time by phase."""
    names, columns = _named(runs, "operations", lambda sums: sums.phases)
    return by_change({"phase": names, **columns}, "phase")


def run_rows(runs: Runs) -> list[dict[str, Any]]:
    """Return the table runs."""
    return [{**_run_row(run), "tells_noise": run in runs.noise} for run in runs.all]


def _run_row(run: RunSums) -> dict[str, Any]:
    whole, idle_ns = run.whole, run.whole.idle_total_ns
    return {
        "run": run.side,
        "ranks_n": len(run.ranks),
        "window_ns": whole.window_ns,
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
        else None,
    }


def _named(runs: Runs, what: str, of: Callable[[RankSums], ByKey]) -> tuple[list[str], Columns]:
    """Return the names that a run has calls of or time in, and sums over all ranks."""
    sides = [run.summed_names(of) for run in runs.compared]
    names = sorted({name for side in sides for name, sums in side.items() if sums != (0, 0)})
    return names, sum_columns(what, names, *sides)
