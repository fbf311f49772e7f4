"""What a fix gains at most: time on the path through the whole run, by what a person changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from nsys_llm.analyses.critical_path.path.classes import (
    CLASS_NAMES,
    COMMUNICATION,
    COMPUTE,
    COPY,
    HOST_NO_CUDA,
)
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.categories import detect_engine, load_rules

from .job_tables import JobPaths
from .meetings import Meetings

#: Classes that an edge causes: who takes it away wins more or less than their time.
_EDGES: Final = frozenset({"host_sync", "sync_memop", "sync_latency"})
#: Not a person's to change, or not known.
_NOBODYS: Final = frozenset({"unknown", "profiler_overhead"})
_CALLS: Final = frozenset({"launch_api", "alloc", "module_load", "back_pressure", "other_api"})

WAIT: Final = "wait"

Sums = dict[Any, tuple[IntArray, IntArray]]


def ceiling_rows(paths: JobPaths, meetings: Meetings) -> list[dict[str, Any]]:
    """Return the rows of the table ceilings; `meetings` are the collectives of the ranks."""
    counted = paths.job.counted
    if not counted.size or not int(paths.wall_ns[counted].sum()):
        return []
    rows: list[dict[str, Any]] = []
    for change, sums in _changes(paths, meetings):
        for name, (time_ns, certain_ns) in sums.items():
            if int(time_ns[-1]) or int(time_ns[counted].sum()):
                rows.append(_row(paths, counted, change, name, time_ns, certain_ns))
    return sorted(rows, key=lambda row: (-row["path_ns"], row["change"], row["name"]))


def _row(
    paths: JobPaths,
    counted: IntArray,
    change: str,
    name: str,
    time_ns: IntArray,
    certain_ns: IntArray,
) -> dict[str, Any]:
    steps_n, values = counted.size, time_ns[counted]
    wall_ns = int(paths.job.edge_ns[counted[-1] + 1] - paths.job.edge_ns[counted[0]])
    path_ns, worst = int(time_ns[-1]), int(values.argmax())
    # In communication that is not matched, the path may have waited for what would be shorter, too.
    hidden = paths.charged.by_charge.time_ns[_communicating(paths), -1].any()
    bound = not hidden and change != WAIT and not (change == "class" and name in _EDGES)
    total = int(values.sum())
    return {
        "change": change,
        "name": name,
        "path_ns": path_ns / steps_n,
        "p50_ns": float(np.percentile(values, 50)),
        "p99_ns": float(np.percentile(values, 99)),
        "worst_ns": int(values[worst]),
        "worst_step": int(counted[worst]) if int(values[worst]) else None,
        "wall_ns": wall_ns / steps_n,
        "gain_pct": 100.0 * min(path_ns, wall_ns) / wall_ns if bound else None,
        "is_bound": bound,
        "certain_pct": 100.0 * int(certain_ns[counted].sum()) / total if total else None,
    }


def _communicating(paths: JobPaths) -> list[int]:
    """Return the charges that are communication which is not matched with other ranks."""
    charges = paths.charged.charges
    return [code for code, charge in enumerate(charges) if charge.kind == COMMUNICATION]


def _changes(paths: JobPaths, meetings: Meetings) -> list[tuple[str, Sums]]:
    """Return what a person could change, and the time of each by walk."""
    charged, charges = paths.charged, paths.charged.charges
    kinds = [CLASS_NAMES[charge.kind] for charge in charges]
    rules = load_rules(
        detect_engine({charge.detail for charge in charges if charge.kind == COMPUTE})
    )
    keys: list[tuple[str, Sequence[str | None]]] = [
        ("class", [None if kind in _NOBODYS else kind for kind in kinds]),
        (
            "category",
            [
                rules.classify(charge.detail).category if charge.kind == COMPUTE else None
                for charge in charges
            ],
        ),
        ("kernel", [charge.detail if charge.kind == COMPUTE else None for charge in charges]),
        ("copy", [charge.detail if charge.kind == COPY else None for charge in charges]),
        (
            "api",
            [
                charge.detail if kind in _CALLS else None
                for charge, kind in zip(charges, kinds, strict=True)
            ],
        ),
        (
            "range",
            [charge.detail or None if charge.kind == HOST_NO_CUDA else None for charge in charges],
        ),
    ]
    changes = [(change, charged.by_charge.by_key(by_charge)) for change, by_charge in keys]
    if len(paths.rows) > 1:
        labels = [rank.file for rank, _ in paths.rows]
        changes.append(("rank", charged.by_rank.by_key(labels)))
        changes.append(("straggler", _stragglers(paths, meetings, labels)))
    changes.append((WAIT, charged.behind_waits.by_key(charged.waits)))
    return changes


def _stragglers(paths: JobPaths, meetings: Meetings, labels: Sequence[str]) -> Sums:
    """Return how much later ranks came last than the median rank.

    In all collectives, on the path or not: whatever waited for the rank elsewhere is earlier, too.
    No time is then earlier by more than this, since no collective is by more than its own lateness
    beyond what came before it.
    """
    every = np.arange(meetings.last_ns.size)
    to_end_ns = _late_to_end_ns(paths, meetings)
    late_ns = to_end_ns + _late_ns(paths, meetings, every)
    certain_ns = to_end_ns + _late_ns(paths, meetings, every[meetings.is_clear.astype(bool)])
    return {label: (late_ns[place], certain_ns[place]) for place, label in enumerate(labels)}


def _late_ns(paths: JobPaths, meetings: Meetings, met: IntArray) -> IntArray:
    """Return how much later ranks came last to collectives, shape (ranks, walks)."""
    job, counted = paths.job, paths.job.counted
    steps_n = job.edge_ns.size - 1
    sums = np.zeros((len(paths.rows), len(paths.walks)), dtype=np.int64)
    step = np.searchsorted(job.edge_ns, meetings.last_ns[met], side="left") - 1
    inside = (step >= 0) & (step < steps_n)
    met, step = met[inside], step[inside]
    late_ns = np.maximum(meetings.last_ns[met] - meetings.median_ns[met], 0)
    np.add.at(sums, (meetings.last_rank[met], step), late_ns)
    sums[:, -1] = sums[:, counted[0] : counted[-1] + 1].sum(axis=1)
    return sums


def _late_to_end_ns(paths: JobPaths, meetings: Meetings) -> IntArray:
    """Return how much later ranks ended a step last, shape (ranks, walks).

    A step ends with its last rank; of the walk through the run only the last end counts.
    """
    job, last = paths.job, paths.job.counted[-1]
    steps_n = job.edge_ns.size - 1
    sums = np.zeros((len(paths.rows), len(paths.walks)), dtype=np.int64)
    end_ns = _ends_ns(paths, meetings)
    behind_ns = np.clip(job.edge_ns[1:] - job.median_end_ns(end_ns), 0, np.diff(job.edge_ns))
    sums[job.end_rank, np.arange(steps_n)] += behind_ns
    sums[job.end_rank[last], -1] += behind_ns[last]
    return sums


def _ends_ns(paths: JobPaths, meetings: Meetings) -> IntArray:
    """Return when steps of the job ended on each rank, on the common clock, (ranks, steps)."""
    ends = np.full(paths.job.step.shape, np.iinfo(np.int64).min)
    for place, (rank, budget) in enumerate(paths.rows):
        has = np.flatnonzero(paths.job.step[place] >= 0)
        for device in budget.devices if has.size else ():
            common_ns = meetings.common_ns(rank, device.edge_ns)[1:]
            ends[place, has] = np.maximum(ends[place, has], common_ns[paths.job.step[place, has]])
    return ends
