"""Which ranks of a run have nothing in common: its groups, decided once for all tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from nsys_llm.capture.identity import Member, group_names, groups_of
from nsys_llm.capture.runs import members_of, with_ranks_twice, with_shared_gpus
from nsys_llm.job.collectives.confidence import LOW_CONFIDENCE
from nsys_llm.job.collectives.matched import MatchedCollectives
from nsys_llm.report.run import Run
from nsys_llm.trace.identity import RankKey

#: Share of a rank's collectives that are matched where its partners are known; at the ends of a
#: capture some have none.
_MOSTLY: Final = 0.8


def grouped(run: Run, matched: MatchedCollectives | None) -> Run:
    """Return a run with the groups of its ranks; runs that are compared have none.

    Args:
        matched: The collectives of all ranks, where a recipe has matched them.
    """
    if run.manifest.sided or run.group_names is not None:
        return run
    members = run.members or members_of(run.profiles)
    met, unplaced = _met(matched, members)
    groups = groups_of(members, met, unplaced)
    ranks = tuple(replace(rank, group=groups.get(rank.key, 0)) for rank in run.ranks)
    profiles = with_shared_gpus(with_ranks_twice(run.profiles, groups))
    names = group_names(ranks, groups)
    return replace(run, profiles=profiles, ranks=ranks, group_names=names)


def _met(
    matched: MatchedCollectives | None, members: Sequence[Member]
) -> tuple[list[set[RankKey]], set[RankKey]]:
    """Return who has matched collectives together, and whose are mostly not surely matched.

    Where a recipe matches none, these are all who communicate.
    """
    if matched is None:
        return [], {it.key for it in members if it.communicates}
    devices = matched.devices
    matched_n: Counter[RankKey] = Counter()
    together = []
    for sequence in matched.sequences:
        keys = [devices[owner].rank.key for owner in sequence.owners]
        if sequence.confidence != LOW_CONFIDENCE:
            for key in keys:
                matched_n[key] += len(sequence)
        together += [set(keys)] if len(sequence) else []
    every_n: Counter[RankKey] = Counter()
    for device in devices:
        every_n[device.rank.key] += sum(lane.start_ns.size for lane in device.lanes)
    return together, {key for key, n in every_n.items() if matched_n[key] < _MOSTLY * n}
