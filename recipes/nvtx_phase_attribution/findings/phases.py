"""Findings about phases: idle time before their work, and steps of them that take far longer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

import pandas as pd

from nsys_llm.report.causes import Cause, Change
from nsys_llm.report.findings import Finding, cells, claim
from nsys_llm.report.records import Record, Tables, percent, records
from nsys_llm.report.walls import Gpu, Walls
from nsys_llm.taxonomy.phase_maps import NO_API, NO_RANGE, UNMAPPED
from nsys_llm.taxonomy.step_names import EAGER, GRAPH
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, COMPUTE, COPIES, IDLE
from nsys_llm.view.text import quoted

from .texts import RULES, SLOW_TIMES

_UNNAMED: Final = (UNMAPPED, NO_RANGE, NO_API)
_BUSY: Final = (COMPUTE, COMMUNICATION, COPIES)
#: What takes longer in a slow step, the case of the rule, and the classes of the wall it is in.
_PARTS: Final[Mapping[str, tuple[str | None, tuple[str, ...]]]] = {
    "window_own_ns": (None, _BUSY),
    "window_other_ns": ("other", _BUSY),
    "window_idle_ns": ("idle", (IDLE,)),
}


def idle_findings(tables: Tables) -> list[Finding]:
    """Return a finding for each phase before whose work a GPU is idle."""
    phases, ranks = tables["phases"], tables["rank_phases"]
    reported = []
    for phase in phases.loc[phases["mapped"], "phase"].tolist():
        rows = records(ranks[(ranks["phase"] == phase) & (ranks["idle_ns"].fillna(0) > 0)])
        if rows:
            row = max(rows, key=lambda row: row["idle_ns"])
            reported.append(_idle_finding(tables, row, tuple(row["rank"] for row in rows)))
    return reported


def _idle_finding(tables: Tables, row: Record, affected: tuple[int, ...]) -> Finding:
    walls, rank, phase = Walls(tables), int(row["rank"]), str(row["phase"])
    gpu = _busiest_gpu(walls, rank, IDLE) or (rank, 0)
    ranks, idle = tables["rank_phases"], tables["phase_idle"]
    # On the GPU that idles most; all GPUs of a rank are taken alike.
    whole_ns = int(ranks.loc[ranks["rank"] == rank, "idle_ns"].sum())
    idle_ns = int(row["idle_ns"]) * min(walls.class_ns(*gpu, IDLE), whole_ns) // max(whole_ns, 1)
    gaps = records(idle[idle["phase"] == phase])[0]
    return RULES["idle_before_phase"].finding(
        cause=Cause("place", rank=rank, detail=phase),
        change=Change("unknown", time_ns=idle_ns, wall_classes=(IDLE,)),
        fields={"before_pct": percent(gaps["before_ns"], gaps["idle_ns"])},
        evidence=(
            *cells("rank_phases", row, ("rank", "phase"), ("idle_ns", "gpu_ns")),
            *cells("phase_idle", gaps, ("phase",), ("before_ns",)),
        ),
        ranks=affected,
        rank=rank,
        device_id=gpu[1],
        name=phase,
        window_ns=_idlest_step(tables, rank, phase),
        impact_ns=idle_ns,
    )


def _busiest_gpu(walls: Walls, rank: int, *wall_classes: str) -> Gpu | None:
    """Return the GPU of a rank with most time in some classes; None for a rank without any."""
    gpus = [gpu for gpu in walls.gpus if gpu[0] == rank]
    return max(gpus, key=lambda gpu: walls.class_ns(*gpu, *wall_classes), default=None)


def _idlest_step(tables: Tables, rank: int, phase: str) -> tuple[int, int] | None:
    """Return when a rank's step ran in which it was idle longest, of those of a phase if any."""
    steps = tables["steps"]
    rows = steps[(steps["rank"] == rank) & steps["idle_inside_ns"].notna()]
    of_phase = rows[rows["phase"] == phase]
    rows = rows if of_phase.empty else of_phase
    if rows.empty:
        return None
    longest = rows.loc[rows["idle_inside_ns"].idxmax()]
    return int(longest["gpu_start_ns"]), int(longest["gpu_end_ns"])


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
    gpu = _busiest_gpu(Walls(tables), rank, *_BUSY, IDLE)
    if slow.empty or usual_ns <= 0 or gpu is None:
        return
    worst = records(slow.loc[[slow["window_ns"].idxmax()]])[0]
    grown_ns = {part: worst[part] - float(rows[part].median()) for part in _PARTS}
    part = max(grown_ns, key=lambda part: grown_ns[part])
    (case, wall_classes), other = _PARTS[part], worst["other_range"]
    of_steps = {"rank": rank, "phase": phase, "full": True, "warmup": False}
    of_steps |= {"name": kind} if kind else {}
    of = partial(claim, tables, **of_steps)
    usual = of("usual_ns", "steps", "window_ns", "median")
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
            "where": f"in {quoted(other)}" if other else "outside all ranges",
        },
        evidence=(
            *cells("steps", worst, *in_worst),
            usual,
            of("worst_ratio", "steps", "window_ns", "max", usual),
            of("steps_n", "steps", "window_ns", "count"),
            of("usual_part_ns", "steps", part, "median"),
        ),
        ranks=(rank,),
        rank=rank,
        device_id=gpu[1],
        name=phase,
        window_ns=(int(worst["window_start_ns"]), int(worst["window_end_ns"])),
        impact_ns=round(float((slow["window_ns"] - usual_ns).sum())),
    )
