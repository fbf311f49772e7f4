"""The functions that are sent to workers, and what comes back.

Only paths, a recipe's name and options travel; a worker needs this package and nothing else, not
even `nsys_recipe`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from nsys_llm.capture.profile_statements import profile_statements
from nsys_llm.capture.unrecorded import LostWork
from nsys_llm.core.rooted import EVERYWHERE, ROOTS
from nsys_llm.facts.nvtx.phase_times import find_phase
from nsys_llm.facts.rank_view import RankView
from nsys_llm.facts.steps.finder import found_steps
from nsys_llm.facts.wall.split import map_wall
from nsys_llm.manifest.declared import TableRead
from nsys_llm.manifest.manifest import Manifest, checked_reads, load_manifest, timeline_reads
from nsys_llm.manifest.options import chosen_recipes
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.stacking import merged
from nsys_llm.profile.capture import read_facts
from nsys_llm.profile.inputs import ProfileInput, open_profile
from nsys_llm.profile.reader import needed_tables, read_trace
from nsys_llm.profile.segments import with_segments
from nsys_llm.profile.tables import Trace
from nsys_llm.reduced.job_facts import JobFacts, facts_of
from nsys_llm.report.analysis import load_analysis
from nsys_llm.run.boundary import Boundary
from nsys_llm.trace.filters import Finders
from nsys_llm.trace.identity import RankKey
from nsys_llm.trace.outcomes import (
    MapResult,
    ProfileOutcome,
    RankOutcome,
    lacking_notes,
    refuse_broken,
)
from nsys_llm.trace.rank_trace import recorded_ns
from nsys_llm.trace.selection import busiest, gpu_processes, select_rank, used_devices
from nsys_llm.trace.shared_gpus import BESIDE, GpuUsers, others_work
from nsys_llm.trace.unmatched import unmatched_notes, unmatched_options

#: What filters by step and phase need.
_FINDERS: Final = Finders(found_steps, find_phase)


def map_profiles(
    profiles: Sequence[ProfileInput],
    *,
    recipe: str,
    options: Mapping[str, Any],
    only: frozenset[RankKey] | None = None,
    keep: Callable[[RankView], None] | None = None,
) -> MapResult:
    """Read some profiles, one after the other, and reduce them to one result.

    A profile that cannot be read becomes an outcome with a reason; the others go on.

    Args:
        options: By option name, and `nsys`, the executable to export with.
        only: The ranks to map; None for all. Of the others, and with an empty set of all, it is
            found out only that they are there.
        keep: In the process that was started: is given each rank once it is mapped.
    """
    manifest = load_manifest(recipe)
    needs, reads = needed_facts(manifest, options), manifest.reads
    outcomes, facts = [], list[Mapping[str, JobFacts]]()
    for profile in profiles:
        with Boundary(profile) as boundary:
            outcome, of_ranks = _map_profile(profile, reads, needs, options, only, keep)
            outcomes.append(outcome)
            facts += of_ranks
        if boundary.failure is not None:
            outcomes.append(boundary.failure)
    return MapResult(_ordered(outcomes), merged([{}, *facts]))


def needed_facts(manifest: Manifest, options: Mapping[str, Any]) -> frozenset[str]:
    """Return the kinds of facts that a recipe needs, or those that it is made of."""
    recipes = chosen_recipes(manifest, options) if manifest.recipes else [manifest.name]
    return frozenset(name for recipe in recipes for name in load_analysis(recipe).needs)


def merge_results(parts: Sequence[MapResult]) -> MapResult:
    """Join results of distinct profiles. Associative and commutative."""
    profiles = _ordered(profile for part in parts for profile in part.profiles)
    return MapResult(profiles, merged([{}, *(part.facts for part in parts)]))


def _ordered(profiles: Iterable[ProfileOutcome]) -> tuple[ProfileOutcome, ...]:
    return tuple(sorted(profiles, key=lambda profile: (profile.path, profile.side)))


def _map_profile(
    profile: ProfileInput,
    reads: Sequence[TableRead],
    needs: Collection[str],
    options: Mapping[str, Any],
    only: frozenset[RankKey] | None,
    keep: Callable[[RankView], None] | None,
) -> tuple[ProfileOutcome, list[Mapping[str, JobFacts]]]:
    """Return what became of a profile, and the facts of each rank; its trace is kept no longer."""
    tables = needed_tables(reads, options)
    if options.get("perfetto"):
        # It is read once more for that, and exported once.
        tables = (*dict.fromkeys((*tables, *needed_tables(timeline_reads(), options))),)
    with open_profile(
        profile.path,
        tables,
        export_dir=options.get("export_dir"),
        nsys=options.get("nsys"),
        roots=options.get(ROOTS, EVERYWHERE),
    ) as opened:
        facts, known = read_facts(opened), opened.fingerprint
        export = str(opened.path) if opened.stays_made else None
        trace = with_segments(read_trace(opened, reads, options), profile.path, reads, options)
    processes = gpu_processes(trace)
    chosen = busiest(trace, processes)
    beside = options.get(BESIDE, {}).get(profile.path, ())
    users = [GpuUsers(trace, facts.gpu_of), *(_users(it, options) for it in beside)]
    others, lacking = others_work(users), dict[int, LostWork]()
    ranks, of_ranks = _map_ranks(
        profile, trace, chosen, others, needs, options, only, keep, lacking
    )
    refuse_broken(ranks, profile.label)
    empty = tuple(name for name, table in trace.tables.items() if not len(table))
    outcome = ProfileOutcome(
        profile.path,
        profile.label,
        facts,
        ranks,
        tuple(sorted(trace.absent)),
        lacking_notes(reads, empty),
        side=profile.side,
        empty_tables=empty,
        fingerprint=known,
        export=export,
        cut_names_n=trace.cut_names_n,
        left_out_n=len(processes) - len(chosen),
        statements=profile_statements(trace, facts, lacking),
        recorded_ns=recorded_ns(trace),
    )
    return outcome, of_ranks


def _users(beside: tuple[str, int], options: Mapping[str, Any]) -> GpuUsers:
    """Return the processes of a profile that uses a GPU at the same time."""
    path, ahead_ns = beside
    reads = checked_reads()
    where = {name: options.get(name) for name in ("export_dir", "nsys")}
    roots = options.get(ROOTS, EVERYWHERE)
    tables = needed_tables(reads, options)
    with open_profile(path, tables, **where, again=True, roots=roots) as opened:
        return GpuUsers(read_trace(opened, reads, {}), read_facts(opened).gpu_of, ahead_ns)


def _map_ranks(
    profile: ProfileInput,
    trace: Trace,
    processes: Sequence[int],
    others: Mapping[int, IntArray],
    needs: Collection[str],
    options: Mapping[str, Any],
    only: frozenset[RankKey] | None,
    keep: Callable[[RankView], None] | None,
    lacking: dict[int, LostWork],
) -> tuple[tuple[RankOutcome, ...], list[Mapping[str, JobFacts]]]:
    """Return what became of ranks, and their facts; what each lacks is put into `lacking`."""
    ranks, facts = [], list[Mapping[str, JobFacts]]()
    nothing = np.empty((0, 2), dtype=np.int64)
    for global_pid in processes:
        key = RankKey(profile.path, global_pid, profile.side)
        if only is not None and key not in only:
            ranks.append(RankOutcome(key, used_devices(trace, global_pid), (), ()))
            continue
        rank_trace, coverage, notes = select_rank(
            trace, global_pid, options, _FINDERS, alone=len(processes) == 1
        )
        view = RankView(rank_trace, key, options, others.get(global_pid, nothing))
        lacking[global_pid] = view.unrecorded
        facts.append({profile.side: facts_of(view, needs)})
        unmatched = unmatched_options(rank_trace, options)
        notes = unmatched_notes(unmatched, options, notes)
        # Ranks are compared with each other where runs are not.
        wall = map_wall(view, work=not profile.side)
        ranks.append(RankOutcome(key, rank_trace.device_ids, coverage, notes, unmatched, wall))
        if keep is not None:
            keep(view)
    return tuple(ranks), facts
