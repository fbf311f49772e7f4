"""What the recipes know of the classes of the wall split, together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nsys_llm.analyses.ranks.verdicts import RankVerdict
from nsys_llm.report.part import Part
from nsys_llm.report.records import records
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.wall import JobWalls, WallDetails, WallKey, Walls


def wall_details(
    parts: Mapping[str, Part], ranks: Sequence[Rank], walls: Walls, options: Mapping[str, Any]
) -> WallDetails:
    """Return the details of all recipes; of several that divide a class, the first has its way."""
    details: dict[WallKey, dict[str, Mapping[str, int]]] = {}
    for part in parts.values():
        divide = part.run.analysis.wall_details
        if divide is None:
            continue
        for key, classes in divide(part.run.partial, ranks, walls, options).items():
            known = details.setdefault(key, {})
            for wall_class, times in classes.items():
                known.setdefault(wall_class, times)
    return details


def rank_verdicts(
    parts: Mapping[str, Part], _job: JobWalls, _options: Mapping[str, Any]
) -> list[RankVerdict]:
    """Return the verdicts that all recipes print."""
    tables = [part.tables["rank_verdicts"] for part in parts.values()]
    return [RankVerdict(**row) for table in tables[:1] for row in records(table)]
