"""What must be alike for two runs to be compared, and what is not comparable where it differs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from nsys_llm.profile.capture import CaptureFacts
from nsys_llm.report.columns import Columns
from nsys_llm.report.run import absent_ranks
from nsys_llm.taxonomy.idle_causes import PROFILER_OVERHEAD
from nsys_llm.view.text import counted, format_count, format_percent

from .checks import ALL, DIFFERS, NAMES, SAME, TOTALS, UNKNOWN, Row, check_row
from .runs import Run, Runs
from .step_work import work_rows
from .work_checks import kernels_row, outside_row, steps_row, window_row
from .workload_match import COMMON_PCT, other_work

#: Percentage points of the windows by which the profiler's time may differ; ours.
_OVERHEAD_POINTS: Final = 1.0
#: Likewise where one share is so many times the other: what waits is as long, so less tells.
_OVERHEAD_RATIO: Final = 2.0
_OVERHEAD_RATIO_POINTS: Final = 0.1


def comparability_columns(runs: Runs, options: Mapping[str, Any]) -> Columns:
    """Return the table comparability.

    Args:
        runs: All runs.
        options: world_size and ranks tell which ranks should be there.
    """
    rows = [
        _reports(runs, options),
        kernels_row(runs),
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
        steps_row(runs),
        *work_rows(runs),
        outside_row(runs),
        window_row(runs),
        _names(runs),
        *_repeats(runs),
    ]
    return {
        name: [row[name] for row in rows]
        for name in ("check", "baseline", "input", "status", "meaning")
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
        return check_row("reports read", shown, ALL, "a run that is not whole passes no gate")
    return check_row("reports read", shown, SAME, "every report could be read")


def _ranks(runs: Runs) -> Row:
    sides = [[rank.number for rank, _ in run.ranks] for run in (runs.baseline, runs.input)]
    shown = [_listed([-1 if n is None else n for n in numbers]) for numbers in sides]
    if len(sides[0]) != len(sides[1]):
        return check_row(
            "ranks", shown, TOTALS, "compared over all ranks; by rank only those in both runs"
        )
    rules = [{rank.source for rank, _ in run.ranks} for run in (runs.baseline, runs.input)]
    if rules[0] != rules[1]:
        reported = [
            f"{numbers}, by {', '.join(sorted(str(item) for item in rule))}"
            for numbers, rule in zip(shown, rules, strict=True)
        ]
        return check_row(
            "ranks", reported, DIFFERS, "numbered by other rules: what is by rank may be off"
        )
    if sides[0] != sides[1]:
        return check_row(
            "ranks", shown, DIFFERS, "as many, but with other numbers: by rank only common ones"
        )
    return check_row("ranks", shown, SAME, "paired by number")


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
