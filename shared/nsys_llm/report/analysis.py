"""What a recipe is made of: the functions that a run calls, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Generic, TypeVar

import pandas as pd

from nsys_llm.analyses.rank_view import RankView
from nsys_llm.analyses.timeline.step_lanes import KeptRanks
from nsys_llm.report.findings import Finding
from nsys_llm.report.outputs import Cells
from nsys_llm.report.records import Tables
from nsys_llm.report.rules import Rule
from nsys_llm.report.screen import Screen
from nsys_llm.trace.identity import Rank, RankKey
from nsys_llm.trace.outcomes import RankOutcome
from nsys_llm.trace.wall import JobWalls, WallDetails, Walls

Partial = TypeVar("Partial")
Results = TypeVar("Results")
Options = Mapping[str, Any]


@dataclass(frozen=True)
class Analysis(Generic[Partial, Results]):
    """The functions of one recipe; its module `analysis` holds them under the name `ANALYSIS`.

    A partial holds integers and strings only, so that the order of merging changes nothing. Where
    each runs: `map_rank`, `merge` and `missing_ranges` on a worker, the others once, in the
    process that was started.

    Attributes:
        partial: What a rank is reduced to; without arguments, the identity of `merge`.
        map_rank: Reduces one rank to a partial, by the options in its view; no I/O.
        merge: Joins partials of distinct ranks; associative and commutative.
        tabulate: Makes the recipe's own tables of the merged partial, by their names in its
            manifest. The ranks are those with GPU work, in order; of a recipe that compares, all.
        findings: What stands out in the tables, in no order.
        rules: What its findings say, by the id of the rule.
        answer: The recipe's question answered in two sentences, from its tables and `findings`.
        caveats: What to know before reading the recipe's numbers, as prose.
        missing_ranges: What of the one rank of a partial lies in no NVTX range, operations and ns,
            by `CoverageRow.op`; None for a recipe that does not look at ranges.
        prepare: Puts into the merged partial what both `wall_details` and `tabulate` need; None
            where there is nothing. By the ranks with GPU work and the options.
        is_composite: Whether it is made of other recipes: its functions take their results, by name
            (`nsys_llm.report.part.Part`), for a merged partial.
        wall_details: Divides classes of the table `wall`; None for a recipe that does not know
            more of them than all do.
        rank_verdicts: Compares ranks: rows of the table `rank_verdicts`, see
            `nsys_llm.analyses.ranks.verdicts.RankVerdict`; None for a recipe that does not.
        with_verdicts: Puts these into what `tabulate` gets; None where tables need none of them.
        screen: Facts for the first screen of an overview, from all tables; None for a recipe whose
            summary is as all others' are, or a run of which there is nothing to tell.
        kernels_bound: What holds the time of kernels by all tables, `memory` or `compute`, where
            it is known; None for a recipe that does not ask.
        headline: What an overview repeats on its first screen, from all tables; None for nothing.
        matches_collectives: Whether it needs `DeviceWall.hidden` for that.
        collectives: The communication kernels in a partial, a `CollectivesPartial`; None for a
            recipe that keeps none.
        timeline: Makes the tables of what ranks did in windows that only the other tables tell, of
            the ranks with GPU work, all tables but findings, and the ranks that were kept; None for
            most recipes.
    """

    partial: type[Partial]
    map_rank: Callable[[RankView], Partial]
    merge: Callable[[Sequence[Partial]], Partial]
    tabulate: Callable[[Results, Sequence[Rank], Options], Mapping[str, Cells]]
    findings: Callable[[Tables], list[Finding]]
    rules: Mapping[str, Rule]
    answer: Callable[[Tables], str]
    caveats: Callable[[Tables], list[str]]
    missing_ranges: Callable[[Partial, RankKey], Mapping[str, tuple[int, int]]] | None = None
    prepare: Callable[[Partial, Sequence[Rank], Options], Results] | None = None
    is_composite: bool = False
    wall_details: Callable[[Results, Sequence[Rank], Walls, Options], WallDetails] | None = None
    rank_verdicts: Callable[[Results, JobWalls, Options], Sequence[Any]] | None = None
    with_verdicts: Callable[[Results, Sequence[Any]], Results] | None = None
    matches_collectives: bool = False
    screen: Callable[[Tables], Screen | None] | None = None
    kernels_bound: Callable[[Tables], str | None] | None = None
    headline: Callable[[Tables], list[str]] | None = None
    collectives: Callable[[Results], Any] | None = None
    timeline: (
        Callable[[Results, Sequence[Rank], Tables, Options, KeptRanks], dict[str, pd.DataFrame]]
        | None
    ) = None


def load_analysis(recipe: str) -> Analysis[Any, Any]:
    """Import the analysis of a recipe by name, so that nothing here depends on any recipe."""
    analysis: Analysis[Any, Any] = import_module(f"nsys_llm.recipes.{recipe}.analysis").ANALYSIS
    return analysis


def ranged(analysis: Analysis[Any, Any], partial: Any, rank: RankOutcome) -> RankOutcome:
    """Return a rank with what a recipe tells of its NVTX ranges, if the recipe looks at them."""
    if not rank.coverage or analysis.missing_ranges is None:
        return rank
    missing = analysis.missing_ranges(partial, rank.key)
    coverage = tuple(row.without_ranges(*missing.get(row.op, (0, 0))) for row in rank.coverage)
    return replace(rank, coverage=coverage)
