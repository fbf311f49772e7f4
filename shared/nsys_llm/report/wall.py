"""The table `wall` that every recipe has: where the wall-clock time of each GPU went."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from nsys_llm.core.errors import ManifestError
from nsys_llm.report.unprofiled import COLUMN, class_shares
from nsys_llm.taxonomy import wall_classes as classes
from nsys_llm.taxonomy.categories import RuleSet
from nsys_llm.taxonomy.communication import is_fused
from nsys_llm.trace.identity import Rank, RankKey
from nsys_llm.trace.wall import DeviceWall, WallDetails, Walls

#: Classes that have a row in any capture.
_ALWAYS: Final = (classes.COMMUNICATION, classes.COPIES, classes.PROFILER, classes.IDLE)
#: Of one device: time by class and detail.
Times = dict[str, dict[str | None, int]]


def wall_rows(
    ranks: Sequence[Rank],
    walls: Walls,
    details: WallDetails,
    rules: RuleSet,
    step_ns: int | None = None,
) -> list[dict[str, Any]]:
    """Return the rows of the table wall.

    Args:
        walls: Of the ranks that were mapped.
        details: What the recipe knows besides.
        step_ns: How long a step takes without the profiler; None where nobody says.

    Raises:
        ManifestError: Details do not add up to their class.
    """
    devices: dict[RankKey, list[int]] = {}
    for key, device_id in walls:
        devices.setdefault(key, []).append(device_id)
    return [
        row
        for rank in ranks
        for place in ((rank.key, device_id) for device_id in sorted(devices.get(rank.key, ())))
        for row in _device_rows(rank, walls[place], details.get(place, {}), rules, step_ns)
    ]


def _device_rows(
    rank: Rank,
    wall: DeviceWall,
    details: Mapping[str, Mapping[str, int]],
    rules: RuleSet,
    step_ns: int | None,
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a device: of each class in order, the longest detail first."""
    times, left = _times(wall, rules), class_shares(wall, step_ns)
    for name, every in details.items():
        # A cause of idle time, and a class.
        parts = {detail: ns for detail, ns in every.items() if detail not in classes.APART}
        if sum(parts.values()) != sum(times[name].values()):
            raise ManifestError(f"wall: the details of {name} do not add up to it.")
        times[name] = {detail: ns for detail, ns in parts.items() if ns} or times[name]
    for name in classes.WALL_CLASSES:
        for detail, time_ns in sorted(
            times[name].items(), key=lambda item: (-item[1], item[0] or "")
        ):
            yield {
                "run": rank.key.side,
                "rank": rank.number,
                "file": rank.file,
                "device_id": wall.device_id,
                "wall_class": name,
                "detail": detail,
                "time_ns": time_ns,
                COLUMN: None if left is None else round(time_ns * left[name]),
                "span_ns": wall.span_ns,
                "share_pct": 100.0 * time_ns / wall.span_ns if wall.span_ns else None,
                "span_start_ns": wall.span_start_ns,
                "span_end_ns": wall.span_end_ns,
            }


def _times(wall: DeviceWall, rules: RuleSet) -> Times:
    """Return the time of each class, of computation by category."""
    compute: dict[str | None, int] = {}
    for name, time_ns in wall.kernels_ns.items():
        if is_fused(name):
            continue
        category = rules.compute_category(name)
        compute[category] = compute.get(category, 0) + time_ns
    if wall.graphs_ns:
        compute[classes.WHOLE_GRAPH] = wall.graphs_ns
    others = {name: getattr(wall, f"{name}_ns") for name in classes.WALL_CLASSES[1:]}
    times: Times = {
        name: {None: ns} if ns or name in _ALWAYS else {} for name, ns in others.items()
    }
    return {classes.COMPUTE: compute or {None: 0}, **times}
