"""Findings of trace_diff: what got worse, by kind; what got better is a note."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Tables, severity_of
from nsys_llm.view.text import format_ns, format_percent, quoted

from ..tables.checks import ALL, BLOCKING
from .change import Clue
from .changes import find_clues
from .diagnosis import Conclusion, conclusive
from .normalization import Basis, basis_of, both_sides
from .texts import RULES, SEVERITY_PCT

#: What says that more or less was done.
_MORE_WORK: Final = frozenset({"more_of_all", "less_of_all", "calls_at_other_work"})
#: Another problem, unless the steps are known to do the same.
_SIZES: Final = frozenset({"other_sizes"})
#: What takes longer where a step has more to do.
_GROWS_WITH_WORK: Final = frozenset(
    {"other_kernels", "more_calls", "few_calls", "uneven_calls", "copies", "transfer"}
    | {"communication", "split_launches"}
)

#: Conclusions that are told with the change that they explain.
_SAID_BY: Final = {"waiting": ("late_peer",), "more_idle": ("graphs_lost", "host_bound")}


def findings(tables: Tables) -> list[Finding]:
    """Return all findings of the recipe, in no order."""
    basis = basis_of(tables)
    if basis.kernels.empty:
        return []
    clues = find_clues(tables, basis)
    concluded = {one.rule: one for one in conclusive(tables, basis, clues)}
    return [
        *_not_comparable(tables),
        *(_finding(clue, basis, concluded) for clue in clues),
        *_conclusions(basis, concluded),
    ]


def _finding(clue: Clue, basis: Basis, concluded: Mapping[str, Conclusion]) -> Finding:
    said = [concluded[rule].text for rule in _SAID_BY.get(clue.rule, ()) if rule in concluded]
    share = 100 * clue.impact_ns / basis.before_ns if basis.before_ns else 0.0
    severity = severity_of(share, SEVERITY_PCT)
    if severity is None:
        severity = "low" if clue.stands_out and clue.impact_ns > 0 else "note"
    if not clue.sure or not _is_verdict(clue, basis):
        severity = "note"
    found = RULES[clue.rule].finding(
        severity=severity,
        details=f"{clue.text[0].upper()}{clue.text[1:]}: {format_ns(abs(clue.impact_ns))} beside "
        f"{format_ns(basis.before_ns)} of kernel time in the baseline{basis.a_step} "
        f"({format_percent(abs(share))}).",
        fields={"name": quoted(clue.name), "rank": clue.rank},
        tables=clue.tables,
        name=clue.name,
        rank=clue.rank,
        impact_ns=round(abs(clue.impact_ns)),
    )
    return replace(found, recommendation=" ".join([*said, found.recommendation]))


def _is_verdict(clue: Clue, basis: Basis) -> bool:
    """Tell whether more time is a change for the worse: not where more was to be done."""
    if clue.rule in _MORE_WORK:
        return False
    if clue.rule in _SIZES and basis.same_work is not True:
        return False
    return not (basis.other_work and clue.rule in _GROWS_WITH_WORK)


def _conclusions(basis: Basis, concluded: Mapping[str, Conclusion]) -> Iterator[Finding]:
    for rule, conclusion in concluded.items():
        if rule in RULES:
            yield RULES[rule].finding(
                severity="medium",
                details=conclusion.text,
                fields=conclusion.fields,
                impact_ns=round(abs(basis.after_ns - basis.before_ns)),
            )


def _not_comparable(tables: Tables) -> Iterator[Finding]:
    rows = tables["comparability"]
    for row in rows[rows["status"].isin(BLOCKING)].to_dict("records"):
        before, after = both_sides(row)
        whole = row["status"] == ALL
        yield RULES["not_comparable"].finding(
            severity="high" if whole else "medium",
            details=f"Baseline: {before}. Input: {after}. That means: {row['meaning']}.",
            fields={"what": BLOCKING[row["status"]], "check": row["check"]},
            name=row["check"],
            case=row["status"],
        )
