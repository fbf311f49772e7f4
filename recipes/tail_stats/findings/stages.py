"""Findings on pipelines: the bubble, a stage whose host launches late."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from nsys_llm.report.causes import Cause
from nsys_llm.report.changes import Change
from nsys_llm.report.findings import Evidence, Finding, cells
from nsys_llm.report.records import Tables, records
from nsys_llm.report.walls import Gpu
from nsys_llm.taxonomy.wall_classes import IDLE
from nsys_llm.view.text import counted, format_count, format_ns, format_percent, quoted

from .pipelines import LEAST_STAGES, Pipeline
from .texts import LATE_STAGE_PCT, RULES

_PLACE: Final = ("rank", "device_id")


def pipeline_findings(tables: Tables, pipelines: Sequence[Pipeline]) -> list[Finding]:
    """Return the bubble of each pipeline, and stages whose hosts launch late."""
    return [
        finding
        for pipeline in pipelines
        for finding in (
            _bubble(pipeline),
            *_late_hosts(tables, pipeline),
        )
    ]


def _bubble(pipeline: Pipeline) -> Finding:
    # The stage with most to compute sets the pace.
    at = max(range(len(pipeline.stages)), key=lambda place: (pipeline.compute_ns[place], -place))
    rank, device_id = pipeline.stages[at][0]
    least, most = min(pipeline.compute_ns), max(pipeline.compute_ns)
    return RULES["pipeline_bubble"].finding(
        cause=Cause("schedule"),
        change=Change("microbatches", time_ns=pipeline.bubbles_ns[at]),
        details=f"{_seen(pipeline)} A stage computes for {format_ns(least)} to {format_ns(most)} "
        f"of {format_ns(pipeline.window_ns)}. Rank {rank} has most to compute, and a bubble of "
        f"{format_ns(pipeline.bubbles_ns[at])}.",
        fields={"stages_n": len(pipeline.stages), "share": format_percent(pipeline.bubble_pct)},
        numbers={
            "stages_n": len(pipeline.stages),
            "bubble_pct": pipeline.bubble_pct,
            "bubble_ns": pipeline.bubbles_ns[at],
            "least_compute_ns": least,
            "most_compute_ns": most,
            "window_ns": pipeline.window_ns,
            "pairs_n": len(pipeline.pairs),
            "transfers_n": pipeline.transfers_n,
            "turns_pct": pipeline.turns_pct or 0.0,
        },
        ranks=tuple(sorted(rank for stage in pipeline.stages for rank, _ in stage)),
        rank=rank,
        device_id=device_id,
        impact_ns=pipeline.bubbles_ns[at],
    )


def _seen(pipeline: Pipeline) -> str:
    """Say what shows that it is a pipeline."""
    if pipeline.turns_pct is not None:
        return (
            f"Ranks {quoted(pipeline.ranks)} send and receive "
            f"({format_count(pipeline.transfers_n)} matched transfers), and launch "
            f"{format_percent(pipeline.turns_pct)} of their kernels in turn: between two transfers "
            "one computes while the other waits."
        )
    return (
        f"Ranks {quoted(pipeline.ranks)} send and receive in a chain "
        f"({counted(len(pipeline.pairs), 'pair')}, {format_count(pipeline.transfers_n)} matched "
        "transfers), and down the chain each pair begins later and ends earlier."
    )


def _late_hosts(tables: Tables, pipeline: Pipeline) -> list[Finding]:
    """Return the stages whose GPUs ran nothing for longer than the schedule leaves them idle.

    Where no kernel waits for the next step's first microbatch, a stage is idle from its last one
    on: the longer, the later it is in the chain, by as much from stage to stage. Of two stages
    nothing says how much that is.
    """
    reported = []
    for at in range(len(pipeline.stages) if len(pipeline.stages) >= LEAST_STAGES else 0):
        usual_ns = _idle_by_schedule(pipeline.idle_ns, at)
        if 100.0 * (pipeline.idle_ns[at] - usual_ns) >= LATE_STAGE_PCT * max(pipeline.window_ns, 1):
            reported.append(_late_host(tables, pipeline, at, usual_ns))
    return reported


def _idle_by_schedule(idle_ns: Sequence[int], at: int) -> int:
    """Return for how long the stages beside one say that it is idle at most."""
    if 0 < at < len(idle_ns) - 1:
        return max(idle_ns[at - 1], idle_ns[at + 1])
    near, next_ns = (idle_ns[1], idle_ns[2]) if at == 0 else (idle_ns[-2], idle_ns[-3])
    return max(near, 2 * near - next_ns)


def _late_host(tables: Tables, pipeline: Pipeline, at: int, usual_ns: int) -> Finding:
    rank, device_id = pipeline.stages[at][0]
    more_ns = pipeline.idle_ns[at] - usual_ns
    return RULES["late_stage"].finding(
        cause=Cause("host", rank=rank),
        change=Change("unknown", time_ns=more_ns, wall_classes=(IDLE,)),
        details=f"It ran nothing for {format_ns(pipeline.idle_ns[at])} of "
        f"{format_ns(pipeline.window_ns)}; by the schedule, as the stages beside it have it, that "
        f"would be {format_ns(usual_ns)} at most.",
        fields={"rank": rank, "more": format_ns(more_ns)},
        evidence=_cells(tables, pipeline.stages[at][0], "idle_ns"),
        numbers={"more_idle_ns": more_ns, "usual_ns": usual_ns, "window_ns": pipeline.window_ns},
        rank=rank,
        device_id=device_id,
        impact_ns=more_ns,
    )


def _cells(tables: Tables, stage: Gpu, column: str) -> tuple[Evidence, ...]:
    ranks = tables["tail_ranks"]
    rows = ranks[(ranks["rank"] == stage[0]) & (ranks["device_id"] == stage[1])]
    return cells("tail_ranks", records(rows)[0], _PLACE, (column,))
