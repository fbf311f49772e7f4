"""Makes of a mapped run what it tells: its tables, its findings, its report.

The recipes of an overview are loaded by name, as a run loads its own: none imports another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from nsys_llm.facts.timeline.step_lanes import KeptRanks
from nsys_llm.job.collectives.matched import MatchedCollectives
from nsys_llm.job.ranks.judge import judged
from nsys_llm.manifest.manifest import Manifest, load_manifest
from nsys_llm.manifest.options import chosen_recipes
from nsys_llm.reduced.job import Job, MatchedOnce
from nsys_llm.reduced.job_facts import JobFacts
from nsys_llm.report.analysis import load_analysis
from nsys_llm.report.capture_summary import (
    capture_caveats,
    run_facts,
    sided_caveats,
    unrecorded,
)
from nsys_llm.report.findings import UNRECORDED_WORK, Finding, ordered
from nsys_llm.report.grouping import grouped
from nsys_llm.report.model_parts import with_parts
from nsys_llm.report.part import OverviewParts, Part
from nsys_llm.report.prices.pricing import priced
from nsys_llm.report.records import Tables
from nsys_llm.report.report import Report
from nsys_llm.report.run import Run
from nsys_llm.report.run_findings import all_findings, findings_table
from nsys_llm.report.run_tables import first_matched, job_of, job_walls, run_tables, working
from nsys_llm.report.screen import subject
from nsys_llm.report.unprofiled import COLUMN as UNPROFILED
from nsys_llm.report.unprofiled import NO_STEPS, refusal
from nsys_llm.report.wall_line import wall_lines
from nsys_llm.trace.outcomes import ProfileOutcome, lacking_notes
from nsys_llm.view.text import quoted


def finished(run: Run, kept: KeptRanks | None = None) -> Part:
    """Return the results of a run that was mapped.

    Args:
        kept: What a timeline is drawn from; None leaves it empty.
    """
    if run.manifest.recipes:
        return _overview(run, kept)
    job = job_of(run)
    tables = run_tables(run, [job])
    return _part(run, job.matched, tables, all_findings(run, tables))


def _part(
    run: Run,
    matched: MatchedCollectives | None,
    tables: Mapping[str, pd.DataFrame],
    findings: Sequence[Finding],
) -> Part:
    every = {**tables, "findings": findings_table(run.manifest, findings)}
    return Part(run, every, build_report(run, every, findings), matched)


def _overview(run: Run, kept: KeptRanks | None) -> Part:
    """Return the results of an overview: one read of each profile."""
    runs = {name: _run_of(run, name) for name in chosen_recipes(run.manifest, run.options)}
    met = MatchedOnce(run.facts.get("", JobFacts()), working(run), run.options)
    jobs = {name: job_of(part, met) for name, part in runs.items()}
    matched = first_matched(jobs.values())
    run = grouped(run, matched)
    # What all recipes know: every part prints these.
    run = replace(run, verdicts=judged(job_walls(run, jobs.values()), matched))
    runs = {name: _beside_others(part, run) for name, part in runs.items()}
    parts = _parts(runs, jobs)
    results = OverviewParts(parts, working(run), run.options)
    tables = run_tables(run, [*jobs.values()], results)
    if kept is not None and (timeline := run.analysis.timeline) is not None:
        tables |= timeline(results, tables, kept)
    return replace(_part(run, matched, tables, all_findings(run, tables)), parts=parts)


def _parts(runs: Mapping[str, Run], jobs: Mapping[str, Job]) -> dict[str, Part]:
    """Return the results of the recipes of an overview, with prices by the tables of all."""
    tables = {name: run_tables(run, [jobs[name]]) for name, run in runs.items()}
    # Of tables that several recipes have, those that divide most classes of the wall split.
    order = sorted(tables, key=lambda name: name == "step_budget")
    every = {table: frame for name in order for table, frame in tables[name].items()}
    parts = {}
    for name, run in runs.items():
        findings = priced(all_findings(run, tables[name]), every)
        findings = with_parts(ordered(findings), every)
        parts[name] = _part(run, jobs[name].matched, tables[name], findings)
    return parts


def _run_of(run: Run, recipe: str) -> Run:
    manifest = load_manifest(recipe)
    options = {option.name: run.options.get(option.name) for option in manifest.options}
    for alias in ("start", "end"):
        options.pop(alias, None)
    return replace(
        run,
        manifest=manifest,
        analysis=load_analysis(recipe),
        options=options,
        profiles=tuple(_profile_of(profile, manifest) for profile in run.profiles),
    )


def _profile_of(profile: ProfileOutcome, manifest: Manifest) -> ProfileOutcome:
    tables = {read.table for read in manifest.reads}
    return replace(
        profile,
        absent_tables=tuple(name for name in profile.absent_tables if name in tables),
        lacking=lacking_notes(manifest.reads, profile.empty_tables),
    )


def _beside_others(part: Run, run: Run) -> Run:
    """Return the run of a recipe with what the overview tells of all ranks."""
    profiles = zip(part.profiles, run.profiles, strict=True)
    return replace(
        part,
        profiles=tuple(replace(its, statements=one.statements) for its, one in profiles),
        ranks=run.ranks,
        group_names=run.group_names,
        verdicts=run.verdicts,
    )


def build_report(run: Run, tables: Tables, findings: Sequence[Finding]) -> Report:
    """Put together what a run tells."""
    sided, is_overview, analysis = run.manifest.sided, run.manifest.recipes, run.analysis
    screen = analysis.screen(tables) if analysis.screen else None
    # Optional ones that are empty are left out.
    sections = [
        section
        for section in run.manifest.sections
        if len(tables[section.table]) or not (section.optional or section.extra)
    ]
    caveats = sided_caveats(tables) if sided else capture_caveats(tables)
    notes = [f"{quoted(who)}: {note}." for who, note in run.notes]
    step_ns, ignored = run.options.get("unprofiled_step"), ""
    if step_ns is not None and tables["wall"][UNPROFILED].isna().all():
        split = [w for profile in run.profiles for rank in profile.ranks for w in rank.wall.devices]
        ignored = max((refusal(wall, step_ns) or "" for wall in split), default=NO_STEPS)
        notes.insert(0, ignored)
    walls = wall_lines(tables)
    if any(finding.rule == UNRECORDED_WORK for finding in findings):
        walls = tuple(line.not_recorded() for line in walls)
    elif screen:
        walls = tuple(line.refined(screen.kernels_bound) for line in walls)
    if is_overview and screen:
        trust = ignored or screen.trust
        screen = replace(screen, subject=subject(run.profiles), trust=trust)
    return Report(
        manifest=run.manifest,
        answer=analysis.answer(tables),
        findings=tuple(findings),
        facts=tuple(run_facts(run, tables)),
        caveats=(*caveats, *analysis.caveats(tables), *notes),
        unrecorded=tuple(unrecorded(run)),
        sections=tuple(sections),
        wall=walls,
        screen=screen if is_overview else None,
    )
