"""One run: what was read of which profiles. Made once, and handed on to all that comes after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from nsys_llm.capture.identity import Member
from nsys_llm.job.ranks.verdicts import RankVerdict
from nsys_llm.manifest.manifest import Manifest
from nsys_llm.reduced.job_facts import JobFacts
from nsys_llm.report.analysis import Analysis
from nsys_llm.trace.identity import Rank
from nsys_llm.trace.outcomes import ProfileOutcome
from nsys_llm.trace.rank_sets import COMPARED
from nsys_llm.view.text import counted, ranks_words

_UNREAD = "{} of the inputs left out; waiting for them counts as transfer"
_NO_PROFILE = "no profile of {} was given; waiting for what is missing counts as transfer"


@dataclass(frozen=True)
class Run:
    """What tables, findings, the report and the record are made of.

    Attributes:
        profiles: What became of each, sorted by path, then side.
        facts: What is known of the ranks of each side; a side without a rank is not there.
        ranks: Those that were numbered, with GPU work or not: sides in order of name, each in
            order of number.
        left_out: What was typed and not read, a line each.
        verdicts: What is told of each GPU beside its peers, where all of these tell it together.
        unread_n: Ranks that were numbered and that --ranks leaves out.
        group_names: What the groups of its ranks are called, empty where all are one; None before
            they are known.
    """

    manifest: Manifest
    analysis: Analysis[Any]
    options: Mapping[str, Any]
    profiles: tuple[ProfileOutcome, ...]
    facts: Mapping[str, JobFacts]
    ranks: tuple[Rank, ...]
    left_out: tuple[str, ...] = ()
    verdicts: Sequence[RankVerdict] | None = None
    unread_n: int = 0
    group_names: Mapping[int, str] | None = None
    earlier: tuple[ProfileOutcome, ...] = ()
    members: tuple[Member, ...] = ()

    @cached_property
    def notes(self) -> tuple[tuple[str, str], ...]:
        """What is to be known of the profiles: which ones, and one note however many share it."""
        labels: dict[str, list[str]] = {}
        for profile in self.profiles:
            for note in profile.notes:
                labels.setdefault(note, []).append(profile.label)
        if self.unread_n:
            labels[_UNREAD.format(counted(self.unread_n, "rank"))] = ["--ranks"]
        # Without a number that was asked for; a profile that failed may be that rank's.
        elif not (self.absent or self.failed) and (gaps := gaps_in_ranks(self.ranks)):
            labels[_NO_PROFILE.format(ranks_words(gaps))] = ["inputs"]
        return tuple(
            (who[0] if len(who) == 1 else f"{who[0]} and {len(who) - 1} more", note)
            for note, who in labels.items()
        )

    @cached_property
    def absent(self) -> tuple[tuple[str, int], ...]:
        """The ranks that no profile has, by side: asked for, or those of the run compared with."""
        asked = absent_ranks(self.ranks, self.options)
        return tuple(dict.fromkeys([*asked, *unpaired_ranks(self.ranks)]))

    @cached_property
    def failed(self) -> tuple[ProfileOutcome, ...]:
        """The profiles that could not be read."""
        return tuple(profile for profile in self.profiles if profile.reason is not None)

    def side(self, side: str) -> Run:
        """Return the same run with the profiles and ranks of one side only."""
        profiles = tuple(profile for profile in self.profiles if profile.side == side)
        ranks = tuple(rank for rank in self.ranks if rank.key.side == side)
        return replace(self, profiles=profiles, ranks=ranks)


def absent_ranks(ranks: Sequence[Rank], options: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Return the ranks that --world-size or --ranks asks for and no profile has, by side.

    A profile that could not be read is not absent: it failed, and is counted as such.
    """
    sides = sorted({rank.key.side for rank in ranks})
    return [
        (side, number)
        for side in sides
        for number in _absent([rank for rank in ranks if rank.key.side == side], options)
    ]


def gaps_in_ranks(ranks: Sequence[Rank]) -> list[int]:
    """Return the numbers between those that a launcher gave to ranks of one group, without one."""
    sides: dict[tuple[str, int], set[int]] = {}
    for rank in ranks:
        if rank.number is not None and (rank.source or "").startswith("env:"):
            sides.setdefault((rank.key.side, rank.group), set()).add(rank.number)
    every = [number for some in sides.values() for number in range(min(some), max(some))]
    return sorted({*every} - set().union(*sides.values()))


def unpaired_ranks(ranks: Sequence[Rank]) -> list[tuple[str, int]]:
    """Return the ranks that one of two runs has and the other lacks, by side."""
    numbers = {
        side: {rank.number for rank in ranks if rank.key.side == side and rank.number is not None}
        for side in COMPARED
    }
    every = set().union(*numbers.values()) if all(numbers.values()) else set()
    return [(side, n) for side in COMPARED for n in sorted(every - numbers[side])]


def _absent(ranks: Sequence[Rank], options: Mapping[str, Any]) -> list[int]:
    # Beside ranks with a number of the job, an index is no rank.
    sources = {rank.source for rank in ranks} - {None}
    there = {rank.number for rank in ranks if len(sources) == 1 or rank.source != "index"}
    wanted = options["ranks"] if options["ranks"] is not None else range(options["world_size"] or 0)
    return [number for number in wanted if number not in there]
