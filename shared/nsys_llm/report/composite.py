"""The recipes that an overview is made of: one read of each profile, and the results of each.

Recipes are loaded by name, as a run loads its own: none of them imports another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from nsys_llm.job.partial import CommunicationPartial
from nsys_llm.job.ranks.judge import judged
from nsys_llm.manifest.manifest import Manifest, load_manifest
from nsys_llm.manifest.options import chosen_recipes
from nsys_llm.report.analysis import load_analysis
from nsys_llm.report.building import finished
from nsys_llm.report.grouping import grouped
from nsys_llm.report.run import Run
from nsys_llm.report.run_tables import job_walls, prepared, run_tables
from nsys_llm.trace.outcomes import ProfileOutcome, lacking_notes


def composed(run: Run) -> Run:
    """Return a run with the results of the recipes that it is made of; most are of none."""
    if not run.manifest.recipes:
        return run
    runs = {
        name: prepared(_run_of(run, name)) for name in chosen_recipes(run.manifest, run.options)
    }
    best = _best(list(runs.values()))
    run = grouped(run, best)
    # What all recipes know: every part prints these.
    verdicts = judged(job_walls(run, list(runs.values())), best.partial.matched)
    said = [profile.statements for profile in run.profiles]
    runs = {
        name: replace(
            part,
            profiles=tuple(
                replace(profile, statements=its)
                for profile, its in zip(part.profiles, said, strict=True)
            ),
            ranks=run.ranks,
            group_names=run.group_names,
            verdicts=verdicts,
        )
        for name, part in runs.items()
    }
    tables = {name: run_tables(part) for name, part in runs.items()}
    # Of tables that several recipes have, those that divide most classes of the wall split.
    order = sorted(tables, key=lambda name: name == "step_budget")
    every = {table: frame for name in order for table, frame in tables[name].items()}
    parts = {name: finished(part, tables=tables[name], every=every) for name, part in runs.items()}
    return replace(run, parts=parts, verdicts=verdicts)


def _best(runs: Sequence[Run]) -> Run:
    """Return who matches collectives: it knows whose ranks are one group, and how late they are."""
    return max(runs, key=lambda run: isinstance(run.partial, CommunicationPartial))


def _run_of(run: Run, recipe: str) -> Run:
    manifest, analysis = load_manifest(recipe), load_analysis(recipe)
    partial = run.partial.parts.get(recipe, analysis.partial())
    options = {option.name: run.options.get(option.name) for option in manifest.options}
    for alias in ("start", "end"):
        options.pop(alias, None)
    return replace(
        run,
        manifest=manifest,
        analysis=analysis,
        options=options,
        profiles=tuple(_profile_of(profile, manifest) for profile in run.profiles),
        partial=partial,
    )


def _profile_of(profile: ProfileOutcome, manifest: Manifest) -> ProfileOutcome:
    tables = {read.table for read in manifest.reads}
    return replace(
        profile,
        absent_tables=tuple(name for name in profile.absent_tables if name in tables),
        lacking=lacking_notes(manifest.reads, profile.empty_tables),
    )
