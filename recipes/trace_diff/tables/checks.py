"""The table comparability: what must be alike for two runs to be compared, and what follows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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

Row = dict[str, str | None]


def check_row(check: str, sides: Sequence[str | None], status: str, meaning: str) -> Row:
    """Return a row of the table comparability."""
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
    return [
        _reports(runs, options),
        _kernels(runs),
        _ranks(runs),
        _fact(runs, "GPU", lambda facts: ", ".join(sorted(set(facts.gpus))), ALL, "other hardware"),
        _graphs(runs),
        _missing_work(runs),
        _fact(runs, "driver", lambda facts: facts.driver_version, DIFFERS, "it may be the cause"),
        _fact(runs, "CUDA of the driver", lambda facts: facts.cuda_version, DIFFERS, "likewise"),
        _fact(
            runs,
            "exported by nsys",
            lambda facts: facts.nsys_version,
            DIFFERS,
            "another profiler may cost another overhead",
        ),
        _fact(
            runs,
            "export schema",
            lambda facts: facts.schema_version,
            DIFFERS,
            "read alike all the same",
        ),
        _fact(
            runs,
            "traced",
            lambda facts: ", ".join(facts.traced),
            DIFFERS,
            "what else is traced slows the host, and may look like a change",
        ),
        _overhead(runs),
        _steps(runs),
        _outside(runs),
        _window(runs),
        _names(runs),
        *_repeats(runs),
    ]


def work_rows(runs: Runs, comparison: Comparison) -> Iterable[Row]:
    """Yield the checks of what a step does, and of what all steps do where that differs too."""
    if comparison.kind != STEP and comparison.word != OTHER_WORK:
        yield check_row(WORK, [None, None], SAME, "no steps of equal work are known")
    elif comparison.work is None:
        yield check_row(WORK, [None, None], SAME, "about as much in a step")
    else:
        meaning = f"a step does another amount of work: {comparison.work}"
        yield check_row(WORK, [None, None], STEP_TIMES, meaning)
        if runs.steps is not None and runs.steps[0] == runs.steps[1]:
            meaning = "as many steps with another amount of work each"
            yield check_row(WORK_OF_ALL, [None, None], TOTALS, meaning)


def _reports(runs: Runs, options: Mapping[str, Any]) -> Row:
    counts = []
    for run in (runs.baseline, runs.input):
        failed_n = sum(rank.facts is None for rank in run.others)
        everyone = [*(rank for rank, _ in run.ranks), *run.others]
        absent_n = len(absent_ranks(everyone, options))
        counts.append((failed_n, absent_n))
    shown = [
        f"{failed} failed, {absent} absent" if failed or absent else "all"
        for failed, absent in counts
    ]
    if any(failed or absent for failed, absent in counts):
        return check_row("reports read", shown, ALL, "a run that is not whole passes no gate")
    return check_row("reports read", shown, SAME, "every report could be read")


def _ranks(runs: Runs) -> Row:
    sides = [[rank.number for rank, _ in run.ranks] for run in (runs.baseline, runs.input)]
    shown = [_listed([-1 if n is None else n for n in numbers]) for numbers in sides]
    if len(sides[0]) != len(sides[1]):
        meaning = missing_words(runs) or "compared over all ranks"
        return check_row(RANKS, shown, TOTALS, f"{meaning}; sums are over all of a run")
    rules = [{rank.source for rank, _ in run.ranks} for run in (runs.baseline, runs.input)]
    if rules[0] != rules[1]:
        reported = [
            f"{numbers}, by {', '.join(sorted(str(item) for item in rule))}"
            for numbers, rule in zip(shown, rules, strict=True)
        ]
        return check_row(
            RANKS, reported, DIFFERS, "numbered by other rules: what is by rank may be off"
        )
    if sides[0] != sides[1]:
        return check_row(
            RANKS, shown, DIFFERS, "as many, but with other numbers: by rank only common ones"
        )
    return check_row(RANKS, shown, SAME, "paired by number")


def _fact(
    runs: Runs,
    check: str,
    of: Callable[[CaptureFacts], str | None],
    status: str,
    meaning: str,
) -> Row:
    shown = [_values(run, of) for run in (runs.baseline, runs.input)]
    if None in shown:
        return check_row(check, shown, UNKNOWN, "not recorded in both runs, so not compared")
    same = shown[0] == shown[1]
    return check_row(check, shown, SAME if same else status, "alike" if same else meaning)


def _graphs(runs: Runs) -> Row:
    both = (runs.baseline, runs.input)
    nodes_n = [sum(sums.graph_nodes_n for _, sums in run.ranks) for run in both]
    whole_n = [run.whole_graphs_n for run in both]
    shown = [
        f"{format_count(nodes)} operations node by node, {format_count(whole)} whole graphs"
        for nodes, whole in zip(nodes_n, whole_n, strict=True)
    ]
    check = "CUDA graphs"
    if bool(whole_n[0]) != bool(whole_n[1]):
        return check_row(check, shown, ALL, "kernels in graphs are seen in one run only")
    if any(whole_n):
        return check_row(
            check, shown, DIFFERS, "kernels in graphs are not seen: no gate on kernels"
        )
    if bool(nodes_n[0]) != bool(nodes_n[1]):
        return check_row(
            check, shown, DIFFERS, "one run alone uses CUDA graphs: a change of its own"
        )
    return check_row(check, shown, SAME, "alike")


def _missing_work(runs: Runs) -> Row:
    missing = [
        sum(sums.opaque_launches_n for _, sums in run.ranks) for run in (runs.baseline, runs.input)
    ]
    check, shown = (
        "GPU work not in the report",
        [f"{format_count(n)} graph launches" for n in missing],
    )
    if not any(missing):
        return check_row(check, shown, SAME, "all launched work is there")
    return check_row(check, shown, ALL, "GPU work is missing; record with --cuda-graph-trace=node")


def _overhead(runs: Runs) -> Row:
    shares = [_overhead_pct(run) for run in (runs.baseline, runs.input)]
    known = [share for share in shares if share is not None]
    shown = [None if share is None else format_percent(share) for share in shares]
    check = "time the profiler took"
    if len(known) < 2 or not _other_overhead(*sorted(known)):
        return check_row(check, shown, SAME, "about alike, and no idle time")
    return check_row(
        check, shown, DIFFERS, "it stretches windows and waits for late ranks, not kernels"
    )


def _other_overhead(less_pct: float, more_pct: float) -> bool:
    apart = more_pct - less_pct
    many_times = more_pct >= _OVERHEAD_RATIO * less_pct and apart >= _OVERHEAD_RATIO_POINTS
    return many_times or apart >= _OVERHEAD_POINTS


def _overhead_pct(run: Run) -> float | None:
    window_ns, idle_ns = run.window_ns, run.idle_ns
    if idle_ns is None or not window_ns:
        return None
    return 100.0 * int(idle_ns[PROFILER_OVERHEAD]) / window_ns


def _names(runs: Runs) -> Row:
    both = (runs.baseline, runs.input)
    names = [sorted({key[0] for key in run.part.keys}) for run in both]
    common = set(names[0]) & set(names[1])
    shares = []
    for run, run_names in zip(both, names, strict=True):
        times = run.kernels(run_names).total_ns.tolist()
        shared_ns = sum(ns for name, ns in zip(run_names, times, strict=True) if name in common)
        shares.append(100.0 * shared_ns / run.kernel_ns if run.kernel_ns else 0.0)
    shown = [f"{format_percent(share)} of its kernel time" for share in shares]
    if min(shares) < COMMON_PCT:
        return check_row(NAMES, shown, DIFFERS, "mostly other kernels: other code")
    return check_row(NAMES, shown, SAME, "largely the same kernels")


def _repeats(runs: Runs) -> Iterable[Row]:
    for run in runs.repeats:
        counts = [counted(len(item.ranks), "rank") for item in (runs.baseline, run)]
        check = f"{run.side}, for noise"
        if run not in runs.noise:
            yield check_row(
                check, counts, DIFFERS, "empty, incomplete, of other ranks or GPUs: left out"
            )
        elif other_work(runs.baseline, run):
            yield check_row(
                check, counts, DIFFERS, "of another amount of work: no noise of sums over a run"
            )
        else:
            yield check_row(check, counts, SAME, "a run like the baseline")


def _values(run: Run, of: Callable[[CaptureFacts], str | None]) -> str | None:
    """Return the distinct values that the reports of a run have; None if none says anything."""
    values = {of(rank.facts) or "" for rank, _ in run.ranks if rank.facts is not None} - {""}
    return "; ".join(sorted(values)) or None


def _listed(numbers: list[int]) -> str:
    few = ", ".join(map(str, numbers[:8]))
    return f"{len(numbers)}: {few}{', ...' if len(numbers) > 8 else ''}"


def _kernels(runs: Runs) -> Row:
    """Check whether there are kernels, and whether they are of as much work."""
    launches_n = [run.launches_n for run in (runs.baseline, runs.input)]
    shown = [f"{format_count(n)} launches" for n in launches_n]
    if not all(launches_n):
        return check_row(KERNELS, shown, ALL, "an empty run passes no gate")
    ratio = work_ratio(runs.baseline, runs.input) if runs.steps is None else None
    if ratio is not None:
        less = "less" if ratio < 1 else "more"
        share = format_percent(100 * abs(ratio - 1))
        meaning = f"nearly all kernels launched {share} {less} often, in proportion"
        return check_row(KERNELS, shown, TOTALS, meaning)
    if apart_pct(*launches_n) > SAME_WORK_PCT:
        return check_row(KERNELS, shown, DIFFERS, "more or less was done: look at count effects")
    return check_row(KERNELS, shown, SAME, "about as many launches")


def _steps(runs: Runs) -> Row:
    """Check whether the same steps are counted, and as many."""
    both = (runs.baseline, runs.input)
    shown = [
        run.step_note if run.steps_n is None else f"{_per_rank(run)} x {run.step}" for run in both
    ]
    if runs.steps is None:
        if all(run.steps_n is None for run in both):
            return check_row(STEPS, shown, SAME, "not counted: no sum is divided by steps")
        return check_row(STEPS, shown, DIFFERS, "not the same steps: there is no time per step")
    before, after = runs.steps
    few = "; one that the window cuts weighs much" if min(runs.steps) < _FEW_STEPS else ""
    if before != after and same_tokens(*both):
        meaning = f"another number of steps for as many tokens: compare sums{few}"
        return check_row(STEPS, shown, DIFFERS, meaning)
    if before != after and shown[0] == shown[1]:
        return check_row(STEPS, shown, SAME, f"as many steps of a rank{few}")
    if before != after:
        return check_row(STEPS, shown, TOTALS, f"another number of steps: compare per step{few}")
    return check_row(STEPS, shown, SAME, f"as many steps{few}")


def _per_rank(run: Run) -> str:
    """Return how many steps a rank did: no sum over ranks."""
    counts = [sums.steps.steps_n or 0 for _, sums in run.ranks]
    least, most = min(counts), max(counts)
    return str(most) if least == most else f"{least} to {most}"


def _outside(runs: Runs) -> Row:
    """Check whether times per step hold work outside of the steps that other steps share."""
    both = (runs.baseline, runs.input)
    shown = [None if run.outside_pct is None else format_percent(run.outside_pct) for run in both]
    check = "GPU time outside of steps"
    known = [run.outside_ns for run in both if run.outside_ns is not None]
    if runs.steps is None or len(known) < len(both) or not both[0].gpu_ns:
        return check_row(check, shown, SAME, "no steps by range to be outside of")
    before, after = (ns / n for ns, n in zip(known, runs.steps, strict=True))
    moved_pct = 100 * abs(after - before) * runs.steps[0] / both[0].gpu_ns
    if runs.steps[0] == runs.steps[1] or moved_pct < _OUTSIDE_PCT:
        return check_row(check, shown, SAME, "it moves times per step by little")
    return check_row(
        check,
        shown,
        STEP_TIMES,
        f"shared among other numbers of steps it moves a step by {format_percent(moved_pct)}: "
        "leave it out with --steps 0:",
    )


def _window(runs: Runs) -> Row:
    """Check whether windows are as long, or hold as much."""
    both = (runs.baseline, runs.input)
    lengths = [run.window_ns // max(len(run.devices), 1) for run in both]
    shown = [f"{format_ns(length)} a device" for length in lengths]
    if apart_pct(*lengths) <= SAME_WORK_PCT:
        return check_row(WINDOW, shown, SAME, "about as long")
    if runs.steps is not None and runs.steps[0] == runs.steps[1]:
        return check_row(WINDOW, shown, DIFFERS, "as many steps took another time")
    if same_tokens(*both):
        return check_row(WINDOW, shown, DIFFERS, "as many tokens took another time")
    if not other_window(*both):
        return check_row(WINDOW, shown, DIFFERS, "as many launches took another time")
    return check_row(WINDOW, shown, TOTALS, "another length, and other work in it")
