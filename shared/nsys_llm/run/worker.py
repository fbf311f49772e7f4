"""The functions that are sent to workers, and what comes back.

Only paths, a recipe's name and options travel; a worker needs this package and nothing else, not
even `nsys_recipe`.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from nsys_llm.core.errors import ReportError
from nsys_llm.manifest.manifest import load_manifest
from nsys_llm.profile.capture import read_facts
from nsys_llm.profile.inputs import ReportInput, open_report
from nsys_llm.profile.reader import needed_tables, read_trace
from nsys_llm.profile.tables import table_source
from nsys_llm.run.recipe_module import load_analysis
from nsys_llm.trace.identity import RankKey
from nsys_llm.trace.outcomes import MapResult, RankOutcome, ReportOutcome
from nsys_llm.trace.selection import gpu_processes, select_rank
from nsys_llm.trace.unmatched import unmatched_notes, unmatched_options


def map_reports(
    inputs: Sequence[ReportInput],
    *,
    recipe: str,
    options: Mapping[str, Any],
    only: frozenset[RankKey] | None = None,
) -> MapResult:
    """Read some reports, one after the other, and reduce them to one result.

    A report that cannot be read becomes an outcome with a reason; the others go on.

    Args:
        inputs: The reports.
        recipe: Name of the recipe.
        options: By option name, and `nsys`, the executable to export with.
        only: The ranks to map; None for all.
    """
    analysis = load_analysis(recipe)
    outcomes, partials = [], [analysis.empty()]
    for report in inputs:
        with _Boundary(report) as boundary:
            outcome, parts = _map_report(report, recipe, options, only)
            outcomes.append(outcome)
            partials += parts
        if boundary.failure is not None:
            outcomes.append(boundary.failure)
    return MapResult(_ordered(outcomes), analysis.merge(partials))


def probe_reports(
    inputs: Sequence[ReportInput], *, recipe: str, options: Mapping[str, Any]
) -> MapResult:
    """Find the ranks of some reports without analysing them; the partial is the identity."""
    return map_reports(inputs, recipe=recipe, options=options, only=frozenset())


def merge_results(parts: Sequence[MapResult], *, recipe: str) -> MapResult:
    """Join results of distinct reports. Associative and commutative."""
    merged = load_analysis(recipe).merge([part.partial for part in parts])
    return MapResult(_ordered(one for part in parts for one in part.reports), merged)


def _ordered(reports: Iterable[ReportOutcome]) -> tuple[ReportOutcome, ...]:
    return tuple(sorted(reports, key=lambda one: (one.path, one.side)))


def _map_report(
    report: ReportInput,
    recipe: str,
    options: Mapping[str, Any],
    only: frozenset[RankKey] | None,
) -> tuple[ReportOutcome, list[Any]]:
    analysis, reads = load_analysis(recipe), load_manifest(recipe).reads
    with open_report(
        report.path,
        needed_tables(reads, options),
        export_dir=options.get("export_dir"),
        nsys=options.get("nsys"),
    ) as opened:
        facts = read_facts(opened)
        trace = read_trace(opened, reads, options)
    ranks, partials = [], []
    for global_pid in gpu_processes(trace):
        key = RankKey(report.path, global_pid, report.side)
        if only is not None and key not in only:
            ranks.append(RankOutcome(key, (), (), ()))
            continue
        rank_trace, coverage, notes = select_rank(trace, global_pid, options)
        partials.append(analysis.map_rank(rank_trace, key, options))
        if hasattr(analysis, "missing_ranges"):
            missing = analysis.missing_ranges(partials[-1], key)
            coverage = tuple(row.without_ranges(*missing.get(row.op, (0, 0))) for row in coverage)
        unmatched = unmatched_options(rank_trace, options)
        notes = unmatched_notes(unmatched, options, notes)
        ranks.append(RankOutcome(key, rank_trace.device_ids, coverage, notes, unmatched))
    absent = tuple(sorted(trace.absent))
    lacking = tuple(
        f"no rows in {table_source(read.table).nsys}; {read.lost} are missing"
        for read in reads
        if read.required and not len(trace[read.table])
    )
    outcome = ReportOutcome(
        report.path, report.label, facts, tuple(ranks), absent, lacking, side=report.side
    )
    return outcome, partials


def _where(error: Exception) -> str:
    """Return the frames of an error without the folders that this machine keeps its code in."""
    frames = traceback.extract_tb(error.__traceback__)
    return "\n".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames)


class _Boundary:
    """Keeps what goes wrong with one report from stopping the others."""

    def __init__(self, report: ReportInput) -> None:
        self._report = report
        self.failure: ReportOutcome | None = None

    def __enter__(self) -> _Boundary:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if isinstance(error, ReportError):
            self.failure = self._failed(error.message)
        elif isinstance(error, Exception):
            # Not the report's fault as far as we know: it is told as ours, and ends in exit 4.
            words = " ".join(str(error).split())[:200]
            kind_name = type(error).__name__
            reason = f"{self._report.label}: fault of nsys-llm-recipes ({kind_name}: {words})."
            self.failure = self._failed(reason, _where(error))
        return self.failure is not None

    def _failed(self, reason: str, fault: str | None = None) -> ReportOutcome:
        # Outputs name no folders of this machine, and libraries do.
        reason = reason.replace(f"{Path(self._report.path).parent}{os.sep}", "")
        # A file's name may hold bytes that are no text; tables and JSON take text only.
        reason = reason.encode("utf-8", "backslashreplace").decode("utf-8")
        one = self._report
        return ReportOutcome(one.path, one.label, None, reason=reason, fault=fault, side=one.side)
