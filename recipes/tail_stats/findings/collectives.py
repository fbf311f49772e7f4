"""Findings on collectives: who makes whom wait, and what cannot be known. From tables alone."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final

import pandas as pd

from nsys_llm.job.collectives.confidence import LOW_CONFIDENCE
from nsys_llm.job.ranks.chance import ALPHA, SMALL
from nsys_llm.report.causes import Cause, Change
from nsys_llm.report.findings import Finding, cells, claim
from nsys_llm.report.records import Record, Tables, first_record, records
from nsys_llm.report.walls import Gpu, Walls
from nsys_llm.taxonomy.communication import SEND_RECV
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, EXPERTS, WAITING

from .kernels import gpu_of, gpus_of
from .texts import FAST, LEFT_OUT_NS, MOST, RULES, SAME, UNMATCHED_PCT

_MEMBER: Final = ("communicator", "rank", "device_id")
#: So much less compute than the median peer is why a rank waits, in percent.
_FAST_PCT: Final = 5.0
#: How several collectives of one operation are called.
_PLURALS: Final = {
    SEND_RECV: "sends and receives",
    "all_reduce": "all-reduces",
    "all_gather": "all-gathers",
    "reduce_scatter": "reduce-scatters",
    "all_to_all": "all-to-alls",
    "broadcast": "broadcasts",
    "reduce": "reduces",
}
_COLLECTIVES: Final = "collectives"


@dataclass(frozen=True)
class Wait:
    """The rank that waits longest in the collectives of one communicator.

    Attributes:
        worst: The row of the other rank which caused most of the waiting.
        waiting_ns: Its waiting, the profiler's part left out.
        exposed_ns: What of that nothing computes beside; `share_pct` in percent of its span.
        reason: What most of it is for: others, or uneven experts; a detail of the wall.
    """

    row: Record
    worst: Record
    waiting_ns: int
    share_pct: float
    exposed_ns: int
    reason: str


def wait_findings(tables: Tables, walls: Walls, named: frozenset[Gpu]) -> list[Finding]:
    """Return the longest waits that no rank is to blame for, the largest gain first.

    Args:
        named: GPUs that have a verdict, for which others may wait.
    """
    verdicts = tables["rank_verdicts"]
    # Who meets these waits by schedule, or for the profiler.
    late = gpus_of(verdicts[verdicts["stage"].notna() | (verdicts["verdict"] == "profiler")])
    waits: list[Wait] = []
    for _, group in _sure_members(tables).groupby("communicator", sort=True):
        if not gpus_of(group) & (named | late):
            members = records(group)
            every = (_wait(walls, row, members) for row in members)
            waits += sorted(filter(None, every), key=lambda wait: -wait.share_pct)[:1]
    waits.sort(key=lambda wait: -wait.share_pct)
    return [_waiting(tables, wait) for wait in waits[:MOST]]


def _sure_members(tables: Tables) -> pd.DataFrame:
    """Return the rows of stragglers whose collectives surely belong together.

    Those of pipelines are left out: there, coming last blames nobody. So are communicators most of
    whose time was matched with low confidence.
    """
    every = tables["communicators"]
    every = every[~every["staged"]]
    sure = every["confidence"] != LOW_CONFIDENCE
    by_name = every["total_ns"].where(sure, 0).groupby(every["communicator"]).sum()
    total_ns = every["total_ns"].groupby(every["communicator"]).sum()
    reported = 2 * by_name >= total_ns
    ranks = tables["stragglers"]
    return ranks[ranks["communicator"].isin(reported[reported].index)]


def _wait(walls: Walls, row: Record, members: list[Record]) -> Wait | None:
    """Return how long a rank waits in one communicator; None where clocks do not let one know."""
    waiting_ns = int(row["suffered_wait_ns"]) - int(row["suffered_profiler_ns"])
    if waiting_ns <= 2 * int(row["collectives_n"]) * int(row["residual_ns"]):
        return None
    others = (item for item in members if item is not row)
    worst = max(others, key=lambda member: member["caused_wait_ns"])
    exposed_ns, reason = max(
        (min(waiting_ns, walls.detail_ns(gpu_of(row), COMMUNICATION, name)), name)
        for name in (WAITING, EXPERTS)
    )
    share_pct = 100.0 * exposed_ns / max(walls.span_ns(*gpu_of(row)), 1)
    return Wait(row, worst, waiting_ns, share_pct, exposed_ns, reason)


def _waiting(tables: Tables, wait: Wait) -> Finding:
    row, worst, (rank, device_id) = wait.row, wait.worst, gpu_of(wait.row)
    sequences = tables["communicators"]
    rows = sequences[sequences["communicator"] == row["communicator"]]
    operations = set(rows.loc[rows["collectives_n"] > 0, "operation"])
    operation = operations.pop() if len(operations) == 1 else _COLLECTIVES
    of = partial(claim, tables, **{name: row[name] for name in _MEMBER})
    return RULES["collective_waits"].finding(
        cause=Cause("waiting", note=row["communicator"]),
        change=Change("unknown", time_ns=wait.exposed_ns, wall_classes=(COMMUNICATION,)),
        case=_case(tables, wait),
        fields={
            "operations": _PLURALS.get(operation, _COLLECTIVES),
            "last": str(worst["rank"]),
        },
        evidence=(
            of("waiting_ns", "stragglers", "suffered_wait_ns-suffered_profiler_ns"),
            of("waited_n", "stragglers", "collectives_n"),
            *cells("stragglers", row, _MEMBER, ("suffered_profiler_ns",)),
            *cells("stragglers", worst, _MEMBER, ("late_n", "collectives_n")),
            claim(
                *(tables, "more_pct", "rank_verdicts", "more_pct", "cell"),
                rank=rank,
                device_id=device_id,
            ),
        ),
        rank=rank,
        device_id=device_id,
        impact_ns=wait.waiting_ns,
    )


def _case(tables: Tables, wait: Wait) -> str | None:
    """Return why it waits, where that does not vary; None where it does."""
    if wait.reason == EXPERTS:
        return EXPERTS
    verdicts = tables["rank_verdicts"]
    rank, device_id = gpu_of(wait.row)
    its = verdicts[(verdicts["rank"] == rank) & (verdicts["device_id"] == device_id)]
    is_fast = (its["reason"] == SMALL) & (its["chance"] < ALPHA) & (its["more_pct"] < -_FAST_PCT)
    if is_fast.any():
        return FAST
    # Of two ranks one comes last in half of them by chance.
    most_pct = 50.0 * (1 + 1 / int(wait.worst["ranks_n"]))
    return SAME if (wait.worst["late_pct"] or 0.0) >= most_pct else None


def remarks_on_collectives(tables: Tables) -> list[Finding]:
    """Return what the capture does not allow to know of collectives."""
    sequences, ranks = tables["communicators"], tables["stragglers"]
    staged = set(sequences.loc[sequences["staged"], "communicator"])
    return [
        *_captures_apart(tables),
        # Low confidence may come from the clocks: no rank is named, and why is said.
        *_unclear_clocks(tables, ranks[~ranks["communicator"].isin(staged)]),
        *_uncertain(tables, sequences[~sequences["communicator"].isin(staged)]),
        *_unmatched(tables),
    ]


def _unclear_clocks(tables: Tables, ranks: pd.DataFrame) -> list[Finding]:
    """Say so where the clocks are less exact than the lateness is large."""
    unclear = ranks[(ranks["unclear_n"] > ranks["late_n"]) & (ranks["residual_ns"] > 0)]
    reported = []
    for _, group in unclear.groupby("communicator", sort=True):
        row = first_record(group)
        if not int(row["wait_ns"]):
            continue
        reported.append(
            RULES["clocks_too_uncertain"].finding(
                evidence=(
                    *cells("stragglers", row, _MEMBER, ("residual_ns", "ranks_n")),
                    claim(
                        *(tables, "unclear_ranks_n", "stragglers", "rank", "count"),
                        communicator=row["communicator"],
                        rank=tuple(group["rank"].tolist()),
                    ),
                ),
                impact_ns=int(row["wait_ns"]),
            )
        )
    return reported


def _uncertain(tables: Tables, sequences: pd.DataFrame) -> list[Finding]:
    total_ns = int(sequences["total_ns"].sum())
    unsure_ns = int(sequences.loc[sequences["confidence"] == LOW_CONFIDENCE, "total_ns"].sum())
    if not unsure_ns or 100 * unsure_ns < UNMATCHED_PCT * total_ns:
        return []
    of = partial(claim, tables, communicator=tuple(sorted(set(sequences["communicator"]))))
    whole = of("total_ns", "communicators", "total_ns")
    unsure = of(
        *("uncertain_pct", "communicators", "total_ns", "sum", whole), confidence=LOW_CONFIDENCE
    )
    return [RULES["uncertain_matches"].finding(evidence=(unsure,), impact_ns=unsure_ns)]


def _unmatched(tables: Tables) -> list[Finding]:
    coverage = tables["collective_coverage"]
    ranks_n = coverage[["rank", "device_id"]].drop_duplicates().shape[0]
    kernels_n = int(coverage["kernels_n"].sum())
    lost_n = int((coverage["unmatched_n"] + coverage["over_limit_n"]).sum())
    if ranks_n < 2 or 100 * lost_n < UNMATCHED_PCT * max(kernels_n, 1):
        return []
    worst = first_record(coverage.sort_values("unmatched_n", ascending=False, kind="stable"))
    of = partial(claim, tables)
    whole, lost = of("kernels_n", "collective_coverage", "kernels_n"), "unmatched_n+over_limit_n"
    evidence = (
        of("share_pct", "collective_coverage", lost, "sum", whole),
        of("lost_n", "collective_coverage", lost),
        whole,
    )
    fields = {"operation": worst["operation"], "file": worst["file"]}
    return [RULES["unmatched_collectives"].finding(fields=fields, evidence=evidence)]


def _captures_apart(tables: Tables) -> list[Finding]:
    """Say what is left out of waiting because not all profiles recorded yet."""
    clocks = tables["rank_clocks"]
    left_out_ns = int(clocks["left_out_ns"].sum())
    if left_out_ns < LEFT_OUT_NS:
        return []
    last = records(clocks.sort_values("recorded_after_ns", ascending=False, kind="stable"))[0]
    return [
        RULES["captures_apart"].finding(
            evidence=(
                *cells("rank_clocks", last, ("rank",), ("recorded_after_ns",)),
                claim(tables, "waiting_ns", "rank_clocks", "left_out_ns"),
            ),
            rank=int(last["rank"]),
            impact_ns=left_out_ns,
        )
    ]
