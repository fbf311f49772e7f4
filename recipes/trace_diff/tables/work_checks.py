"""Checks of comparability on how much work the runs did."""

from __future__ import annotations

from typing import Final

from nsys_llm.view.text import format_count, format_ns, format_percent

from .checks import ALL, DIFFERS, KERNELS, SAME, STEP_TIMES, STEPS, TOTALS, WINDOW, Row, check_row
from .runs import Run, Runs
from .workload_match import SAME_WORK_PCT, apart_pct, other_window, same_tokens, work_ratio

#: Steps below which one that a window cuts weighs more than ordinary limits of gates; ours.
_FEW_STEPS: Final = 20
#: Percent of a step by which work outside of the steps may move it; below ordinary limits of
#: gates; ours.
_OUTSIDE_PCT: Final = 1.0


def kernels_row(runs: Runs) -> Row:
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


def steps_row(runs: Runs) -> Row:
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


def outside_row(runs: Runs) -> Row:
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


def window_row(runs: Runs) -> Row:
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
