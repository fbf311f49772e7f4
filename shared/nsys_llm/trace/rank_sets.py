"""Numbers the ranks of a run, those of each side by themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nsys_llm.core.errors import UsageError
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.profile.inputs import ProfileInput
from nsys_llm.trace.identity import Rank, RankEntry, RankKey, number_ranks, read_rank_map
from nsys_llm.trace.outcomes import MapResult

#: By side: (report label, pid or None) -> rank, see `nsys_llm.trace.identity.read_rank_map`.
RankMaps = Mapping[str, Mapping[tuple[str, int | None], int]]


def read_rank_maps(path: str | None, inputs: Sequence[ProfileInput]) -> RankMaps:
    """Read the rank map for each side; nothing without a path.

    Raises:
        UsageError: The file cannot be read, or does not number the reports of a side.
    """
    if not path:
        return {}
    sides = dict.fromkeys(report.side for report in inputs)
    return {
        side: read_rank_map(path, [report.label for report in inputs if report.side == side])
        for side in sides
    }


def number_sides(result: MapResult, rank_maps: RankMaps) -> list[Rank]:
    """Return the ranks of all sides: sides in order of name, each in order of number."""
    sides = sorted({report.side for report in result.profiles})
    return [
        rank for side in sides for rank in number_ranks(_entries(result, side), rank_maps.get(side))
    ]


def unused_maps(ranks: Sequence[Rank], rank_maps: RankMaps) -> list[tuple[str, str]]:
    """Return the sides whose rank map numbers no rank, with the rule that does."""
    found = []
    for side in rank_maps:
        sources = [rank.source for rank in ranks if rank.key.side == side]
        source = next((one for one in sources if one is not None), None)
        if source not in ("rank_map", None):
            found.append((side, source))
    return found


def wanted_ranks(ranks: Sequence[Rank], numbers: Sequence[int]) -> list[Rank]:
    """Return the ranks that --ranks names, on each side.

    Raises:
        UsageError: A side has none of them.
    """
    wanted = []
    for side in dict.fromkeys(rank.key.side for rank in ranks):
        own = [rank for rank in ranks if rank.key.side == side]
        found = [rank for rank in own if rank.number in numbers]
        if set(numbers) - {rank.number for rank in found}:
            # A report that could not be read, and so has no number, may be the rank that is
            # missing.
            found += [rank for rank in own if rank.number is None and rank.facts is None]
        if not found:
            there = ", ".join(str(rank.number) for rank in own[:20])
            before = f"{side}: " if side else ""
            raise UsageError(f"{before}--ranks: none of these ranks is there; there are {there}.")
        wanted += found
    return wanted


def _entries(result: MapResult, side: str) -> list[RankEntry]:
    """Return what is to be numbered: each rank, and each report without any."""
    entries = []
    for report in result.profiles:
        if report.side != side:
            continue
        entries += [RankEntry(rank.key, report.label, report.facts, True) for rank in report.ranks]
        if not report.ranks:
            key = RankKey(report.path, NULL_INT, side)
            entries.append(RankEntry(key, report.label, report.facts, False))
    return entries
