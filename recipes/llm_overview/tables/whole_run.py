"""Rows of the table `timeline` that show the whole run: what each GPU did in each of its steps."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pandas as pd

from nsys_llm.job.job_clock import JobClock
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.taxonomy.wall_classes import COMMUNICATION, COMPUTE, COPIES, IDLE, PROFILER

from .views import GpuLane, View, step_unit

#: Bars of all lanes together: of more steps some are joined. Ours: with all that is said of them
#: they are less than 1 MB.
_MOST_BARS: Final = 2_000
#: What a row is: steps of a GPU, or what another figure shows.
STEPS, SHOWN = "steps", "shown"
_CLASSES: Final = {
    "busy_compute_ns": COMPUTE,
    "busy_communication_ns": COMMUNICATION,
    "busy_copy_ns": COPIES,
    "overhead_ns": PROFILER,
    "idle_ns": IDLE,
}
_OUT: Final[dict[str, Any]] = {
    "step": None,
    "state": "outside of steps",
    "name": "outside of steps",
    "pieces_n": 1,
}
_GPU: Final = ["file", "device_id"]


def run_rows(
    run: View,
    shown: Sequence[View],
    gpus: Sequence[GpuLane],
    clocks: JobClock,
    device_steps: pd.DataFrame,
    tables: Tables,
) -> Iterator[dict[str, Any]]:
    """Yield the rows of the GPUs that are shown, and of the steps that have figures.

    Args:
        run: From the first operation of the run to the last.
        shown: The other figures.
        device_steps: The table of step_budget.
    """
    unit = step_unit(tables)
    spans = {
        (row["file"], row["device_id"]): (row["span_start_ns"], row["span_end_ns"])
        for row in records(tables["wall"])
    }
    joined = _joined(device_steps, gpus)
    for gpu in gpus:
        begin_ns = clocks.own_ns(gpu.rank, run.start_ns)
        at_ns, end_ns = spans[gpu.rank.file, gpu.device_id]
        for row in joined.get((gpu.rank.file, gpu.device_id), []):
            if row["start_ns"] > at_ns:
                yield run.row(STEPS, gpu, at_ns, row["start_ns"], begin_ns) | _OUT
            at_ns = row["end_ns"]
            yield run.row(STEPS, gpu, row["start_ns"], at_ns, begin_ns) | _steps(row, unit)
        if end_ns > at_ns:
            yield run.row(STEPS, gpu, at_ns, end_ns, begin_ns) | _OUT
    begin_ns = clocks.own_ns(gpus[0].rank, run.start_ns)
    for view in shown:
        start_ns = clocks.own_ns(gpus[0].rank, view.start_ns)
        row = run.row(SHOWN, gpus[0], start_ns, start_ns + view.length_ns, begin_ns)
        says = {"state": SHOWN, "name": f"{unit} {view.step}"}
        yield row | says | {"step": view.step, "pieces_n": 1}


def _joined(
    device_steps: pd.DataFrame, gpus: Sequence[GpuLane]
) -> dict[tuple[str, int], list[Record]]:
    """Return the steps of each GPU, in order, as many of them joined as there are too many."""
    files = {gpu.rank.file for gpu in gpus}
    steps = device_steps[device_steps["file"].isin(files)]
    place = steps.groupby(_GPU, sort=False).cumcount()
    most_n = max(_MOST_BARS // len(gpus), 1)
    every = -(-(int(place.max()) + 1) // most_n) if len(place) else 1
    reduced = {"job_step": ("job_step", "first"), "steps_n": ("file", "size")}
    reduced |= {"start_ns": ("start_ns", "min"), "end_ns": ("end_ns", "max")}
    reduced |= {name: (name, "sum") for name in _CLASSES}
    rows = steps.groupby([*_GPU, place // every], sort=False).agg(**reduced).reset_index(_GPU)
    joined: dict[tuple[str, int], list[Record]] = {}
    for row in records(rows):
        joined.setdefault((row["file"], row["device_id"]), []).append(row)
    return joined


def _steps(row: Record, unit: str) -> dict[str, Any]:
    times = {name: int(row[column]) for column, name in _CLASSES.items() if row[column]}
    between_ns = row["end_ns"] - row["start_ns"] - sum(times.values())
    times |= {_OUT["state"]: between_ns} if between_ns > 0 else {}
    step, last = row["job_step"], (row["job_step"] or 0) + row["steps_n"] - 1
    numbers = f"{unit} {step}" if step == last else f"{unit}s {step} to {last}"
    return {
        "step": step,
        "state": max(times, key=lambda name: times[name], default=IDLE),
        "name": unit if step is None else numbers,
        "pieces_n": row["steps_n"],
        "mixture": json.dumps(times) if len(times) > 1 else None,
    }
