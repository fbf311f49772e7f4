"""What tail_stats reports: the answer in two sentences, and findings."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from nsys_llm.report.answers import first_words, nothing_ran
from nsys_llm.report.findings import Finding
from nsys_llm.report.price import LEAST_PCT
from nsys_llm.report.rank_findings import rank_findings
from nsys_llm.report.records import Tables
from nsys_llm.report.walls import Gpu, Walls
from nsys_llm.view.text import format_ns, quoted, shortened

from .bursts import burst_findings
from .collectives import (
    Wait,
    collective_waits,
    remarks_on_collectives,
    wait_findings,
)
from .kernels import SlowLaunches, slow_launches, tail_findings
from .members import named_gpus, sure_members, waited_for


@dataclass(frozen=True)
class Judged:
    """What the tables say, before it is put into words.

    Attributes:
        members: Rows of stragglers to judge by, see `sure_members`.
        named: GPUs that have a verdict.
        waits: Longest waits for nobody's fault, the largest gain first.
        slow: Configurations with slow launches, likewise; not those of named GPUs.
    """

    walls: Walls
    members: pd.DataFrame
    named: frozenset[Gpu]
    waits: list[Wait]
    slow: list[SlowLaunches]


def _judged(tables: Tables) -> Judged:
    walls = Walls(tables)
    members, named = sure_members(tables), named_gpus(tables)
    waits = collective_waits(tables, walls, members, named | waited_for(tables))
    return Judged(walls, members, named, waits, slow_launches(tables, walls, named))


def answer(tables: Tables) -> str:
    """Return who waits for whom and what slow launches cost, each of one GPU."""
    launches_n = int(tables["tails"]["launches_n"].sum())
    if not launches_n:
        return nothing_ran(tables, "No kernel starts")
    judged = _judged(tables)
    return " ".join(part for part in (first_words(tables), _slow(judged)) if part)


def _slow(judged: Judged) -> str:
    """Return what launches over twice their median cost, of the configuration that loses most.

    Those of stragglers are not among them: the clauses about these say what they cost.
    """
    where = "On ranks without a verdict, " if judged.named else ""
    if not judged.slow:
        return _sentence(
            f"{where}no compute kernel takes more than twice its median in any launch, apart from "
            "first launches and kernels with two typical durations."
        )
    worst = judged.slow[0]
    name, rank = quoted(shortened(str(worst.row["name"]))), worst.row["rank"]
    most = f"{format_ns(worst.lost_ns)} beyond the median, in {name} on rank {rank}."
    if worst.share_pct < LEAST_PCT:
        return _sentence(
            f"{where}slow launches cost less than {LEAST_PCT:g} % of a GPU in every kernel: the "
            f"most is {most}"
        )
    return f"Launches over twice their median take {most}"


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}"


def findings(tables: Tables) -> list[Finding]:
    """Return all findings of the recipe, in no order; a rank stands in one of them."""
    judged = _judged(tables)
    return [
        *rank_findings(tables),
        *wait_findings(judged.waits),
        *burst_findings(tables, judged.named),
        *tail_findings(tables, judged.slow),
        *remarks_on_collectives(tables),
    ]
