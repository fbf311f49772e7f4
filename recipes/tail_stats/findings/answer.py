"""What tail_stats reports: the answer in two sentences, and findings."""

from __future__ import annotations

from typing import Final

from nsys_llm.numeric.tails import LEAST_VALUES_OF_A_TAIL
from nsys_llm.report.answers import first_words, nothing_ran
from nsys_llm.report.findings import Finding
from nsys_llm.report.price import LEAST_PCT
from nsys_llm.report.rank_findings import rank_findings
from nsys_llm.report.records import Tables, percent, records
from nsys_llm.report.walls import Gpu, Walls
from nsys_llm.view.text import counted, format_ns, format_percent, quoted, ranks_words, shortened

from ..tables.medians import LEAST_PCT as LEAST_SHOWN_PCT
from ..tables.medians import REST
from .collectives import remarks_on_collectives, wait_findings
from .kernels import SlowLaunches, burst_findings, gpus_of, slow_launches, tail_findings

#: Share of the kernel time in configurations with few launches from which it is said, in percent.
_FEW_PCT: Final = 50.0


def answer(tables: Tables) -> str:
    """Return who waits for whom and what slow launches cost, each of one GPU."""
    launches_n = int(tables["tails"]["launches_n"].sum())
    if not launches_n:
        return nothing_ran(tables, "No kernel starts")
    named = _named(tables)
    slow = _slow(slow_launches(tables, Walls(tables), named), is_rest=bool(named))
    units = tables["tail_ranks"]["step_unit"].dropna()
    return " ".join(part for part in (first_words(tables, *units[:1]), slow) if part)


def _slow(slow: list[SlowLaunches], *, is_rest: bool) -> str:
    """Return what launches over twice their median cost, of the configuration that loses most.

    Those of stragglers are not among them: the clauses about these say what they cost.
    """
    if slow and slow[0].share_pct >= LEAST_PCT:
        return f"Launches over twice their median take {_most(slow[0])}"
    words = (
        "no compute kernel takes more than twice its median in any launch, apart from first "
        "launches and kernels with two typical durations."
    )
    if slow:
        words = (
            f"slow launches cost less than {LEAST_PCT:g} % of a GPU in every kernel: the most is "
            f"{_most(slow[0])}"
        )
    words = f"on ranks without a verdict, {words}" if is_rest else words
    return f"{words[0].upper()}{words[1:]}"


def _most(worst: SlowLaunches) -> str:
    name = quoted(shortened(str(worst.row["name"])))
    return f"{format_ns(worst.lost_ns)} beyond the median, in {name} on rank {worst.row['rank']}."


def findings(tables: Tables) -> list[Finding]:
    """Return all findings of the recipe, in no order; a rank stands in one of them."""
    walls, named = Walls(tables), _named(tables)
    return [
        *rank_findings(tables),
        *wait_findings(tables, walls, named),
        *burst_findings(tables, named),
        *tail_findings(tables, slow_launches(tables, walls, named)),
        *remarks_on_collectives(tables),
    ]


def _named(tables: Tables) -> frozenset[Gpu]:
    """Return the GPUs that have a verdict, and for which others may wait."""
    rows = tables["rank_verdicts"]
    return gpus_of(rows[rows["verdict"].notna() & (rows[["about_ns", "bound_ns"]].max(axis=1) > 0)])


def caveats(tables: Tables) -> list[str]:
    """Return what to know before reading the numbers, as prose."""
    tails, ranks, verdicts = (tables[name] for name in ("tails", "tail_ranks", "rank_verdicts"))
    few = tails[(tails["launches_n"] < LEAST_VALUES_OF_A_TAIL) & (tails["name"] != REST)]
    few_pct = percent(int(few["total_ns"].sum()), int(tails["total_ns"].sum()))
    notes = []
    if few_pct >= _FEW_PCT:
        notes.append(
            f"{counted(len(few), 'configuration')} with {format_percent(few_pct)} of the kernel "
            f"time {'has' if len(few) == 1 else 'have'} fewer than {LEAST_VALUES_OF_A_TAIL} "
            "launches: their 99th percentile is practically their longest launch."
        )
    notes += [
        f"{row['config']} with less than {LEAST_SHOWN_PCT} % of the kernel time of every rank "
        f"each, and without much in slow launches, take {format_percent(row['total_pct'])} "
        f"together: one row of `tails`, {quoted(REST)}, has their sums."
        for row in records(tails[tails["name"] == REST])
    ]
    if without_n := int(ranks.loc[ranks["steps_n"].isna(), "rank"].nunique()):
        notes.append(
            f"No NVTX range repeats on {counted(without_n, 'rank')}, so the end of warm-up is "
            "unknown: the first two launches of each configuration count as warm-up there. "
            f"{quoted('--step RANGE')} names the steps."
        )
    if staged := set(verdicts.loc[verdicts["stage"].notna(), "rank"]):
        notes.append(
            f"{ranks_words(sorted(staged)).capitalize()} are stages of a pipeline, which wait for "
            "each other by schedule: none is late for that. `comm_stats` says what the schedule "
            "costs."
        )
    return notes
