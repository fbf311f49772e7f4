"""The table comparability: what must be alike for two runs to be compared, and what follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from nsys_llm.profile.capture import CaptureFacts
from nsys_llm.report.run import absent_ranks
from nsys_llm.taxonomy.idle_causes import PROFILER_OVERHEAD
from nsys_llm.view.text import counted, format_count, format_ns, format_percent

from .comparability import (
    COMMON_PCT,
    OTHER_WORK,
    SAME_WORK_PCT,
    STEP,
    Comparison,
    apart_pct,
    common_names_pct,
    missing_words,
    other_window,
    other_work,
    same_tokens,
    work_ratio,
)
from .runs import Run, Runs

SAME: Final = "same"
#: Not recorded, so that nobody knows.
UNKNOWN: Final = "unknown"
DIFFERS: Final = "differs"
#: Sums over a run mean nothing against those of the other; what is per step or a share does.
TOTALS: Final = "totals"
ALL: Final = "all"

#: Times per step mean nothing against those of the other.
STEP_TIMES: Final = "per_step"
#: What keeps gates from being decided, and what each keeps from being compared.
BLOCKING: Final = {
    ALL: "The runs",
    TOTALS: "Sums over the runs",
    STEP_TIMES: "Kernel times per step",
}

#: The checks of launches, of steps, of windows, of what steps do, and of kernels' names.
KERNELS: Final = "kernels"
RANKS: Final = "ranks"
STEPS: Final = "steps"
WINDOW: Final = "window"
WORK: Final = "work of a step"
WORK_OF_ALL: Final = "work of all steps"
NAMES: Final = "kernel names in common"

#: Steps below which one that a window cuts weighs more than ordinary limits of gates; ours.
_FEW_STEPS: Final = 20
#: Percent of a step by which work outside of the steps may move it; below ordinary limits of
#: gates; ours.
_OUTSIDE_PCT: Final = 1.0
#: Percentage points of the windows by which the profiler's time may differ; ours.
_OVERHEAD_POINTS: Final = 1.0
#: Likewise where one share is so many times the other: what waits is as long, so less tells.
_OVERHEAD_RATIO: Final = 2.0
_OVERHEAD_RATIO_POINTS: Final = 0.1

#: Facts of captures: check, the fact, what follows where it differs, and why.
_FACTS: Final[tuple[tuple[str, Callable[[CaptureFacts], str | None], str, str], ...]] = (
    ("GPU", lambda facts: ", ".join(sorted(set(facts.gpus))), ALL, "other hardware"),
    ("driver", lambda facts: facts.driver_version, DIFFERS, "it may be the cause"),
    ("CUDA of the driver", lambda facts: facts.cuda_version, DIFFERS, "likewise"),
    (
        "exported by nsys",
        lambda facts: facts.nsys_version,
        DIFFERS,
        "another profiler may cost another overhead",
    ),
    ("export schema", lambda facts: facts.schema_version, DIFFERS, "read alike all the same"),
    (
        "traced",
        lambda facts: ", ".join(facts.traced),
        DIFFERS,
        "what else is traced slows the host, and may look like a change",
    ),
)

Row = dict[str, str | None]
#: Whether it holds, the status then, and its meaning.
Case = tuple[bool, str, str]


def _row(check: str, sides: Sequence[str | None], *cases: Case, same: str) -> Row:
    """Return a row of the table comparability: the first case that holds, else that all is same."""
    status, meaning = next((case[1:] for case in cases if case[0]), (SAME, same))
    before, after = sides
    return {
        "check": check,
        "baseline": before,
        "input": after,
        "status": status,
        "meaning": meaning,
    }


def comparability_rows(runs: Runs, options: Mapping[str, Any]) -> list[Row]:
    """Return the rows of the table comparability, but for those on the work of a step.

    Args:
        runs: All runs.
        options: world_size and ranks tell which ranks should be there.
    """
    gpu, *facts = (_fact(runs, *fact) for fact in _FACTS)
    return [
        _reports(runs, options),
        _kernels(runs),
        _ranks(runs),
        gpu,
        _graphs(runs),
        _missing_work(runs),
        *facts,
        _overhead(runs),
        _steps(runs),
        _outside(runs),
        _window(runs),
        _names(runs),
        *_repeats(runs),
    ]


def work_rows(runs: Runs, comparison: Comparison) -> Iterator[Row]:
    """Yield the checks of what a step does, and of what all steps do where that differs too."""
    if comparison.kind != STEP and comparison.word != OTHER_WORK:
        yield _row(WORK, [None, None], same="no steps of equal work are known")
        return
    other = comparison.work is not None
    meaning = f"a step does another amount of work: {comparison.work}"
    yield _row(WORK, [None, None], (other, STEP_TIMES, meaning), same="about as much in a step")
    if other and runs.steps is not None and runs.steps[0] == runs.steps[1]:
        meaning = "as many steps with another amount of work each"
        yield _row(WORK_OF_ALL, [None, None], (True, TOTALS, meaning), same="")


def _reports(runs: Runs, options: Mapping[str, Any]) -> Row:
    shown = []
    for run in runs.compared:
        failed_n = sum(rank.facts is None for rank in run.others)
        absent_n = len(absent_ranks([*(rank for rank, _ in run.ranks), *run.others], options))
        shown.append(f"{failed_n} failed, {absent_n} absent" if failed_n or absent_n else "all")
    whole = (set(shown) != {"all"}, ALL, "a run that is not whole passes no gate")
    return _row("reports read", shown, whole, same="every report could be read")


def _ranks(runs: Runs) -> Row:
    sides = [[rank.number for rank, _ in run.ranks] for run in runs.compared]
    shown = [_listed([-1 if n is None else n for n in numbers]) for numbers in sides]
    rules = [{rank.source for rank, _ in run.ranks} for run in runs.compared]
    as_many = len(sides[0]) == len(sides[1])
    if as_many and rules[0] != rules[1]:
        shown = [
            f"{numbers}, by {', '.join(sorted(str(item) for item in rule))}"
            for numbers, rule in zip(shown, rules, strict=True)
        ]
    missing = missing_words(runs) or "compared over all ranks"
    return _row(
        RANKS,
        shown,
        (not as_many, TOTALS, f"{missing}; sums are over all of a run"),
        (rules[0] != rules[1], DIFFERS, "numbered by other rules: what is by rank may be off"),
        (sides[0] != sides[1], DIFFERS,
         "as many, but with other numbers: by rank only common ones"),
        same="paired by number",
    )  # fmt: skip


def _fact(
    runs: Runs,
    check: str,
    of: Callable[[CaptureFacts], str | None],
    status: str,
    meaning: str,
) -> Row:
    shown = []
    for run in runs.compared:
        values = {of(rank.facts) or "" for rank, _ in run.ranks if rank.facts is not None} - {""}
        shown.append("; ".join(sorted(values)) or None)
    unknown = None in shown, UNKNOWN, "not recorded in both runs, so not compared"
    return _row(check, shown, unknown, (shown[0] != shown[1], status, meaning), same="alike")


def _graphs(runs: Runs) -> Row:
    nodes_n = [sum(sums.graph_nodes_n for _, sums in run.ranks) for run in runs.compared]
    whole_n = [run.whole_graphs_n for run in runs.compared]
    shown = [
        f"{format_count(nodes)} operations node by node, {format_count(whole)} whole graphs"
        for nodes, whole in zip(nodes_n, whole_n, strict=True)
    ]
    return _row(
        "CUDA graphs",
        shown,
        (bool(whole_n[0]) != bool(whole_n[1]), ALL, "kernels in graphs are seen in one run only"),
        (any(whole_n), DIFFERS, "kernels in graphs are not seen: no gate on kernels"),
        (bool(nodes_n[0]) != bool(nodes_n[1]), DIFFERS,
         "one run alone uses CUDA graphs: a change of its own"),
        same="alike",
    )  # fmt: skip


def _missing_work(runs: Runs) -> Row:
    missing = [sum(sums.opaque_launches_n for _, sums in run.ranks) for run in runs.compared]
    shown = [f"{format_count(n)} graph launches" for n in missing]
    meaning = "GPU work is missing; record with --cuda-graph-trace=node"
    case = (any(missing), ALL, meaning)
    return _row("GPU work not in the report", shown, case, same="all launched work is there")


def _overhead(runs: Runs) -> Row:
    shares = [_overhead_pct(run) for run in runs.compared]
    known = sorted(share for share in shares if share is not None)
    shown = [None if share is None else format_percent(share) for share in shares]
    differs = len(known) == 2 and _other_overhead(*known)
    meaning = "it stretches windows and waits for late ranks, not kernels"
    case = (differs, DIFFERS, meaning)
    return _row("time the profiler took", shown, case, same="about alike, and no idle time")


def _other_overhead(less_pct: float, more_pct: float) -> bool:
    apart = more_pct - less_pct
    many_times = more_pct >= _OVERHEAD_RATIO * less_pct and apart >= _OVERHEAD_RATIO_POINTS
    return many_times or apart >= _OVERHEAD_POINTS


def _overhead_pct(run: Run) -> float | None:
    if run.idle_ns is None or not run.window_ns:
        return None
    return 100.0 * int(run.idle_ns[PROFILER_OVERHEAD]) / run.window_ns


def _names(runs: Runs) -> Row:
    shares = common_names_pct(runs)
    shown = [f"{format_percent(share)} of its kernel time" for share in shares]
    few = (min(shares) < COMMON_PCT, DIFFERS, "mostly other kernels: other code")
    return _row(NAMES, shown, few, same="largely the same kernels")


def _repeats(runs: Runs) -> Iterator[Row]:
    for run in runs.repeats:
        noisy = run in runs.noise
        yield _row(
            f"{run.side}, for noise",
            [counted(len(item.ranks), "rank") for item in (runs.baseline, run)],
            (not noisy, DIFFERS, "empty, incomplete, of other ranks or GPUs: left out"),
            (noisy and other_work(runs.baseline, run), DIFFERS,
             "of another amount of work: no noise of sums over a run"),
            same="a run like the baseline",
        )  # fmt: skip


def _listed(numbers: list[int]) -> str:
    few = ", ".join(map(str, numbers[:8]))
    return f"{len(numbers)}: {few}{', ...' if len(numbers) > 8 else ''}"


def _kernels(runs: Runs) -> Row:
    """Check whether there are kernels, and whether they are of as much work."""
    launches_n = [run.launches_n for run in runs.compared]
    ratio = work_ratio(*runs.compared) if runs.steps is None and all(launches_n) else None
    share = "" if ratio is None else format_percent(100 * abs(ratio - 1))
    less = "less" if ratio is not None and ratio < 1 else "more"
    apart = apart_pct(*launches_n) > SAME_WORK_PCT
    return _row(
        KERNELS,
        [f"{format_count(n)} launches" for n in launches_n],
        (not all(launches_n), ALL, "an empty run passes no gate"),
        (ratio is not None, TOTALS,
         f"nearly all kernels launched {share} {less} often, in proportion"),
        (apart, DIFFERS, "more or less was done: look at count effects"),
        same="about as many launches",
    )  # fmt: skip


def _steps(runs: Runs) -> Row:
    """Check whether the same steps are counted, and as many."""
    shown = [
        run.step_note if run.steps_n is None else f"{_per_rank(run)} x {run.step}"
        for run in runs.compared
    ]
    if runs.steps is None:
        counted_once = any(run.steps_n is not None for run in runs.compared)
        other = (counted_once, DIFFERS, "not the same steps: there is no time per step")
        return _row(STEPS, shown, other, same="not counted: no sum is divided by steps")
    other_n = runs.steps[0] != runs.steps[1]
    few = "; one that the window cuts weighs much" if min(runs.steps) < _FEW_STEPS else ""
    tokens = f"another number of steps for as many tokens: compare sums{few}"
    of_a_rank = " of a rank" if other_n else ""
    return _row(
        STEPS,
        shown,
        (other_n and same_tokens(*runs.compared), DIFFERS, tokens),
        (
            other_n and shown[0] != shown[1],
            TOTALS,
            f"another number of steps: compare per step{few}",
        ),
        same=f"as many steps{of_a_rank}{few}",
    )


def _per_rank(run: Run) -> str:
    """Return how many steps a rank did: no sum over ranks."""
    counts = [sums.steps.steps_n or 0 for _, sums in run.ranks]
    least, most = min(counts), max(counts)
    return str(most) if least == most else f"{least} to {most}"


def _outside(runs: Runs) -> Row:
    """Check whether times per step hold work outside of the steps that other steps share."""
    both, check = runs.compared, "GPU time outside of steps"
    shown = [None if run.outside_pct is None else format_percent(run.outside_pct) for run in both]
    known = [run.outside_ns for run in both if run.outside_ns is not None]
    if runs.steps is None or len(known) < len(both) or not both[0].gpu_ns:
        return _row(check, shown, same="no steps by range to be outside of")
    before, after = (ns / n for ns, n in zip(known, runs.steps, strict=True))
    moved_pct = 100 * abs(after - before) * runs.steps[0] / both[0].gpu_ns
    much = runs.steps[0] != runs.steps[1] and moved_pct >= _OUTSIDE_PCT
    meaning = (
        f"shared among other numbers of steps it moves a step by {format_percent(moved_pct)}: "
        "leave it out with --steps 0:"
    )
    return _row(check, shown, (much, STEP_TIMES, meaning), same="it moves times per step by little")


def _window(runs: Runs) -> Row:
    """Check whether windows are as long, or hold as much."""
    both = runs.compared
    lengths = [run.window_ns // max(len(run.devices), 1) for run in both]
    other = apart_pct(*lengths) > SAME_WORK_PCT
    as_many = runs.steps is not None and runs.steps[0] == runs.steps[1]
    return _row(
        WINDOW,
        [f"{format_ns(length)} a device" for length in lengths],
        (other and as_many, DIFFERS, "as many steps took another time"),
        (other and same_tokens(*both), DIFFERS, "as many tokens took another time"),
        (other and not other_window(*both), DIFFERS, "as many launches took another time"),
        (other, TOTALS, "another length, and other work in it"),
        same="about as long",
    )
