"""The answer of trace_diff: how much changed, and the few changes that tell most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nsys_llm.trace.rank_sets import COMPARED
from nsys_llm.view.text import counted, format_count, format_ns, format_percent

from ..tables.checks import BLOCKING, KERNELS, STEPS, TOTALS, WINDOW, WORK, WORK_OF_ALL
from .change import Clue, changed, matters
from .changes import find_clues
from .diagnosis import conclusive
from .kernel_changes import alike_ratio
from .normalization import Basis, Tables, basis_of, both_sides
from .work_words import work_sentence

#: Changes that are told: the rest stands in the findings.
_MOST_CLUES: Final = 3
#: Conclusions as the answer has them, most telling first; {} is the beginning of their own words.
_REASONS: Final = {
    "another_path": "A different path was taken through the same model",
    "slower_throughout": "{}, which is the machine rather than the code",
    "graphs_lost": "The baseline ran CUDA graphs and the input launches kernels one by one",
    "host_bound": "The host launches later than before",
}
#: Told by the first sentence.
_ALIKE: Final = frozenset({"more_of_all", "less_of_all"})
#: A change of the kernel time, or of the number of launches, that rounds to none.
_NOTHING_PCT: Final = 0.05
#: Tables whose changes are all 0 where nothing changed.
_SUMS: Final = ("memops", "apis", "phases", "idle", "collectives")


def answer(tables: Tables) -> str:
    """Return what changed between the runs, in two sentences; more where that is not comparable."""
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
    first = f"{work_sentence(tables, basis)}{blocked}{_headline(tables, basis)}.{graphs}"
    if not told:
        nothing = "No kernel changed enough to tell from chance."
        return first if alike_ratio(basis) is not None else f"{first} {nothing}"
    kinds = "; ".join(clue.brief or clue.text for clue in told)
    return f"{first} {_reason(tables, basis, clues) or 'What changed most'}: {kinds}."


def _reason(tables: Tables, basis: Basis, clues: Sequence[Clue]) -> str:
    """Return what the clues point to, in words; empty where they point nowhere."""
    rules = dict(conclusive(tables, basis, clues))
    told = (
        words.format(rules[rule].partition(":")[0])
        for rule, words in _REASONS.items()
        if rule in rules
    )
    return next(told, "")


def _blocked(tables: Tables, basis: Basis) -> str:
    rows = tables["comparability"]
    if basis.per_step:
        # What follows is told per step.
        rows = rows[~rows["check"].isin([STEPS, WINDOW])]
    if alike_ratio(basis) is not None:
        # The first sentence says how much more or less the input did.
        rows = rows[(rows["check"] != KERNELS) | (rows["status"] != TOTALS)]
    # The first sentence says what changed in the work.
    rows = rows[~rows["check"].isin([WORK, WORK_OF_ALL])]
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
    first = f"The input spends {format_ns(after)} in kernels{basis.a_step}, {amount}"
    return f"{first}, {_alike(basis) or _launches(tables, basis)}"


def _alike(basis: Basis) -> str:
    """Say that the input did more or less of the same work; empty where that is not so."""
    ratio = alike_ratio(basis)
    if ratio is None:
        return ""
    count, per_call = (changed(float(basis.kernels[name].sum())) for name in ("count", "per_call"))
    fewer = "less" if ratio < 1 else "more"
    return (
        f"and did {fewer} of the same work: nearly all kernels run "
        f"{format_percent(100 * abs(ratio - 1))} {fewer} often ({count}; their length makes "
        f"{per_call})"
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
    """Return the few to tell, largest first; the largest of each kind, and what stands out, first.

    A further one of a kind is told where there is room.
    """
    worth = [
        clue
        for clue in clues
        if clue.rule not in _ALIKE and (clue.stands_out or matters(clue.impact_ns, basis))
    ]
    largest = {clue.rule: clue for clue in reversed(worth)}
    chosen = sorted(worth, key=lambda clue: (clue is not largest[clue.rule], not clue.stands_out))
    return [clue for clue in worth if clue in chosen[:_MOST_CLUES]]


def _nothing_changed(tables: Tables) -> bool:
    kernels = tables["kernels"]
    same = (kernels["change_ns"] == 0) & (
        kernels["baseline_launches_n"] == kernels["input_launches_n"]
    )
    others = (tables[name]["change_ns"].fillna(0) == 0 for name in _SUMS)
    runs = tables["runs"].set_index("side").loc[list(COMPARED), ["window_ns", "busy_ns"]]
    alike = bool((runs.nunique() == 1).all())
    return alike and bool(same.all()) and all(bool(one.all()) for one in others)
