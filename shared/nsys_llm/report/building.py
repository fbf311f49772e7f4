"""Makes of a mapped run what it tells: its tables, its findings, its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pandas as pd

from nsys_llm.facts.timeline.step_lanes import KeptRanks
from nsys_llm.report.capture_summary import capture_caveats, run_facts, sided_caveats, unrecorded
from nsys_llm.report.findings import UNRECORDED_WORK, Finding, ordered
from nsys_llm.report.model_parts import with_parts
from nsys_llm.report.part import Part
from nsys_llm.report.prices.pricing import priced
from nsys_llm.report.records import Tables
from nsys_llm.report.report import Report
from nsys_llm.report.run import Run
from nsys_llm.report.run_findings import all_findings, findings_table
from nsys_llm.report.run_tables import run_tables
from nsys_llm.report.screen import subject
from nsys_llm.report.unprofiled import COLUMN as UNPROFILED
from nsys_llm.report.unprofiled import NO_STEPS, refusal
from nsys_llm.report.wall_line import wall_lines
from nsys_llm.view.text import quoted


def finished(
    run: Run,
    kept: KeptRanks | None = None,
    tables: Mapping[str, pd.DataFrame] | None = None,
    every: Mapping[str, pd.DataFrame] | None = None,
) -> Part:
    """Return the results of a run that was mapped: tables, findings, report.

    Args:
        kept: What a timeline is drawn from; None leaves it empty.
        tables: Those of `run_tables`, where they are made.
        every: In an overview those of all its recipes, which give the prices; what these make
            small stays listed.
    """
    tables = dict(run_tables(run) if tables is None else tables)
    if kept is not None and (timeline := run.analysis.timeline) is not None:
        working = {rank.key for profile in run.profiles for rank in profile.ranks}
        ranks = [rank for rank in run.ranks if rank.key in working]
        tables |= timeline(run.parts, ranks, tables, run.options, kept)
    findings = all_findings(run, tables)
    if every is not None:
        findings = with_parts(ordered(priced(findings, every)), every)
    tables["findings"] = findings_table(run.manifest, findings)
    return Part(run, tables, build_report(run, tables, findings))


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
