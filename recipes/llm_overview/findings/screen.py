"""The facts of a run in one line, for the first screen."""

from __future__ import annotations

import json
from collections.abc import Sequence

from nsys_llm.report.findings import CAPTURE, INCOMPLETE
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.report.screen import Scale, Screen
from nsys_llm.view.text import counted, format_ns

from ..tables.steps import mean_step_ns


def screen(tables: Tables) -> Screen | None:
    """Return what stands on the first screen ahead of opportunities; None without GPU work."""
    gpus = [row for row in records(tables["ranks"]) if row["span_ns"]]
    if not gpus:
        return None
    spans = [int(row["span_ns"]) for row in gpus]
    facts = [counted(len(gpus), "GPU"), f"{_range_ns(spans)}{' each' * (len(gpus) > 1)}"]
    trust = _trust(records(tables["all_findings"]))
    step_ns = mean_step_ns(gpus)
    if step_ns is None:
        return Screen(", ".join(facts), float(max(spans)), "of one GPU", by_step=False, trust=trust)
    scale, unit = Scale.of(step_ns), step_unit(tables)
    counts = [int(row["steps_n"]) for row in gpus if row["steps_n"]]
    least, most = min(counts), max(counts)
    steps = counted(most, unit) if least == most else f"{least} to {counted(most, unit)}"
    facts += [steps, f"{scale.number(step_ns)} {scale.unit} a {unit}"]
    return Screen(", ".join(facts), step_ns, f"a {unit}", by_step=True, trust=trust)


def step_unit(tables: Tables) -> str:
    """Return what a step is."""
    return next((row["step_unit"] for row in records(tables["ranks"]) if row["step_unit"]), "step")


def _range_ns(spans: Sequence[int]) -> str:
    least, most = format_ns(min(spans)), format_ns(max(spans))
    if least.split()[-1] == most.split()[-1]:
        least = least.split()[0]
    return most if least == most.split()[0] else f"{least} to {most}"


def _trust(rows: Sequence[Record]) -> str:
    """Return the remark that qualifies most: what is missing, then time that is not the job's."""
    remarks = [row for row in rows if row["kind"] == CAPTURE]
    missing = [row for row in remarks if row["rule"] in INCOMPLETE]
    timed = [row for row in remarks if row["rank"] is not None and _names_time(row)]
    return next((str(row["title"]) for row in [*missing, *timed]), "")


def _names_time(row: Record) -> bool:
    names = [cell["column"] for cell in json.loads(row["evidence"])] + [*json.loads(row["numbers"])]
    return any(name.endswith("_ns") for name in names)
