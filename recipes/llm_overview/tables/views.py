"""Which stretches of time the timeline shows, on which GPUs, and where each is in every profile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from nsys_llm.job.collectives.matched import match_collectives
from nsys_llm.job.job_clock import JobClock
from nsys_llm.report.part import OverviewParts, Part
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.trace.identity import Rank
from nsys_llm.view.text import format_ns

#: GPUs that a figure shows; ours: as many lanes as are told apart on a screen.
MOST_LANES: Final = 64

_STEPS: Final = "step_budget"
_COUNTED: Final = ""


@dataclass(frozen=True)
class GpuLane:
    """One lane: a device of a rank, what it is called, and how long its kernels compute."""

    rank: Rank
    device_id: int
    label: str
    compute_ns: int = 0


@dataclass(frozen=True)
class View:
    """One figure.

    Attributes:
        number: From 1; 0 for the whole run where others show steps.
        which: Name of its path in the table `path`; empty without one.
        step: Step of the job; None for the whole run.
        start_ns: Its begin, on the clock of the job's steps.
    """

    number: int
    shows: str
    which: str
    step: int | None
    start_ns: int
    end_ns: int

    @property
    def length_ns(self) -> int:
        """How long it is."""
        return self.end_ns - self.start_ns

    def row(
        self, part: str, gpu: GpuLane, start_ns: int, end_ns: int, begin_ns: int
    ) -> dict[str, Any]:
        """Return what all rows have; `begin_ns` is the begin of this in the clock of the times."""
        return {
            "view": self.number,
            "shows": self.shows,
            "step": self.step,
            "part": part,
            "rank": gpu.rank.number,
            "file": gpu.rank.file,
            "device_id": gpu.device_id,
            "lane": gpu.label,
            "start_ns": start_ns,
            "end_ns": end_ns,
            "since_ns": start_ns - begin_ns,
            "duration_ns": end_ns - start_ns,
        }


def gpus_of(gpus: Sequence[Mapping[str, Any]], ranks: Sequence[Rank]) -> list[GpuLane]:
    """Return the GPUs of the table `ranks`, in its order."""
    by_file = {rank.file: rank for rank in ranks}
    counts = Counter(row["file"] for row in gpus)
    return [
        GpuLane(
            by_file[row["file"]],
            int(row["device_id"]),
            row["file"] if counts[row["file"]] == 1 else f"{row['file']}, GPU {row['device_id']}",
            int(row["compute_ns"]),
        )
        for row in gpus
        if row["span_ns"]
    ]


def chosen_gpus(
    gpus: Sequence[GpuLane], opportunities: Sequence[Record], path: Sequence[Record]
) -> list[GpuLane]:
    """Return the GPUs that are shown, in order: of too many those that matter, then some of all.

    First those that findings gain on, and those of ranks that they blame, in their order; then the
    first one, the one that computes longest and the middle one to compare it with; then, on up to
    half of the lanes, those of the critical path.
    """
    if len(gpus) <= MOST_LANES:
        return list(gpus)
    by_rank: dict[int | None, list[int]] = {}
    for place, gpu in enumerate(gpus):
        by_rank.setdefault(gpu.rank.number, []).append(place)
    wanted = []
    for row in opportunities:
        gains, blamed = by_rank.get(row["rank"], []), blamed_rank(row)
        exact = [place for place in gains if gpus[place].device_id == row["device_id"]]
        wanted += [*(exact or gains), *(() if blamed is None else by_rank.get(blamed, ()))]
    by_compute = sorted(range(len(gpus)), key=lambda place: gpus[place].compute_ns)
    wanted += [0, by_compute[-1], by_compute[len(gpus) // 2]]
    wanted = list(dict.fromkeys(wanted))[:MOST_LANES]
    on_path = dict.fromkeys(row["rank"] for row in path)
    places = dict.fromkeys(place for rank in on_path for place in by_rank.get(rank, ()))
    wanted += list(places)[: max(MOST_LANES // 2 - len(wanted), 0)]
    others = sorted({*range(len(gpus))} - {*wanted})
    left_n = MOST_LANES - len(set(wanted))
    spread = [others[index * len(others) // left_n] for index in range(left_n)]
    return [gpus[place] for place in sorted({*wanted, *spread})]


def job_clock(results: OverviewParts) -> JobClock:
    """Align the clocks by the collectives of a recipe that needs them, best by the steps' own."""
    parts = sorted(results.parts, key=lambda name: name == _STEPS)
    known = [met for name in parts if (met := results.parts[name].matched) is not None]
    met = known[-1] if known else match_collectives({}, results.ranks, results.options)
    return JobClock.of(met, results.ranks[0])


