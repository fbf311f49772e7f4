"""The recipes of an overview: one read of each profile, and the results of a run of each.

Recipes are loaded by name, as a run loads its own: none of them imports another.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from nsys_llm import __version__
from nsys_llm.core.console import Console
from nsys_llm.core.errors import ExitCode, UsageError
from nsys_llm.manifest.manifest import Manifest, load_manifest
from nsys_llm.report.analysis import Analysis
from nsys_llm.report.part import finished
from nsys_llm.report.report import Report
from nsys_llm.report.report_files import write_data, write_run
from nsys_llm.report.run import Run
from nsys_llm.report.run_record import REPORT_NAME
from nsys_llm.report.run_tables import job_walls, prepared
from nsys_llm.run.publish import ANALYSIS_SUFFIX, names_below
from nsys_llm.run.worker import lacking_notes, load_analysis, ranged_coverage
from nsys_llm.trace.outcomes import ProfileOutcome
from nsys_llm.trace.rank_sets import BASELINE
from nsys_llm.trace.wall import WallKey


def part_names(recipe: str, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the recipes of an overview that a run is to have, in the order of its manifest.

    Raises:
        UsageError: `--only` names another one.
    """
    names = load_manifest(recipe).recipes
    if not options.get("only"):
        return names
    chosen = [name.strip() for name in options["only"].split(",")]
    if odd := [name for name in chosen if name not in names]:
        raise UsageError(f"--only: no recipe '{odd[0]}'; there are: {', '.join(names)}.")
    return tuple(name for name in names if name in chosen)


def overview_options(recipe: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what an overview itself is run with: it reads one run, and trace_diff compares."""
    if not load_manifest(recipe).recipes:
        return options
    return {name: value for name, value in options.items() if name != BASELINE}


def with_parts(run: Run) -> Run:
    """Return the run of an overview with the results of its recipes in place of their partials."""
    names = part_names(run.manifest.name, run.options)
    runs = {name: prepared(_run_of(run, name)) for name in names}
    verdicts = _verdicts(list(runs.values()))
    parts = {name: finished(part, verdicts=verdicts) for name, part in runs.items()}
    return replace(run, partial=replace(run.partial, parts=parts))


def _verdicts(runs: Sequence[Run]) -> Sequence[Any]:
    """Return the verdicts on ranks by what all recipes know: every part prints these."""
    jobs = [job_walls(run) for run in runs]
    details: dict[WallKey, dict[str, Mapping[str, int]]] = {}
    for job in jobs:
        for key, classes in job.details.items():
            details.setdefault(key, {}).update(classes)
    # Who matches collectives knows how late ranks are.
    best = max(runs, key=lambda run: run.analysis.collectives is not None)
    judge = best.analysis.rank_verdicts
    job = replace(jobs[0], details=details)
    return () if judge is None else judge(best.partial, job, best.options)


def _run_of(run: Run, recipe: str) -> Run:
    """Return what a run of one recipe would have read."""
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
        profiles=tuple(
            _profile_of(profile, manifest, analysis, partial) for profile in run.profiles
        ),
        partial=partial,
    )


def _profile_of(
    profile: ProfileOutcome, manifest: Manifest, analysis: Analysis[Any], partial: Any
) -> ProfileOutcome:
    tables = {read.table for read in manifest.reads}
    ranks = (
        replace(rank, coverage=ranged_coverage(analysis, partial, rank.key, rank.coverage))
        for rank in profile.ranks
    )
    return replace(
        profile,
        absent_tables=tuple(name for name in profile.absent_tables if name in tables),
        lacking=lacking_notes(manifest.reads, profile.empty_tables),
        ranks=tuple(ranks),
    )


#: The recipe that compares a run with its baseline.
COMPARED: Final = "trace_diff"


def with_verdict(report: Report, folder: Path) -> Report:
    """Return the report of an overview with the verdict of a comparison ahead of its answer.

    Args:
        report: Of the overview.
        folder: Result of `COMPARED`.
    """
    compared = json.loads((folder / REPORT_NAME).read_text("utf-8"))["report"]
    screen = report.screen
    return replace(
        report,
        answer=f"{compared['answer']}\n{report.answer}",
        screen=None if screen is None else replace(screen, verdict=compared["answer"]),
    )


def write_parts(folder: Path, run: Run, code: ExitCode, console: Console) -> dict[str, str]:
    """Write a folder for each recipe; return the files by relative path, with their labels.

    Args:
        folder: That of the overview.
        run: See `with_parts`.
        code: How the run ends.
        console: Shows in one line what could not be made.
    """
    written: dict[str, str] = {}
    for name, part in run.partial.parts.items():
        place = folder / name
        place.mkdir()
        what = place, part.run, part.tables, part.report, code
        _, files = write_run(*what, console) if run.options["notebooks"] else write_data(*what)
        record = {
            "RecipeName": name,
            "DisplayName": part.run.manifest.title,
            "RecipeVersion": __version__,
            "Outputs": files,
            "Files": sorted([*names_below(place), f"{name}{ANALYSIS_SUFFIX}"]),
        }
        text = json.dumps(record, indent=4)
        (place / f"{name}{ANALYSIS_SUFFIX}").write_text(text, encoding="utf-8")
        written |= {f"{name}/{file}": label for file, label in files.items()}
    return written
