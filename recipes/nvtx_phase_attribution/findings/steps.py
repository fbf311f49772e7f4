"""The finding on steps that take far longer than others of their phase."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pandas as pd

from nsys_llm.report.causes import Cause, Change
from nsys_llm.report.findings import Finding, cells
from nsys_llm.report.records import Tables, percent, records
from nsys_llm.report.walls import Walls
from nsys_llm.taxonomy.phase_maps import NO_API, NO_RANGE, UNMAPPED
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, COMPUTE, COPIES, IDLE
from nsys_llm.view.text import quoted

from .phases import busiest_gpu
from .texts import RULES, SLOW_TIMES

_UNNAMED = (UNMAPPED, NO_RANGE, NO_API)
#: A step may be slow by any of these, or as its GPU waits.
_WORK = (COMPUTE, COMMUNICATION, COPIES)
_CLASSES = (*_WORK, IDLE)


def _step_windows(steps: pd.DataFrame) -> pd.DataFrame:
    """Return steps with the time that each took, on the clock of its rank.

    The window of a step ends with its range or its GPU work, whichever is later. It begins with its
    range, or with the end of the window before, so that windows are disjoint, however far the host
    is ahead; what lies between two steps, as of a server without requests, is in none.

    Returns:
        The steps by rank and number, with the columns from_ns, to_ns and window_ns.
    """
    rows = steps.sort_values(["rank", "step"], kind="stable")
    ends = rows["gpu_end_ns"].fillna(0).clip(lower=rows["end_ns"]).astype("int64")
    ends = ends.groupby(rows["rank"]).cummax()
    before = ends.groupby(rows["rank"]).shift(1).fillna(0).astype("int64")
    begins = rows["start_ns"].clip(lower=before).astype("int64")
    return rows.assign(from_ns=begins, to_ns=ends, window_ns=(ends - begins).clip(lower=0))


def slow_step_findings(tables: Tables) -> list[Finding]:
    """Return for each phase the finding on its slow steps on the rank that loses most."""
    units = tables["rank_steps"]
    units = units[units["counted"]].set_index("rank")["unit"]
    steps = _step_windows(tables["steps"])
    steps = steps[steps["full"] & ~steps["warmup"] & steps["phase"].notna()]
    steps = steps[steps["rank"].isin(units.index)]
    by_phase: dict[str, list[Finding]] = {}
    for (phase, rank), rows in steps.groupby(["phase", "rank"], sort=True):
        for finding in _slow_steps_of(tables, str(phase), int(rank), rows, str(units[rank])):
            by_phase.setdefault(str(phase), []).append(finding)
    return [max(some, key=lambda finding: finding.impact_ns) for some in by_phase.values()]


def _slow_steps_of(
    tables: Tables, phase: str, rank: int, rows: pd.DataFrame, unit: str
) -> Iterator[Finding]:
    """Yield the finding on slow steps of a phase on a rank, if it has some."""
    usual_ns = float(rows["window_ns"].median())
    times = next((times for n, times in SLOW_TIMES.items() if len(rows) >= n), math.inf)
    slow = rows[rows["window_ns"] > times * usual_ns]
    walls = Walls(tables)
    gpu = busiest_gpu(walls, rank, *_CLASSES)
    if slow.empty or usual_ns <= 0 or gpu is None:
        return
    worst = records(slow.loc[[slow["window_ns"].idxmax()]])[0]
    lost_ns = float((slow["window_ns"] - usual_ns).sum())
    # The worst step had more work than the median one, or none for longer.
    usual_gpu_ns = float(rows["gpu_ns"].median())
    is_work = 2 * (worst["gpu_ns"] - usual_gpu_ns) >= worst["window_ns"] - usual_ns
    yield RULES["slow_steps"].finding(
        cause=Cause("place", rank=rank, detail=f"steps of {phase}"),
        change=Change(
            "unknown",
            time_ns=lost_ns,
            wall_classes=_WORK if is_work else (IDLE,),
            worst_pct=percent(worst["window_ns"] - usual_ns, worst["window_ns"]),
        ),
        fields={
            "steps": f"{unit}s" if phase in _UNNAMED else f"{quoted(phase)} {unit}s",
            "unit": unit,
            "slow_n": len(slow),
            "steps_n": len(rows),
            "usual_ns": usual_ns,
            "worst_ns": worst["window_ns"],
            "worst_ratio": worst["window_ns"] / usual_ns,
            "slow_ratio": times,
            "usual_gpu_ns": usual_gpu_ns,
            "grew": "its work took longer" if is_work else "the GPU waited",
        },
        evidence=cells("steps", worst, ("rank", "step"), ("gpu_ns",)),
        ranks=(rank,),
        rank=rank,
        device_id=gpu[1],
        name=phase,
        window_ns=(int(worst["from_ns"]), int(worst["to_ns"])),
        impact_ns=round(lost_ns),
    )
