"""Which profiles a run compares with which, its sides, and the numbers of the ranks of each.

A recipe over one set of ranks has one side, "". A recipe that compares has a baseline and an
input, each a set of ranks of its own, and any number of further runs of the baseline, which tell
how much runs differ that should be equal. The side travels with the path of each profile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from nsys_llm.core.errors import UsageError
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.profile.inputs import ProfileInput
from nsys_llm.trace.identity import Rank, RankEntry, RankKey, number_ranks, read_rank_map
from nsys_llm.trace.outcomes import MapResult

#: By side: (profile label, pid or None) -> rank, see `nsys_llm.trace.identity.read_rank_map`.
RankMaps = Mapping[str, Mapping[tuple[str, int | None], int]]

BASELINE: Final = "baseline"
INPUT: Final = "input"
#: What is compared; all other sides only tell how much runs differ anyway.
COMPARED: Final = (BASELINE, INPUT)


def read_rank_maps(file: tuple[str, str] | None, inputs: Sequence[ProfileInput]) -> RankMaps:
    """Read the rank map for each side; nothing without a file, which is its path and its text.

    Raises:
        UsageError: It does not number the profiles of a side.
    """
    if not file:
        return {}
    sides = dict.fromkeys(profile.side for profile in inputs)
    return {
        side: read_rank_map(*file, [profile.label for profile in inputs if profile.side == side])
        for side in sides
    }


def number_sides(result: MapResult, rank_maps: RankMaps) -> list[Rank]:
    """Return the ranks of all sides: sides in order of name, each in order of number."""
    sides = sorted({profile.side for profile in result.profiles})
    return [
        rank for side in sides for rank in number_ranks(_entries(result, side), rank_maps.get(side))
    ]


def unused_maps(ranks: Sequence[Rank], rank_maps: RankMaps) -> list[tuple[str, str]]:
    """Return the sides whose rank map numbers no rank, with the rule that does."""
    sources = {rank.key.side: rank.source for rank in reversed(ranks) if rank.source is not None}
    used = ((side, sources.get(side, "rank_map")) for side in rank_maps)
    return [(side, source) for side, source in used if source != "rank_map"]


def wanted_ranks(ranks: Sequence[Rank], numbers: Sequence[int]) -> list[Rank]:
    """Return the ranks that --ranks names, on each side.

    Raises:
        UsageError: A side has none of them.
    """
    wanted = []
    for side in dict.fromkeys(rank.key.side for rank in ranks):
        side_ranks = [rank for rank in ranks if rank.key.side == side]
        chosen = [rank for rank in side_ranks if rank.number in numbers]
        if set(numbers) - {rank.number for rank in chosen}:
            # A profile that could not be read, and so has no number, may be the rank that is
            # missing.
            chosen += [rank for rank in side_ranks if rank.number is None and rank.facts is None]
        if not chosen:
            there = ", ".join(str(rank.number) for rank in side_ranks[:20])
            before = f"{side}: " if side else ""
            raise UsageError(f"{before}--ranks: none of these ranks is there; there are {there}.")
        wanted += chosen
    return wanted


def _entries(result: MapResult, side: str) -> list[RankEntry]:
    """Return what is to be numbered: each rank, and each profile without any."""
    entries = []
    for profile in result.profiles:
        if profile.side != side:
            continue
        entries += [
            RankEntry(rank.key, profile.label, profile.facts, True) for rank in profile.ranks
        ]
        if not profile.ranks:
            key = RankKey(profile.path, NULL_INT, side)
            entries.append(RankEntry(key, profile.label, profile.facts, False))
    return entries


def entries_by_side(options: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    """Return what was typed for each side.

    Args:
        options: By name. Without the option `baseline` all of `input` is one set. With it, but
            not given, two entries of `input` are baseline and input. Each entry of `baselines` is
            a run of its own.

    Raises:
        UsageError: There is no baseline to compare with.
    """
    given: list[str] = list(options["input"])
    if "baseline" not in options:
        return {"": given}
    baseline = options["baseline"]
    if baseline is None:
        if len(given) != 2:
            raise UsageError(
                "two runs are compared: give --baseline and --input, or two entries after "
                f"--input, first the baseline; there {'is' if len(given) == 1 else 'are'} "
                f"{len(given)}."
            )
        baseline, given = given[:1], given[1:]
    repeats = {
        f"{BASELINE}-{number}": [entry]
        for number, entry in enumerate(options.get("baselines") or (), start=1)
    }
    return {BASELINE: list(baseline), INPUT: given, **repeats}
