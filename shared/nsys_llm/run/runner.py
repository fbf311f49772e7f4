"""One run from inputs to a published folder, whoever started it."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from nsys_llm import __version__
from nsys_llm.core.console import Console
from nsys_llm.core.errors import ExitCode, UsageError
from nsys_llm.facts.timeline.step_lanes import KeptRanks
from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.manifest.options import resolved_options
from nsys_llm.profile.inputs import ProfileInput
from nsys_llm.report import drawing
from nsys_llm.report.analysis import load_analysis
from nsys_llm.report.anonymous import anonymous
from nsys_llm.report.building import finished
from nsys_llm.report.findings import CAPTURE
from nsys_llm.report.part import PARTS_FOLDER, Part
from nsys_llm.report.report_files import write_run
from nsys_llm.report.run import Run
from nsys_llm.report.run_record import gated
from nsys_llm.run.executors import Executor
from nsys_llm.run.guard import RunOutcome
from nsys_llm.run.mapping import find_inputs, map_run
from nsys_llm.run.parts import (
    COMPARED,
    overview_options,
    with_verdict,
    write_parts,
)
from nsys_llm.run.publish import OutputFolder
from nsys_llm.trace.rank_sets import BASELINE, INPUT
from nsys_llm.trace.unmatched import refuse_unmatched
from nsys_llm.view.text import counted


def run_recipe(
    recipe: str,
    options: Mapping[str, Any],
    executor: Executor,
    console: Console,
    *,
    nsys: str | None = None,
    analysis_record: Mapping[str, Any] | None = None,
    reported_side: str | None = None,
) -> RunOutcome:
    """Read the profiles, analyze them, and publish the results.

    Args:
        options: All of its options, see `nsys_llm.manifest.options.resolved_options`.
        nsys: The `nsys` to export with; None: the one that is found.
        analysis_record: What Nsight Systems itself puts into the .nsys-analysis file.
        reported_side: The side whose profiles' problems an overview has reported already.

    Raises:
        NsysLlmError: Nothing could be read, or nothing can be written; nothing was published.
    """
    started = datetime.now()
    manifest = load_manifest(recipe)
    given, options = options, overview_options(recipe, options)
    compares = bool(manifest.recipes and given.get(BASELINE))
    inputs = find_inputs(options)
    if compares:
        find_inputs(given)  # refused before anything is read
    for note in inputs.left_out:
        console.note(note)
    with OutputFolder(options["output"], recipe, replace=options["force_overwrite"]) as folder:
        drawing.import_meanwhile()
        draws = load_analysis(recipe).timeline is not None
        kept = KeptRanks(here=executor.in_process) if draws else None
        run = map_run(manifest, inputs, options, executor, console, nsys, kept)
        _show_exports(run, console)
        _show_failures(run, console, reported_side)
        if (code := _unreadable(run, console)) is not None:
            return RunOutcome(code, None)
        code = _exit_code(run, console, reported_side)
        results = finished(anonymous(run) if run.options["anonymize"] else run, kept)
        if manifest.metrics:
            code = gated(code, results.tables["gates"]["result"], options["gate_if"])
        if compares:
            other, compared = run_compared(folder.path, given, executor, console)
            code = max(code, other)
            results = replace(results, report=with_verdict(results.report, compared))
        summary, written = _write(folder, results, code, console)
        if compares:
            written[f"{PARTS_FOLDER}/{COMPARED}"] = load_manifest(COMPARED).title
        profiles = _input_names(results.run, inputs.profiles)
        record = _record(run, executor, started, analysis_record, profiles, written)
        if reported_side is None:  # the result of an overview stands only with that
            folder.on_published = partial(setattr, console, "results")
        place = folder.publish(record)
    findings = results.report.findings
    on_time = (number for number, one in enumerate(findings, 1) if one.kind != CAPTURE)
    return RunOutcome(code, place, summary, next(on_time, None))


def _write(
    folder: OutputFolder, results: Part, code: ExitCode, console: Console
) -> tuple[tuple[str, ...], dict[str, str]]:
    run, tables, report = results.run, results.tables, results.report
    with folder.writing():
        summary, written = write_run(folder.path, run, tables, report, code, console)
        written |= write_parts(folder.path, results, code, console)
        if run.options["perfetto"]:
            from nsys_llm.run.perfetto import write_perfetto

            written |= write_perfetto(folder.path, results, console)
    return summary, written


def _input_names(run: Run, profiles: Sequence[ProfileInput]) -> list[str]:
    if run.options["anonymize"]:
        return [profile.label for profile in run.profiles]
    return [profile.path for profile in profiles]


def run_compared(
    folder: Path, options: Mapping[str, Any], executor: Executor, console: Console
) -> tuple[ExitCode, Path]:
    """Compare the run of an overview with its baseline; return how that ended, and its folder.

    Raises:
        UsageError: One of the runs could not be read.
    """
    compare_options = {
        **options,
        "output": str(folder / PARTS_FOLDER / COMPARED).replace("%", "%%"),
        "force_overwrite": False,
        "perfetto": False,
        "perfetto_window": None,
    }
    compared = resolved_options(load_manifest(COMPARED), compare_options)
    outcome = run_recipe(COMPARED, compared, executor, console, reported_side=INPUT)
    if outcome.folder is None:
        raise UsageError("--baseline: it could not be compared; leave it out, or give another.")
    return outcome.exit_code, outcome.folder


def _record(
    run: Run,
    executor: Executor,
    started: datetime,
    of_framework: Mapping[str, Any] | None,
    input_names: list[str],
    written: Mapping[str, str],
) -> dict[str, Any]:
    """Return the .nsys-analysis file: what Nsight Systems itself records, and what only we know."""
    return {
        "RecipeName": run.manifest.name,
        "DisplayName": run.manifest.title,
        "Mode": executor.mode,
        "StartTime": str(started),
        **(of_framework or {}),
        "RecipeVersion": __version__,
        "EndTime": str(datetime.now()),
        "InputFiles": input_names,
        "Outputs": written,
    }


def _show_exports(run: Run, console: Console) -> None:
    """Name what the run wrote beside its results, so that nobody wonders or keeps it unasked."""
    made = [profile.export for profile in run.profiles if profile.export is not None]
    if made:
        more = f" and {len(made) - 1} more" if len(made) > 1 else ""
        console.note(f"exported, and kept for the next run: {made[0]}{more}.")


def _show_failures(run: Run, console: Console, reported_side: str | None) -> None:
    others = replace(
        run, profiles=tuple(item for item in run.profiles if item.side != reported_side)
    )
    for profile in others.profiles:
        side = f"{profile.side}: " if profile.side else ""
        if profile.reason is not None:
            console.error(f"{side}{profile.reason}")
        elif not profile.ranks:
            console.warn(f"{side}{profile.label}: {profile.without_work}.")
    unmatched = [rank.unmatched for profile in run.profiles for rank in profile.ranks]
    refuse_unmatched(unmatched, run.options)
    for who, note in others.notes:
        console.warn(f"{who}: {note}.")


def _unreadable(run: Run, console: Console) -> ExitCode | None:
    """Return how the run ends if a side has no profile that could be read; None if all have."""
    for name in dict.fromkeys(profile.side for profile in run.profiles):
        side = run.side(name)
        if len(side.failed) < len(side.profiles):
            continue
        if name:
            console.error(f"{name}: no profile of it could be read; nothing to compare.")
        return (
            ExitCode.FAULT if all(profile.fault for profile in side.failed) else ExitCode.BAD_INPUT
        )
    return None


def _exit_code(run: Run, console: Console, reported_side: str | None) -> ExitCode:
    if run.absent:
        shown = [f"{side} {number}".strip() for side, number in run.absent[:20]]
        some = ", ".join(shown) + (", ..." if len(run.absent) > 20 else "")
        whole = run.options["world_size"]
        of = f" of {whole}" if whole else ""
        console.warn(f"absent ranks: {some} ({len(run.absent)}{of}).")
    if any(profile.fault is not None for profile in run.profiles):
        return ExitCode.FAULT
    if not (run.failed or run.absent or run.earlier) or run.options["allow_missing_ranks"]:
        return ExitCode.DONE
    paths = [os.path.dirname(os.path.abspath(item.path)) for item in (*run.earlier, *run.profiles)]
    place = os.path.relpath(os.path.commonpath(paths))
    where = "" if place == os.curdir else f"cd {shlex.quote(place)} && "
    for command in dict.fromkeys(one.name for it in run.earlier for one in it.statements):
        console.error(
            f"an earlier run is left out; to compare it with the newest: {where}{command}"
        )
    if not (run.failed or run.absent):
        return ExitCode.INCOMPLETE
    if run.absent or any(profile.side != reported_side for profile in run.failed):
        console.error(
            f"incomplete: {len(run.failed)} of {len(run.profiles)} profiles failed, "
            f"{counted(len(run.absent), 'rank')} absent; the results hold the others "
            "(--allow-missing-ranks makes this exit 0)."
        )
    return ExitCode.INCOMPLETE
