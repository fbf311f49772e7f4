"""The table comparability: what must be alike for two runs to be compared, and what follows.

Whether two runs did the same work as a whole is told by their steps, launches and windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from nsys_llm.facts.compared.operations import GEOMETRY_N
from nsys_llm.numeric.by_key import ByKey
from nsys_llm.profile.capture import CaptureFacts
from nsys_llm.report.run import absent_ranks
from nsys_llm.taxonomy.step_names import STEP
from nsys_llm.trace.rank_sets import COMPARED
from nsys_llm.view.text import (
    NOT_KNOWN,
    counted,
    format_count,
    format_ns,
    format_percent,
    quoted,
    ranks_words,
)

from .runs import Runs, RunSums
from .step_splits import RunSteps

#: By side, those that the ranges, replays or periods of a run are.
StepsOfSides = Mapping[str, RunSteps]

ALIKE: Final = "same"
#: Not recorded, so that nobody knows.
UNKNOWN: Final = "unknown"
DIFFERS: Final = "differs"
#: Sums over a run mean nothing against those of the other; what is per step or a share does.
TOTALS: Final = "totals"
ALL: Final = "all"

#: Times per step mean nothing against those of the other.
STEP_TIMES: Final = "per_step"

#: Checks that are looked up: of GPUs, of ranks, of what steps do, and of kernels' names.
GPU: Final = "GPU"
RANKS: Final = "ranks"
WORK: Final = "work of a step"
NAMES: Final = "kernel names in common"

#: Windows, and numbers of launches, that differ by more are not those of the same work; ours.
SAME_WORK_PCT: Final = 5.0
#: Launches are split or merged, not more or fewer, where total grids stay within this; ours.
SAME_GRID_PCT: Final = 1.0
#: Share of each run's kernel time in kernels that both have, below which the runs are of different
#: programs; nsys-ai asks for a comparability of one half.
COMMON_PCT: Final = 50.0
#: Launch counts that change alike: their ratios differ by so little, for so much of the time; ours.
ALIKE_PCT: Final = 5.0
_ALIKE_SHARE_PCT: Final = 70.0
LEAST_CHANGE_PCT: Final = 2.0
_LEAST_LAUNCHES: Final = 8
#: Facts of captures: check, the fact, what follows where it differs, and why.
_FACTS: Final[tuple[tuple[str, Callable[[CaptureFacts], str | None], str, str], ...]] = (
    (GPU, lambda facts: ", ".join(sorted(set(facts.gpus))), ALL, "other hardware"),
    ("driver", lambda facts: facts.driver_version, DIFFERS, "it may be the cause"),
    ("CUDA of the driver", lambda facts: facts.cuda_version, DIFFERS, "likewise"),
    ("exported by nsys", lambda facts: facts.nsys_version, DIFFERS,
     "a different profiler may have a different overhead"),
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


def check_words(check: Mapping[str, Any]) -> str:
    """Return what does not agree: its meaning, and both values."""
    sides = ", then ".join(quoted(check[side] or NOT_KNOWN) for side in COMPARED)
    return f"{check['meaning']} ({sides})"


def run_checks(runs: Runs, steps: StepsOfSides, options: Mapping[str, Any]) -> list[Check]:
    """Return the checks of all that runs are, but for the work of a step."""
    checks = _ranks(runs, steps, options), _captures(runs), _amounts(runs, steps)
    return [*(check for some in checks for check in some), *_repeats(runs, steps)]


def _ranks(runs: Runs, steps: StepsOfSides, options: Mapping[str, Any]) -> Iterator[Check]:
    """Check whether runs are whole, have kernels of as much work, and the same ranks."""
    shown = []
    for run in runs.compared:
        failed_n = sum(rank.facts is None for rank in run.others)
        absent_n = len(absent_ranks([*(rank for rank, _ in run.ranks), *run.others], options))
        shown.append(f"{failed_n} failed, {absent_n} absent" if failed_n or absent_n else "all")
    whole = (set(shown) != {"all"}, ALL, "reports are missing or could not be read")
    yield check_row("reports read", shown, whole, same="every report could be read")

    launches_n = [run.launches_n for run in runs.compared]
    counted_n = [counted_name(steps[run.side]) for run in runs.compared]
    is_same = counted_n[0] is not None and counted_n[0] == counted_n[1]
    ratio = None if is_same or not all(launches_n) else work_ratio(*runs.compared)
    more = (ratio or 1.0) - 1
    share = f"{format_percent(100 * abs(more))} {'less' if more < 0 else 'more'} often"
    empty = "input" if launches_n[0] else "baseline"
    yield check_row(
        "kernels",
        [f"{format_count(n)} launches" for n in launches_n],
        (not all(launches_n), ALL, f"the {empty} has no kernels"),
        (ratio is not None, TOTALS, f"nearly all kernels launched {share}, in proportion"),
        (apart_pct(*launches_n) > SAME_WORK_PCT, DIFFERS,
         "the amount of work differs: look at count effects"),
        same="about as many launches",
    )  # fmt: skip

    numbers = [[rank.number for rank, _ in run.ranks] for run in runs.compared]
    rules = [sorted({str(rank.source) for rank, _ in run.ranks}) for run in runs.compared]
    shown = [_listed(some) for some in numbers]
    as_many, other_rules = len(numbers[0]) == len(numbers[1]), rules[0] != rules[1]
    if as_many and other_rules:
        shown = [f"{text}, by {', '.join(rule)}" for text, rule in zip(shown, rules, strict=True)]
    missing = _missing_ranks(runs)
    yield check_row(
        RANKS,
        shown,
        (all(numbers) and not runs.common, ALL, "no rank is in both runs"),
        (missing is not None, TOTALS, missing or ""),
        (other_rules, DIFFERS, "numbered by different rules: results by rank may be off"),
        same="paired by number",
    )


def _listed(numbers: Sequence[int | None]) -> str:
    few = ", ".join("-1" if number is None else str(number) for number in numbers[:8])
    return f"{len(numbers)}: {few}{', ...' if len(numbers) > 8 else ''}"


def _missing_ranks(runs: Runs) -> str | None:
    """Say which ranks one of the runs lacks: `4 -> 3 ranks: rank 2 is missing in the input`."""
    before, after = ({rank.number for rank, _ in run.ranks} for run in runs.compared)
    parts = []
    for side, gone in (("input", before - after), ("baseline", after - before)):
        numbers = sorted(n for n in gone if n is not None)
        if numbers:
            are = "is" if len(numbers) == 1 else "are"
            parts.append(f"{ranks_words(numbers)} {are} missing in the {side}")
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
        (bool(whole_n[0]) != bool(whole_n[1]), ALL, "only one run shows kernels in graphs"),
        (any(whole_n), DIFFERS, "kernels in graphs are not visible: no gate on kernels"),
        (bool(nodes_n[0]) != bool(nodes_n[1]), DIFFERS,
         "one run alone uses CUDA graphs: a change of its own"),
        same="alike",
    )  # fmt: skip

    missing = [sum(sums.unrecorded_n for _, sums in run.ranks) for run in runs.compared]
    yield check_row(
        "GPU work not in the report",
        [counted(n, "launch", "launches") for n in missing],
        (any(missing), ALL, "GPU work is missing: see the table capture"),
        same="all launched work is there",
    )
    yield from facts


def _fact(
    runs: Runs, check: str, of: Callable[[CaptureFacts], str | None], status: str, meaning: str
) -> Check:
    shown = []
    for run in runs.compared:
        values = {of(rank.facts) or "" for rank, _ in run.ranks if rank.facts is not None} - {""}
        shown.append("; ".join(sorted(values)) or None)
    unknown = None in shown, UNKNOWN, "not recorded in both runs, so not compared"
    return check_row(check, shown, unknown, (shown[0] != shown[1], status, meaning), same="alike")


def _amounts(runs: Runs, steps: StepsOfSides) -> Iterator[Check]:
    """Check whether runs have as many of the same steps, in windows that are as long."""
    both, sides = runs.compared, [steps[run.side] for run in runs.compared]
    names = [counted_name(some) for some in sides]
    is_same, other_n = as_many(*sides), names[0] == names[1] and names[0] is not None
    yield check_row(
        "steps",
        [
            f"{some.left_n} x {name}" if name else counted(some.steps_n, f"full {some.unit}")
            for name, some in zip(names, sides, strict=True)
        ],
        (names[0] != names[1], DIFFERS, "not the same steps"),
        (other_n and not is_same, TOTALS, "different number of steps: compare per step"),
        same="as many steps" if other_n else "sums do not go by them: the outer ones are cut",
    )
    lengths = [run.device_window_ns for run in both]
    other = apart_pct(*lengths) > SAME_WORK_PCT
    yield check_row(
        "window",
        [f"{format_ns(length)} a device" for length in lengths],
        (other and is_same, DIFFERS, "the same number of steps took a different time"),
        (
            other and not other_window(*both),
            DIFFERS,
            "the same number of launches took a different time",
        ),
        (other, TOTALS, "different length and different work"),
        same="about as long",
    )
    shares = common_names_pct(runs)
    yield check_row(
        NAMES,
        [f"{format_percent(share)} of its kernel time" for share in shares],
        (min(shares) < COMMON_PCT, DIFFERS, "mostly different kernels: different code"),
        same="largely the same kernels",
    )


def _repeats(runs: Runs, steps: StepsOfSides) -> Iterator[Check]:
    for run in runs.repeats:
        noisy = run in runs.noise
        yield check_row(
            f"{run.side}, for noise",
            [counted(len(item.ranks), "rank") for item in (runs.baseline, run)],
            (not noisy, DIFFERS, "empty, incomplete, or on other ranks or GPUs: left out"),
            (noisy and other_work(runs.baseline, run, steps), DIFFERS,
             "a different amount of work: no noise band for sums over a run"),
            same="a run like the baseline",
        )  # fmt: skip


def counted_name(steps: RunSteps) -> str | None:
    """Return what the steps of a run are called; None where the capture cuts them.

    Of layers, replays and periods it cuts the outer ones, so that sums over a run hold parts.
    """
    return steps.name if steps.unit == STEP else None


def as_many(before: RunSteps, after: RunSteps) -> bool:
    """Tell whether two runs have as many of the same steps."""
    name = counted_name(before)
    return name is not None and (name, before.left_n) == (counted_name(after), after.left_n)


def other_work(before: RunSums, after: RunSums, steps: StepsOfSides) -> bool:
    """Tell whether sums over two runs mean nothing against each other.

    They mean something where both did as many of the same steps; where none counts steps, where
    windows are about as long or launches about as many, and launches did not change all alike.
    """
    if len(before.ranks) != len(after.ranks):
        return True
    first, second = (steps[run.side] for run in (before, after))
    if counted_name(first) is not None or counted_name(second) is not None:
        return not as_many(first, second)
    return other_window(before, after) or work_ratio(before, after) is not None


def apart_pct(first: Any, second: Any) -> Any:
    """Return how far numbers lie apart, in percent of the larger; of arrays each pair."""
    return 100 * np.abs(second - first) / np.maximum(np.maximum(first, second), 1e-9)


def other_window(before: RunSums, after: RunSums) -> bool:
    """Tell whether windows of another length hold another number of launches."""
    windows = apart_pct(before.device_window_ns, after.device_window_ns)
    launches = apart_pct(before.launches_n, after.launches_n)
    return bool(min(windows, launches) > SAME_WORK_PCT)


def work_ratio(before: RunSums, after: RunSums) -> float | None:
    """Return how much more of the same launches a run has; None where that is about as many."""
    names = sorted({key[0] for run in (before, after) for key in run.keys})
    first, second = before.kernels(names), after.kernels(names)
    both = (first.launches_n > 0) & (second.launches_n > 0)
    n0, n1 = first.launches_n[both], second.launches_n[both]
    t0, t1 = (item.total_ns[both].astype(np.float64) for item in (first, second))
    few = 100 * t0.sum() < COMMON_PCT * before.kernel_ns
    if few or 100 * t1.sum() < COMMON_PCT * after.kernel_ns or n0.sum() < _LEAST_LAUNCHES:
        return None
    ratio = float(n1.sum() / n0.sum())
    if 100 * abs(ratio - 1) < LEAST_CHANGE_PCT:
        return None
    alike = 100 * np.abs(n1 / n0 / ratio - 1) <= ALIKE_PCT
    return ratio if t0[alike].sum() >= _ALIKE_SHARE_PCT / 100 * t0.sum() else None


def common_names_pct(runs: Runs) -> list[float]:
    """Return the share of each run's kernel time in kernels that both have."""
    common = sorted(set.intersection(*({key[0] for key in run.keys} for run in runs.compared)))
    return [
        100.0 * int(run.kernels(common).total_ns.sum()) / run.kernel_ns if run.kernel_ns else 0.0
        for run in runs.compared
    ]


def common_launches_pct(runs: Runs) -> float:
    """Return the share of kernel time in launches that both runs have, of the run with less.

    Compared are numbers of launches of each kernel, grid and block, over all ranks.
    """
    sides, held = [], []
    for run in runs.compared:
        launches_n = run.job.facts.compared.kernels.counts.moments(len(run.keys)).n
        keys = [(key[0], *key[2 : 2 + GEOMETRY_N]) for key in run.keys]
        sums = {"launches_n": launches_n, **run.job.facts.compared.kernels.sums}
        sides.append(ByKey.of(keys, sums).rows())
    for side, other in (sides, sides[::-1]):
        whole = sum(ns for _, ns in side.values())
        common = sum(
            ns * min(1.0, other.get(key, (0, 0))[0] / n) if n else 0.0
            for key, (n, ns) in side.items()
        )
        held.append(100 * common / whole if whole else 0.0)
    return min(held)
