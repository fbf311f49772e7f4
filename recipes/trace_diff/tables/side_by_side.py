"""Tables of both runs side by side: kernels, copies, calls, phases, collectives, host, runs.

Whether kernels, calls and ranges of the host got slower or faster beyond chance is decided by a
test, and floors for what counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from nsys_llm.facts.compared.operations import CopyKind, config_text
from nsys_llm.numeric.by_key import ByKey
from nsys_llm.numeric.effects import split_change
from nsys_llm.numeric.grouping import positions
from nsys_llm.numeric.tails import ratio
from nsys_llm.numeric.two_samples import adjusted, compare_ranks
from nsys_llm.report.columns import Columns, percent, sorted_columns, taken
from nsys_llm.taxonomy.api_classes import classify_api
from nsys_llm.taxonomy.categories import Classification
from nsys_llm.taxonomy.communication import is_communication
from nsys_llm.taxonomy.cuda_codes import MoveKind
from nsys_llm.trace.rank_sets import COMPARED

from .chosen_steps import StepKernels
from .runs import ALL, CollectiveSums, KernelSide, Runs, kernel_side, sum_collectives
from .step_splits import FloatArray

#: Verdicts on a row.
REGRESS: Final = "regress"
IMPROVE: Final = "improve"
NONE: Final = "none"
INSUFFICIENT: Final = "insufficient"
#: Which sides have a row.
BOTH: Final = "both"
NEW: Final = "new"
VANISHED: Final = "vanished"
#: Kinds of what the host does.
CALL: Final = "call"
RANGE: Final = "range"

#: Launches of a side below which the normal approximation says little; scipy's limit for it, too.
LEAST_LAUNCHES: Final = 8
#: Durations are mostly multiples of it (see docs on exact counts): a median that moves by one tick
#: has not moved. The host's clock counts nanoseconds.
_TICK_NS: Final = 32
_HOST_TICK_NS: Final = 1
#: Of the time in collectives: all of it, and what it is divided into.
_PARTS: Final = ("total", "wait", "transfer")
#: What times are compared as where no steps are.
SUMS: Final = "sum over all ranks"


def kernel_columns(
    runs: Runs,
    classes: Mapping[str, Classification],
    unit: str,
    full: tuple[StepKernels, StepKernels] | None,
    options: Mapping[str, Any],
) -> Columns:
    """Return the table kernels, by name over all ranks, largest change first as it is compared.

    Args:
        unit: What a step is: step, layer, graph, period.
        full: Kernels of the steps that are compared; None where no steps are, but sums.
    """
    names = runs.names
    before, after = (run.kernels(names) for run in runs.compared)
    demangled = {key[0]: key[1] for run in runs.compared for key in run.keys}
    noise = noise_pct(before, [run.kernels(names) for run in runs.noise])
    steps = full or tuple(
        StepKernels(
            side.launches_n.astype(np.float64),
            np.full(len(names), np.nan),
            side.total_ns.astype(np.float64),
        )
        for side in (before, after)
    )
    columns = {
        "name": list(names),
        "category": [classes[name].category for name in names],
        "operation": [classes[name].operation for name in names],
        "communication": np.array([is_communication(demangled[name]) for name in names], bool),
        **_launch_columns(before, after),
        **compared(before, after, options, noise),
        "noise_pct": noise,
        "basis": [SUMS if full is None else f"a full {unit}, mean of ranks"] * len(names),
        "compared_change_ns": steps[1].spent_ns - steps[0].spent_ns,
    }
    for name, side in zip(COMPARED, steps, strict=True):
        columns[f"{name}_compared_ns"] = side.spent_ns
        columns[f"{name}_compared_calls"] = side.launches_n
        columns[f"{name}_compared_threads"] = side.threads
    return by_change(columns, "name", "compared_change_ns")


def config_columns(runs: Runs) -> Columns:
    """Return the table configs: by name and configuration, effects of their own."""
    both = runs.compared
    keys = sorted({(key[0], *key[2:]) for run in both for key in run.keys})
    before, after = (run.kernels_by(keys, lambda key: (key[0], *key[2:])) for run in both)
    columns = {
        "name": [key[0] for key in keys],
        "config": [config_text(key[1:]) for key in keys],
        **_launch_columns(before, after),
    }
    return by_change(columns, "name")


def _launch_columns(before: KernelSide, after: KernelSide) -> Columns:
    """Return which sides have each row, launches and times."""
    had, has = ((side.launches_n > 0) | (side.total_ns > 0) for side in (before, after))
    sides = ((side.launches_n, side.total_ns) for side in (before, after))
    return {
        "status": np.select([has & ~had, had & ~has], [NEW, VANISHED], BOTH).astype(object),
        **_effect_columns("launches", *sides),
    }


def compared(
    before: KernelSide,
    after: KernelSide,
    options: Mapping[str, Any],
    noise: FloatArray | float = np.nan,
    tick_ns: int = _TICK_NS,
) -> Columns:
    """Return medians of each kernel, call or range, and whether they differ.

    Args:
        noise: How far medians of equal runs differ, percent of the baseline's; NaN: not known.
        tick_ns: A median that moves by no more has not moved.
    """
    enough = (before.launches_n >= LEAST_LAUNCHES) & (after.launches_n >= LEAST_LAUNCHES)
    p_value = np.where(enough, compare_ranks(before.counts, after.counts, enough.size), np.nan)
    q_value = adjusted(p_value)
    moved = after.twice_p50 - before.twice_p50
    known = (before.launches_n > 0) & (after.launches_n > 0) & (before.twice_p50 > 0)
    change_pct = np.where(known, 100.0 * moved / np.where(known, before.twice_p50, 1), np.nan)
    floor_pct = np.fmax(options["min_effect"], noise)
    with np.errstate(invalid="ignore"):
        real = (q_value < options["alpha"]) & (np.abs(change_pct) >= floor_pct)
    real &= np.abs(moved) > 2 * tick_ns
    verdict = np.select(
        [~enough, real & (moved > 0), real & (moved < 0)], [INSUFFICIENT, REGRESS, IMPROVE], NONE
    )
    return {
        "baseline_p50_ns": before.p50_ns,
        "input_p50_ns": after.p50_ns,
        "p50_change_pct": change_pct,
        "p_value": p_value,
        "q_value": q_value,
        "verdict": verdict.astype(object),
    }


def noise_pct(before: KernelSide, repeats: Sequence[KernelSide]) -> FloatArray:
    """Return how far the medians of equal runs lie apart, in percent of the baseline's.

    NaN without repeats, and for what none of them launches.
    """
    medians = np.array([side.p50_ns for side in (before, *repeats)])
    known = ((~np.isnan(medians)).sum(axis=0) >= 2) & (medians[0] > 0)
    spread = np.full(known.shape, np.nan)
    apart = np.nanmax(medians[:, known], axis=0) - np.nanmin(medians[:, known], axis=0)
    spread[known] = 100.0 * apart / medians[0, known]
    return spread


def memop_columns(runs: Runs, of_steps: Sequence[Mapping[CopyKind, FloatArray]]) -> Columns:
    """Return the table memops; of both runs the copies of a step and rank are given, too."""
    sides = [run.moves for run in runs.compared]
    codes = sorted({*sides[0], *sides[1]})
    kinds = [MoveKind.of(code) for code in codes]
    columns = {
        "kind": [kind.kind for kind in kinds],
        "source_memory": [kind.source for kind in kinds],
        "target_memory": [kind.target for kind in kinds],
        **_sum_columns("operations", codes, sides),
    }
    for name, whole, steps in zip(COMPARED, sides, of_steps, strict=True):
        columns[f"{name}_size_bytes"] = [whole.get(code, (0, 0, 0))[2] for code in codes]
        async_copies, blocking = (
            np.array([steps.get((code, blocks), np.zeros(3)) for code in codes]).reshape(-1, 3).T
            for blocks in (False, True)
        )
        for part, values in zip(("moves", "ns", "size"), async_copies + blocking, strict=True):
            columns[f"{name}_step_{part}"] = values
        columns[f"{name}_blocking_moves"] = blocking[0]
    return by_change(columns, "kind")


def api_columns(runs: Runs) -> Columns:
    """Return the table apis."""
    names, columns = _named("calls", [run.job.facts.compared.apis for run in runs.compared])
    return by_change(
        {"api": names, "class": [classify_api(name) for name in names], **columns}, "api"
    )


def phase_columns(runs: Runs) -> Columns:
    """Return the table phases: GPU time by phase."""
    names, columns = _named("operations", [run.job.facts.compared.phases for run in runs.compared])
    return by_change({"phase": names, **columns}, "phase")


def _named(what: str, both: Sequence[ByKey]) -> tuple[list[str], Columns]:
    """Return the names that a run has calls of or time in, and sums over all ranks."""
    sides = [sums.rows() for sums in both]
    names = sorted({name for side in sides for name, sums in side.items() if sums != (0, 0)})
    return names, _sum_columns(what, names, sides)


def _sum_columns(
    what: str, keys: Sequence[Any], both: Sequence[Mapping[Any, tuple[int, ...]]]
) -> Columns:
    """Return numbers and times of both sides by key, of which these are the first two sums."""
    sides = (
        np.array([side.get(key, (0, 0))[:2] for key in keys], np.int64).reshape(-1, 2).T
        for side in both
    )
    return _effect_columns(what, *sides)


def _effect_columns(what: str, before: Any, after: Any) -> Columns:
    """Return numbers and times of both sides, each two columns, and what changes are made of."""
    effects = split_change(*before, *after)
    return {
        f"baseline_{what}_n": before[0],
        f"input_{what}_n": after[0],
        "baseline_total_ns": before[1],
        "input_total_ns": after[1],
        "change_ns": effects.change,
        "change_pct": percent(effects.change, before[1]),
        "count_effect_ns": effects.count,
        "per_call_effect_ns": effects.per_call,
    }


def by_change(columns: Columns, name: str, change: str = "change_ns") -> Columns:
    """Order rows by the size of their change, whichever way it goes."""
    ordered = sorted_columns({**columns, "size": np.abs(columns[change])}, "-size", name)
    del ordered["size"]
    return ordered


def collective_columns(runs: Runs) -> Columns:
    """Return the table collectives."""
    sides = [sum_collectives(run) for run in runs.compared]
    keys = sorted({key for side in sides for key in side})
    columns: Columns = {
        "communicator": [key[0] for key in keys],
        "operation": [key[1] for key in keys],
    }
    for name, side in zip(COMPARED, sides, strict=True):
        rows = [side.get(key, CollectiveSums()) for key in keys]
        columns |= {
            f"{name}_collectives_n": [row.collectives_n for row in rows],
            f"{name}_late_rank": pd.array([row.late for row in rows], dtype="Int64"),
        }
        for part in (*_PARTS, "profiler"):
            values = [getattr(row, f"{part}_ns") for row in rows]
            columns[f"{name}_{part}_ns"] = np.array(values, dtype=np.int64)
    for part in _PARTS:
        change = columns[f"input_{part}_ns"] - columns[f"baseline_{part}_ns"]
        columns["change_ns" if part == "total" else f"{part}_change_ns"] = change
    ordered = by_change(columns, "communicator")
    rest = np.array([name != ALL for name in ordered["communicator"]], dtype=bool)
    return taken(ordered, np.argsort(rest, kind="stable"))


def host_columns(runs: Runs, options: Mapping[str, Any]) -> Columns:
    """Return the table host: calls and ranges that wait for no GPU, before and after."""
    parts: list[Columns] = []
    for kind in (CALL, RANGE):
        facts = [run.job.facts.compared for run in runs.compared]
        both = [some.calls if kind == CALL else some.ranges for some in facts]
        seen = [(some.keys, np.unique(some.counts.group).tolist()) for some in both]
        names = sorted({of[code] for of, codes in seen for code in codes})
        sides = []
        for some in both:
            code = positions(some.keys, names)
            counts = some.counts.regrouped(code) if code.size else some.counts
            sides.append(kernel_side(counts, counts.moments(len(names)).total))
        before, after = sides
        tests = compared(before, after, options, tick_ns=_HOST_TICK_NS)
        columns = ("baseline_p50_ns", "input_p50_ns", "p_value", "q_value", "verdict")
        parts.append(
            {
                "kind": np.full(len(names), kind, dtype=object),
                "name": np.array(names, dtype=object),
                "baseline_n": before.launches_n,
                "input_n": after.launches_n,
                "baseline_total_ns": before.total_ns,
                "input_total_ns": after.total_ns,
                "p50_ratio": ratio(after.p50_ns, before.p50_ns),
                **{name: tests[name] for name in columns},
            }
        )
    joined = {name: np.concatenate([item[name] for item in parts]) for name in parts[0]}
    return sorted_columns(joined, "kind", "-baseline_total_ns", "name")


def run_rows(runs: Runs) -> list[dict[str, Any]]:
    """Return the table runs."""
    rows = []
    for run in runs.all:
        whole, idle_ns = run.whole, run.whole.idle_total_ns
        rows.append(
            {
                "run": run.side,
                "ranks_n": len(run.ranks),
                "window_ns": whole.window_ns,
                "launches_n": run.launches_n,
                "whole_graphs_n": run.whole_graphs_n,
                "kernel_ns": run.kernel_ns,
                "exposed_communication_ns": whole.exposed_ns,
                "copy_ns": whole.copy_ns,
                "busy_ns": whole.busy_ns,
                "idle_ns": idle_ns,
                "idle_pct": 100.0 * idle_ns / whole.window_ns
                if idle_ns is not None and whole.window_ns
                else None,
                "tells_noise": run in runs.noise,
            }
        )
    return rows
