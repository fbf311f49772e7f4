"""Who profiles are: ranks of one job, earlier runs of it, or groups that have nothing in common.

Pure. What tells: machine, processes, GPUs and sessions of the profiles, the steps of each process,
and which processes have matched collectives together. A fact that a profile lacks speaks neither
for nor against anything.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final

from nsys_llm.profile.tables import pid_of
from nsys_llm.trace.identity import Rank, RankKey, known_rank, said_rank
from nsys_llm.trace.outcomes import ProfileOutcome, RankOutcome
from nsys_llm.view.text import runs

#: What engines add to the name of a process to tell ranks apart.
_RANK_SUFFIX: Final = re.compile(r"([ _:-]*((DP|TP|EP|PP)[_-]?#|\[rank ?#\]|rank[_-]?#))+$", re.I)
_DIGITS: Final = re.compile(r"\d+")
#: What labels begin with where they would not sort as ranks do, and what in them tells the rank.
_POSITION: Final = re.compile(r"^\d+:")
_RANK_IN_LABEL: Final = re.compile(
    r"([ ._/-]*(rank|dp|tp|ep|gpu|worker)[ ._-]?\d+|[ ._/-]+\d+)?(\.pid\d+)?$", re.I
)

_Step = tuple[str, str | None]


@dataclass(frozen=True)
class Session:
    """When a profile was recorded, wall clock."""

    start_ns: int
    end_ns: int

    def meets(self, other: Session) -> bool:
        """Return whether both were recorded at the same time."""
        return self.start_ns < other.end_ns and other.start_ns < self.end_ns


@dataclass(frozen=True)
class Member:
    """One process with GPU work, as far as its profile tells.

    Attributes:
        program: Its name without what tells ranks apart.
        gpus: Those that it uses, by uuid or place in the machine.
        rank: In its job, as the profile or its file says.
        step: What its steps are called, or whose engine's they are, and what is in their batches.
        namespace: In which its process id is unique.
    """

    key: RankKey
    program: str | None
    host: str | None
    gpus: frozenset[str]
    rank: int | None
    session: Session | None
    said_rank: int | None = None
    step: _Step | None = None
    busy_ns: int = 0
    communicates: bool = False
    namespace: str | None = None

    @property
    def process(self) -> tuple[str | None, str | None, int]:
        """What tells its process from others."""
        return self.host, self.namespace, self.key.global_pid

    def shares_gpu(self, other: Member) -> bool:
        """Return whether both use one GPU, surely at one time, which no two ranks of NCCL can."""
        talk = self.communicates and other.communicates
        is_same = self.process == other.process
        timed = self.key.path == other.key.path or None not in (self.session, other.session)
        return (
            bool(self.gpus & other.gpus) and timed and self.meets(other) and not (talk or is_same)
        )

    def meets(self, other: Member) -> bool:
        """Return whether both were recorded at the same time, as far as profiles tell."""
        return self.session is None or other.session is None or self.session.meets(other.session)


def folded(name: str | None) -> str | None:
    """Return the name of a program, the same for all of its ranks."""
    if not name:
        return None
    return _RANK_SUFFIX.sub("", _DIGITS.sub("#", name.rsplit("/", 1)[-1].strip())) or None


def member(profile: ProfileOutcome, rank: RankOutcome) -> Member:
    """Return what a profile that was read tells of one of its processes."""
    facts, key = profile.facts, rank.key
    if facts is None:
        return Member(key, None, None, frozenset(), None, None)
    pid, walls, step = pid_of(key.global_pid), rank.wall.devices, rank.wall.step
    gpus = (facts.gpu_of.get((pid or 0, device)) for device in rank.device_ids)
    start_ns, last_ns = facts.utc_epoch_ns, max((it.span_end_ns or 0 for it in walls), default=0)
    length_ns, session = facts.duration_ns or last_ns, None
    if start_ns is not None and length_ns:
        session = Session(start_ns, start_ns + length_ns)
    return Member(
        key=key,
        program=folded(facts.processes.get(key.global_pid)),
        host=facts.host,
        gpus=frozenset(gpu for gpu in gpus if gpu is not None),
        rank=known_rank(key, facts),
        said_rank=said_rank(key, facts),
        session=session,
        step=None if step is None else step.of_program,
        busy_ns=sum(wall.span_ns - wall.idle_ns - wall.no_work_ns for wall in walls),
        communicates=any(wall.communication_ns for wall in walls),
        namespace=facts.pid_namespace,
    )


def gpu_neighbors(members: Iterable[Member]) -> Iterator[tuple[Member, list[Member]]]:
    """Yield who shares a GPU at one time, with those that they share it with."""
    users: dict[str, list[Member]] = {}
    for one in members:
        for gpu in one.gpus:
            users.setdefault(gpu, []).append(one)
    for one in members:
        near = {it.key: it for gpu in one.gpus for it in users[gpu] if it is not one}
        if others := [it for it in near.values() if one.shares_gpu(it)]:
            yield one, others


def earlier_runs(members: Sequence[Member]) -> list[list[str]]:
    """Return the paths of profiles of earlier runs of what the newest one runs, oldest run first.

    Profiles that were recorded at the same time are one run. It is an earlier one if the newest
    has the same program on one of its GPUs, or with one of its ranks on that machine.
    """
    runs: list[list[Member]] = []
    timed = [(it.session, it) for it in members if it.session is not None]
    latest_ns = 0
    for session, it in sorted(timed, key=lambda pair: pair[0].start_ns):
        if not runs or session.start_ns >= latest_ns:
            runs.append([])
        latest_ns = max(latest_ns, session.end_ns)
        runs[-1].append(it)
    newest = runs.pop() if runs else []
    return [
        sorted({it.key.path for it in run})
        for run in runs
        if any(_runs_again(it, later) for it in run for later in newest)
    ]


def _runs_again(earlier: Member, later: Member) -> bool:
    if not _agree(earlier.program, later.program):
        return False
    if earlier.gpus and later.gpus:
        return bool(earlier.gpus & later.gpus)
    return earlier.host is not None and (earlier.host, earlier.rank) == (later.host, later.rank)


def _agree(one: object, other: object) -> bool:
    return one is None or other is None or one == other


def groups_of(
    members: Sequence[Member],
    met: Iterable[Collection[RankKey]],
    unplaced: Collection[RankKey],
) -> dict[RankKey, int]:
    """Return the group of each process, counted from 0 in order of GPU time.

    Who has collectives together is a group, whatever it is called. Others join one, the largest
    first, whose program and steps are theirs, and which runs at the same time or whose ranks differ
    from theirs.

    Args:
        met: Who has matched collectives together.
        unplaced: Who communicates with partners that are not known: with each other, it may be.
    """
    connected = _connected(members, met, unplaced)
    whole = [_Group(some) for some in connected if len(some) > 1]
    alone = (some[0] for some in connected if len(some) == 1)
    for one in sorted(alone, key=lambda it: it.busy_ns, reverse=True):
        fits = (group for group in whole if group.takes(one))
        fit = max(fits, key=lambda it: it.busy_ns, default=None)
        if fit is None:
            fit = _Group([])
            whole.append(fit)
        fit.add(one)
    ordered = sorted(whole, key=lambda it: it.busy_ns, reverse=True)
    return {it.key: number for number, group in enumerate(ordered) for it in group.members}


class _Group:
    """Members of one group, and what they have in common."""

    def __init__(self, members: Iterable[Member]) -> None:
        self.members: list[Member] = []
        self._programs: set[str | None] = set()
        self.busy_ns = 0
        self._steps: set[_Step | None] = set()
        for one in members:
            self.add(one)

    def add(self, one: Member) -> None:
        """Make a process one of them."""
        self.members.append(one)
        self._programs.add(one.program)
        self.busy_ns += one.busy_ns
        self._steps.add(one.step)

    def takes(self, one: Member) -> bool:
        """Return whether a process may be one of them."""
        program = any(_agree(one.program, program) for program in self._programs)
        steps = program and all(_agree_on_steps(one.step, step) for step in self._steps)
        return steps and any(_at_once(one, other) for other in self.members)


def _connected(
    members: Sequence[Member],
    met: Iterable[Collection[RankKey]],
    unplaced: Collection[RankKey],
) -> list[list[Member]]:
    talking = [it for it in members if it.key in unplaced]
    first: dict[RankKey, RankKey] = {it.key: it.key for it in members}

    def root(key: RankKey) -> RankKey:
        while first[key] != key:
            first[key] = key = first[first[key]]
        return key

    for together in chain(met, _may_meet(talking)):
        known = [root(key) for key in together if key in first]
        for key in known[1:]:
            first[root(key)] = root(known[0])
    found: dict[RankKey, list[Member]] = {}
    for it in members:
        found.setdefault(root(it.key), []).append(it)
    return list(found.values())


def _may_meet(members: Iterable[Member]) -> Iterator[list[RankKey]]:
    """Yield who of some processes may communicate with each other.

    Those of which less is known of their steps go with the most of those that they agree with.
    """
    by_step: dict[_Step | None, list[Member]] = {}
    for one in members:
        by_step.setdefault(one.step, []).append(one)
    for step in sorted(by_step, key=lambda it: (it is None, it is not None and it[1] is None)):
        others = [it for it in by_step if it != step and _agree_on_steps(step, it)]
        if others and (step is None or step[1] is None):
            most = max(others, key=lambda it: sum(one.busy_ns for one in by_step[it]))
            by_step[most] += by_step.pop(step)
    for some in by_step.values():
        yield from _at_one_time(some)


def _at_one_time(members: Sequence[Member]) -> Iterator[list[RankKey]]:
    """Yield the parts of some processes that `_at_once` connects."""
    if len({it.rank for it in members} - {None}) > 1:
        yield [it.key for it in members if it.rank is not None]
    timed = [(it.session, it.key) for it in members if it.session is not None]
    if len(timed) < len(members):
        yield [it.key for it in members]
    latest_ns, last = -math.inf, None
    for session, key in sorted(timed, key=lambda pair: (pair[0].start_ns, pair[1])):
        if last is not None and session.start_ns < latest_ns:
            yield [last, key]
        latest_ns, last = max(latest_ns, session.end_ns), key


def _agree_on_steps(one: _Step | None, other: _Step | None) -> bool:
    if one is None or other is None:
        return True
    return one[0] == other[0] and _agree(one[1], other[1])


def _at_once(one: Member, other: Member) -> bool:
    if one.meets(other):
        return True
    return None not in (one.rank, other.rank) and one.rank != other.rank


def group_names(ranks: Sequence[Rank], groups: Mapping[RankKey, int]) -> dict[int, str]:
    """Return what each group is called: what its files or programs have in common, else its ranks.

    Nothing where all are one group.
    """
    by_group: dict[int, list[Rank]] = {}
    for rank in ranks:
        if rank.key in groups:
            by_group.setdefault(groups[rank.key], []).append(rank)
    if len(by_group) < 2:
        return {}
    of_one_file = len({rank.key.path for some in by_group.values() for rank in some}) == 1
    ways = (_common_program, _common_label) if of_one_file else (_common_label, _common_program)
    for name_of in ways:
        names = {group: name_of(some) for group, some in sorted(by_group.items())}
        known = [name for name in names.values() if name]
        if len(set(known)) == len(names):
            return {group: name or "" for group, name in names.items()}
    return {group: _numbers(some) for group, some in sorted(by_group.items())}


def without_rank(label: str) -> str:
    """Return a label without its last number, which tells the rank."""
    return _RANK_IN_LABEL.sub("", label)


def _common_label(ranks: Sequence[Rank]) -> str:
    """Return what the labels of some ranks share: `decode_w0` of `decode_w0_rank0` and 1."""
    labels = {_POSITION.sub("", rank.file) for rank in ranks}
    if len(labels) > 1:
        labels = {without_rank(label) for label in labels}
    return labels.pop() if len(labels) == 1 else ""


def _common_program(ranks: Sequence[Rank]) -> str:
    facts = [(rank.facts, rank.key.global_pid) for rank in ranks]
    programs = {folded(fact.processes.get(pid)) for fact, pid in facts if fact is not None}
    return programs.pop() or "" if len(programs) == 1 else ""


def _numbers(ranks: Sequence[Rank]) -> str:
    numbers = sorted(rank.number for rank in ranks if rank.number is not None)
    if len(numbers) < 2:
        return f"rank {numbers[0]}" if numbers else ""
    return f"ranks {', '.join(runs(numbers))}"
