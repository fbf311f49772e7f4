"""One run from inputs to a published folder, whoever started it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any

from nsys_llm import __version__
from nsys_llm.console import Console
from nsys_llm.errors import ExitCode, UsageError
from nsys_llm.executors import Executor, chunked
from nsys_llm.guard import RunOutcome
from nsys_llm.identity import Rank, RankEntry, RankKey, number_ranks, read_rank_map
from nsys_llm.inputs import ReportInput, expand_inputs
from nsys_llm.manifest import Manifest, load_manifest
from nsys_llm.outputs import write_tables
from nsys_llm.publish import OutputFolder
from nsys_llm.recipe_module import load_analysis
from nsys_llm.report import build_report, find, findings_table
from nsys_llm.report_files import write_report
from nsys_llm.run_record import (
    absent_ranks,
    run_record,
    run_tables,
    write_record,
)
from nsys_llm.tables import NULL_INT
from nsys_llm.worker import MapResult, map_reports, merge_results, probe_reports, report_notes

__all__ = ["run_recipe"]


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
        options: All of its options, see `nsys_llm.options.resolved_options`.
        executor: Where to map.
        console: Where to tell what happens.
        nsys: The `nsys` to export with; None: the one that is found.
        analysis_record: What Nsight Systems itself puts into the .nsys-analysis file.

    Raises:
        NsysLlmError: Nothing could be read, or nothing can be written; nothing was published.
    """
    started = datetime.now()
    manifest = load_manifest(recipe)
    inputs, notes = expand_inputs(options["input"])
    rank_map = _rank_map(options, inputs)
    for note in notes:
        console.note(note)
    with OutputFolder(options["output"], recipe, replace=options["force_overwrite"]) as folder:
        result, ranks = _mapped(inputs, recipe, options, executor, console, rank_map, nsys)
        _tell_failures(result, console)
        if all(report.reason is not None for report in result.reports):
            return RunOutcome(_unreadable(result), None)
        code = _exit_code(result, ranks, options, console)
        tables = _tables(manifest, result, ranks, options)
        findings = find(manifest, tables)
        tables["findings"] = findings_table(manifest, findings)
        write_tables(folder.path, manifest, tables, csv=bool(options["csv"]))
        report = build_report(manifest, result, ranks, tables, findings, options)
        record = run_record(manifest, options, result, ranks, tables, code, notes, report)
        write_record(folder.path, record)
        summary, written = write_report(folder.path, report, console, html=bool(options["html"]))
        place = folder.publish(
            {
                **_framework_record(manifest, executor, started),
                **(analysis_record or {}),
                "RecipeVersion": __version__,
                "EndTime": str(datetime.now()),
                "InputFiles": [report.path for report in inputs],
                "Outputs": {**{f"{name}.parquet": "Table" for name in tables}, **written},
            }
        )
    return RunOutcome(code, place, summary)


def _rank_map(
    options: Mapping[str, Any], inputs: Sequence[ReportInput]
) -> dict[tuple[str, int | None], int] | None:
    path = options["rank_map"]
    return read_rank_map(path, [report.label for report in inputs]) if path else None


def _mapped(
    inputs: Sequence[ReportInput],
    recipe: str,
    options: Mapping[str, Any],
    executor: Executor,
    console: Console,
    rank_map: Mapping[tuple[str, int | None], int] | None,
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
        return result, _numbered(result, rank_map, console)
    probe = partial(probe_reports, recipe=recipe, options=sent)
    probed = executor.reduce(probe, chunks, merge, lambda _: None)
    ranks = _numbered(probed, rank_map, console)
    wanted = [rank for rank in ranks if rank.number in options["ranks"]]
    if set(options["ranks"]) - {rank.number for rank in wanted}:
        # A report that could not be read, and so has no number, may be the rank that is missing.
        wanted += [rank for rank in ranks if rank.number is None and rank.facts is None]
    if not wanted:
        there = ", ".join(str(rank.number) for rank in ranks[:20])
        raise UsageError(f"--ranks: none of these ranks is there; there are {there}.")
    keys = frozenset(rank.key for rank in wanted)
    mapper = partial(map_reports, recipe=recipe, options=sent, only=keys)
    paths = {key.path for key in keys}
    chosen = [report for report in inputs if report.path in paths]
    with console.progress(len(chosen)) as progress:
        result = executor.reduce(
            mapper, chunked(chosen, executor.workers_n), merge, progress.advance
        )
    return _only_ranks(result, keys), wanted


def _numbered(
    result: MapResult, rank_map: Mapping[tuple[str, int | None], int] | None, console: Console
) -> list[Rank]:
    ranks = number_ranks(_entries(result), rank_map)
    source = next((rank.source for rank in ranks if rank.source is not None), None)
    if rank_map is not None and source not in ("rank_map", None):
        console.warn(f"--rank-map leaves out a process; the ranks are numbered by {source}.")
    return ranks


def _only_ranks(result: MapResult, keys: frozenset[RankKey]) -> MapResult:
    reports = tuple(
        replace(report, ranks=tuple(rank for rank in report.ranks if rank.key in keys))
        for report in result.reports
    )
    return replace(result, reports=reports)


def _entries(result: MapResult) -> list[RankEntry]:
    """Return what is to be numbered: each rank, and each report without any."""
    entries = []
    for report in result.reports:
        entries += [RankEntry(rank.key, report.label, report.facts, True) for rank in report.ranks]
        if not report.ranks:
            key = RankKey(report.path, NULL_INT)
            entries.append(RankEntry(key, report.label, report.facts, False))
    return entries


def _tell_failures(result: MapResult, console: Console) -> None:
    for report in result.reports:
        if report.reason is not None:
            console.error(report.reason)
        elif not report.ranks:
            console.warn(f"{report.label}: a valid report, but without GPU work.")
    for who, note in report_notes(result):
        console.warn(f"{who}: {note}.")


def _unreadable(result: MapResult) -> ExitCode:
    faults = [report for report in result.reports if report.fault is not None]
    return ExitCode.FAULT if len(faults) == len(result.reports) else ExitCode.BAD_INPUT


def _exit_code(
    result: MapResult, ranks: Sequence[Rank], options: Mapping[str, Any], console: Console
) -> ExitCode:
    failed_n = sum(report.reason is not None for report in result.reports)
    absent = absent_ranks(ranks, options)
    if absent:
        some = ", ".join(map(str, absent[:20])) + (", ..." if len(absent) > 20 else "")
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


def _tables(
    manifest: Manifest, result: MapResult, ranks: Sequence[Rank], options: Mapping[str, Any]
) -> dict[str, Any]:
    working = {rank.key for report in result.reports for rank in report.ranks}
    analysed = [rank for rank in ranks if rank.key in working]
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
