"""One run from inputs to a published folder, whoever started it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from nsys_llm import __version__
from nsys_llm.core.console import Console
from nsys_llm.core.errors import ExitCode, UsageError
from nsys_llm.manifest.manifest import Manifest, load_manifest
from nsys_llm.profile.inputs import ReportInput, expand_sides
from nsys_llm.report import drawing
from nsys_llm.report.outputs import write_tables
from nsys_llm.report.report import Report, build_report, find, findings_table
from nsys_llm.report.report_files import write_report
from nsys_llm.report.run_record import absent_ranks, run_record, run_tables, write_record
from nsys_llm.run.executors import Executor, chunked
from nsys_llm.run.guard import RunOutcome
from nsys_llm.run.publish import OutputFolder
from nsys_llm.run.recipe_module import load_analysis
from nsys_llm.run.verdict import (
    VERDICT_NAME,
    gated,
    undecided_or_failed,
    verdict_lines,
    verdict_record,
    write_verdict,
)
from nsys_llm.run.worker import map_reports, merge_results, probe_reports
from nsys_llm.trace.identity import Rank, RankKey
from nsys_llm.trace.outcomes import MapResult, report_notes
from nsys_llm.trace.rank_sets import (
    RankMaps,
    entries_by_side,
    number_sides,
    read_rank_maps,
    unused_maps,
    wanted_ranks,
)
from nsys_llm.trace.unmatched import refuse_unmatched


def run_recipe(
    recipe: str,
    options: Mapping[str, Any],
    executor: Executor,
    console: Console,
    *,
    nsys: str | None = None,
    analysis_record: Mapping[str, Any] | None = None,
) -> RunOutcome:
    """Read the reports, analyse them, and publish the results.

    Args:
        recipe: Name of the recipe.
        options: All of its options, see `nsys_llm.manifest.options.resolved_options`.
        executor: Where to map.
        console: Where to tell what happens.
        nsys: The `nsys` to export with; None: the one that is found.
        analysis_record: What Nsight Systems itself puts into the .nsys-analysis file.

    Raises:
        NsysLlmError: Nothing could be read, or nothing can be written; nothing was published.
    """
    started = datetime.now()
    manifest = load_manifest(recipe)
    inputs, notes = _expanded(options, executor)
    rank_maps = read_rank_maps(options["rank_map"], inputs)
    for note in notes:
        console.note(note)
    with OutputFolder(options["output"], recipe, replace=options["force_overwrite"]) as folder:
        executor.start()
        drawing.import_meanwhile()
        result, ranks = _mapped(inputs, recipe, options, executor, console, rank_maps, nsys)
        _tell_failures(result, options, console)
        if (code := _unreadable(result, console)) is not None:
            return RunOutcome(code, None)
        code = _exit_code(result, ranks, options, console)
        tables = _tables(manifest, result, ranks, options)
        if manifest.metrics:
            code = gated(code, tables["gates"])
        findings = find(load_analysis(manifest.name), tables)
        tables["findings"] = findings_table(manifest, findings)
        report = build_report(
            manifest, load_analysis(manifest.name), result, ranks, tables, findings, options
        )
        record = run_record(manifest, options, result, ranks, tables, code, notes, report)
        with folder.writing():
            summary, written = _write(folder.path, tables, record, report, options, console)
        analysis = {
            **_framework_record(manifest, executor, started),
            **(analysis_record or {}),
            "RecipeVersion": __version__,
            "EndTime": str(datetime.now()),
            "InputFiles": [report.path for report in inputs],
            "Outputs": {**{f"{name}.parquet": "Table" for name in tables}, **written},
        }
        try:
            place = folder.publish(analysis)
        finally:
            # Interrupted while it deletes what it replaced, it has published.
            console.results = folder.published
    return RunOutcome(code, place, summary)


def _expanded(
    options: Mapping[str, Any], executor: Executor
) -> tuple[list[ReportInput], list[str]]:
    """Return the reports, and what was left out; of one that only workers see, say so."""
    sides = entries_by_side(options)
    try:
        return expand_sides(sides)
    except UsageError as error:
        entries = (os.path.abspath(one) for side in sides.values() for one in side)
        absent = [one for one in entries if not os.path.exists(one)]
        if not (where := executor.elsewhere(absent)):
            raise
        raise UsageError(
            f"{error.message} {where}, and not here: give a path that this machine and all workers "
            "share, or run there."
        ) from error


def _mapped(
    inputs: Sequence[ReportInput],
    recipe: str,
    options: Mapping[str, Any],
    executor: Executor,
    console: Console,
    rank_maps: RankMaps,
    nsys: str | None,
) -> tuple[MapResult, list[Rank]]:
    """Map all reports, or those ranks that --ranks asks for, and number the ranks."""
    sent = {**options, "nsys": nsys}
    merge = partial(merge_results, recipe=recipe)
    chunks = chunked(inputs, executor.workers_n)
    if options["ranks"] is None:
        mapper = partial(map_reports, recipe=recipe, options=sent)
        with console.progress(len(inputs)) as progress:
            result = executor.reduce(mapper, chunks, merge, progress.advance)
        return result, _numbered(result, rank_maps, console)
    probe = partial(probe_reports, recipe=recipe, options=sent)
    probed = executor.reduce(probe, chunks, merge, lambda _: None)
    ranks = _numbered(probed, rank_maps, console)
    wanted = wanted_ranks(ranks, options["ranks"])
    keys = frozenset(rank.key for rank in wanted)
    mapper = partial(map_reports, recipe=recipe, options=sent, only=keys)
    places = {(key.side, key.path) for key in keys}
    chosen = [report for report in inputs if (report.side, report.path) in places]
    with console.progress(len(chosen)) as progress:
        result = executor.reduce(
            mapper, chunked(chosen, executor.workers_n), merge, progress.advance
        )
    return _only_ranks(result, keys), wanted


def _numbered(result: MapResult, rank_maps: RankMaps, console: Console) -> list[Rank]:
    ranks = number_sides(result, rank_maps)
    for side, source in unused_maps(ranks, rank_maps):
        before = f"{side}: " if side else ""
        console.warn(
            f"{before}--rank-map leaves out a process; the ranks are numbered by {source}."
        )
    return ranks


def _only_ranks(result: MapResult, keys: frozenset[RankKey]) -> MapResult:
    reports = tuple(
        replace(report, ranks=tuple(rank for rank in report.ranks if rank.key in keys))
        for report in result.reports
    )
    return replace(result, reports=reports)


def _tell_failures(result: MapResult, options: Mapping[str, Any], console: Console) -> None:
    for report in result.reports:
        side = f"{report.side}: " if report.side else ""
        if report.reason is not None:
            console.error(f"{side}{report.reason}")
        elif not report.ranks:
            console.warn(f"{side}{report.label}: a valid report, but without GPU work.")
    refuse_unmatched([rank.unmatched for one in result.reports for rank in one.ranks], options)
    for who, note in report_notes(result):
        console.warn(f"{who}: {note}.")


def _unreadable(result: MapResult, console: Console) -> ExitCode | None:
    """Return how the run ends if a side has no report that could be read; None if all have."""
    for side in dict.fromkeys(report.side for report in result.reports):
        own = [report for report in result.reports if report.side == side]
        if any(report.reason is None for report in own):
            continue
        if side:
            console.error(f"{side}: no report of it could be read; nothing to compare.")
        return ExitCode.FAULT if all(report.fault for report in own) else ExitCode.BAD_INPUT
    return None


def _exit_code(
    result: MapResult, ranks: Sequence[Rank], options: Mapping[str, Any], console: Console
) -> ExitCode:
    failed_n = sum(report.reason is not None for report in result.reports)
    absent = absent_ranks(ranks, options)
    if absent:
        shown = [f"{side} {number}".strip() for side, number in absent[:20]]
        some = ", ".join(shown) + (", ..." if len(absent) > 20 else "")
        console.warn(f"absent ranks: {some} ({len(absent)} of {options['world_size']}).")
    if any(report.fault is not None for report in result.reports):
        return ExitCode.FAULT
    if not failed_n and not absent:
        return ExitCode.DONE
    if options["allow_missing_ranks"]:
        return ExitCode.DONE
    console.error(
        f"incomplete: {failed_n} of {len(result.reports)} reports failed, {len(absent)} ranks are "
        "absent; the results hold the others (--allow-missing-ranks makes this exit 0)."
    )
    return ExitCode.INCOMPLETE


def _write(
    folder: Path,
    tables: Mapping[str, Any],
    record: Mapping[str, Any],
    report: Report,
    options: Mapping[str, Any],
    console: Console,
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Write all files of a run; return the summary's lines, and files other than tables."""
    manifest = report.manifest
    write_tables(folder, manifest, tables, csv=bool(options["csv"]))
    write_record(folder, record)
    summary, written = write_report(folder, report, console, html=bool(options["html"]))
    if manifest.metrics:
        code = ExitCode(record["exit_code"])
        summary = (*summary, *_decide(folder, manifest, tables, code, report, console))
        written[VERDICT_NAME] = "Verdict"
    return summary, written


