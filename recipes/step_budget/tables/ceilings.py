"""What a fix gains at most: time on the path through the whole run, by what a person changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from nsys_llm.critical_path.path.classes import (
    CLASS_NAMES,
    COMMUNICATION,
    COMPUTE,
    COPY,
    HOST_NO_CUDA,
)
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.categories import rules_for

from .job_tables import JobPaths

#: Classes that an edge causes: who takes it away wins more or less than their time.
_EDGES: Final = frozenset({"host_sync", "sync_memop", "sync_latency"})
#: Not a person's to change, or not known.
_NOBODYS: Final = frozenset({"unknown", "profiler_overhead"})
_CALLS: Final = frozenset({"launch_api", "alloc", "module_load", "back_pressure", "other_api"})

WAIT: Final = "wait"

Sums = dict[Any, tuple[IntArray, IntArray]]


def ceiling_rows(paths: JobPaths) -> list[dict[str, Any]]:
    """Return the rows of the table ceilings."""
    counted = paths.job.counted
    if not counted.size or not int(paths.wall_ns[counted].sum()):
        return []
    rows = [
        _row(paths, change, name, time_ns, certain_ns)
        for change, sums in _changes(paths).items()
        for name, (time_ns, certain_ns) in sums.items()
        if int(time_ns[-1]) or int(time_ns[counted].sum())
    ]
    return sorted(rows, key=lambda row: (-row["path_ns"], row["change"], row["name"]))


def _row(
    paths: JobPaths, change: str, name: str, time_ns: IntArray, certain_ns: IntArray
) -> dict[str, Any]:
    counted = paths.job.counted
    steps_n, values = counted.size, time_ns[counted]
    wall_ns = int(paths.job.edge_ns[counted[-1] + 1] - paths.job.edge_ns[counted[0]])
    path_ns, worst = int(time_ns[-1]), int(values.argmax())
    # In communication that is not matched, the path may have waited for what would be shorter, too.
    communicates = [charge.kind == COMMUNICATION for charge in paths.charged.charges]
    hidden = paths.charged.by_charge.time_ns[np.flatnonzero(communicates), -1].any()
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


def _changes(paths: JobPaths) -> dict[str, Sums]:
    charged, charges = paths.charged, paths.charged.charges
    kinds = [CLASS_NAMES[of.kind] for of in charges]
    rules = rules_for({of.detail for of in charges if of.kind == COMPUTE})
    keys: dict[str, Sequence[str | None]] = {
        "class": [None if kind in _NOBODYS else kind for kind in kinds],
        "category": [
            rules.classify(of.detail).category if of.kind == COMPUTE else None for of in charges
        ],
        "kernel": [of.detail if of.kind == COMPUTE else None for of in charges],
        "copy": [of.detail if of.kind == COPY else None for of in charges],
        "api": [of.detail if CLASS_NAMES[of.kind] in _CALLS else None for of in charges],
        "range": [of.detail or None if of.kind == HOST_NO_CUDA else None for of in charges],
    }
    changes = {change: charged.by_charge.by_key(by_charge) for change, by_charge in keys.items()}
    if len(paths.rows) > 1:
        changes["rank"] = charged.by_rank.by_key([rank.file for rank, _ in paths.rows])
    changes[WAIT] = charged.behind_waits.by_key(charged.waits)
    return changes
