"""All findings of a run: its own, and those that every recipe shares on what is missing from it.

They are made from its tables alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import pandas as pd

from nsys_llm.manifest.manifest import Manifest
from nsys_llm.report.capture_findings import capture_findings, silent_files
from nsys_llm.report.capture_summary import without_traced
from nsys_llm.report.findings import PERFORMANCE, Finding, cells, claim, finding_row, ranked
from nsys_llm.report.group_words import group_names, with_whose
from nsys_llm.report.outputs import declared_frame, declared_rows
from nsys_llm.report.prices.pricing import priced
from nsys_llm.report.records import Tables, records
from nsys_llm.report.run import Run
from nsys_llm.report.run_texts import LOW_COVERAGE_PCT, RULES
from nsys_llm.report.unprofiled import COLUMN, IN_STEPS
from nsys_llm.view.text import cleaned, first_quoted, quoted

_MOST_NAMED: Final = 5
#: As many are named in a title.
_FEW: Final = 2


def all_findings(run: Run, tables: Tables) -> list[Finding]:
    """Return the findings of a run in order: the recipe's own and those that all recipes share."""
    findings = run.analysis.findings(tables)
    if silent_files(tables):
        # None that blames a rank by what others do.
        findings = [
            finding
            for finding in findings
            if finding.kind != PERFORMANCE or not (finding.cause and finding.cause.kind == "rank")
        ]
    if not run.manifest.recipes:  # whose parts name them
        findings = with_whose(findings, tables)
    said = without_traced([*run_findings(tables), *findings], run.profiles)
    return ranked(priced(said, tables))


def findings_table(manifest: Manifest, findings: Sequence[Finding]) -> pd.DataFrame:
    """Return the table `findings` of a run."""
    table = manifest.table("findings")
    return declared_frame(table, declared_rows(table, map(finding_row, findings)))


def run_findings(tables: Tables) -> list[Finding]:
    """Return findings about the tables `files`, `capture`, `coverage` and `wall`."""
    return [
        *capture_findings(tables),
        *_missing_ranks(tables),
        *_groups(tables),
        *_no_gpu_work(tables),
        *_low_coverage(tables),
        *_unprofiled(tables),
    ]


def _missing_ranks(tables: Tables) -> list[Finding]:
    files, statuses = tables["files"], ("failed", "absent")
    missing = files[files["status"].isin(statuses)]
    if missing.empty:
        return []
    # A reason begins with the file's name, and says what to do.
    reasons = [cleaned(reason).replace("`", "'") for reason in missing["reason"].head(_MOST_NAMED)]
    labels = [quoted(label) for label in missing["File"].head(_MOST_NAMED)]
    reported = [
        reason if status == "failed" else f"{label}: {reason}."
        for label, reason, status in zip(labels, reasons, missing["status"], strict=False)
    ]
    more_n = len(missing) - _MOST_NAMED
    fields = {"reasons": " ".join(reported) + f" And {more_n:,} more." * (more_n > 0)}
    said = (
        cells("files", row, ("File",), ("reason",))
        for row in records(missing[["File", "reason"]].head(_MOST_NAMED))
    )
    evidence = (
        claim(tables, "files_n", "files", "File", "count", status=statuses),
        claim(tables, "all_n", "files", "File", "count"),
        *(cell for some in said for cell in some),
    )
    return [RULES["missing_ranks"].finding(fields=fields, evidence=evidence)]


def _groups(tables: Tables) -> list[Finding]:
    names = group_names(tables)
    if not names:
        return []
    of = partial(claim, tables)
    evidence = (
        of("groups_n", "files", "group", "distinct", status="ok"),
        of("ranks_n", "files", "File", "count", status="ok"),
    )
    fields = {
        "names": first_quoted(names.values(), _MOST_NAMED),
        "largest": quoted(names[min(names)]),
    }
    return [RULES["groups"].finding(fields=fields, evidence=evidence)]


def _no_gpu_work(tables: Tables) -> list[Finding]:
    files = tables["files"]
    idle = files[(files["status"] == "no_gpu_work") & ~files["File"].isin(silent_files(tables))]
    if idle.empty:
        return []
    names, said = tuple(idle["File"]), first_quoted(idle["File"], _MOST_NAMED)
    fields = {"names": said, "few": said if len(idle) <= _FEW else None}
    evidence = (
        claim(tables, "files_n", "files", "File", "count", status="no_gpu_work", File=names),
        claim(tables, "all_n", "files", "File", "count"),
    )
    return [RULES["no_gpu_work"].finding(fields=fields, evidence=evidence)]


def _low_coverage(tables: Tables) -> list[Finding]:
    by_rank = (
        tables["coverage"]
        .groupby(["rank", "file"], sort=True)[
            ["total_n", "total_ns", "uncalled_ns", "api_missing_ns", "api_cut_ns"]
        ]
        .sum()
    )
    # What was launched before the capture began is cut off, not missing.
    by_rank["missing_of_ns"] = by_rank.eval("total_ns - uncalled_ns - api_cut_ns")
    by_rank = by_rank[by_rank["missing_of_ns"] > 0].reset_index()
    by_rank["known_ns"] = by_rank.eval("total_ns - uncalled_ns - api_missing_ns")
    by_rank["pct"] = 100.0 * by_rank["known_ns"] / by_rank["missing_of_ns"]
    low = by_rank[by_rank["pct"] < LOW_COVERAGE_PCT].sort_values("pct", kind="stable")
    if low.empty:
        return []
    rank, file = int(low["rank"].iloc[0]), low["file"].iloc[0]
    of = partial(claim, tables, rank=rank, file=file)
    whole = of("of_ns", "coverage", "total_ns-uncalled_ns-api_cut_ns")
    evidence = (
        of("known_pct", "coverage", "total_ns-uncalled_ns-api_missing_ns", "sum", whole),
        of("known_ns", "coverage", "total_ns-uncalled_ns-api_missing_ns"),
        of("cut_ns", "coverage", "api_cut_ns"),
        whole,
    )
    fields = {"low_n": len(low), "all_n": len(by_rank), "limit_pct": LOW_COVERAGE_PCT}
    return [RULES["low_api_coverage"].finding(rank=rank, fields=fields, evidence=evidence)]


def _unprofiled(tables: Tables) -> list[Finding]:
    """Return how much longer steps take under the profiler, where that is said."""
    unknown = tables["wall"][COLUMN].isna().groupby(tables["wall"]["rank"]).any()
    if unknown.all():
        return []
    ranks = tuple(int(rank) for rank in unknown.index[~unknown])
    of = partial(claim, tables, rank=ranks) if unknown.any() else partial(claim, tables)
    steps = {"wall_class": IN_STEPS}
    without = of("without_ns", "wall", COLUMN, **steps)
    ops = of("ops_n", "coverage", "total_n")
    ratio = of("slow_ratio", "wall", "time_ns", "sum", without, **steps)
    more = of("launch_ns", "wall", f"time_ns-{COLUMN}", "sum", ops, **steps)
    case = None if more.value else "same"
    return [RULES["unprofiled_step"].finding(case=case, evidence=() if case else (ratio, more))]
