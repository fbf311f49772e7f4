"""The table `wall` that every recipe has: where the wall-clock time of each GPU went."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pandas as pd

from nsys_llm.core.errors import ManifestError
from nsys_llm.manifest.declared import TableWrite
from nsys_llm.report.outputs import declared_frame
from nsys_llm.taxonomy.categories import UNMATCHED, RuleSet, detect_engine, load_rules
from nsys_llm.taxonomy.communication import COMMUNICATION as COMMUNICATES
from nsys_llm.taxonomy.wall_classes import (
    COMMUNICATION,
    COMPUTE,
    COPIES,
    IDLE,
    PROFILER,
    WALL_CLASSES,
    WHOLE_GRAPH,
)
from nsys_llm.trace.identity import Rank, RankKey
from nsys_llm.trace.outcomes import DeviceWall, RankWall

#: Of one device: time by class and detail.
Times = dict[str, dict[str | None, int]]

#: What a recipe knows of the classes of a device: by rank, device and class the time of each
#: detail, in ns, which add up to the class.
WallDetails = Mapping[tuple[RankKey, int], Mapping[str, Mapping[str, int]]]

_AUTO: Final = "auto"


def wall_table(
    table: TableWrite,
    ranks: Sequence[Rank],
    walls: Mapping[RankKey, RankWall],
    details: WallDetails,
    engine: str = _AUTO,
) -> pd.DataFrame:
    """Return the table wall.

    Args:
        table: Its declaration.
        ranks: In the order in which they are shown.
        walls: Of the ranks that were mapped.
        details: What the recipe knows besides.
        engine: Whose rules tell categories; auto: that of the kernels of all ranks.

    Raises:
        ManifestError: Details do not add up to their class.
    """
    if engine == _AUTO:
        engine = detect_engine(name for wall in walls.values() for name in wall.kernel_names)
    rules = load_rules(engine)
    rows = [
        row
        for rank in ranks
        for wall in walls.get(rank.key, RankWall()).devices
        for row in _device_rows(rank, wall, details.get((rank.key, wall.device_id), {}), rules)
    ]
    names = [column.name for column in table.columns]
    return declared_frame(table, {name: [row[name] for row in rows] for name in names})


def _device_rows(
    rank: Rank, wall: DeviceWall, details: Mapping[str, Mapping[str, int]], rules: RuleSet
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a device: of each class in order, the longest detail first."""
    times = _times(wall, rules)
    for name, parts in details.items():
        if sum(parts.values()) != sum(times[name].values()):
            raise ManifestError(f"wall: the details of {name} do not add up to it.")
        times[name] = {detail: ns for detail, ns in parts.items() if ns} or times[name]
    for name in WALL_CLASSES:
        for detail, time_ns in sorted(
            times[name].items(), key=lambda item: (-item[1], item[0] or "")
        ):
            yield {
                "side": rank.key.side,
                "rank": rank.number,
                "file": rank.file,
                "device_id": wall.device_id,
                "wall_class": name,
                "detail": detail,
                "time_ns": time_ns,
                "span_ns": wall.span_ns,
                "share_pct": 100.0 * time_ns / wall.span_ns if wall.span_ns else None,
                "span_start_ns": wall.span_start_ns,
                "span_end_ns": wall.span_end_ns,
            }


def _times(wall: DeviceWall, rules: RuleSet) -> Times:
    """Return the time of each class, of computation by category; a class without time has none."""
    compute: dict[str | None, int] = {}
    for name, time_ns in wall.kernels_ns.items():
        category = rules.classify(name).category
        # Whether a kernel communicates is told alike by the rules of all engines.
        category = UNMATCHED if category == COMMUNICATES else category
        compute[category] = compute.get(category, 0) + time_ns
    if wall.graphs_ns:
        compute[WHOLE_GRAPH] = wall.graphs_ns
    return {
        COMPUTE: compute or {None: 0},
        COMMUNICATION: {None: wall.communication_ns},
        COPIES: {None: wall.copies_ns},
        PROFILER: {None: wall.profiler_ns},
        IDLE: {None: wall.idle_ns},
    }
