"""Plants one fault in a job, and scores the first words of an overview against the truth.

    python -m tests.judgement.truth --seeds 0:50                  all kinds, with their shares
    python -m tests.judgement.truth --seeds 7 --kinds slow_gpu pinned/healed

The truth of a fault is the same job simulated without it. Where what the first item asks for
gains as much in a simulation, that is right, too: a fault may cost less than what all jobs have,
such as their transfers. `KIND/healed` is the job without the fault: there a rank that is named is a
false alarm, and a first item that promises more than the simulation gains with that change is a
false word.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from random import Random
from typing import Final

TESTS = Path(__file__).parents[1]
if str(TESTS) not in sys.path:
    sys.path[:0] = [str(TESTS)]

from judgement import job_plants, pipeline_plants, rank_plants  # noqa: E402
from judgement.items import Item, items_of  # noqa: E402
from judgement.jobs import FIXED, Builder, Wanted  # noqa: E402
from machine import changes, simulate, write_profiles  # noqa: E402
from machine.outcome import Outcome  # noqa: E402
from machine.program import Program  # noqa: E402
from quick_run import quick_part  # noqa: E402

PLANTS: Final[tuple[Builder, ...]] = (
    rank_plants.slow_gpu,
    rank_plants.more_work,
    rank_plants.more_launches,
    rank_plants.slow_machine,
    rank_plants.late_host,
    rank_plants.late_for_no_reason,
    rank_plants.pauses,
    rank_plants.late_in_grid,
    rank_plants.slow_aside,
    rank_plants.flushed,
    rank_plants.slewing_clocks,
    rank_plants.cut_start,
    rank_plants.rotating,
    rank_plants.pinned,
    pipeline_plants.even_stages,
    pipeline_plants.uneven_stages,
    pipeline_plants.slow_in_stage,
    job_plants.host_of_all,
    job_plants.launch_bound,
    job_plants.queued,
    job_plants.sync_in_step,
    job_plants.spin_in_step,
    job_plants.pageable,
    job_plants.serial_copies,
    job_plants.load_first,
    job_plants.unfused,
    job_plants.slow_launches,
    job_plants.transfer,
    job_plants.graphs_and_prefill,
    job_plants.empty_server,
    job_plants.full_queue,
    job_plants.apart,
    job_plants.prefill_apart,
    job_plants.random_equals,
    job_plants.equal_ranks,
    rank_plants.pauses_of_gpu,
    rank_plants.context_ring,
)
KINDS: Final = {plant.__name__: plant for plant in PLANTS}
HEALED: Final = "/healed"
#: Of a truth in percent, how far what a fix is said to gain may be off; stages more.
NEAR_PCT: Final = 3.0
NEAR_OF_STAGES_PCT: Final = 5.0
#: What a rank is slower by varies by so much by chance, in percent of the job.
BY_CHANCE_PCT: Final = 0.5
#: From how much on a first item is one that a reader acts on.
WORTH_PCT: Final = 3.0
_STAGES: Final = ("stage", "schedule")
#: A fix of these gains time of other classes, too, which their bound leaves out.
_ELSEWHERE_TOO: Final = ("copies", "host")
#: Kernels of a category that has a faster one, by a part of their names, and the time it leaves.
_LEVERS: Final = {"attention": ("flash_fwd_kernel", 2 / 3), "pointwise": ("at::native", 1 / 3)}
#: What says where time is lost, for that which says why.
_PART_OF: Final = {"waiting": ("rank", "stage", "schedule", "experts"), "phase": ("host", "wait")}


@dataclass(frozen=True)
class Score:
    """How an overview did on one job.

    Attributes:
        right: 1 where the first item has the cause that was planted, or one that gains as much;
            0.5 where it says only where the time of the fault is lost; of a job without a fault,
            where no word is false.
        truth_pct: What the job without the fault gains, or without that other cause.
        said_pct: What the first item says: about, else at most.
        basis: Which of both.
        near: Whether that is the truth, as near as is asked.
        falsely: Ranks that are named and innocent.
        broken: What no list may show: more than its bound, one cause twice, or a wrong order; and
            a first item that is right and near, with a truth beyond its bound.
        first: The first item: cause, and title.
    """

    kind: str
    seed: int
    right: float
    truth_pct: float
    said_pct: float
    basis: str
    near: bool
    falsely: str
    broken: str
    first: str


def score(kind: str, seed: int) -> Score:
    """Make one job of a kind, run an overview over it, and score what it lists."""
    program, healed, wanted = planted(kind, seed)
    outcome = simulate(program)
    items = listed(outcome)
    first = items[0] if items else Item("nothing", None, "", 0.0, 0.0, "")
    innocent = healed is None
    said = first.about_pct if first.about_pct is not None else first.bound_pct
    truth, rightness = true_pct(program, outcome, healed), _rightness(first, wanted)
    if innocent or not rightness:
        asked = true_pct(program, outcome, change_of(program, first))
        if innocent or (asked or 0.0) >= max(truth or 0.0, WORTH_PCT):
            truth, rightness = asked, 1.0
    said_pct, truth_pct = said or 0.0, truth or 0.0
    stages = first.kind in _STAGES
    near = abs(said_pct - truth_pct) <= (NEAR_OF_STAGES_PCT if stages else NEAR_PCT)
    if innocent:
        # A job without a fault may have things to fix, if they gain what is said.
        near = near or truth is None or said_pct <= max(truth_pct, WORTH_PCT)
    names = ",".join(_innocent(items, wanted))
    right = float(near and not names) if innocent else rightness
    wrong = broken(items)
    bound = None if first.kind in _ELSEWHERE_TOO else first.bound_pct
    if rightness == 1 and near and bound is not None and truth_pct > bound + BY_CHANCE_PCT:
        wrong.append("more to gain than its bound")
    place = "" if first.rank is None else f" {first.rank}"
    return Score(
        kind,
        seed,
        right,
        round(truth_pct, 2),
        round(said_pct, 2),
        "about" if first.about_pct is not None else "at most",
        near,
        names,
        ", ".join(wrong),
        f"{first.kind}{place} {first.detail}: {first.title}",
    )


def listed(outcome: Outcome) -> list[Item]:
    """Return what an overview of a job lists."""
    with tempfile.TemporaryDirectory() as folder:
        write_profiles(outcome, Path(folder))
        return items_of(quick_part("llm_overview", Path(folder)).tables)


def planted(kind: str, seed: int) -> tuple[Program, Program | None, tuple[Wanted, ...]]:
    """Return a job, the same without its fault (None: it has none), and the causes that are right.

    Raises:
        KeyError: There is no such kind.
    """
    name = kind.removesuffix(HEALED)
    fault = name == kind
    program, wanted = KINDS[name](Random(f"{name} {seed}"), fault)
    if not (fault and wanted):
        return program, None, ()
    return program, KINDS[name](Random(f"{name} {seed}"), False)[0], wanted


def change_of(program: Program, item: Item) -> Program | None:
    """Return a job with the change that an item asks for; None where no simulation has it."""
    match item.kind:
        case "host":
            return _but_fixed(program, changes.with_fast_host(program))
        case "wait":
            return changes.without_waits(program)
        case "transfer":
            return changes.with_transfers(program, 0.5)
        case "copies":
            return _but_fixed(program, changes.with_free_copies(program))
        case "queued":
            return changes.with_lags(program, 0.5)
        case "kernels" if item.detail in _LEVERS:
            return changes.with_scaled(program, *_LEVERS[item.detail])
        case "rank" | "waiting" | "load" | "nothing":
            return program
    return None


def _but_fixed(program: Program, changed: Program) -> Program:
    """Return a changed job in which what no change makes faster is as before."""
    ranks = []
    for rank, faster in zip(program.ranks, changed.ranks, strict=True):
        threads = [
            tuple(
                before if before.fault == FIXED else after
                for before, after in zip(*pair, strict=True)
            )
            for pair in zip(rank.threads, faster.threads, strict=True)
        ]
        ranks.append(replace(faster, threads=tuple(threads)))
    return Program(tuple(ranks))


def true_pct(program: Program, outcome: Outcome, healed: Program | None) -> float | None:
    """Return what another job takes less than one, in percent of it; None without the other."""
    if healed is None:
        return None
    span_ns = _span_ns(outcome)
    return 100.0 * (span_ns - _span_ns(simulate(healed))) / span_ns


def _span_ns(outcome: Outcome) -> int:
    every = [op for operations in outcome.operations for op in operations]
    return max(op.end for op in every) - min(op.start for op in every)


def _innocent(items: Iterable[Item], wanted: Iterable[Wanted]) -> list[str]:
    """Return the ranks that are named and have no fault; a machine has one if a rank of it does."""
    guilty = {cause.rank for cause in wanted if cause.kind in ("rank", "stage")}
    named = {item.rank for item in items if item.kind in ("rank", "stage")}
    return sorted(
        "machine" if rank is None else str(rank)
        for rank in named
        if rank not in guilty and not (rank is None and guilty)
    )


def broken(items: Sequence[Item]) -> list[str]:
    """Return what is wrong with a list, whatever the truth is."""
    said = [(item.about_pct, item.bound_pct) for item in items if not item.tail]
    keys = [item.key for item in items]
    order = [bound / 2 if about is None else about for about, bound in said if bound or about]
    wrong = {
        "beyond its bound": any(None not in pair and pair[0] > pair[1] + 0.01 for pair in said),
        "a cause twice": len(set(keys)) < len(keys),
        "order": order != sorted(order, reverse=True),
    }
    return [name for name, is_so in wrong.items() if is_so]


def _rightness(first: Item, wanted: Iterable[Wanted]) -> float:
    if any(_is(first, cause) for cause in wanted):
        return 1.0
    kinds = _PART_OF.get(first.kind, ())
    return 0.5 if any(cause.kind in kinds for cause in wanted) else 0.0


def _is(item: Item, cause: Wanted) -> bool:
    """Tell whether an item has a cause; a machine or stage may be named without a rank."""
    ranks = (cause.rank, None) if cause.kind in ("rank", "stage", "host") else (cause.rank,)
    alike = cause.rank is None or item.rank in ranks
    return item.kind == cause.kind and alike and cause.detail in f"{item.detail} {item.title}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", default="0:5", help="FIRST:END, or one")
    every = [*KINDS, *(f"{name}{HEALED}" for name in KINDS)]
    parser.add_argument("--kinds", nargs="+", default=every, metavar="KIND")
    options = parser.parse_args()
    begin, _, end = options.seeds.partition(":")
    seeds = range(int(begin), int(end or int(begin) + 1))
    for kind in options.kinds:
        scores = [score(kind, seed) for seed in seeds]
        for each in scores:
            if each.right < 1 or not each.near or each.falsely or each.broken:
                print(*astuple(each), sep=" | ", flush=True)
        right, near = sum(it.right for it in scores), sum(it.near for it in scores)
        print(f"{kind}: of {len(scores)} right {right:g}, near {near}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