def _decide(
    folder: Path,
    manifest: Manifest,
    tables: Mapping[str, Any],
    code: ExitCode,
    report: Report,
    console: Console,
) -> list[str]:
    """Write verdict.json, tell which gates did not pass, and return the lines of the summary."""
    verdict = verdict_record(manifest, tables, code, report.answer)
    write_verdict(folder, verdict)
    for line in undecided_or_failed(verdict):
        console.error(line)
    lines = verdict_lines(verdict)
    return ["", *lines] if lines else []


def _tables(
    manifest: Manifest, result: MapResult, ranks: Sequence[Rank], options: Mapping[str, Any]
) -> dict[str, Any]:
    working = {rank.key for report in result.reports for rank in report.ranks}
    analysed = [rank for rank in ranks if manifest.sided or rank.key in working]
    own = load_analysis(manifest.name).tabulate(result.partial, analysed, options)
    return {**run_tables(manifest, result, ranks, options), **own}


def _framework_record(manifest: Manifest, executor: Executor, started: datetime) -> dict[str, Any]:
    """Return what `nsys recipe` itself would record; it overrides this where it runs us."""
    return {
        "RecipeName": manifest.name,
        "DisplayName": manifest.title,
        "Mode": executor.mode,
        "StartTime": str(started),
    }
