"""What is to be said of communication that no computation hides."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from nsys_llm.report.findings import Finding
from nsys_llm.report.records import Record, severity_of, window_of
from nsys_llm.view.text import format_ns, format_percent

from .texts import EXPOSED_PCT, RULES

_PART: Final = "Waiting for late ranks is part of it."
_STAGED_PART: Final = (
    "Most of it is sends and receives between pipeline stages, which wait by schedule."
)


def exposed_communication(overlap: Sequence[Record], *, staged: bool) -> Iterator[Finding]:
    """Return the finding on exposed communication, about the device that has most of it.

    Args:
        overlap: Rows of the table.
        staged: Whether ranks are stages of a pipeline: they wait by schedule, and none is late.
    """
    busy = [row for row in overlap if row["exposed_busy_pct"] is not None]
    worst = max(busy, key=lambda row: row["exposed_busy_pct"], default=None)
    severity = severity_of(worst["exposed_busy_pct"], EXPOSED_PCT) if worst else None
    if worst is None or severity is None:
        return
    total_ns = sum(row["exposed_communication_ns"] for row in overlap)
    yield RULES["exposed_communication"].finding(
        severity=severity,
        details=f"Device {worst['device_id']} of rank {worst['rank']} communicates for "
        f"{format_ns(worst['communication_ns'])}; during "
        f"{format_ns(worst['exposed_communication_ns'])} of it "
        f"({format_percent(worst['exposed_communication_pct'])}) it computes nothing. Over all "
        f"ranks {format_ns(total_ns)}. {_STAGED_PART if staged else _PART}",
        fields={"share": format_percent(worst["exposed_busy_pct"]), "rank": worst["rank"]},
        case="stages" if staged else None,
        rank=worst["rank"],
        device_id=worst["device_id"],
        window_ns=window_of(worst, "exposed_start_ns", "exposed_end_ns"),
        impact_ns=total_ns,
    )
