"""What must be alike for two runs to be compared, and what is not comparable where it differs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from nsys_llm.capture import CaptureFacts
from nsys_llm.columns import Columns
from nsys_llm.idle_causes import PROFILER_OVERHEAD
from nsys_llm.recipes.trace_diff.runs import Run, Runs
from nsys_llm.run_record import absent_ranks
from nsys_llm.view.text import counted, format_count, format_ns, format_percent

__all__ = ["ALL", "DIFFERS", "SAME", "STEPS", "TOTALS", "UNKNOWN", "comparability_columns"]

SAME: Final = "same"
#: Not recorded, so that nobody knows.
UNKNOWN: Final = "unknown"
DIFFERS: Final = "differs"
#: Sums over a run mean nothing against those of the other; what is per step or a share does.
TOTALS: Final = "totals"
ALL: Final = "all"

#: The check of steps.
STEPS: Final = "steps"

#: Windows, and numbers of launches, that differ by more are not those of the same work; ours.
_SAME_WORK_PCT: Final = 5.0
#: Share of the kernel time in names that both sides have, below which a word is due; nsys-ai asks
#: for a comparability of one half.
_COMMON_PCT: Final = 50.0
#: Percentage points of the windows by which the profiler's time may differ; ours.
_OVERHEAD_POINTS: Final = 1.0
#: Steps below which one that a window cuts weighs more than ordinary limits of gates; ours.
_FEW_STEPS: Final = 20

Row = dict[str, str | None]


def comparability_columns(runs: Runs, options: Mapping[str, Any]) -> Columns:
    """Return the table comparability.

    Args:
        runs: All runs.
        options: world_size and ranks tell which ranks should be there.
    """
    rows = [
        _reports(runs, options),
        _gpu_work(runs),
        _ranks(runs),
        _fact(runs, "GPU", lambda one: ", ".join(sorted(set(one.gpus))), ALL, "other hardware"),
        _graphs(runs),
        _work_unseen(runs),
        _fact(runs, "driver", lambda one: one.driver_version, DIFFERS, "it may be the cause"),
        _fact(runs, "CUDA of the driver", lambda one: one.cuda_version, DIFFERS, "likewise"),
        _fact(
            runs,
            "exported by nsys",
            lambda one: one.nsys_version,
            DIFFERS,
            "another profiler may cost another overhead",
        ),
        _fact(
            runs,
            "export schema",
            lambda one: one.schema_version,
            DIFFERS,
            "read alike all the same",
        ),
        _fact(
            runs,
            "traced",
            lambda one: ", ".join(one.traced),
            DIFFERS,
            "what else is traced slows the host, and may look like a change",
        ),
        _overhead(runs),
        _steps(runs),
        _windows(runs),
        _names(runs),
        *_repeats(runs),
    ]
    return {
        name: [row[name] for row in rows]
        for name in ("check", "baseline", "input", "status", "meaning")
    }


def _row(check: str, sides: Sequence[str | None], status: str, meaning: str) -> Row:
    before, after = sides
    return {
        "check": check,
        "baseline": before,
        "input": after,
        "status": status,
        "meaning": meaning,
    }


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
        return _row("reports read", shown, ALL, "a run that is not whole passes no gate")
    return _row("reports read", shown, SAME, "every report could be read")


def _gpu_work(runs: Runs) -> Row:
    found = [run.launches_n for run in (runs.baseline, runs.input)]
    shown = [f"{format_count(n)} launches" for n in found]
    if not all(found):
        return _row("kernels", shown, ALL, "an empty run passes no gate")
    if _apart_pct(*found) > _SAME_WORK_PCT:
        return _row("kernels", shown, DIFFERS, "more or less was done: look at count effects")
    return _row("kernels", shown, SAME, "about as many launches")


def _ranks(runs: Runs) -> Row:
    sides = [[rank.number for rank, _ in run.ranks] for run in (runs.baseline, runs.input)]
    shown = [_listed([-1 if n is None else n for n in numbers]) for numbers in sides]
    if len(sides[0]) != len(sides[1]):
        return _row(
            "ranks", shown, TOTALS, "compared over all ranks; by rank only those on both sides"
        )
    rules = [{rank.source for rank, _ in run.ranks} for run in (runs.baseline, runs.input)]
    if rules[0] != rules[1]:
        told = [
            f"{numbers}, by {', '.join(sorted(str(one) for one in rule))}"
            for numbers, rule in zip(shown, rules, strict=True)
        ]
        return _row("ranks", told, DIFFERS, "numbered by other rules: what is by rank may be off")
    if sides[0] != sides[1]:
        return _row(
            "ranks", shown, DIFFERS, "as many, but with other numbers: by rank only common ones"
        )
    return _row("ranks", shown, SAME, "paired by number")


def _fact(
    runs: Runs,
    check: str,
    of: Callable[[CaptureFacts], str | None],
    status: str,
    meaning: str,
) -> Row:
    found = [_values(run, of) for run in (runs.baseline, runs.input)]
    if None in found:
        return _row(check, found, UNKNOWN, "not recorded on both sides, so not compared")
    same = found[0] == found[1]
    return _row(check, found, SAME if same else status, "alike" if same else meaning)


def _graphs(runs: Runs) -> Row:
    both = (runs.baseline, runs.input)
    nodes_n = [sum(sums.graph_nodes_n for _, sums in run.ranks) for run in both]
    whole_n = [sum(sums.whole_graphs_n for _, sums in run.ranks) for run in both]
    shown = [
        f"{format_count(nodes)} operations node by node, {format_count(whole)} whole graphs"
        for nodes, whole in zip(nodes_n, whole_n, strict=True)
    ]
    check = "CUDA graphs"
    if bool(whole_n[0]) != bool(whole_n[1]):
        return _row(check, shown, ALL, "kernels in graphs are seen on one side only")
    if any(whole_n):
        return _row(check, shown, DIFFERS, "kernels in graphs are not seen on either side")
    if bool(nodes_n[0]) != bool(nodes_n[1]):
        return _row(check, shown, DIFFERS, "one side alone runs CUDA graphs: a change of its own")
    return _row(check, shown, SAME, "alike")


def _work_unseen(runs: Runs) -> Row:
    unseen = [
        sum(sums.opaque_launches_n for _, sums in run.ranks) for run in (runs.baseline, runs.input)
    ]
    check, shown = (
        "GPU work not in the report",
        [f"{format_count(n)} graph launches" for n in unseen],
    )
    if not any(unseen):
        return _row(check, shown, SAME, "all launched work is there")
    return _row(check, shown, ALL, "GPU work is missing; record with --cuda-graph-trace=node")


def _overhead(runs: Runs) -> Row:
    shares = [_overhead_pct(run) for run in (runs.baseline, runs.input)]
    known = [share for share in shares if share is not None]
    shown = [None if share is None else format_percent(share) for share in shares]
    check = "time the profiler took"
    if len(known) < 2 or abs(known[0] - known[1]) < _OVERHEAD_POINTS:
        return _row(check, shown, SAME, "about alike, and no idle time")
    return _row(check, shown, DIFFERS, "it stretches windows, not kernels")


def _overhead_pct(run: Run) -> float | None:
    window_ns, idle_ns = run.total(lambda one: one.window_ns), run.idle_ns
    if idle_ns is None or not window_ns:
        return None
    return 100.0 * int(idle_ns[PROFILER_OVERHEAD]) / window_ns


def _steps(runs: Runs) -> Row:
    both = (runs.baseline, runs.input)
    shown = [
        run.step_note if run.steps_n is None else f"{run.steps_n} x {run.step}" for run in both
    ]
    if runs.steps is None:
        if all(run.steps_n is None for run in both):
            return _row(STEPS, shown, SAME, "not counted: there is no time per step")
        return _row(STEPS, shown, DIFFERS, "not the same steps: there is no time per step")
    before, after = runs.steps
    few = "; one that the window cuts weighs much" if min(runs.steps) < _FEW_STEPS else ""
    if before != after:
        return _row(STEPS, shown, TOTALS, f"another number of steps: compare per step{few}")
    return _row(STEPS, shown, SAME, f"as many steps{few}")


def _windows(runs: Runs) -> Row:
    lengths = []
    for run in (runs.baseline, runs.input):
        total_ns = run.total(lambda one: one.window_ns)
        lengths.append(total_ns // len(run.devices) if run.devices else 0)
    shown = [f"{format_ns(length)} a device" for length in lengths]
    if _apart_pct(*lengths) <= _SAME_WORK_PCT:
        return _row("window", shown, SAME, "about as long")
    if runs.steps is not None and runs.steps[0] == runs.steps[1]:
        return _row("window", shown, DIFFERS, "as many steps took another time")
    if _apart_pct(runs.baseline.launches_n, runs.input.launches_n) <= _SAME_WORK_PCT:
        return _row("window", shown, DIFFERS, "as many launches took another time")
    return _row("window", shown, TOTALS, "another length, and other work in it")


def _names(runs: Runs) -> Row:
    both = (runs.baseline, runs.input)
    names = [sorted({key[0] for key in run.part.keys}) for run in both]
    common = set(names[0]) & set(names[1])
    shares = []
    for run, own in zip(both, names, strict=True):
        times = run.kernels(own).total_ns.tolist()
        shared_ns = sum(ns for name, ns in zip(own, times, strict=True) if name in common)
        shares.append(100.0 * shared_ns / run.kernel_ns if run.kernel_ns else 0.0)
    shown = [f"{format_percent(share)} of its kernel time" for share in shares]
    if min(shares) < _COMMON_PCT:
        return _row("kernel names in common", shown, DIFFERS, "mostly other kernels: other code")
    return _row("kernel names in common", shown, SAME, "largely the same kernels")


def _repeats(runs: Runs) -> Iterable[Row]:
    for run in runs.repeats:
        counts = [counted(len(one.ranks), "rank") for one in (runs.baseline, run)]
        check = f"{run.side}, for noise"
        if run not in runs.noise:
            yield _row(check, counts, DIFFERS, "empty, incomplete or of other ranks: left out")
        elif _gpus(run) != _gpus(runs.baseline):
            yield _row(check, counts, DIFFERS, "on another GPU: noise says little")
        else:
            yield _row(check, counts, SAME, "a run like the baseline")


def _gpus(run: Run) -> str | None:
    return _values(run, lambda one: ", ".join(sorted(set(one.gpus))))


def _values(run: Run, of: Callable[[CaptureFacts], str | None]) -> str | None:
    """Return the distinct values that the reports of a run have; None if none says anything."""
    found = {of(rank.facts) or "" for rank, _ in run.ranks if rank.facts is not None} - {""}
    return "; ".join(sorted(found)) or None


def _apart_pct(before: int, after: int) -> float:
    return 100.0 * abs(after - before) / max(before, after, 1)


def _listed(numbers: list[int]) -> str:
    few = ", ".join(map(str, numbers[:8]))
    return f"{len(numbers)}: {few}{', ...' if len(numbers) > 8 else ''}"
