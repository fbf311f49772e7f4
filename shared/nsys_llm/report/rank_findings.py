"""What is said of ranks that are not like their peers: one sentence a verdict, in every recipe.

Made from the table `rank_verdicts`; which rank is named and why is decided there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from nsys_llm.report.causes import Cause, Change, ChangeKind
from nsys_llm.report.findings import CAPTURE, Finding, cells
from nsys_llm.report.price import FEW_STEPS
from nsys_llm.report.records import Record, Tables, grouped, records
from nsys_llm.report.rules import OF_RANK, OURS, Case, Rule, rules_by_id
from nsys_llm.view.text import gpus_words, quoted, ranks_words, shortened

_COLUMNS: Final = (
    *("peers_n", "stage", "kernel", "kernel_pct", "more_pct", "late_ns", "chance", "steps_n"),
    *("late_steps_n", "less_steps_n", "requests_n", "peer_requests_n", "waiting_pct"),
    *("about_ns", "bound_ns"),
)
_EVEN: Final = (
    "Give every rank the same amount of work: sequences of similar length in each batch, layers "
    "or experts spread evenly."
)
_BALANCE: Final = "Balance requests over the data-parallel ranks."
_rule: Final = partial(
    Rule,
    scope="rank",
    threshold="beyond what one in a hundred jobs of equal ranks shows, and at least 1 % (5 % with "
    "fewer than 20 steps) beyond the median peer",
    source=OURS,
    tables=("rank_verdicts", "wall"),
    details="{more_pct:more} compute than {beside}[, {late_ns} later a step][, on {host}].",
    specificity=OF_RANK,
)

#: By verdict.
RULES: Final = rules_by_id(
    _rule(
        id="profiler",
        title="The profiler makes {who} late",
        recommendation="This waiting disappears without the profiler. Record fewer kinds of "
        "events, or a shorter time, and compare.",
        kind=CAPTURE,
    ),
    _rule(
        id="more_work",
        title="{Who} has more to compute[ in {kernel}][: {kernel_pct} more than its "
        "peers][, {more_pct} in all]",
        recommendation=_EVEN,
        cases={
            "batch": Case(
                title="{Who} has more to compute: {requests_n:request} a step, its peers "
                "{peer_requests_n}[, and computes {more_pct} longer]",
                recommendation=_BALANCE,
            )
        },
    ),
    _rule(
        id="less_work",
        title="{Who} {have} less to compute in {less_steps_n} of {steps_n:step}"
        "[ ({waiting_pct} of {waiting} is waiting)]: work is not spread",
        threshold="in 90 % of the steps: less than 70 % of the others' requests and less "
        "compute; if names give no requests, over at least 20 steps: less than 70 % of their "
        "compute, or smaller grids in as many launches",
        recommendation=_EVEN,
        cases={
            "empty": Case(
                title="{Who} {run} empty batches in {less_steps_n} of {steps_n:step}"
                "[ ({waiting_pct} of {waiting} is waiting)]: work is not spread",
                recommendation=_BALANCE,
            ),
            "batch": Case(
                title="{Who} {have} less to do: {requests_n:request} a step, the others "
                "{peer_requests_n}[ ({waiting_pct} of {waiting} is waiting)]",
                recommendation=_BALANCE,
            ),
        },
    ),
    _rule(
        id="slow_gpu",
        title="{Gpu} is slow[: compute {more_pct} longer][ for as many requests ({requests_n})]",
        recommendation="Check its clocks, temperature, power limit and other processes on "
        "it. Swap the GPU to see whether the slowness moves with it.",
    ),
    _rule(
        id="slow_host",
        title="Machine[ {host}] is slow: {members} compute[ {more_pct}] longer",
        recommendation="Compare clocks, power limits, driver and firmware of this machine "
        "with those of the others, or leave it out.",
    ),
    _rule(
        id="late_host",
        title="Rank {rank}'s host launches late[ on GPU {gpu}]: {late_ns} a step",
        recommendation="Check what its threads do before they launch: other processes on its "
        "cores, NUMA placement, data loading, garbage collection.",
    ),
    _rule(
        id="late",
        title="{Who} comes late to collectives: {late_ns} a step",
        recommendation="It computes as long as its peers. `idle_gaps` shows what its "
        "host did meanwhile, if API calls were recorded.",
    ),
    _rule(
        id="pauses",
        title="{Who} comes late in {late_steps_n} of {steps_n:step}[: {late_ns} a step on average]",
        recommendation="Check what its host does in these steps: data loading, checkpoints, "
        "garbage collection.",
        threshold="steps later than five times the median step hold half of its lateness, "
        "and that is worth 3 % of the span",
        cases={
            "few": Case(
                title="{Who} comes late in {late_steps_n} of {steps_n:step}"
                "[: others wait {about_ns}]"
            )
        },
    ),
)
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


#: What somebody would change, where it is not one GPU.
_CHANGES: Final[Mapping[str, ChangeKind]] = {"slow_stage": "stages", "less_work": "load"}


def rank_findings(tables: Tables, rules: Mapping[str, Rule] = RULES) -> list[Finding]:
    """Return the findings of some verdicts, one a GPU.

    Of a machine, of a stage, and of peers with less to do, one.
    """
    frame = tables["rank_verdicts"].join(tables["files"]["host"], on="rank")
    rows = records(frame[frame["verdict"].isin(list(rules))])
    groups = grouped(({**row, "item": _item(row)} for row in rows), "verdict", "item")
    return [_finding(rules[verdict], some, tables) for (verdict, _), some in groups.items()]


def _item(row: Record) -> object:
    """Return what the rows of one finding share."""
    shared = {
        "slow_host": row["host"],
        "slow_stage": row["stage"],
        "less_work": tuple(row[name] for name in ("peer_group", "requests_n", "less_steps_n")),
    }
    return shared.get(row["verdict"], (row["rank"], row["device_id"]))


def _case(row: Record) -> str | None:
    """Return which case of its rule a verdict is: what names of steps tell of its batches."""
    own_n, others_n = row["requests_n"], row["peer_requests_n"]
    if row["verdict"] == "less_work" and own_n == 0:
        return "empty"
    if row["verdict"] not in ("less_work", "more_work") or row["kernel"]:
        return None
    return "batch" if own_n is not None and own_n != others_n else None


def _finding(rule: Rule, rows: Sequence[Record], tables: Tables) -> Finding:
    worst = max(rows, key=_most_ns)
    rank, device_id = int(worst["rank"]), int(worst["device_id"])
    ranks, is_stage = sorted({int(row["rank"]) for row in rows}), rule.id in STAGE_RULES
    host, kernel = worst["host"], worst["kernel"]
    # Who pauses in some steps may come first in the others; no mean is told of what few steps have.
    is_late = (worst["late_ns"] or 0.0) > 0
    is_few = 0 < (worst["late_steps_n"] or 0) <= FEW_STEPS and worst["about_ns"] is not None
    left_out = {"late_ns"} if is_few or not is_late else set()
    # Who meets in collectives has a batch in common, or waits for who has more.
    alike = worst["late_ns"] is None and worst["requests_n"] == worst["peer_requests_n"]
    if _case(worst) is None and not alike:
        left_out |= {"requests_n", "peer_requests_n"}
    return rule.finding(
        cause=Cause("stage" if is_stage else "rank", rank, device_id, note=rule.id),
        change=None if rule.kind == CAPTURE else Change(_CHANGES.get(rule.id, "rank")),
        case="few" if is_few else _case(worst),
        details="Its compute beside others is not known." if worst["more_pct"] is None else "",
        fields={
            "members": ranks_words(ranks),
            "host": quoted(host) if host else None,
            "beside": "the mean stage" if is_stage else "the median of its peers",
            "kernel": quoted(shortened(kernel)) if kernel else None,
            **_subjects(rows, worst, tables),
            **dict.fromkeys(left_out),
        },
        evidence=cells(
            *("rank_verdicts", worst, ("rank", "device_id", "kernel")),
            [name for name in _COLUMNS if name not in left_out],
        ),
        ranks=tuple(ranks),
        rank=rank,
        device_id=device_id,
        name=kernel,
        impact_ns=_most_ns(worst),
    )


def _subjects(rows: Sequence[Record], worst: Record, tables: Tables) -> dict[str, str | None]:
    """Return whom the title names; of a rank with several GPUs also which of them."""
    verdicts = tables["rank_verdicts"]
    several = set(verdicts.loc[verdicts.duplicated("rank"), "rank"].tolist())

    gpus = sorted((int(row["rank"]), int(row["device_id"])) for row in rows)
    one = int(worst["rank"]), int(worst["device_id"])
    has_several = one[0] in several
    who = gpus_words(gpus, with_devices=not several.isdisjoint(rank for rank, _ in gpus))
    are_several = len(gpus) > 1
    return {
        "who": who,
        "Who": f"{who[0].upper()}{who[1:]}",
        "have": "have" if are_several else "has",
        "run": "run" if are_several else "runs",
        "waiting": gpus_words([one], with_devices=has_several),
        "Gpu": f"GPU {one[1]} of rank {one[0]}" if has_several else f"Rank {one[0]}'s GPU",
        "gpu": str(one[1]) if has_several else None,
    }


def _most_ns(row: Record) -> int:
    return int(row["about_ns"] or row["bound_ns"] or 0)
