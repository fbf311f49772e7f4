"""What is said of ranks that are not like their peers: one sentence a verdict, in every recipe.

Made from the table `rank_verdicts`; which rank is named and why is decided there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from nsys_llm.report.causes import Cause, Change
from nsys_llm.report.findings import CAPTURE, Finding, cells
from nsys_llm.report.price import FEW_STEPS
from nsys_llm.report.records import Record, Tables, grouped, records
from nsys_llm.report.rules import OF_RANK, OURS, Case, Rule
from nsys_llm.view.text import format_count, listed, quoted, shortened

_COLUMNS: Final = (
    *("peers_n", "stage", "kernel", "kernel_pct", "more_pct", "late_ns", "chance", "steps_n"),
    *("late_steps_n", "about_ns", "bound_ns"),
)
#: Names that a finding lists.
_MOST: Final = 8
_rule: Final = partial(
    Rule,
    scope="rank",
    threshold="of ranks that are equal one of a hundred jobs names any, and at least 1 % (5 % of "
    "fewer than 20 steps) beyond the median peer",
    source=OURS,
    tables=("rank_verdicts", "wall"),
    details="{more_pct} more compute than {beside}[, {late_ns} later a step][, on {host}].",
    specificity=OF_RANK,
)

#: By verdict.
RULES: Final = {
    rule.id: rule
    for rule in (
        _rule(
            id="profiler",
            title="The profiler makes rank {ranks} late",
            recommendation="Without the profiler this waiting is not there: record fewer kinds of "
            "events, or a shorter time, and compare.",
            kind=CAPTURE,
        ),
        _rule(
            id="more_work",
            title="Rank {ranks} has more to compute[ in {kernel}][: {kernel_pct} more than its "
            "peers][, {more_pct} in all]",
            recommendation="Give every rank as much: sequences of like length in each batch, "
            "layers or experts spread evenly.",
        ),
        _rule(
            id="slow_gpu",
            title="Rank {ranks}'s GPU is slow[: compute {more_pct} longer]",
            recommendation="Look at its clocks, temperature, power limit and other processes on "
            "it; swap the GPU to see whether the slowness moves with it.",
        ),
        _rule(
            id="slow_host",
            title="Machine[ {host}] is slow: ranks {ranks} compute[ {more_pct}] longer",
            recommendation="Compare clocks, power limits, driver and firmware of this machine "
            "with those of the others, or leave it out.",
        ),
        _rule(
            id="late_host",
            title="Rank {ranks}'s host launches late: {late_ns} a step",
            recommendation="See what its threads do before they launch: other processes on its "
            "cores, NUMA placement, data loading, garbage collection.",
        ),
        _rule(
            id="late",
            title="Rank {ranks} comes late to collectives: {late_ns} a step",
            recommendation="Its compute time is that of its peers. `idle_gaps` tells what its "
            "host did meanwhile, where API calls are recorded.",
        ),
        _rule(
            id="pauses",
            title="Rank {ranks} comes late in {late_steps_n} of {steps_n:step}"
            "[: {late_ns} a step on average]",
            recommendation="Look at what its host does in these steps: data loading, checkpoints, "
            "garbage collection.",
            threshold="steps later than five times the median step hold half of its lateness, "
            "worth 3 % of the span",
            cases={
                "few": Case(
                    title="Rank {ranks} comes late in {late_steps_n} of {steps_n:step}"
                    "[: others wait {about_ns}]",
                    details="{more_pct} more compute than {beside}[, on {host}].",
                )
            },
        ),
    )
}
#: Of a stage of a pipeline; comm_stats alone writes it.
STAGE_RULES: Final = {
    "slow_stage": _rule(
        id="slow_stage",
        title="Stage {stage} of the pipeline ({members}) computes[ {more_pct}] longer than the "
        "mean stage",
        recommendation="Move layers to other stages, so that all compute as long.",
        threshold="the stage that computes most, at least 5 % beyond the mean stage",
    )
}


def rank_findings(tables: Tables, rules: Mapping[str, Rule] = RULES) -> list[Finding]:
    """Return the findings of some verdicts: of a machine or stage one, else one a GPU."""
    frame = tables["rank_verdicts"].join(tables["files"]["host"], on="rank")
    rows = records(frame[frame["verdict"].isin(list(rules))])
    groups = grouped(({**row, "item": _item(row)} for row in rows), "verdict", "item")
    return [_finding(rules[verdict], some) for (verdict, _), some in groups.items()]


def _item(row: Record) -> object:
    """Return what the rows of one finding share."""
    shared = {"slow_host": row["host"], "slow_stage": row["stage"]}
    return shared.get(row["verdict"], (row["rank"], row["device_id"]))


def _finding(rule: Rule, rows: Sequence[Record]) -> Finding:
    worst = max(rows, key=_most_ns)
    rank, device_id = int(worst["rank"]), int(worst["device_id"])
    ranks, is_stage = sorted({int(row["rank"]) for row in rows}), rule.id in STAGE_RULES
    listed_ranks = listed([str(item) for item in ranks[:_MOST]])
    host, kernel, peers = worst["host"], worst["kernel"], format_count(worst["peers_n"])
    # Who pauses in some steps may come first in the others.
    is_late = (worst["late_ns"] or 0.0) > 0
    is_few = 0 < (worst["late_steps_n"] or 0) <= FEW_STEPS and worst["about_ns"] is not None
    return rule.finding(
        case="few" if is_few else None,
        cause=Cause("stage" if is_stage else "rank", rank, device_id, note=rule.id),
        change=None if rule.kind == CAPTURE else Change("stages" if is_stage else "rank"),
        details="Its compute beside others is not known." if worst["more_pct"] is None else "",
        fields={
            "ranks": listed_ranks,
            "members": f"{'rank' if len(ranks) == 1 else 'ranks'} {listed_ranks}",
            "host": quoted(host) if host else None,
            "beside": "the mean stage" if is_stage else f"the median of {peers} peers",
            "kernel": quoted(shortened(kernel)) if kernel else None,
            **({} if is_late else {"late_ns": None}),
        },
        evidence=cells(
            *("rank_verdicts", worst, ("rank", "device_id", "kernel")),
            [name for name in _COLUMNS if name != "late_ns" or is_late],
        ),
        ranks=tuple(ranks),
        rank=rank,
        device_id=device_id,
        name=kernel,
        impact_ns=_most_ns(worst),
    )


def _most_ns(row: Record) -> int:
    return int(row["about_ns"] or row["bound_ns"] or 0)
