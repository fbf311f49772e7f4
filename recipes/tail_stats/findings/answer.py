"""What tail_stats reports: the answer in two sentences, and findings."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from nsys_llm.report.findings import Finding
from nsys_llm.report.gains import LIMITS_PCT, Gain, Walls, gain_words
from nsys_llm.report.records import Record, Tables
from nsys_llm.view.text import format_count, format_ns, format_percent, quoted, shortened

from .collectives import Wait, collective_waits, remarks_on_collectives, wait_findings
from .kernels import SlowLaunches, slow_launches, tail_findings
from .late_causes import Reason, late_reason
from .pipelines import Pipeline, find_pipelines, stage_pairs
from .profiler import apart_findings, profiler_findings
from .ranks import burst_findings, slow_rank_findings
from .stages import pipeline_findings
from .stragglers import (
    Gpu,
    gpu_of,
    late_ranks,
    straggler_findings,
    sure_members,
    when_late,
)


@dataclass(frozen=True)
class Judged:
    """What the tables say, before it is put into words.

    Attributes:
        walls: Of the tables.
        pipelines: All of them.
        staged: Communicators in which coming last blames nobody, see `stage_pairs`.
        members: Rows of stragglers to judge by, see `sure_members`.
        blamed: Rows of stragglers, of the ranks that others wait for.
        late: All ranks that come last beyond chance, and stages of pipelines.
        waits: Longest waits for nobody's fault, the largest gain first.
        slow: Configurations with slow launches, likewise; not those of late ranks.
        leaves_out: Whether `slow` is less than what stragglers have, or nothing besides them.
    """

    walls: Walls
    pipelines: list[Pipeline]
    staged: frozenset[str]
    members: pd.DataFrame
    blamed: list[Record]
    late: frozenset[Gpu]
    waits: list[Wait]
    slow: list[SlowLaunches]
    leaves_out: bool


def _judged(tables: Tables) -> Judged:
    walls, pipelines = Walls(tables), find_pipelines(tables)
    staged = stage_pairs(tables, pipelines)
    members = sure_members(tables, staged)
    blamed, late = late_ranks(members)
    stages = frozenset(stage for pipeline in pipelines for stage in pipeline.stages)
    waits = collective_waits(tables, walls, members, late)
    to_blame = frozenset(map(gpu_of, blamed))
    slow = slow_launches(tables, walls, to_blame)
    every = slow_launches(tables, walls) if slow and to_blame else slow
    # A kernel of a straggler that has two typical durations is not among them either.
    leaves_out = gpu_of(every[0].row) in to_blame if every else bool(to_blame)
    return Judged(walls, pipelines, staged, members, blamed, late | stages, waits, slow, leaves_out)


def answer(tables: Tables) -> str:
    """Return who waits for whom and what slow launches cost, each of one GPU."""
    launches_n = int(tables["tails"]["launches_n"].sum())
    if not launches_n:
        return (
            "No kernel starts in the selection. `coverage` says what the profiles hold, and "
            "what a filter left of it."
        )
    judged = _judged(tables)
    waits = "; ".join([*_waiting(tables, judged), *_bubbles(judged)])
    first = f"{_sentence(waits)}. " if waits else ""
    return first + _slow(judged)


def _waiting(tables: Tables, judged: Judged) -> list[str]:
    """Return clauses: who is late, or who waits for whom; none where nothing is matched."""
    late = [(row, late_reason(tables, judged.walls, row)) for row in judged.blamed[:2]]
    costly = [_late_words(row, reason) for row, reason in late if reason.gain.severity]
    waits = judged.waits[:1]
    if costly or (late and not any(wait.gain.severity for wait in waits)):
        return costly or [_late_words(*late[0])]
    return [_wait_words(wait) for wait in waits]


def _late_words(row: Record, reason: Reason) -> str:
    when = when_late(row)
    when = "" if when == "throughout" else f" {when}"
    return (
        f"rank {row['rank']} is a straggler{when}: {reason.title}; a fix gains "
        f"{_gain_words(reason.gain)}"
    )


def _wait_words(wait: Wait) -> str:
    row, share = wait.row, format_percent(wait.gain.gain_pct)
    profiler_ns = row["suffered_profiler_ns"]
    more = f", and {format_ns(profiler_ns)} more due to the profiler" if profiler_ns else ""
    return (
        f"{wait.verdict}; rank {row['rank']} waits {format_ns(wait.waiting_ns)} in "
        f"{format_count(row['collectives_n'])} {wait.collectives} ({share} of its span){more}"
    )


def _bubbles(judged: Judged) -> list[str]:
    return [
        f"the bubble of the pipeline of ranks {pipeline.ranks} is "
        f"{format_percent(pipeline.bubble_pct)} of its window"
        for pipeline in judged.pipelines[:1]
    ]


def _slow(judged: Judged) -> str:
    """Return what launches over twice their median cost, of the configuration that loses most.

    Those of stragglers are not among them: the clauses about these say what they cost.
    """
    least = min(LIMITS_PCT.values())
    where = "On ranks that are no stragglers, " if judged.leaves_out else ""
    if not judged.slow:
        return _sentence(
            f"{where}no compute kernel takes more than twice its median in any launch, apart from "
            "first launches and kernels with two typical durations."
        )
    worst = judged.slow[0]
    name, rank = quoted(shortened(str(worst.row["name"]))), worst.row["rank"]
    if worst.gain.gain_pct < least:
        return _sentence(
            f"{where}slow launches cost less than {least:g} % of a GPU in every kernel: the most "
            f"is {format_ns(worst.lost_ns)} beyond the median, in {name} on rank {rank}."
        )
    return (
        f"Launches over twice their median cost rank {rank} {_gain_words(worst.gain)}, in {name}."
    )


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}"


def _gain_words(gain: Gain) -> str:
    return f"{gain_words(gain)} of {format_ns(gain.span_ns)}"


def findings(tables: Tables) -> list[Finding]:
    """Return all findings of the recipe, in no order; a rank stands in one of them."""
    judged = _judged(tables)
    walls, members = judged.walls, judged.members
    ranks = [
        *straggler_findings(tables, walls, judged.blamed),
        *pipeline_findings(tables, walls, judged.pipelines),
        *slow_rank_findings(tables, walls, members, judged.late),
    ]
    by_outliers = [rank for rank in ranks if rank.rule == "outliers_on_one_rank"]
    named = _gpus_at_fault([rank for rank in ranks if rank not in by_outliers])
    bursts = [
        burst_finding
        for burst_finding in burst_findings(tables, walls, named)
        if burst_finding.severity is not None
    ]
    # A burst says more than how many there are, if it is most of it.
    ranks = [rank for rank in ranks if rank not in by_outliers or not _is_burst(rank, bursts)]
    named = _gpus_at_fault(ranks)
    bursts = [burst for burst in bursts if (burst.rank, burst.device_id) not in named]
    reported = {(burst.rank, burst.name) for burst in bursts}
    slow = [
        item
        for item in judged.slow
        if gpu_of(item.row) not in named and (item.row["rank"], item.row["name"]) not in reported
    ]
    return [
        *ranks,
        *wait_findings(judged.waits),
        *bursts,
        *tail_findings(tables, slow),
        *profiler_findings(members),
        *apart_findings(tables["rank_clocks"]),
        *remarks_on_collectives(tables, members, judged.staged),
    ]


def _gpus_at_fault(findings: list[Finding]) -> frozenset[Gpu]:
    """Return the GPUs that findings with a severity are about, because of what they do."""
    return frozenset(
        (finding.rank, finding.device_id)
        for finding in findings
        if finding.rank is not None
        and finding.device_id is not None
        and finding.severity is not None
        and finding.culprit == f"rank:{finding.rank}"
    )


def _is_burst(finding: Finding, bursts: list[Finding]) -> bool:
    """Return whether bursts on the same GPU are most of what a finding is about."""
    alike = (
        burst
        for burst in bursts
        if (burst.rank, burst.device_id) == (finding.rank, finding.device_id)
    )
    return 2 * sum(item.impact_ns for item in alike) >= finding.impact_ns
