"""What hosts did on the path of the job through all steps that count, and behind which waits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from nsys_llm.critical_path.path.blocks import Charge
from nsys_llm.critical_path.path.classes import (
    CLASS_NAMES,
    HOST_NO_CUDA,
    LAUNCH_LATENCY,
    PROFILER,
)
from nsys_llm.report.records import percent
from nsys_llm.trace.host_part import CUDA_CALL, UNKNOWN

from .job_tables import JobPaths

_WHERE: Final = ("behind", "cause", "range", "state", "detail")


def host_state_rows(paths: JobPaths) -> list[Mapping[str, Any]]:
    """Return the rows of host_states, by rank, the most time first."""
    charged, steps_n = paths.charged, paths.job.counted.size
    sums = Counter[tuple[Any, ...]]()
    idle_ns, all_ns = Counter[tuple[Any, ...]](), Counter[int]()
    for place, wait, code, time_ns, idle in charged.on_host.tolist() if steps_n else ():
        behind = None if wait < 0 else charged.waits[wait]
        key = (place, behind, *_doing(charged.charges[code]))
        sums[key] += time_ns
        idle_ns[key] += idle
        all_ns[place] += time_ns
    order = sorted(sums, key=lambda key: (key[0], -sums[key], tuple(map(str, key))))
    return [
        {
            "rank": paths.rows[key[0]][0].number,
            "file": paths.rows[key[0]][0].file,
            **dict(zip(_WHERE, key[1:], strict=True)),
            "time_ns": sums[key],
            "idle_ns": idle_ns[key],
            "steps_n": steps_n,
            "share_pct": percent(sums[key], all_ns[key[0]]),
        }
        for key in order
        if sums[key]
    ]


def _doing(charge: Charge) -> tuple[str, str | None, str, str | None]:
    """Return class, range, state and function of host time."""
    name, text = CLASS_NAMES[charge.kind], charge.detail or None
    if charge.kind == HOST_NO_CUDA:
        return name, text, charge.state or UNKNOWN, charge.function or None
    in_call = charge.kind not in (LAUNCH_LATENCY, PROFILER)
    return name, None, CUDA_CALL if in_call else UNKNOWN, text if in_call else None
