"""The tables of a run: files, coverage and wall, which every recipe has, and the recipe's own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import pandas as pd

from nsys_llm.facts.phases.rank import RankPhases
from nsys_llm.job.collectives.matched import MatchedCollectives
from nsys_llm.job.ranks.judge import judged
from nsys_llm.job.ranks.verdicts import EVIDENCE, RankVerdict
from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.manifest.options import chosen_recipes
from nsys_llm.reduced.job import Job, MatchedOnce
from nsys_llm.reduced.job_facts import JobFacts
from nsys_llm.report.capture_table import capture_rows
from nsys_llm.report.grouping import grouped
from nsys_llm.report.outputs import Cells, declared_frames
from nsys_llm.report.run import Run
from nsys_llm.report.wall import wall_rows
from nsys_llm.taxonomy.categories import rules_for
from nsys_llm.trace.coverage import CoverageRow
from nsys_llm.trace.identity import Rank, RankKey, clock_offsets
from nsys_llm.trace.outcomes import ProfileOutcome, RankOutcome
from nsys_llm.trace.rank_sets import COMPARED
from nsys_llm.trace.wall import JobWalls, joined_details


def job_of(run: Run, met: MatchedOnce | None = None) -> Job:
    """Return what was read of a run as its recipe sees it.

    Args:
        met: The collectives, which the recipes of an overview share; None: those of this run.
    """
    walls = [rank.wall for profile in run.profiles for rank in profile.ranks]
    names = frozenset(name for wall in walls for name in wall.kernel_names)
    if not run.manifest.sided:
        return _job_of_side(run, "", names, met)
    sides = sorted({*COMPARED, *(rank.key.side for rank in run.ranks)})
    jobs = {side: _job_of_side(run.side(side), side, names) for side in sides}
    return Job(JobFacts(), run.ranks, run.options, names, sides=jobs)


def _job_of_side(run: Run, side: str, names: frozenset[str], met: MatchedOnce | None = None) -> Job:
    facts, mapped = run.facts.get(side, JobFacts()), working(run)
    ranks = run.ranks if run.manifest.sided else mapped
    met = met or MatchedOnce(facts, mapped, run.options)
    return Job.of(facts, run.analysis.needs, ranks, run.options, names, met)


def working(run: Run) -> list[Rank]:
    """Return the ranks with GPU work, in order."""
    mapped = {rank.key for profile in run.profiles for rank in profile.ranks}
    return [rank for rank in run.ranks if rank.key in mapped]


def first_matched(jobs: Iterable[Job]) -> MatchedCollectives | None:
    """Return the collectives of the first recipe that matches them; None where none does."""
    return next((job.matched for job in jobs if job.matched is not None), None)


def run_tables(
    run: Run, jobs: Sequence[Job] | None = None, results: Any = None
) -> dict[str, pd.DataFrame]:
    """Return all tables of a run but its findings, which are made of these.

    Args:
        jobs: What the run knows, or each recipe of an overview; None: made here.
        results: Of an overview: what its own tables are made of.
    """
    jobs = [job_of(run)] if jobs is None else jobs
    matched = first_matched(jobs)
    run = grouped(run, matched)
    told = job_walls(run, jobs)
    of_phases = {} if run.manifest.recipes else jobs[0].facts.phases.ranks
    rows = {
        "files": [*_file_rows(run), *_earlier_rows(run.earlier), *_absent_rows(run.absent)],
        "coverage": _coverage_rows(run, of_phases),
        "capture": capture_rows((*run.profiles, *run.earlier), run.ranks),
        "wall": wall_rows(
            *(run.ranks, told.walls, told.details, told.rules), run.options["unprofiled_step"]
        ),
    }
    # Which run a row is of, only recipes that compare runs say.
    left_out = set() if run.manifest.sided else {"run"}
    tables: dict[str, Cells] = {
        name: [{key: value for key, value in row.items() if key not in left_out} for row in some]
        for name, some in rows.items()
    }
    verdicts = run.verdicts or ()
    if not run.manifest.sided:
        verdicts = judged(told, matched) if run.verdicts is None else run.verdicts
        recipes = chosen_recipes(run.manifest, run.options) or [run.manifest.name]
        there = {table.file for name in recipes for table in load_manifest(name).writes}
        tables["rank_verdicts"] = [
            {**vars(verdict), "evidence": _evidence(verdict, there)} for verdict in verdicts
        ]
    if results is None:
        ranks = run.ranks if run.manifest.sided else working(run)
        results = replace(jobs[0], ranks=ranks, verdicts=verdicts)
    tables |= run.analysis.tabulate(results)
    return declared_frames(run.manifest, tables)


def _evidence(verdict: RankVerdict, there: Collection[str]) -> str | None:
    """Return the tables that hold the evidence of a verdict, of those that are there."""
    names = () if verdict.verdict is None else EVIDENCE[verdict.verdict]
    return ", ".join(name for name in names if name in there) or None


def _file_rows(run: Run) -> list[dict[str, Any]]:
    profiles = {(profile.side, profile.path): profile for profile in run.profiles}
    devices = {rank.key: rank.device_ids for profile in run.profiles for rank in profile.ranks}
    # Runs that are compared have no clock in common.
    clocks = {side: _clocks(run.side(side)) for side in {key[0] for key in profiles}}
    rows = []
    for rank in run.ranks:
        key = rank.key
        if profile := profiles.get((key.side, key.path)):
            offsets, clock = clocks[key.side]
            rows.append(
                _file_row(rank, profile, devices, offsets.get(key.path), clock, run.group_names)
            )
    return rows


def _clocks(run: Run) -> tuple[Mapping[str, int], str | None]:
    """Return the clock offset of each profile that has one, in ns, and what told it."""
    if run.options["disable_alignment"]:
        return {}, None
    return clock_offsets(
        {profile.path: profile.facts for profile in run.profiles if profile.facts is not None}
    )


def _file_row(
    rank: Rank,
    profile: ProfileOutcome,
    devices: Mapping[RankKey, tuple[int, ...]],
    offset_ns: int | None,
    clock: str | None,
    groups: Mapping[int, str] | None,
) -> dict[str, Any]:
    facts = profile.facts
    status, reason = "ok", None
    if profile.reason is not None:
        status, reason = "failed", profile.reason
    elif rank.key not in devices:
        status, reason = "no_gpu_work", profile.without_work
    used = ",".join(map(str, devices.get(rank.key, ())))
    return {
        "run": rank.key.side,
        "Rank": rank.number,
        "File": rank.file,
        "rank_source": rank.source,
        "group": rank.group if status == "ok" else None,
        "group_name": (groups or {}).get(rank.group) if status == "ok" else None,
        "status": status,
        "reason": reason,
        "host": rank.host,
        "pid": rank.pid,
        "process_name": facts.processes.get(rank.key.global_pid) if facts else None,
        "gpu": ", ".join(sorted(set(facts.gpus))) or None if facts else None,
        "device_ids": used or None,
        "nsys_version": facts.nsys_version if facts else None,
        "schema_version": facts.schema_version if facts else None,
        "clock_offset_ns": offset_ns,
        "clock_source": clock if offset_ns is not None else None,
        "secret_variables": ", ".join(facts.secret_variables) or None if facts else None,
        "environments_n": facts.environments_n if facts else None,
        "max_connections": facts.max_connections if facts else None,
    }


def _earlier_rows(profiles: Sequence[ProfileOutcome]) -> list[dict[str, Any]]:
    reason = "an earlier run of the same program"
    rows = [{"run": profile.side, "Rank": None, "File": profile.label} for profile in profiles]
    return [{**row, "status": "earlier_run", "reason": reason} for row in rows]


def _absent_rows(absent: Sequence[tuple[str, int]]) -> list[dict[str, Any]]:
    reason = "no profile of this rank was given"
    rows = [
        {"run": side, "Rank": number, "File": f"({f'{side} rank {number}'.strip()})"}
        for side, number in absent
    ]
    return [{**row, "status": "absent", "reason": reason} for row in rows]


def _coverage_rows(run: Run, of_phases: Mapping[RankKey, RankPhases]) -> list[dict[str, Any]]:
    by_key = {rank.key: rank for rank in run.ranks}
    rows = [
        {
            "run": rank.key.side,
            "rank": by_key[rank.key].number,
            "file": by_key[rank.key].file,
            **asdict(row),
        }
        for profile in run.profiles
        for rank in profile.ranks
        for row in _ranged(rank, of_phases.get(rank.key))
    ]
    return sorted(rows, key=lambda row: (row["run"], row["rank"]))


def _ranged(rank: RankOutcome, phases: RankPhases | None) -> Sequence[CoverageRow]:
    """Return the rows of a rank, of NVTX ranges too where its recipe looks at them."""
    if not rank.coverage or phases is None:
        return rank.coverage
    return [row.without_ranges(*phases.missing.get(row.op, (0, 0))) for row in rank.coverage]


def job_walls(run: Run, jobs: Iterable[Job]) -> JobWalls:
    """Return the wall splits of a run, with what its recipes know of them."""
    ranks = {rank.key: rank for profile in run.profiles for rank in profile.ranks}
    walls = {
        (key, wall.device_id): wall for key, rank in ranks.items() for wall in rank.wall.devices
    }
    names = {name for rank in ranks.values() for name in rank.wall.kernel_names}
    mapped = tuple(rank for rank in run.ranks if rank.key in ranks)
    details = joined_details(job.wall_details(walls, unread=run.unread_n > 0) for job in jobs)
    rules = rules_for(names, run.options.get("engine", "auto"))
    return JobWalls(mapped, walls, details, rules)
