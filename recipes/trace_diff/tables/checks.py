"""The table comparability: what must be alike for two runs to be compared, and what follows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from nsys_llm.profile.capture import CaptureFacts
from nsys_llm.report.run import absent_ranks
from nsys_llm.taxonomy.idle_causes import PROFILER_OVERHEAD
from nsys_llm.view.text import counted, format_count, format_ns, format_percent, listed

from .runs import Runs, RunSums
from .same_work import (
    COMMON_PCT,
    SAME_WORK_PCT,
    apart_pct,
    common_names_pct,
    other_window,
    other_work,
    same_tokens,
    work_ratio,
)

ALIKE: Final = "same"
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

#: Checks that are looked up: of ranks, of what steps do, and of kernels' names.
RANKS: Final = "ranks"
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
    ("exported by nsys", lambda facts: facts.nsys_version, DIFFERS,
     "another profiler may cost another overhead"),
    ("export schema", lambda facts: facts.schema_version, DIFFERS, "read alike all the same"),
    ("traced", lambda facts: ", ".join(facts.traced), DIFFERS,
     "what else is traced slows the host, and may look like a change"),
)  # fmt: skip

#: A row of the table.
Check = dict[str, str | None]


def check_row(
    check: str, sides: Sequence[str | None], *cases: tuple[bool, str, str], same: str
) -> Check:
    """Return a check: the first case that holds, else that all is the same.

    A case is whether it holds, the status then, and its meaning.
    """
    status, meaning = next((case[1:] for case in cases if case[0]), (ALIKE, same))
    before, after = sides
    return {"check": check, "baseline": before, "input": after, "status": status,
            "meaning": meaning}  # fmt: skip


def run_checks(runs: Runs, options: Mapping[str, Any]) -> list[Check]:
    """Return the checks of all that runs are, but for the work of a step.

    The options world_size and ranks tell which ranks should be there.
    """
    return [*_ranks(runs, options), *_captures(runs), *_amounts(runs), *_repeats(runs)]


def _ranks(runs: Runs, options: Mapping[str, Any]) -> Iterator[Check]:
    """Check whether runs are whole, have kernels of as much work, and the same ranks."""
    shown = []
    for run in runs.compared:
        failed_n = sum(rank.facts is None for rank in run.others)
        absent_n = len(absent_ranks([*(rank for rank, _ in run.ranks), *run.others], options))
        shown.append(f"{failed_n} failed, {absent_n} absent" if failed_n or absent_n else "all")
    whole = (set(shown) != {"all"}, ALL, "a run that is not whole passes no gate")
    yield check_row("reports read", shown, whole, same="every report could be read")

    launches_n = [run.launches_n for run in runs.compared]
    ratio = work_ratio(*runs.compared) if runs.steps is None and all(launches_n) else None
    more = (ratio or 1.0) - 1
    share = f"{format_percent(100 * abs(more))} {'less' if more < 0 else 'more'} often"
    yield check_row(
        "kernels",
        [f"{format_count(n)} launches" for n in launches_n],
        (not all(launches_n), ALL, "an empty run passes no gate"),
        (ratio is not None, TOTALS, f"nearly all kernels launched {share}, in proportion"),
        (apart_pct(*launches_n) > SAME_WORK_PCT, DIFFERS,
         "more or less was done: look at count effects"),
        same="about as many launches",
    )  # fmt: skip

    numbers = [[rank.number for rank, _ in run.ranks] for run in runs.compared]
    rules = [sorted({str(rank.source) for rank, _ in run.ranks}) for run in runs.compared]
    shown = [_listed(some) for some in numbers]
    as_many, other_rules = len(numbers[0]) == len(numbers[1]), rules[0] != rules[1]
    if as_many and other_rules:
        shown = [f"{text}, by {', '.join(rule)}" for text, rule in zip(shown, rules, strict=True)]
    missing = _missing_ranks(runs) or "compared over all ranks"
    yield check_row(
        RANKS,
        shown,
        (not as_many, TOTALS, f"{missing}; sums are over all of a run"),
        (other_rules, DIFFERS, "numbered by other rules: what is by rank may be off"),
        (numbers[0] != numbers[1], DIFFERS,
         "as many, but with other numbers: by rank only common ones"),
        same="paired by number",
    )  # fmt: skip


def _listed(numbers: Sequence[int | None]) -> str:
    few = ", ".join("-1" if number is None else str(number) for number in numbers[:8])
    return f"{len(numbers)}: {few}{', ...' if len(numbers) > 8 else ''}"


def _missing_ranks(runs: Runs) -> str | None:
    """Say which ranks one of the runs lacks: `4 -> 3 ranks: rank 2 is missing in the input`."""
    before, after = ({rank.number for rank, _ in run.ranks} for run in runs.compared)
    parts = []
    for side, gone in (("input", before - after), ("baseline", after - before)):
        numbers = [str(number) for number in sorted(n for n in gone if n is not None)]
        if numbers:
            ranks, are = ("rank", "is") if len(numbers) == 1 else ("ranks", "are")
            parts.append(f"{ranks} {listed(numbers)} {are} missing in the {side}")
    if not parts:
        return None
    counts = f"{len(before)} -> {counted(len(after), 'rank')}"
    return f"{counts}: {', '.join(parts)}; {len(runs.common)} compared"


def _captures(runs: Runs) -> Iterator[Check]:
    """Check whether both were recorded alike, on the same GPUs."""
    gpu, *facts = (_fact(runs, *fact) for fact in _FACTS)
    yield gpu

    nodes_n = [sum(sums.graph_nodes_n for _, sums in run.ranks) for run in runs.compared]
    whole_n = [run.whole_graphs_n for run in runs.compared]
    yield check_row(
        "CUDA graphs",
        [
            f"{format_count(nodes)} operations node by node, {format_count(whole)} whole graphs"
            for nodes, whole in zip(nodes_n, whole_n, strict=True)
        ],
        (bool(whole_n[0]) != bool(whole_n[1]), ALL, "kernels in graphs are seen in one run only"),
        (any(whole_n), DIFFERS, "kernels in graphs are not seen: no gate on kernels"),
        (bool(nodes_n[0]) != bool(nodes_n[1]), DIFFERS,
         "one run alone uses CUDA graphs: a change of its own"),
        same="alike",
    )  # fmt: skip

    missing = [sum(sums.opaque_launches_n for _, sums in run.ranks) for run in runs.compared]
    yield check_row(
        "GPU work not in the report",
        [f"{format_count(n)} graph launches" for n in missing],
        (any(missing), ALL, "GPU work is missing; record with --cuda-graph-trace=node"),
        same="all launched work is there",
    )
    yield from facts

    wholes = [run.whole for run in runs.compared]
    shares = [
        100.0 * int(item.idle_ns[PROFILER_OVERHEAD]) / item.window_ns
        if item.idle_ns is not None and item.window_ns
        else None
        for item in wholes
    ]
    known = sorted(share for share in shares if share is not None)
    apart = known[1] - known[0] if len(known) == 2 else 0.0
    many_times = bool(apart) and known[1] >= _OVERHEAD_RATIO * known[0]
    yield check_row(
        "time the profiler took",
        [None if share is None else format_percent(share) for share in shares],
        (apart >= (_OVERHEAD_RATIO_POINTS if many_times else _OVERHEAD_POINTS), DIFFERS,
         "it stretches windows and waits for late ranks, not kernels"),
        same="about alike, and no idle time",
    )  # fmt: skip


def _fact(
    runs: Runs, check: str, of: Callable[[CaptureFacts], str | None], status: str, meaning: str
) -> Check:
    shown = []
    for run in runs.compared:
        values = {of(rank.facts) or "" for rank, _ in run.ranks if rank.facts is not None} - {""}
        shown.append("; ".join(sorted(values)) or None)
    unknown = None in shown, UNKNOWN, "not recorded in both runs, so not compared"
    return check_row(check, shown, unknown, (shown[0] != shown[1], status, meaning), same="alike")


def _amounts(runs: Runs) -> Iterator[Check]:
    """Check whether the same steps are counted, as many of them, in windows that are as long."""
    both, few = runs.compared, ""
    if runs.steps is not None and min(runs.steps) < _FEW_STEPS:
        few = "; one that the window cuts weighs much"
    as_many = runs.steps is not None and runs.steps[0] == runs.steps[1]
    other_n = runs.steps is not None and not as_many
    is_counted = any(run.steps_n is not None for run in both)
    shown = [
        run.step_note if run.steps_n is None else f"{_per_rank(run)} x {run.step}" for run in both
    ]
    same = f"as many steps{' of a rank' if other_n else ''}{few}"
    yield check_row(
        "steps",
        shown,
        (runs.steps is None and is_counted, DIFFERS,
         "not the same steps: there is no time per step"),
        (other_n and same_tokens(*both), DIFFERS,
         f"another number of steps for as many tokens: compare sums{few}"),
        (other_n and shown[0] != shown[1], TOTALS,
         f"another number of steps: compare per step{few}"),
        same=same if runs.steps is not None else "not counted: no sum is divided by steps",
    )  # fmt: skip
    yield _outside(runs)

    lengths = [run.device_window_ns for run in both]
    other = apart_pct(*lengths) > SAME_WORK_PCT
    yield check_row(
        "window",
        [f"{format_ns(length)} a device" for length in lengths],
        (other and as_many, DIFFERS, "as many steps took another time"),
        (other and same_tokens(*both), DIFFERS, "as many tokens took another time"),
        (other and not other_window(*both), DIFFERS, "as many launches took another time"),
        (other, TOTALS, "another length, and other work in it"),
        same="about as long",
    )
    shares = common_names_pct(runs)
    yield check_row(
        NAMES,
        [f"{format_percent(share)} of its kernel time" for share in shares],
        (min(shares) < COMMON_PCT, DIFFERS, "mostly other kernels: other code"),
        same="largely the same kernels",
    )


def _per_rank(run: RunSums) -> str:
    """Return how many steps a rank did: no sum over ranks."""
    counts = [sums.steps.steps_n or 0 for _, sums in run.ranks]
    least, most = min(counts), max(counts)
    return str(most) if least == most else f"{least} to {most}"


def _outside(runs: Runs) -> Check:
    """Check whether times per step hold work outside of the steps that other steps share."""
    both, check = runs.compared, "GPU time outside of steps"
    shown = [
        format_percent(100.0 * run.outside_ns / run.gpu_ns)
        if run.outside_ns is not None and run.gpu_ns
        else None
        for run in both
    ]
    known = [run.outside_ns for run in both if run.outside_ns is not None]
    if runs.steps is None or len(known) < len(both) or not both[0].gpu_ns:
        return check_row(check, shown, same="no steps by range to be outside of")
    before, after = (ns / n for ns, n in zip(known, runs.steps, strict=True))
    moved_pct = 100 * abs(after - before) * runs.steps[0] / both[0].gpu_ns
    much = runs.steps[0] != runs.steps[1] and moved_pct >= _OUTSIDE_PCT
    meaning = (
        f"shared among other numbers of steps it moves a step by {format_percent(moved_pct)}: "
        "leave it out with --steps 0:"
    )
    case = much, STEP_TIMES, meaning
    return check_row(check, shown, case, same="it moves times per step by little")


def _repeats(runs: Runs) -> Iterator[Check]:
    for run in runs.repeats:
        noisy = run in runs.noise
        yield check_row(
            f"{run.side}, for noise",
            [counted(len(item.ranks), "rank") for item in (runs.baseline, run)],
            (not noisy, DIFFERS, "empty, incomplete, of other ranks or GPUs: left out"),
            (noisy and other_work(runs.baseline, run), DIFFERS,
             "of another amount of work: no noise of sums over a run"),
            same="a run like the baseline",
        )  # fmt: skip