def views_of(
    parts: Mapping[str, Part], tables: Tables, ranks: Sequence[Rank], clocks: JobClock
) -> list[View]:
    """Return what is shown: the step of the first finding, if that is known, stands first."""
    unit = step_unit(tables)
    steps = records(parts[_STEPS].tables["job_steps"]) if _STEPS in parts else []
    counted = [row for row in steps if row["mark"] == _COUNTED]
    if not counted:
        return [whole_run(tables, ranks, clocks, 1)]
    if len(steps) == 1:
        step = counted[0]
        return [View(1, _of_run(step["wall_ns"]), "worst", 0, step["start_ns"], step["end_ns"])]
    order = sorted(counted, key=lambda row: row["wall_ns"])
    median, worst = order[(len(order) - 1) // 2], order[-1]
    # Of equal ones the first is the median and the last the worst, as in the table `path`.
    named = {median["step"]: ("median", "Median", median)}
    named[worst["step"]] = ("worst", "Worst", worst)
    first = _step_of_first(tables, steps, ranks, clocks)
    if first is not None:
        also = named.pop(first["step"], ("", "First finding", first))
        named = {first["step"]: also, **named}
    views = []
    for number, (which, words, row) in enumerate(named.values(), 1):
        shows = f"{words}: {unit} {row['step']} of {len(steps)}, {format_ns(row['wall_ns'])}"
        views.append(View(number, shows, which, row["step"], row["start_ns"], row["end_ns"]))
    return views


def step_unit(tables: Tables) -> str:
    """Return what a step is, of the largest group."""
    rows = sorted(records(tables["ranks"]), key=lambda row: row["group"])
    return next((row["step_unit"] for row in rows if row["step_unit"]), "step")


def blamed_rank(row: Record) -> int | None:
    """Return the rank that an opportunity blames; None where it blames something else."""
    return row["cause_rank"] if row["cause"] == "rank" else None


def _step_of_first(
    tables: Tables, steps: Sequence[Record], ranks: Sequence[Rank], clocks: JobClock
) -> Record | None:
    """Return the step of the job that holds most of the window of the first opportunity."""
    first = next(iter(records(tables["opportunities"])), None)
    when = tables["when_steps"]
    if first is not None and (lost := when[when["finding"] == 1]["excess_ns"]).any():
        return steps[int(when["step"][lost.idxmax()])]
    # A rank that is to blame is seen in every step.
    if first is None or first["window_start_ns"] is None or blamed_rank(first) is not None:
        return None
    rank = next(rank for rank in ranks if rank.number == first["rank"])
    start_ns, end_ns = (clocks.common_ns(rank, first[f"window_{at}_ns"]) for at in ("start", "end"))
    shared = [min(row["end_ns"], end_ns) - max(row["start_ns"], start_ns) for row in steps]
    return steps[shared.index(max(shared))] if max(shared) > 0 else None


def whole_run(tables: Tables, ranks: Sequence[Rank], clocks: JobClock, number: int = 0) -> View:
    """Return one view of all GPUs from the first operation to the last."""
    by_file = {rank.file: rank for rank in ranks}
    rows = [(by_file[row["file"]], row) for row in records(tables["wall"]) if row["span_ns"]]
    start_ns = min(clocks.common_ns(rank, row["span_start_ns"]) for rank, row in rows)
    end_ns = max(clocks.common_ns(rank, row["span_end_ns"]) for rank, row in rows)
    return View(number, _of_run(end_ns - start_ns), "", None, start_ns, end_ns)


def _of_run(length_ns: int) -> str:
    return f"Whole run, {format_ns(length_ns)}"
