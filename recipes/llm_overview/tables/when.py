"""When each opportunity costs its time: of the rows of step_budget's table `when`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from nsys_llm.report.part import Part
from nsys_llm.report.records import grouped, records

from .joins import Opportunity
from .views import GpuLane

_BUDGET: Final = "step_budget"
_STEADY: Final = "steady"
_TURNS: Final = "turns"
_COLUMNS: Final = (
    *("rank", "kind", "sharing", "first_step", "last_step", "steps_n", "events_n"),
    *("period_steps", "excess_ns"),
)


def when_step_rows(
    parts: Mapping[str, Part], when: Sequence[Mapping[str, Any]], lanes: Sequence[GpuLane]
) -> Iterator[dict[str, Any]]:
    """Yield the rows of the table `when_steps`: of the first opportunity that is not steady."""
    first = next((row for row in when if row["kind"] != _STEADY), None)
    if first is None:
        return
    labels = {(lane.rank.number, lane.device_id): lane.label for lane in lanes}
    for row in records(parts[_BUDGET].tables["when_steps"]):
        if row["pattern"] == first["pattern"]:
            lane = labels.get((row["rank"], row["device_id"]), str(row["rank"]))
            yield {"finding": first["finding"], "lane": lane, **row}


def when_rows(parts: Mapping[str, Part], groups: Sequence[Opportunity]) -> Iterator[dict[str, Any]]:
    """Yield the rows of the table `when`, in the order of opportunities."""
    patterns = (
        grouped(records(parts[_BUDGET].tables["when"]), "pattern") if _BUDGET in parts else {}
    )
    for number, group in enumerate((group for group in groups if group.is_shown), 1):
        where = [cell.where for cell in group.lead[1].evidence if cell.table == "when"]
        rows = patterns.get((dict(where[0])["pattern"],), []) if where else []
        for row in rows:
            turns = row["sharing"] == _TURNS and row["rank"] is None
            shown = {name: row[name] for name in _COLUMNS}
            yield {
                "finding": number,
                "pattern": row["pattern"],
                **shown,
                "kind": _TURNS if turns else row["kind"],
            }
        if not rows:
            yield {"finding": number, "kind": _STEADY}
