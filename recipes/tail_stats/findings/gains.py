"""What the gains of all findings of this recipe have in common. Reads finished tables only."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from nsys_llm.report.gains import Gain
from nsys_llm.report.records import Record, Tables, records

_OF_STEPS: Final = ["step_ns", "step_unit", "worst_step_start_ns", "worst_step_end_ns"]


def with_steps(tables: Tables, rank: int, device_id: int, gain: Gain) -> Gain:
    """Return a gain with the steps of its GPU, where they are known.

    A share of the span is as large a share of a mean step, however many the ends of the capture
    cut.
    """
    row = _gpu_row(tables, rank, device_id)
    if row is None or not row["step_ns"]:
        return gain
    return replace(gain, steps_n=gain.span_ns / row["step_ns"], step_unit=row["step_unit"])


def worst_step_ns(tables: Tables, rank: int, device_id: int) -> tuple[int, int] | None:
    """Return where the longest step of a GPU is; None where that is not known."""
    row = _gpu_row(tables, rank, device_id)
    if row is None or row["worst_step_start_ns"] is None:
        return None
    return int(row["worst_step_start_ns"]), int(row["worst_step_end_ns"])


def _gpu_row(tables: Tables, rank: int, device_id: int) -> Record | None:
    ranks = tables["tail_ranks"]
    rows = ranks.loc[(ranks["rank"] == rank) & (ranks["device_id"] == device_id), _OF_STEPS]
    return records(rows)[0] if len(rows) else None
