"""Findings of trace_diff: what got worse, by kind; what got better is a note."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from nsys_llm.report.findings import Finding
from nsys_llm.report.records import severity_of
from nsys_llm.view.text import format_ns, format_percent, quoted

from ..tables.checks import ALL, BLOCKING, STEP_TIMES, TOTALS
from .change import Clue
from .changes import find_clues
from .diagnosis import conclusive
from .normalization import Basis, Tables, basis_of, both_sides

#: Share of the baseline's kernel time from which a change for the worse has a severity; nsys-ai
#: calls 5 % a regression and 2 % noise, high is ours.
_SEVERITY_PCT: Final = {"high": 10.0, "medium": 5.0, "low": 2.0}

_RECOMMENDED: Final = {
    ALL: "Repeat one of the captures like the other.",
    TOTALS: "Read times per call, shares, and times per step.",
    STEP_TIMES: "Leave out what runs outside of the steps: `--steps 0:`, or a filter by time.",
}

#: Title, scope and advice of each kind of change.
_KINDS: Final = {
    "slower_calls": (
        "{name} got slower per call",
        "kernel",
        "Its grids and blocks are the same: compare versions of the kernel, clocks and power of "
        "the GPU, and sizes that no grid shows (lengths of sequences, experts).",
    ),
    "faster_calls": (
        "{name} got faster per call",
        "kernel",
        "Check that it still does the same work: a grid does not show all sizes.",
    ),
    "calls_at_other_work": (
        "{name} takes another time per call, at another amount of work a step",
        "kernel",
        "Compare the time per token, or repeat a run with the batch of the other.",
    ),
    "other_sizes": (
        "{name} runs at other sizes",
        "kernel",
        "Another grid or block is another problem, and no slower or faster kernel: compare in "
        "`configs` the sizes that both runs have, and the work of both runs.",
    ),
    "split_launches": (
        "{name} is split into more launches",
        "kernel",
        "The same total grid in smaller launches costs more launches and fills the GPU less: find "
        "what splits it (chunks, micro-batches, buckets).",
    ),
    "merged_launches": (
        "{name} is merged into fewer launches",
        "kernel",
        "Nothing: the same total grid in larger launches.",
    ),
    "few_calls": (
        "{name} takes other times in few calls",
        "kernel",
        "Capture more steps: a test needs eight calls on each side.",
    ),
    "uneven_calls": (
        "Some calls of {name} changed, and not the usual one",
        "kernel",
        "Find out which: `configs` and `rank_kernels` tell shapes and ranks apart, tail_stats "
        "lists the outliers.",
    ),
    "more_calls": (
        "{name} runs more often",
        "kernel",
        "Find where the extra launches come from: `nvtx_phase_attribution` names the ranges.",
    ),
    "fewer_calls": (
        "{name} runs less often",
        "kernel",
        "Check that the work was saved, and not moved to another kernel.",
    ),
    "more_of_all": (
        "All kernels run more often alike",
        "run",
        "Compare per step: name the range with `--step`, or a kernel with `--step-kernel`.",
    ),
    "less_of_all": (
        "All kernels run less often alike",
        "run",
        "Compare per step: name the range with `--step`, or a kernel with `--step-kernel`.",
    ),
    "other_kernels": (
        "Work of category {name} went to other kernels",
        "category",
        "Compare versions, shapes and autotuning caches: another variant was chosen.",
    ),
    "waiting": (
        "Communication changed by waiting for late ranks",
        "category",
        "Look at `ranks` and at tail_stats' stragglers: the late rank is the one to mend.",
    ),
    "pair_waiting": (
        "Ranks that send to and receive from each other wait otherwise",
        "category",
        "Look at tail_stats of both runs: of stages of a pipeline it names the bubble, which is "
        "the schedule's (compare microbatches and stages), and the stage that is slow or late.",
    ),
    "profiler_wait": (
        "Communication changed by the profiler's own work",
        "category",
        "Look for no cause in the program: the profiler writes its buffers, holds a CUDA call of a "
        "rank, and the others wait. Capture both runs alike, and shorter.",
    ),
    "transfer": (
        "Communication changed by its transfer",
        "category",
        "Compare sizes, algorithms and links: every rank was there, and the data took other time.",
    ),
    "communication": (
        "Communication changed",
        "category",
        "Give the reports of all ranks to tell waiting from transfer.",
    ),
    "copies": (
        "The number of copies changed: {name}",
        "copy",
        "Find what copies with the phases of nvtx_phase_attribution: tensors that are split, made "
        "contiguous or moved.",
    ),
    "one_rank": (
        "Rank {rank} changed unlike the others",
        "rank",
        "Look at its row in `ranks` and `rank_kernels`: the code is the same on all ranks, so its "
        "machine, its share of the work, or what else runs there differs.",
    ),
    "more_idle": (
        "The GPUs are idle more",
        "run",
        "Run idle_gaps on both: it lists the gaps, and what the host did in them.",
    ),
    "less_idle": (
        "The GPUs are idle less",
        "run",
        "Nothing: the host keeps up better.",
    ),
}

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
    concluded = dict(conclusive(tables, basis, clues))
    return [
        *_not_comparable(tables),
        *(_finding(clue, basis, concluded) for clue in clues),
        *_conclusions(basis, concluded),
    ]


def _finding(clue: Clue, basis: Basis, concluded: Mapping[str, str]) -> Finding:
    title, scope, advice = _KINDS[clue.rule]
    said = [concluded[rule] for rule in _SAID_BY.get(clue.rule, ()) if rule in concluded]
    share = 100 * clue.impact_ns / basis.before_ns if basis.before_ns else 0.0
    severity = severity_of(share, _SEVERITY_PCT)
    if severity is None:
        severity = "low" if clue.stands_out and clue.impact_ns > 0 else "note"
    if not clue.sure or not _is_verdict(clue, basis):
        severity = "note"
    return Finding(
        rule=clue.rule,
        severity=severity,
        scope=scope,
        name=clue.name,
        rank=clue.rank,
        title=title.format(name=quoted(clue.name), rank=clue.rank),
        evidence=f"{clue.text[0].upper()}{clue.text[1:]}: {format_ns(abs(clue.impact_ns))} beside "
        f"{format_ns(basis.before_ns)} of kernel time in the baseline{basis.a_step} "
        f"({format_percent(abs(share))}).",
        tables=clue.tables,
        recommendation=" ".join([*said, advice]),
        impact_ns=round(abs(clue.impact_ns)),
    )


def _is_verdict(clue: Clue, basis: Basis) -> bool:
    """Tell whether more time is a change for the worse: not where more was to be done."""
    if clue.rule in _MORE_WORK:
        return False
    if clue.rule in _SIZES and basis.same_work is not True:
        return False
    return not (basis.other_work and clue.rule in _GROWS_WITH_WORK)


def _conclusions(basis: Basis, concluded: Mapping[str, str]) -> Iterator[Finding]:
    titles = {
        "another_path": "The same work took a different path",
        "slower_throughout": "Nearly all kernels changed alike",
    }
    for rule, text in concluded.items():
        if rule not in titles:
            continue
        evidence, _, advice = text.partition(". ")
        yield Finding(
            rule=rule,
            severity="medium",
            scope="run",
            title=titles[rule],
            evidence=evidence if evidence.endswith(".") else f"{evidence}.",
            tables=("kernels", "categories", "memops"),
            recommendation=advice or "Repeat the run on an idle machine with clocks locked.",
            impact_ns=round(abs(basis.after_ns - basis.before_ns)),
        )


def _not_comparable(tables: Tables) -> Iterator[Finding]:
    rows = tables["comparability"]
    for row in rows[rows["status"].isin(BLOCKING)].to_dict("records"):
        before, after = both_sides(row)
        whole = row["status"] == ALL
        yield Finding(
            rule="not_comparable",
            severity="high" if whole else "medium",
            scope="run",
            name=row["check"],
            title=f"{BLOCKING[row['status']]} are not comparable: {row['check']}",
            evidence=f"Baseline: {before}. Input: {after}. That means: {row['meaning']}.",
            tables=("comparability",),
            recommendation=_RECOMMENDED[row["status"]],
        )
