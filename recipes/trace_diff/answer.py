"""The answer of trace_diff in one paragraph: what changed, of what kind, what points to what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nsys_llm.recipes.trace_diff.basis import Basis, Tables, basis_of, both_sides
from nsys_llm.recipes.trace_diff.checks import BLOCKING, STEPS, WINDOW
from nsys_llm.recipes.trace_diff.clue import Clue, changed, matters
from nsys_llm.recipes.trace_diff.clues import find_clues
from nsys_llm.recipes.trace_diff.conclusions import conclusions
from nsys_llm.recipes.trace_diff.kernel_clues import alike_ratio
from nsys_llm.sides import COMPARED
from nsys_llm.view.text import counted, format_count, format_ns, format_percent

__all__ = ["answer"]

_MOST_CLUES: Final = 5
_MOST_OF_A_KIND: Final = 2
#: A change of the kernel time, or of the number of launches, that rounds to none.
_NOTHING_PCT: Final = 0.05
#: Tables whose changes are all 0 where nothing changed.
_SUMS: Final = ("memops", "apis", "phases", "idle", "collectives")


def answer(tables: Tables) -> str:
    """Return what changed between the runs, in one paragraph."""
    basis = basis_of(tables)
    if basis.kernels.empty:
        return "Neither run has a kernel in what was looked at: there is nothing to compare."
    blocked = _blocked(tables, basis)
    graphs = _graphs(tables, basis)
    if _nothing_changed(tables):
        same = "both runs have the same kernels, as often and as long, and the same idle time"
        return f"{blocked}Nothing changed: {same}.{graphs}"
    clues = find_clues(tables, basis)
    told = _told(clues, basis)
    parts = [blocked + _headline(tables, basis) + graphs]
    if told:
        kinds = "; ".join(clue.text for clue in told)
        parts.append(f"{'What changed most' if len(told) > 1 else 'What changed'}: {kinds}.")
    else:
        parts.append("No kernel changed enough to tell from chance.")
    return " ".join([*parts, *conclusions(tables, basis, clues)])


def _blocked(tables: Tables, basis: Basis) -> str:
    rows = tables["comparability"]
    if basis.per_step:
        # What follows is told per step.
        rows = rows[~rows["check"].isin([STEPS, WINDOW])]
    for status, what in BLOCKING.items():
        own = rows[rows["status"] == status]
        if len(own):
            told = [_check(row) for row in own.to_dict("records")]
            return f"{what} are not comparable: {'; '.join(told)}. "
    return ""


def _check(row: dict[Any, Any]) -> str:
    before, after = both_sides(row)
    return f"{row['check']} ({before}, then {after}; {row['meaning']})"


def _headline(tables: Tables, basis: Basis) -> str:
    before, after = basis.before_ns, basis.after_ns
    change = after - before
    share = f" ({format_percent(100 * abs(change) / before)})" if before else ""
    if before and 100 * abs(change) < _NOTHING_PCT * before:
        amount = "as much as the baseline"
    else:
        amount = f"{format_ns(abs(change))}{share} {'more' if change > 0 else 'less'} than the "
        amount += "baseline"
    return (
        f"The input spends {format_ns(after)} in kernels{basis.a_step}, {amount}, "
        f"{_launches(tables, basis)}.{_split(basis)}"
    )


def _launches(tables: Tables, basis: Basis) -> str:
    if basis.per_step:
        runs = tables["runs"].set_index("side")
        steps = [counted(int(runs.loc[side, "steps_n"]), "step") for side in ("input", "baseline")]
        return f"over {steps[0]} (the baseline did {steps[1]})"
    before, after = (int(basis.kernels[name].sum()) for name in ("baseline_n", "input_n"))
    if before == after:
        return f"in the same number of launches ({format_count(after)})"
    more = f"{format_count(abs(after - before))} {'more' if after > before else 'fewer'} launches"
    share = f", {format_percent(100 * abs(after - before) / before)}" if before else ""
    return f"in {more} ({format_count(before)} -> {format_count(after)}{share})"


def _split(basis: Basis) -> str:
    kernels = basis.kernels
    count, per_call = float(kernels["count"].sum()), float(kernels["per_call"].sum())
    if alike_ratio(basis) is None or not count or not per_call:
        return ""
    return (
        f" {changed(count)} of the change is the number of launches, {changed(per_call)} their "
        "length."
    )


def _graphs(tables: Tables, basis: Basis) -> str:
    """Say what kernel times leave out where CUDA graphs were traced as a whole."""
    runs = tables["runs"].set_index("side").loc[list(COMPARED)]
    graphs = runs["whole_graphs_n"]
    if not graphs.any():
        return ""
    busy = runs["busy_ns"] / (runs["steps_n"].astype("float64") if basis.per_step else 1)
    before, after = (format_ns(float(ns)) for ns in busy)
    counts = " and ".join(format_count(int(n)) for n in graphs)
    return (
        f" Kernels inside CUDA graphs are not seen ({counts} graphs were traced as a whole; record "
        f"with --cuda-graph-trace=node): with them the GPUs are busy for {before} in the baseline "
        f"and {after} in the input{basis.a_step}."
    )


def _told(clues: Sequence[Clue], basis: Basis) -> list[Clue]:
    """Return the largest clues, few of a kind, and of other kinds what stands out."""
    told: list[Clue] = []
    for clue in clues:
        alike_n = sum(one.rule == clue.rule for one in told)
        if matters(clue.impact_ns, basis) and alike_n < _MOST_OF_A_KIND and len(told) < _MOST_CLUES:
            told.append(clue)
    for clue in clues:
        if clue.stands_out and clue.rule not in {one.rule for one in told}:
            told.append(clue)
    return told


def _nothing_changed(tables: Tables) -> bool:
    kernels = tables["kernels"]
    same = (kernels["change_ns"] == 0) & (
        kernels["baseline_launches_n"] == kernels["input_launches_n"]
    )
    others = (tables[name]["change_ns"].fillna(0) == 0 for name in _SUMS)
    runs = tables["runs"].set_index("side").loc[list(COMPARED), ["window_ns", "busy_ns"]]
    alike = bool((runs.nunique() == 1).all())
    return alike and bool(same.all()) and all(bool(one.all()) for one in others)
