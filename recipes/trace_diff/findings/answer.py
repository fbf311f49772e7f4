"""The answer of trace_diff: which run is faster, and the few changes that tell most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nsys_llm.report.records import Record, Tables, first_record
from nsys_llm.trace.rank_sets import COMPARED
from nsys_llm.view.text import format_count, format_ns

from ..tables.checks import ALL, BLOCKING, DIFFERS, NAMES, STEPS, WINDOW, WORK, WORK_OF_ALL
from ..tables.step_splits import STEP
from ..tables.step_verdict import OTHER_WORK, SLOWER
from .change import Clue, matters
from .changes import find_clues
from .diagnosis import conclusive
from .gains import OF_WALLS, Costs
from .host import host_finding, host_words, slower_host
from .kernels import alike_ratio
from .normalization import Basis, basis_of, both_sides
from .regressions import findings
from .step_words import is_of_few_steps, sure_words, verdict_lines
from .texts import OF_COUNTS, OF_SIZES

#: Changes that are told: the rest stands in the findings.
_MOST_CLUES: Final = 3
#: Conclusions as the answer has them, most telling first; {} is the beginning of their own words.
_REASONS: Final = {
    "another_path": "A different path was taken through the same model",
    "slower_throughout": "{}, which is the machine rather than the code",
    "graphs_lost": "The baseline ran CUDA graphs and the input launches kernels one by one",
    "faster_gpu": "The GPUs are faster, and wait for the host",
    "host_bound": "The host launches later than before",
}
#: Calls that the cause names: it has three lines on the first screen.
_MOST_CALLS: Final = 2
#: Waiting is for what some rank does.
_WAITING: Final = frozenset({"waiting", "pair_waiting", "profiler_wait"})
#: A change is the cause of a slower run from this share of the mean GPU's change on; ours.
_CAUSE_SHARE: Final = 0.5
#: Told by the first sentence.
_ALIKE: Final = frozenset({"more_of_all", "less_of_all"})
#: Tables whose changes are all 0 where nothing changed.
_SUMS: Final = ("memops", "apis", "phases", "idle", "collectives")


def answer(tables: Tables) -> str:
    """Return the verdict in lines: which run is faster, what the change is made of, and its cause.

    Then, as prose, how sure it is and what changed in kernels, copies and idle time.
    """
    basis = basis_of(tables)
    if basis.kernels.empty:
        return "Neither run has a kernel in the selection: there is nothing to compare."
    verdict = first_record(tables["verdict"])
    lines = verdict_lines(tables)
    if cause := _cause(tables, basis, verdict):
        lines.append(f"cause: {cause}")
    prose = [
        sure_words(verdict),
        _other_kernels(tables, verdict),
        _blocked(tables, basis),
        _changes(tables, basis, verdict),
    ]
    prose.append(_graphs(tables, basis))
    return "\n".join([*lines, " ".join(part for part in map(str.strip, prose) if part)]).strip()


def _other_kernels(tables: Tables, verdict: Record) -> str:
    """Say that steps of the same name run other kernels; empty where they do not."""
    checks = tables["comparability"].set_index("check")["status"]
    if verdict["basis"] != STEP or verdict["work"] or checks.get(NAMES) != DIFFERS:
        return ""
    return "Other kernels for the same work, as far as the steps' names say."


def _cause(tables: Tables, basis: Basis, verdict: Record) -> str:
    """Return the cause of a run that is slower; empty where none is known."""
    if verdict["word"] != SLOWER:
        return ""
    costs = Costs(tables, basis)
    host = slower_host(tables)
    if host is not None and host_finding(tables, costs) is not None:
        return f"the host: {host_words(host, _MOST_CALLS)}"
    worse = [
        finding
        for finding in findings(tables)
        if finding.price is not None and finding.severity is not None
    ]
    # What others wait for before the waiting.
    worse.sort(
        key=lambda finding: (
            finding.rule in _WAITING,
            -finding.price.gain_ns if finding.price else 0,
        )
    )
    for finding in worse:
        cost_ns = finding.numbers["change_ns"]
        if verdict["change_ns"] and cost_ns >= _CAUSE_SHARE * verdict["change_ns"]:
            title = (
                finding.title
                if finding.title.startswith("`")
                else finding.title[0].lower() + finding.title[1:]
            )
            return f"{title} ({format_ns(cost_ns)} a {verdict['unit']})"
    return ""


def _changes(tables: Tables, basis: Basis, verdict: Record) -> str:
    """Return what changed most; sentences of effect are withheld where the work is another."""
    if _nothing_changed(tables) and not _is_blocked(tables):
        same = "both runs have the same kernels, as often and as long, and the same idle time"
        return f"Nothing changed: {same}."
    if verdict["word"] == OTHER_WORK or _is_blocked(tables):
        return ""
    clues = _known(find_clues(tables, basis), verdict, basis)
    reported = _told(clues, basis)
    if not reported:
        return "" if alike_ratio(basis) is not None else "No kernel changed beyond chance."
    kinds = "; ".join(clue.brief or clue.text for clue in reported)
    return f"{_reason(tables, basis, clues) or 'What changed most'}: {kinds}."


def _known(clues: Sequence[Clue], verdict: Record, basis: Basis) -> list[Clue]:
    """Return the clues that neither another mix of steps nor chance makes."""
    left_out = set(OF_COUNTS) if basis.other_work else set()
    if basis.other_work and verdict["basis"] == STEP:
        left_out |= OF_SIZES
    if is_of_few_steps(verdict):
        left_out |= OF_WALLS
    return [clue for clue in clues if clue.rule not in left_out]


def _reason(tables: Tables, basis: Basis, clues: Sequence[Clue]) -> str:
    """Return what the clues point to, in words; empty where they point nowhere."""
    rules = {item.rule: item.text for item in conclusive(tables, basis, clues)}
    reported = (
        words.format(rules[rule].partition(":")[0])
        for rule, words in _REASONS.items()
        if rule in rules
    )
    return next(reported, "")


def _is_blocked(tables: Tables) -> bool:
    """Tell whether nothing is comparable."""
    return bool((tables["comparability"]["status"] == ALL).any())


def _blocked(tables: Tables, basis: Basis) -> str:
    rows = tables["comparability"]
    if basis.per_step:
        # What follows is told per step.
        rows = rows[~rows["check"].isin([STEPS, WINDOW])]
    # The first sentence says what changed in the work.
    rows = rows[~rows["check"].isin([WORK, WORK_OF_ALL])]
    for status, what in BLOCKING.items():
        blocked = rows[rows["status"] == status]
        if len(blocked):
            reported = [_check(row) for row in blocked.to_dict("records")]
            return f"{what} are not comparable: {'; '.join(reported)}. "
    return ""


def _check(row: dict[Any, Any]) -> str:
    before, after = both_sides(row)
    return f"{row['check']} ({before}, then {after}; {row['meaning']})"


def _graphs(tables: Tables, basis: Basis) -> str:
    """Say what kernel times leave out where CUDA graphs were traced as a whole."""
    runs = tables["runs"].set_index("run").loc[list(COMPARED)]
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
    runs = tables["runs"].set_index("run").loc[list(COMPARED), ["window_ns", "busy_ns"]]
    alike = bool((runs.nunique() == 1).all())
    return alike and bool(same.all()) and all(bool(other.all()) for other in others)
