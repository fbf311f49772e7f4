"""Which ranks of a run have nothing in common: its groups, decided once for all tables."""

from __future__ import annotations

from dataclasses import replace

from nsys_llm.analyses.wall.of_matched import CommunicationPartial
from nsys_llm.capture.identity import group_names, groups_of
from nsys_llm.capture.runs import members_of, with_ranks_twice, with_shared_gpus
from nsys_llm.report.run import Run
from nsys_llm.trace.identity import RankKey


def grouped(run: Run, matched: Run | None = None) -> Run:
    """Return a run with the groups of its ranks; runs that are compared have none.

    Args:
        matched: The same run as a recipe sees it that has matched collectives; None: this one.
    """
    if run.manifest.sided or run.group_names is not None:
        return run
    members = run.members or members_of(run.profiles)
    groups = groups_of(members, _met(run if matched is None else matched))
    ranks = tuple(replace(rank, group=groups.get(rank.key, 0)) for rank in run.ranks)
    profiles = with_shared_gpus(with_ranks_twice(run.profiles, groups))
    names = group_names(ranks, groups)
    return replace(run, profiles=profiles, ranks=ranks, group_names=names)


def _met(run: Run) -> list[set[RankKey]] | None:
    """Return who has matched collectives together; None where the recipe matches none."""
    partial = run.partial
    if not isinstance(partial, CommunicationPartial) or partial.matched is None:
        return None
    devices = partial.matched.devices
    return [
        {devices[owner].rank.key for owner in sequence.owners}
        for sequence in partial.matched.sequences
        if len(sequence)
    ]
