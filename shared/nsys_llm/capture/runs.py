"""Profiles of earlier runs, told apart from those of the newest, and how to compare them."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from nsys_llm.capture.identity import Member, earlier_runs, gpu_neighbors, member, without_rank
from nsys_llm.trace.identity import RankKey, clock_offsets
from nsys_llm.trace.outcomes import MapResult, ProfileOutcome
from nsys_llm.trace.statements import Statement

#: The kind of statement on a profile of an earlier run; its name is the command that compares.
EARLIER_RUN: Final = "earlier_run"
#: That on a profile whose rank another one says, too; its name is that rank.
RANK_TWICE: Final = "rank_twice"
#: That on a process whose GPU others use at the same time; how many do.
SHARED_GPU: Final = "shared_gpu"


def members_of(profiles: Sequence[ProfileOutcome]) -> tuple[Member, ...]:
    """Return what is known of all processes with GPU work."""
    return tuple(member(profile, rank) for profile in profiles for rank in profile.ranks)


def without_earlier_runs(result: MapResult) -> tuple[MapResult, tuple[ProfileOutcome, ...]]:
    """Return the outcomes of the newest run of each side, and those of earlier ones.

    These say what they are, and hold no rank. The facts are left as they are.
    """
    earlier: list[ProfileOutcome] = []
    for side in sorted({profile.side for profile in result.profiles}):
        of_side = [profile for profile in result.profiles if profile.side == side]
        runs = earlier_runs(members_of(of_side))
        before = {path for run in runs for path in run}
        newest = [profile.path for profile in of_side if profile.path not in before]
        for run in runs:
            said = Statement(EARLIER_RUN, len(run), name=comparison(run, newest))
            there = (profile for profile in of_side if profile.path in run)
            earlier += [replace(profile, ranks=(), statements=(said,)) for profile in there]
    gone = {(profile.side, profile.path) for profile in earlier}
    kept = tuple(item for item in result.profiles if (item.side, item.path) not in gone)
    return replace(result, profiles=kept), tuple(earlier)


def profiles_beside(
    profiles: Sequence[ProfileOutcome],
) -> dict[str, tuple[tuple[str, int], ...]]:
    """Return by path the other profiles that use one of its GPUs at the same time.

    Each with how much later its capture began, in ns: what takes its clock to that profile's.
    """
    facts = {profile.path: profile.facts for profile in profiles if profile.facts is not None}
    offset_ns, _ = clock_offsets(facts)
    members = [one for one in members_of(profiles) if one.key.path in offset_ns]
    beside: dict[str, set[str]] = {}
    for one, others in gpu_neighbors(members):
        for other in others:
            if other.key.path != one.key.path and other.key.side == one.key.side:
                beside.setdefault(one.key.path, set()).add(other.key.path)
    return {
        path: tuple((other, offset_ns[other] - offset_ns[path]) for other in sorted(others))
        for path, others in beside.items()
    }


def with_ranks_twice(
    profiles: Sequence[ProfileOutcome], group_of: Mapping[RankKey, int] | None = None
) -> tuple[ProfileOutcome, ...]:
    """Return profiles of which those say so whose rank another profile of their group says, too.

    Args:
        group_of: The group of each process; None: profiles whose names are the same but for numbers
            are one, if other names are several as well, and profiles of more ranks than a job has
            are of several jobs.
    """
    sizes = [profile.facts.world_size for profile in profiles if profile.facts is not None]
    if group_of is None and any(size is not None and size < len(sizes) for size in sizes):
        return tuple(profiles)
    name_of = _name_groups(profiles)
    said: dict[tuple[object, int], list[str]] = {}
    for one in members_of(profiles):
        if one.said_rank is not None:
            group = name_of[one.key.path] if group_of is None else group_of.get(one.key)
            said.setdefault((group, one.said_rank), []).append(one.key.path)
    twice = {
        path: Statement(RANK_TWICE, len(set(paths)), name=f"rank {rank}")
        for (_, rank), paths in said.items()
        if len(set(paths)) > 1
        for path in paths
    }
    return tuple(
        replace(profile, statements=(*profile.statements, twice[profile.path]))
        if profile.path in twice
        else profile
        for profile in profiles
    )


def with_shared_gpus(profiles: Sequence[ProfileOutcome]) -> tuple[ProfileOutcome, ...]:
    """Return profiles whose processes say that others use their GPU at the same time."""
    said: dict[str, list[Statement]] = {}
    for one, others in gpu_neighbors(members_of(profiles)):
        shared = Statement(SHARED_GPU, 1 + len(others), process=one.key.global_pid)
        said.setdefault(one.key.path, []).append(shared)
    return tuple(
        replace(profile, statements=(*profile.statements, *said.get(profile.path, ())))
        for profile in profiles
    )


def _name_groups(profiles: Sequence[ProfileOutcome]) -> dict[str, str]:
    """Return profiles' labels without ranks by path, where these tell groups; else empty texts."""
    stems = {profile.path: without_rank(profile.label) for profile in profiles}
    several = min(Counter(stems.values()).values(), default=0) > 1
    return stems if several else dict.fromkeys(stems, "")


def comparison(earlier: Sequence[str], newest: Sequence[str]) -> str:
    """Return the command that compares two runs, its paths from the folder that holds both."""
    above = os.path.commonpath([str(Path(path).parent) for path in (*earlier, *newest)])
    words = [
        ("--baseline", *_given(earlier, newest, above)),
        ("--input", *_given(newest, earlier, above)),
    ]
    return shlex.join(["nsys-llm", "trace_diff", *(word for some in words for word in some)])


def _given(paths: Sequence[str], others: Collection[str], above: str) -> list[str]:
    """Return how a run is given: its folder, where it has one for itself, else its files."""
    folders = {Path(path).parent for path in paths}
    shared = folders & {Path(path).parent for path in others}
    if len(folders) == 1 and not shared and folders != {Path(above)}:
        return [os.path.relpath(next(iter(folders)), above)]
    return [os.path.relpath(path, above) for path in paths]
