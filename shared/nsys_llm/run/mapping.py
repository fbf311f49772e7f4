"""From what was typed to a `Run`: profiles are found and mapped on workers, ranks are numbered."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from nsys_llm.capture.runs import (
    FoundSegments,
    find_segments,
    members_of,
    profiles_beside,
    without_earlier_runs,
)
from nsys_llm.core.console import Console
from nsys_llm.facts.timeline.step_lanes import KeptRanks
from nsys_llm.job.job_steps import with_agreed_warmup
from nsys_llm.manifest.manifest import Manifest
from nsys_llm.profile.inputs import ProfileInput, expand_sides
from nsys_llm.profile.segments import SEGMENTS
from nsys_llm.report.analysis import load_analysis
from nsys_llm.report.run import Run
from nsys_llm.run.executors import Executor, chunked
from nsys_llm.run.worker import map_profiles, merge_results
from nsys_llm.trace.identity import Rank, RankKey
from nsys_llm.trace.outcomes import MapResult, ProfileOutcome
from nsys_llm.trace.rank_sets import (
    RankMaps,
    entries_by_side,
    number_sides,
    read_rank_maps,
    unused_maps,
    wanted_ranks,
)
from nsys_llm.trace.shared_gpus import BESIDE


@dataclass(frozen=True)
class Inputs:
    """What a run is to read.

    Attributes:
        profiles: In natural order of their names, those of each side together.
        left_out: What was typed and is not read, a line each.
        rank_maps: What numbers the ranks, where that was given.
    """

    profiles: tuple[ProfileInput, ...]
    left_out: tuple[str, ...]
    rank_maps: RankMaps


def find_inputs(options: Mapping[str, Any]) -> Inputs:
    """Return the profiles behind what was typed.

    Raises:
        UsageError: One of them is not there.
    """
    sides = entries_by_side(options)
    profiles, left_out = expand_sides(sides)
    rank_maps = read_rank_maps(options["rank_map"], profiles)
    return Inputs(tuple(profiles), tuple(left_out), rank_maps)


def map_run(
    manifest: Manifest,
    inputs: Inputs,
    options: Mapping[str, Any],
    executor: Executor,
    console: Console,
    nsys: str | None = None,
    kept: KeptRanks | None = None,
) -> Run:
    """Map all profiles, or those ranks that --ranks asks for, and number the ranks.

    Args:
        nsys: The `nsys` to export with; None: the one that is found.
        kept: Keeps what a timeline is drawn from; None where none is.
    """
    keys: frozenset[RankKey] | None = None
    chosen: Sequence[ProfileInput] = inputs.profiles
    ranks: Sequence[Rank] = ()
    newest, unread_n = _Newest(), 0

    def reduced(
        options: Mapping[str, Any], only: frozenset[RankKey] | None, done: Callable[[int], None]
    ) -> MapResult:
        mapper = partial(_mapper(chosen, kept), recipe=manifest.name, only=only)
        mapper = partial(mapper, options={**options, "nsys": nsys})
        return executor.reduce(mapper, chunked(chosen, executor.workers_n), merge_results, done)

    def mapped(options: Mapping[str, Any]) -> MapResult:
        nonlocal newest, chosen
        result = reduced({**options, **newest.options}, keys, console.progress(len(chosen)).advance)
        if keys is None and not newest.is_decided:
            newest = _Newest.of(result)
            if newest.options or newest.earlier:
                # What profiles are, none tells alone; and their numbers are in those of all.
                chosen = _of_places(chosen, newest.places)
                return mapped(options)
        return replace(result, profiles=newest.segments.joined(result.profiles))

    if options["ranks"] is not None:
        newest = _Newest.of(reduced(options, frozenset(), lambda _: None))
        every = _numbered(newest.result, inputs.rank_maps, console)
        ranks = wanted_ranks(every, options["ranks"])
        unread_n = len(every) - len(ranks)
        keys = frozenset(rank.key for rank in ranks)
        chosen = _of_places(chosen, {(key.side, key.path) for key in keys})
    result, options = with_agreed_warmup(mapped, options)
    if keys is None:
        ranks = _numbered(result, inputs.rank_maps, console)
    return Run(
        manifest=manifest,
        analysis=load_analysis(manifest.name),
        options={**options, **newest.options},
        profiles=result.profiles if keys is None else _only_ranks(result.profiles, keys),
        facts=result.facts,
        ranks=tuple(ranks),
        left_out=inputs.left_out,
        unread_n=unread_n,
        earlier=newest.earlier,
        members=members_of(result.profiles),
    )


def _mapper(profiles: Sequence[ProfileInput], kept: KeptRanks | None) -> Callable[..., MapResult]:
    """Return what maps profiles, and keeps their ranks if these are kept in this process."""
    if kept is None or not kept.here:
        return map_profiles
    kept.expect([profile.path for profile in profiles])
    return partial(map_profiles, keep=kept.keep)


@dataclass(frozen=True)
class _Newest:
    """What profiles are, from all of them together: segments of one, earlier runs, neighbours.

    Attributes:
        result: The profiles of the newest run, segments as one.
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    result: MapResult = field(default_factory=lambda: MapResult((), {}))
    earlier: tuple[ProfileOutcome, ...] = ()
    segments: FoundSegments = field(default_factory=FoundSegments)
    is_decided: bool = False

    @property
    def places(self) -> set[tuple[str, str]]:
        """Side and path of the profiles of the newest run."""
        return {(item.side, item.path) for item in self.result.profiles}

    @classmethod
    def of(cls, result: MapResult) -> _Newest:
        """Decide it."""
        segments = find_segments(result.profiles)
        joined = replace(result, profiles=segments.joined(result.profiles))
        newest, earlier = without_earlier_runs(joined)
        beside = profiles_beside(newest.profiles)
        options = {SEGMENTS: segments.later, BESIDE: beside}
        given = {name: value for name, value in options.items() if value}
        return cls(given, newest, earlier, segments, is_decided=True)


def _of_places(
    profiles: Sequence[ProfileInput], places: Collection[tuple[str, str]]
) -> list[ProfileInput]:
    return [profile for profile in profiles if (profile.side, profile.path) in places]


def _numbered(result: MapResult, rank_maps: RankMaps, console: Console) -> list[Rank]:
    ranks = number_sides(result, rank_maps)
    for side, source in unused_maps(ranks, rank_maps):
        before = f"{side}: " if side else ""
        console.warn(
            f"{before}--rank-map leaves out a process; the ranks are numbered by {source}."
        )
    return ranks


def _only_ranks(
    profiles: Sequence[ProfileOutcome], keys: frozenset[RankKey]
) -> tuple[ProfileOutcome, ...]:
    return tuple(
        replace(profile, ranks=tuple(rank for rank in profile.ranks if rank.key in keys))
        for profile in profiles
    )
