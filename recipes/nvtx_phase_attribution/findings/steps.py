"""The finding on steps that take far longer than others of their phase."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Final

import pandas as pd

from nsys_llm.report.causes import Cause, Change
from nsys_llm.report.findings import Finding, cells, claim
from nsys_llm.report.records import Tables, percent, records
from nsys_llm.report.walls import Walls
from nsys_llm.taxonomy.phase_maps import NO_API, NO_RANGE, UNMAPPED
from nsys_llm.taxonomy.step_names import EAGER, GRAPH
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, COMPUTE, COPIES, IDLE
from nsys_llm.view.text import quoted

from .phases import busiest_gpu
from .texts import RULES, SLOW_TIMES

_UNNAMED = (UNMAPPED, NO_RANGE, NO_API)
_CLASSES = (COMPUTE, COMMUNICATION, COPIES, IDLE)
#: What takes longer in a slow step, the case of the rule, and the classes of the wall it is in.
_PARTS: Final[Mapping[str, tuple[str | None, tuple[str, ...]]]] = {
    "window_own_ns": (None, (COMPUTE, COMMUNICATION, COPIES)),
    "window_other_ns": ("other", (COMPUTE, COMMUNICATION, COPIES)),
    "window_idle_ns": ("idle", (IDLE,)),
}


def slow_step_findings(tables: Tables) -> list[Finding]:
    """Return for each phase the finding on its slow steps on the rank that loses most."""
    units = tables["rank_steps"]
    units = units[units["counted"]].set_index("rank")["unit"]
    steps = tables["steps"]
    steps = steps[steps["full"] & ~steps["warmup"] & steps["phase"].notna()]
    steps = steps[steps["rank"].isin(units.index)]
    by_phase: dict[str, list[Finding]] = {}
    # Prefills between replays of a graph are of a kind of their own.
    graphs = steps["rank"].map(units) == GRAPH
    steps = steps.assign(kind=steps["name"].where(graphs, ""))
    for (phase, rank, kind), rows in steps.groupby(["phase", "rank", "kind"], sort=True):
        unit = EAGER if kind == EAGER else str(units[rank])
        for finding in _slow_steps_of(tables, str(phase), int(rank), rows, unit, str(kind)):
            by_phase.setdefault(str(phase), []).append(finding)
    return [max(some, key=lambda finding: finding.impact_ns) for some in by_phase.values()]


def _slow_steps_of(
    tables: Tables, phase: str, rank: int, rows: pd.DataFrame, unit: str, kind: str
) -> Iterator[Finding]:
    """Yield the finding on slow steps of a phase and kind on a rank, if it has some."""
    usual_ns = float(rows["window_ns"].median())
    times = next((times for n, times in SLOW_TIMES.items() if len(rows) >= n), math.inf)
    slow = rows[rows["window_ns"] > times * usual_ns]
    gpu = busiest_gpu(Walls(tables), rank, *_CLASSES)
    if slow.empty or usual_ns <= 0 or gpu is None:
        return
    worst = records(slow.loc[[slow["window_ns"].idxmax()]])[0]
    grown_ns = {part: worst[part] - float(rows[part].median()) for part in _PARTS}
    part = max(grown_ns, key=lambda part: grown_ns[part])
    case, wall_classes = _PARTS[part]
    of_steps = {"rank": rank, "phase": phase, "full": True, "warmup": False}
    of_steps |= {"name": kind} if kind else {}
    usual = claim(tables, "usual_ns", "steps", "window_ns", "median", **of_steps)
    in_worst = ("rank", "phase", "step"), ("window_ns", part, "other_name", "other_range")
    yield RULES["slow_steps"].finding(
        case=case,
        cause=Cause("place", rank=rank, detail=f"steps of {phase}"),
        change=Change(
            "unknown",
            time_ns=float((slow[part] - rows[part].median()).clip(lower=0).sum()),
            wall_classes=wall_classes,
            worst_pct=percent(grown_ns[part], worst["window_ns"]),
        ),
        fields={
            "steps": f"{unit}s" if phase in _UNNAMED else f"{quoted(phase)} {unit}s",
            "unit": unit,
            "slow_n": len(slow),
            "slow_ratio": times,
            "where": f"in {quoted(worst['other_range'])}"
            if worst["other_range"]
            else "outside all ranges",
        },
        evidence=(
            *cells("steps", worst, *in_worst),
            usual,
            claim(tables, "worst_ratio", "steps", "window_ns", "max", usual, **of_steps),
            claim(tables, "steps_n", "steps", "window_ns", "count", **of_steps),
            claim(tables, "usual_part_ns", "steps", part, "median", **of_steps),
        ),
        ranks=(rank,),
        rank=rank,
        device_id=gpu[1],
        name=phase,
        window_ns=(int(worst["window_start_ns"]), int(worst["window_end_ns"])),
        impact_ns=round(float((slow["window_ns"] - usual_ns).sum())),
    )
