"""Findings of trace_diff: what a change cost in wall-clock time, and what got better."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from nsys_llm.report.findings import IMPROVEMENT, PERFORMANCE, Finding, cells
from nsys_llm.report.records import Tables
from nsys_llm.taxonomy.wall_classes import COMPUTE, IDLE
from nsys_llm.view.text import format_ns, quoted

from ..tables.checks import BLOCKING
from .change import Clue
from .changes import find_clues
from .diagnosis import Conclusion, conclusive
from .gains import Cost, Costs
from .host import host_finding
from .normalization import Basis, basis_of, both_sides
from .texts import LEAST_GAIN_PCT, OF_COUNTS, RULES, SAME_RATIO_PCT

#: Another problem, unless the steps are known to do the same.
_SIZES: Final = frozenset({"other_sizes"})
#: Conclusions that are told with the change that they explain.
_SAID_BY: Final = {
    "waiting": ("late_peer",),
    "more_idle": ("graphs_lost", "faster_gpu", "host_bound"),
}
#: Changes that can only be for the worse, and for the better.
_WORSE: Final = frozenset({"slower_calls", "more_calls", "more_idle", "idle_rank"})
_BETTER: Final = frozenset({"faster_calls", "fewer_calls", "less_idle"})


def findings(tables: Tables) -> list[Finding]:
    """Return all findings of the recipe, in no order."""
    basis = basis_of(tables)
    if basis.kernels.empty:
        return []
    clues, costs = find_clues(tables, basis), Costs(tables, basis)
    concluded = {item.rule: item for item in conclusive(tables, basis, clues)}
    host = host_finding(tables, costs)
    reported = [clue for clue in clues if clue.rule in RULES and clue.sure]
    reported = [clue for clue in reported if not (basis.other_work and clue.rule in OF_COUNTS)]
    if "slower_throughout" in concluded:
        reported = [
            clue for clue in reported if not _is_alike(clue, concluded["slower_throughout"])
        ]
    if host is not None and _explains_idle(host, costs):
        reported = [clue for clue in reported if clue.rule != "more_idle"]
    all_findings = [
        *(_finding(clue, basis, costs, concluded) for clue in reported),
        *_conclusions(costs, concluded),
        host,
    ]
    return [*_not_comparable(tables), *(item for item in all_findings if item is not None)]


def _finding(
    clue: Clue, basis: Basis, costs: Costs, concluded: Mapping[str, Conclusion]
) -> Finding | None:
    """Return the finding on a change; None where it says nothing about time on a clock."""
    cost = costs.of(clue)
    if cost is None or (clue.rule in _SIZES and basis.same_work is not True):
        return None
    if cost.gain is None and not _is_improvement(cost, costs):
        return None
    if clue.rule in (_BETTER if cost.gain is not None else _WORSE):
        # Another sum went the other way: on one GPU, or over all of the windows.
        return None
    said = [concluded[rule].text for rule in _SAID_BY.get(clue.rule, ()) if rule in concluded]
    finding = RULES[clue.rule].finding(
        price=cost.gain,
        kind=IMPROVEMENT if cost.gain is None else PERFORMANCE,
        details=f"{clue.text[0].upper()}{clue.text[1:]}. {_cost_words(cost, costs)}",
        fields={"name": quoted(clue.name), "rank": clue.rank},
        evidence=cost.evidence,
        numbers={**clue.numbers, "impact_ns": clue.impact_ns, "change_ns": cost.change_ns},
        tables=clue.tables,
        name=clue.name,
        rank=cost.rank,
        device_id=cost.device_id,
        impact_ns=round(abs(clue.impact_ns)),
    )
    return replace(finding, recommendation=" ".join([*said, finding.recommendation]))


def _is_alike(clue: Clue, throughout: Conclusion) -> bool:
    """Tell whether a kernel got slower by the factor of all, which is told once."""
    apart = clue.numbers.get("ratio_pct", math.inf) - throughout.numbers["moved_pct"]
    return clue.rule == "slower_calls" and abs(apart) <= SAME_RATIO_PCT


def _explains_idle(host: Finding, costs: Costs) -> bool:
    """Tell whether a slower host is at least half of the additional idle time."""
    idle = costs.of_class(IDLE, rank=host.rank)
    return idle is None or 2 * host.numbers["change_ns"] >= idle.change_ns


def _is_improvement(cost: Cost, costs: Costs) -> bool:
    """Tell whether a change won enough to be worth a word."""
    whole_ns = costs.verdict["baseline_ns"]
    return bool(whole_ns and -100 * cost.change_ns >= LEAST_GAIN_PCT * whole_ns)


def _cost_words(cost: Cost, costs: Costs) -> str:
    """Return what a change makes in wall-clock time."""
    unit = "in all" if costs.verdict["basis"] not in ("step", "token") else f"a {costs.unit}"
    more = "more" if cost.change_ns > 0 else "less"
    gpu = f"GPU {cost.device_id} of rank {cost.rank}"
    return f"That is {format_ns(abs(cost.change_ns))} {more} {unit} on {gpu}."


def _conclusions(costs: Costs, concluded: Mapping[str, Conclusion]) -> Iterator[Finding]:
    for rule, conclusion in concluded.items():
        cost = costs.of_class(COMPUTE)
        if rule not in RULES or cost is None or cost.gain is None:
            continue
        yield RULES[rule].finding(
            price=cost.gain,
            details=f"{conclusion.text} {_cost_words(cost, costs)}",
            fields=conclusion.fields,
            evidence=cost.evidence,
            numbers={**conclusion.numbers, "change_ns": cost.change_ns},
            rank=cost.rank,
            device_id=cost.device_id,
            impact_ns=cost.gain.gain_ns,
        )


def _not_comparable(tables: Tables) -> Iterator[Finding]:
    rows = tables["comparability"]
    for row in rows[rows["status"].isin(BLOCKING)].to_dict("records"):
        before, after = both_sides(row)
        yield RULES["not_comparable"].finding(
            details=f"Baseline: {before}. Input: {after}. Effect: {row['meaning']}.",
            evidence=cells("comparability", row, ("check",), ("meaning",)),
            fields={"what": BLOCKING[row["status"]], "check": row["check"]},
            name=row["check"],
            case=row["status"],
        )
