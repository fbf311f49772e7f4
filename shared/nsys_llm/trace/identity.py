"""Which rank is which: one rule numbers the whole set, and says its name.

A rank is a process with GPU work in one profile. Numbers never come from the position after
dropping files: a profile that could not be read keeps its place in the order.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Final

from nsys_llm.core.errors import UsageError
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.profile.capture import RANK_VARIABLES, CaptureFacts
from nsys_llm.profile.inputs import natural_key
from nsys_llm.profile.tables import pid_of

_INDEX: Final = "index"
#: Boots of one machine, as its wall clock tells in several profiles, are no further apart.
_SAME_BOOT_NS: Final = 2_000_000_000
#: Of a job, as people write it; tables hold 64 bits.
_RANK: Final = re.compile(r"\d{1,9}", re.ASCII)
_RANK_IN_NAME: Final = re.compile(r"(?<!local)(?<!local[_-])rank[_\-.=]?(\d+)", re.IGNORECASE)


@dataclass(frozen=True, order=True)
class RankKey:
    """What identifies a rank before it has a number: profile and process.

    Attributes:
        global_pid: The process, as the export has it; NULL_INT where a profile names no process.
        side: Which of the sets that a run compares it belongs to; "" where there is one only.
    """

    path: str
    global_pid: int
    side: str = ""


@dataclass(frozen=True)
class RankEntry:
    """One candidate for a number: a process with GPU work, or a profile without a readable one.

    Attributes:
        key: Profile and process; NULL_INT as process where the profile has none.
        facts: None where the profile could not be read.
    """

    key: RankKey
    label: str
    facts: CaptureFacts | None
    has_work: bool


@dataclass(frozen=True)
class Rank:
    """A numbered rank.

    Attributes:
        number: Rank in the job, or index where `source` is index; None if a profile that could not
            be read got no number from the rule.
        file: Label, unique in the run; labels sort as the numbers do.
        group: Which of the groups that have nothing in common, see `nsys_llm.capture.identity`.
        machine: Its host's name, told apart from other machines of that name; None: as recorded.
    """

    key: RankKey
    number: int | None
    file: str
    source: str | None
    facts: CaptureFacts | None = field(repr=False)
    group: int = 0
    machine: str | None = None

    @property
    def host(self) -> str | None:
        """The name of its machine; None where the profile names none."""
        return self.machine or (self.facts.host if self.facts else None)

    @property
    def pid(self) -> int | None:
        """The process id, or None where the profile names no process."""
        return pid_of(self.key.global_pid)


_Rule = Callable[[RankEntry], int | None]


def number_ranks(
    entries: Sequence[RankEntry], rank_map: Mapping[tuple[str, int | None], int] | None = None
) -> list[Rank]:
    """Number the ranks of one side by the first rule that numbers every process, all distinct.

    The rules, in order: the rank map; MPI ranks in the profiles; the launched command's rank
    variables, where each profile has one process; a number after "rank" in the file name, likewise;
    the natural order of file name, then pid.

    Args:
        rank_map: (profile label, pid or None) -> rank, see `read_rank_map`.

    Returns:
        In order of number, those without one last.
    """
    ordered = sorted(entries, key=lambda entry: (natural_key(entry.key.path), entry.key.global_pid))
    workers = [entry for entry in ordered if entry.has_work]
    # Rows of no process are no rank that a rule could know; profiles without GPU work decide only
    # if all are such.
    named = [entry for entry in workers if entry.key.global_pid != NULL_INT]
    decisive = named or workers or ordered
    rules = _rules(ordered, rank_map)
    source, rule = next(rule for rule in rules if _numbers_all(rule[1], decisive))
    return on_machines(_labelled(_numbered(ordered, rule, source)))


def on_machines(ranks: Sequence[Rank]) -> list[Rank]:
    """Return ranks with the names of their machines, see `machines`."""
    names = machines({rank.key.path: rank.facts for rank in ranks})
    return [replace(rank, machine=names[rank.key.path]) for rank in ranks]


def read_rank_map(path: str, text: str, labels: Sequence[str]) -> dict[tuple[str, int | None], int]:
    """Read a rank map: CSV with the columns file, rank and, where needed, pid.

    Args:
        path: The CSV file. Its `file` cells are labels or file names, with or without suffix.

    Raises:
        UsageError: It lacks a column or a number, or leaves out a profile.
    """
    rows = list(csv.DictReader(text.splitlines()))
    if not rows or not {"file", "rank"} <= rows[0].keys():
        raise UsageError(f"--rank-map {path}: needs a first line 'file,rank' or 'file,pid,rank'.")
    mapped: dict[tuple[str, int | None], int] = {}
    for row in rows:
        # A cell is None where the line is too short.
        file, pid, rank = ((row.get(name) or "").strip() for name in ("file", "pid", "rank"))
        if not _RANK.fullmatch(rank) or not (pid or "0").isdecimal():
            raise UsageError(f"--rank-map {path}: '{file}' has the rank '{rank}'; write 0, 1, ...")
        key = _bare(file), int(pid) if pid else None
        if mapped.setdefault(key, int(rank)) != int(rank):
            raise UsageError(f"--rank-map {path}: gives '{file}' two ranks.")
    owners: dict[int, str] = {}
    for (label, _), number in mapped.items():
        if label in labels and owners.setdefault(number, label) != label:
            both = f"both {owners[number]} and {label}"
            raise UsageError(f"--rank-map {path}: gives rank {number} to {both}.")
    listed = {label for label, _ in mapped}
    if left_out := [label for label in labels if label not in listed]:
        raise UsageError(f"--rank-map {path}: gives no rank to {', '.join(left_out[:5])}.")
    return mapped


def clock_offsets(facts: Mapping[str, CaptureFacts]) -> tuple[dict[str, int], str | None]:
    """Return how much later than the first each capture started, by profile, and the clock used.

    The machine's steady clock is exact to nanoseconds but means something on one host only; the
    wall clock is as exact as NTP. No clock: an empty mapping and None.
    """
    if not facts:
        return {}, None
    hosts = set(machines(facts).values())
    steady = {path: fact.system_clock_ns for path, fact in facts.items()}
    wall = {path: fact.utc_epoch_ns for path, fact in facts.items()}
    if len(hosts) == 1 and None not in hosts and None not in steady.values():
        return _after_first(steady), "systemClockNs"
    if None not in wall.values():
        return _after_first(wall), "utcEpochNs"
    return {}, None


def machines(facts: Mapping[str, CaptureFacts | None]) -> dict[str, str | None]:
    """Return the machine of each profile by its path; None where it names no host.

    Names of hosts repeat in containers: profiles of one name that were booted at different times
    are of several machines, `host` and `host (2)`.
    """
    boots: dict[str, list[int]] = {}
    names: dict[str, str | None] = {}
    for path, fact in facts.items():
        host, boot_ns = (None, None) if fact is None else (fact.host, fact.boot_ns)
        names[path] = host
        if host is None or boot_ns is None:
            continue
        known = boots.setdefault(host, [])
        same = [at for at, other_ns in enumerate(known) if abs(other_ns - boot_ns) <= _SAME_BOOT_NS]
        if not same:
            known.append(boot_ns)
        number = same[0] if same else len(known) - 1
        names[path] = f"{host} ({number + 1})" if number else host
    return names


def one_clock(facts: Mapping[str, CaptureFacts | None]) -> dict[str, int]:
    """Return the clock of each profile, counted from 0 in their order.

    Profiles of one session (split into a file a rank, say) have one clock: one host, one session id
    where they have one, and the same start to the nanosecond on both of the host's clocks. Without
    that a profile has a clock of its own.
    """
    clocks: dict[object, int] = {}
    clock_of: dict[str, int] = {}
    for path, fact in facts.items():
        session: object = path
        if fact is not None:
            reported = fact.host, fact.utc_epoch_ns, fact.system_clock_ns
            session = path if None in reported else (*reported, fact.session)
        clock_of[path] = clocks.setdefault(session, len(clocks))
    return clock_of


def _after_first(clock_ns: Mapping[str, int | None]) -> dict[str, int]:
    known = {path: value for path, value in clock_ns.items() if value is not None}
    first = min(known.values())
    return {path: value - first for path, value in known.items()}


def _rules(
    ordered: Sequence[RankEntry], rank_map: Mapping[tuple[str, int | None], int] | None
) -> list[tuple[str, _Rule]]:
    """Return all rules by name; the last one always applies."""
    position = {entry.key: index for index, entry in enumerate(ordered)}
    rules: list[tuple[str, _Rule]] = []
    if rank_map is not None:
        rules.append(("rank_map", lambda entry: _mapped(entry, rank_map)))
    rules.append(
        ("mpi_ranks", lambda it: it.facts.mpi_ranks.get(it.key.global_pid) if it.facts else None)
    )
    # These give all processes of a profile one number, so they decide only where each has one.
    rules += [(f"env:{name}", _by_variable(name)) for name in RANK_VARIABLES]
    rules.append(("file_name", lambda entry: rank_in_file_name(entry.key.path)))
    rules.append((_INDEX, lambda entry: position[entry.key]))
    return rules


def _numbers_all(rule: _Rule, workers: Sequence[RankEntry]) -> bool:
    numbers = [rule(entry) for entry in workers]
    return None not in numbers and len(set(numbers)) == len(numbers)


def said_rank(key: RankKey, facts: CaptureFacts) -> int | None:
    """Return the rank of a process in its job, as MPI or the launched command says."""
    if (rank := facts.mpi_ranks.get(key.global_pid)) is not None:
        return rank
    said = (facts.rank_variables.get(name) for name in RANK_VARIABLES)
    return next((rank for rank in said if rank is not None), None)


def known_rank(key: RankKey, facts: CaptureFacts) -> int | None:
    """Return the same, or else the rank in the name of the file."""
    said = said_rank(key, facts)
    return rank_in_file_name(key.path) if said is None else said


def _mapped(entry: RankEntry, rank_map: Mapping[tuple[str, int | None], int]) -> int | None:
    pid = pid_of(entry.key.global_pid)
    return rank_map.get((entry.label, pid), rank_map.get((entry.label, None)))


def _by_variable(name: str) -> _Rule:
    return lambda entry: entry.facts.rank_variables.get(name) if entry.facts else None


def rank_in_file_name(path: str) -> int | None:
    """Return the rank that the name of a file says; None for one that says none."""
    match = _RANK_IN_NAME.search(Path(path).name)
    return int(match[1]) if match else None


def _numbered(
    ordered: Sequence[RankEntry], rule: _Rule, source: str
) -> list[tuple[RankEntry, int | None, str]]:
    """Give the rule's numbers, each once: to ranks with work first, then in order.

    Work that the rule cannot number comes after the others, as an index.
    """
    numbers: dict[RankKey, int | None] = {}
    for entry in sorted(ordered, key=lambda entry: not entry.has_work):
        number = rule(entry)
        numbers[entry.key] = None if number in numbers.values() else number
    following = count(
        max((number for number in numbers.values() if number is not None), default=-1) + 1
    )
    rows: list[tuple[RankEntry, int | None, str]] = []
    for entry in ordered:
        number = numbers[entry.key]
        late = number is None and entry.has_work
        rows.append((entry, next(following), _INDEX) if late else (entry, number, source))
    return rows


def _labelled(numbered: Sequence[tuple[RankEntry, int | None, str]]) -> list[Rank]:
    processes_n = Counter(entry.key.path for entry, _, _ in numbered)
    ordered = sorted(numbered, key=lambda pair: (pair[1] is None, pair[1] or 0))
    plain = [
        f"{entry.label}.pid{pid_of(entry.key.global_pid)}"
        if processes_n[entry.key.path] > 1 and entry.key.global_pid != NULL_INT
        else entry.label
        for entry, _, _ in ordered
    ]
    ranked = [
        label for label, (_, number, _) in zip(plain, ordered, strict=True) if number is not None
    ]
    width = len(str(max((number for _, number, _ in ordered if number is not None), default=0)))
    if ranked == sorted(set(ranked)):
        files = plain
    else:
        # NVIDIA's diff pairs ranks by sorted label, so the labels must sort as the ranks do.
        files = [
            label if number is None else f"{number:0{width}d}:{label}"
            for label, (_, number, _) in zip(plain, ordered, strict=True)
        ]
    return [
        Rank(entry.key, number, file, None if number is None else source, entry.facts)
        for file, (entry, number, source) in zip(files, ordered, strict=True)
    ]


def relabelled(ranks: Sequence[Rank], label_of: Callable[[str], str]) -> list[Rank]:
    """Return ranks with other labels, in the same order; see `Rank.file`."""
    named: dict[RankKey, Rank] = {}
    for side in dict.fromkeys(rank.key.side for rank in ranks):
        numbered = [
            (RankEntry(rank.key, label_of(rank.key.path), rank.facts, True), rank.number, "")
            for rank in ranks
            if rank.key.side == side
        ]
        named |= {rank.key: rank for rank in _labelled(numbered)}
    return [replace(rank, file=named[rank.key].file) for rank in ranks]


def _bare(name: str) -> str:
    for suffix in (".nsys-rep", ".qdrep", ".sqlite", "_pqtdir"):
        name = name.removesuffix(suffix)
    return name.strip()
