"""Profiles of earlier runs, told apart from those of the newest, and segments of one process.

Segments were recorded several times in a row, and are read as one, see `nsys_llm.profile.segments`.
All ranks of a job lose the same pauses, those in which no profile records anything, so that their
clocks stay as far apart as they are.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from nsys_llm.capture.identity import (
    Member,
    Session,
    earlier_runs,
    gpu_neighbors,
    member,
    without_rank,
)
from nsys_llm.profile.segments import Segment
from nsys_llm.trace.identity import RankKey, clock_offsets, machines
from nsys_llm.trace.outcomes import MapResult, ProfileOutcome, Statement

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
    # Labels without ranks by path, where these tell groups; else empty texts.
    name_of = {profile.path: without_rank(profile.label) for profile in profiles}
    if min(Counter(name_of.values()).values(), default=0) < 2:
        name_of = dict.fromkeys(name_of, "")
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
    return _saying(profiles, {path: [said] for path, said in twice.items()})


def with_shared_gpus(profiles: Sequence[ProfileOutcome]) -> tuple[ProfileOutcome, ...]:
    """Return profiles whose processes say that others use their GPU at the same time."""
    said: dict[str, list[Statement]] = {}
    for one, others in gpu_neighbors(members_of(profiles)):
        shared = Statement(SHARED_GPU, 1 + len(others), process=one.key.global_pid)
        said.setdefault(one.key.path, []).append(shared)
    return _saying(profiles, said)


def _saying(
    profiles: Sequence[ProfileOutcome], said: Mapping[str, Sequence[Statement]]
) -> tuple[ProfileOutcome, ...]:
    """Return profiles with further statements, by path."""
    return tuple(
        replace(profile, statements=(*profile.statements, *said.get(profile.path, ())))
        for profile in profiles
    )


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


#: The kind of statement on a segment; its name is the segment's, or says that names tell it.
SEGMENT: Final = "segment"
_NUMBER_AT_END: Final = re.compile(r"[._-]?\d+$")


@dataclass(frozen=True)
class FoundSegments:
    """What profiles are segments of one.

    Attributes:
        later: By the path of a first segment the others, in order; empty where there are none.
        statements: By the path of a first segment what is said of all.
        paused_ns: By path, which pauses lie before a profile.
    """

    later: Mapping[str, tuple[Segment, ...]] = field(default_factory=dict)
    statements: Mapping[str, tuple[Statement, ...]] = field(default_factory=dict)
    paused_ns: Mapping[str, int] = field(default_factory=dict)

    def joined(self, profiles: Sequence[ProfileOutcome]) -> tuple[ProfileOutcome, ...]:
        """Return profiles without later segments, on clocks without pauses, and what they are."""
        gone = {segment.path for some in self.later.values() for segment in some}
        return tuple(self._joined(item) for item in profiles if item.path not in gone)

    def _joined(self, profile: ProfileOutcome) -> ProfileOutcome:
        paused_ns, facts = self.paused_ns.get(profile.path, 0), profile.facts
        if facts is not None and paused_ns:
            clocks = (facts.utc_epoch_ns, facts.system_clock_ns)
            utc_ns, steady_ns = (None if at is None else at - paused_ns for at in clocks)
            facts = replace(facts, utc_epoch_ns=utc_ns, system_clock_ns=steady_ns)
        said = self.statements.get(profile.path, ())
        label = _NUMBER_AT_END.sub("", profile.label) if said else profile.label
        statements = (*profile.statements, *said)
        return replace(profile, facts=facts, label=label or profile.label, statements=statements)


def find_segments(profiles: Sequence[ProfileOutcome]) -> FoundSegments:
    """Return which profiles are segments of one process, or of the processes of one.

    They have equal processes on equal GPUs of one machine, programs and ranks, and sessions that do
    not overlap. Where it is not known when the machine was booted, names tell, too, that differ by
    a number at their end.
    """
    chains = list(_chains(profiles))
    facts = {item.path: item.facts for item in profiles if item.facts is not None}
    offset_ns, _ = clock_offsets(facts)
    for chain, _ in chains:
        clocks = [facts[it.path].system_clock_ns for it in chain]
        if None not in clocks and chain[0].path in offset_ns:
            # A machine's own clock is exact, its wall clock is set now and then.
            first_ns = offset_ns[chain[0].path] - (clocks[0] or 0)
            offset_ns |= {
                it.path: first_ns + (at or 0) for it, at in zip(chain, clocks, strict=True)
            }
    recorded = {item.path: item.recorded_ns for item in profiles if item.path in offset_ns}
    if not chains or None in recorded.values():
        return FoundSegments()
    spans = {
        path: (offset_ns[path] + low, offset_ns[path] + high)
        for path, (low, high) in ((path, span) for path, span in recorded.items() if span)
    }
    paused_ns = _pauses(spans)
    later, said = {}, {}
    for chain, by_name in chains:
        first, *others = chain
        start_ns = offset_ns[first.path] - paused_ns[first.path]
        ahead_ns = {it.path: offset_ns[it.path] - paused_ns[it.path] - start_ns for it in chain}
        later[first.path] = tuple(Segment(it.path, ahead_ns[it.path]) for it in others)
        said[first.path] = tuple(
            Statement(
                SEGMENT,
                1,
                len(chain),
                start_ns=low + ahead_ns[it.path],
                end_ns=high + ahead_ns[it.path],
                name=f"{it.label} (by its name)" if by_name else it.label,
            )
            for it, (low, high) in ((it, it.recorded_ns or (0, 0)) for it in chain)
        )
    return FoundSegments(later, said, paused_ns)


def _chains(profiles: Sequence[ProfileOutcome]) -> list[tuple[list[ProfileOutcome], bool]]:
    """Return the segments of each process in order of time, and whether only names tell them."""
    machine_of = machines({item.path: item.facts for item in profiles})
    alike: dict[Any, list[tuple[Session, ProfileOutcome]]] = {}
    for item in profiles:
        members = members_of([item])
        sessions = {one.session for one in members}
        if item.facts is None or len(sessions) != 1 or (session := sessions.pop()) is None:
            continue
        knows_boot = item.facts.boot_ns is not None
        stem = "" if knows_boot else _NUMBER_AT_END.sub("", item.path.rpartition(".")[0])
        who = frozenset((it.key.global_pid, it.program, it.rank, it.gpus) for it in members)
        key = item.side, machine_of[item.path], item.facts.pid_namespace, stem, who
        alike.setdefault(key, []).append((session, item))
    found = []
    for (_, machine, _, stem, _), some in alike.items():
        ordered = sorted(some, key=lambda pair: (pair[0].start_ns, pair[1].path))
        apart = all(not one.meets(next_one) for (one, _), (next_one, _) in pairwise(ordered))
        if machine is not None and len(ordered) > 1 and apart:
            found.append(([item for _, item in ordered], bool(stem)))
    return found


def _pauses(spans: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Return how long nothing was recorded before each profile, from the first record on."""
    paused_ns, before_ns, reached_ns = {}, 0, None
    for path, (low, high) in sorted(spans.items(), key=lambda item: item[1]):
        if reached_ns is not None and low > reached_ns:
            before_ns += low - reached_ns
        paused_ns[path] = before_ns
        reached_ns = high if reached_ns is None else max(reached_ns, high)
    return paused_ns
