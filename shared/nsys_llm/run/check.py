"""`nsys-llm check PATH...`: what captures hold and lack, before anything is judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from nsys_llm.capture.profile_statements import profile_statements
from nsys_llm.capture.runs import (
    find_segments,
    with_ranks_twice,
    with_shared_gpus,
    without_earlier_runs,
)
from nsys_llm.core.console import Console
from nsys_llm.core.errors import ExitCode
from nsys_llm.manifest.manifest import checked_reads, common_facts
from nsys_llm.profile.capture import read_facts
from nsys_llm.profile.inputs import ProfileInput, expand_inputs, open_profile
from nsys_llm.profile.reader import needed_tables, read_trace
from nsys_llm.report.capture_findings import capture_findings
from nsys_llm.report.capture_summary import capture_facts
from nsys_llm.report.capture_table import capture_rows
from nsys_llm.report.findings import Finding
from nsys_llm.report.outputs import declared_frame, declared_rows
from nsys_llm.report.records import Tables
from nsys_llm.report.summary import WIDTH, plain, wrapped
from nsys_llm.run.boundary import Boundary
from nsys_llm.run.executors import chunked, open_executor
from nsys_llm.run.guard import RunOutcome
from nsys_llm.trace.identity import Rank, RankKey
from nsys_llm.trace.outcomes import MapResult, ProfileOutcome, RankOutcome, Statement
from nsys_llm.trace.rank_sets import number_sides
from nsys_llm.trace.rank_trace import recorded_ns
from nsys_llm.trace.selection import gpu_processes, used_devices
from nsys_llm.view.text import unquoted

_TABLE: Final = "capture"

_Outcomes = tuple[ProfileOutcome, ...]


def check(given: Mapping[str, Any], console: Console) -> RunOutcome:
    """Print what was recorded, what is missing and why, and how to record it; nothing is written.

    Raises:
        UsageError: A path does not exist, or holds no profile.
    """
    profiles, notes = expand_inputs(given["paths"])
    for note in notes:
        console.note(note)
    look = partial(_outcomes, export_dir=given["export_dir"])
    with open_executor("concurrent", None) as executor:
        chunks = chunked(profiles, executor.workers_n)
        outcomes = executor.reduce(look, chunks, _joined, console.progress(len(profiles)).advance)
    joined = find_segments(outcomes).joined(outcomes)
    newest, earlier = without_earlier_runs(MapResult(joined, {}))
    ranks = number_sides(newest, {})
    outcomes = (*with_shared_gpus(with_ranks_twice(newest.profiles)), *earlier)
    for outcome in outcomes:
        if outcome.reason is not None:
            console.error(outcome.reason)
    _, writes = common_facts(sided=False)
    table = next(table for table in writes if table.file == _TABLE)
    tables = {_TABLE: declared_frame(table, declared_rows(table, capture_rows(outcomes, ranks)))}
    console.show(*_lines(newest.profiles, ranks, tables))
    return RunOutcome(_exit_code(outcomes, tables), None)


def _outcomes(profiles: Sequence[ProfileInput], *, export_dir: str | None) -> _Outcomes:
    outcomes = []
    for profile in profiles:
        with Boundary(profile) as boundary:
            outcomes.append(_outcome(profile, export_dir))
        if boundary.failure is not None:
            outcomes.append(boundary.failure)
    return tuple(outcomes)


def _outcome(profile: ProfileInput, export_dir: str | None) -> ProfileOutcome:
    reads = checked_reads()
    with open_profile(profile.path, needed_tables(reads, {}), export_dir=export_dir) as opened:
        facts, trace = read_facts(opened), read_trace(opened, reads, {})
    # CUDA graphs of which no kernel is recorded; recipes show the time they take.
    graphs_n = len(trace.tables.get("graph_traces", ()))
    whole_graphs = [Statement("whole_graphs", graphs_n)] if graphs_n else []
    keys = [RankKey(profile.path, process, profile.side) for process in gpu_processes(trace)]
    return ProfileOutcome(
        profile.path,
        profile.label,
        facts,
        tuple(RankOutcome(key, used_devices(trace, key.global_pid), (), ()) for key in keys),
        tuple(sorted(trace.absent)),
        statements=(*profile_statements(trace, facts), *whole_graphs),
        recorded_ns=recorded_ns(trace),
    )


def _joined(parts: Sequence[_Outcomes]) -> _Outcomes:
    return tuple(sorted((one for part in parts for one in part), key=lambda one: one.path))


def _exit_code(outcomes: _Outcomes, tables: Tables) -> ExitCode:
    """Return how it ends: nothing can be said where no profile has GPU work or lost any."""
    limited = bool(tables[_TABLE]["limits"].any())
    if not limited and not any(outcome.ranks for outcome in outcomes):
        return ExitCode.BAD_INPUT
    limited = limited or any(outcome.reason is not None for outcome in outcomes)
    return ExitCode.INCOMPLETE if limited else ExitCode.DONE


def _lines(outcomes: _Outcomes, ranks: Sequence[Rank], tables: Tables) -> Iterator[str]:
    for label, text in capture_facts(outcomes, ranks, {}, {}):
        yield from wrapped(f"{label}: {plain(text)}", WIDTH, "", hanging="  ")
    found = capture_findings(tables)
    # Of a profile that could not be read, nothing is known.
    is_whole = not found and all(outcome.reason is None for outcome in outcomes)
    if found or is_whole:
        yield ""
    if is_whole:
        yield "This capture shows no missing work. An overview lists what was not traced."
    for finding in found:
        yield from _finding_lines(finding)


def _finding_lines(finding: Finding) -> Iterator[str]:
    yield from wrapped(plain(finding.title), WIDTH, "", hanging="  ")
    texts = [finding.details, finding.recommendation]
    if finding.record:
        texts.append(f"Record next time: {finding.record}")
    for text in filter(None, texts):
        # Commands are to be copied: no name is cut.
        yield from wrapped(unquoted(text), WIDTH, "  ", hanging="  ")
