"""From what was typed to a `Run`: profiles are found and mapped on workers, ranks are numbered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from nsys_llm.analyses.steps.of_job import with_agreed_warmup
from nsys_llm.core.console import Console
from nsys_llm.manifest.manifest import Manifest
from nsys_llm.profile.inputs import ProfileInput, expand_sides
from nsys_llm.report.analysis import load_analysis
from nsys_llm.report.run import Run
from nsys_llm.run.executors import Executor, chunked
from nsys_llm.run.second_look import FirstRead
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
    first: FirstRead | None = None,
) -> Run:
    """Map all profiles, or those ranks that --ranks asks for, and number the ranks.

    Args:
        nsys: The `nsys` to export with; None: the one that is found.
        first: Keeps what a second look needs; None where workers read, or nothing looks again.
    """
    recipe = manifest.name
    keys: frozenset[RankKey] | None = None
    chosen: Sequence[ProfileInput] = inputs.profiles
    unread_n = 0

    def reduced(
        options: Mapping[str, Any], only: frozenset[RankKey] | None, done: Callable[[int], None]
    ) -> MapResult:
        sent = {**options, "nsys": nsys}
        mapper = partial(map_profiles, recipe=recipe, options=sent, only=only)
        if first is not None:
            mapper = partial(mapper, keep=first.keep)
        merge = partial(merge_results, recipe=recipe)
        return executor.reduce(mapper, chunked(chosen, executor.workers_n), merge, done)

    if options["ranks"] is not None:
        probed = reduced(options, frozenset(), lambda _: None)
        every = _numbered(probed, inputs.rank_maps, console)
        ranks = wanted_ranks(every, options["ranks"])
        unread_n = len(every) - len(ranks)
        keys = frozenset(rank.key for rank in ranks)
        places = {(key.side, key.path) for key in keys}
        chosen = [profile for profile in chosen if (profile.side, profile.path) in places]
    result, options = with_agreed_warmup(
        lambda options: reduced(options, keys, console.progress(len(chosen)).advance), options
    )
    if keys is None:
        ranks = _numbered(result, inputs.rank_maps, console)
    return Run(
        manifest=manifest,
        analysis=load_analysis(recipe),
        options=options,
        profiles=result.profiles if keys is None else _only_ranks(result.profiles, keys),
        partial=result.partial,
        ranks=tuple(ranks),
        left_out=inputs.left_out,
        unread_n=unread_n,
    )


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
