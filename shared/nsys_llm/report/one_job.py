"""Whether profiles that are given together look like ranks of one job. Reads finished tables."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

import pandas as pd

from nsys_llm.report.findings import PERFORMANCE, Finding
from nsys_llm.report.records import Tables
from nsys_llm.taxonomy.wall_classes import COMMUNICATION

_BY_ORDER: Final = "index"


def why_unrelated(tables: Tables) -> str | None:
    """Return what speaks against one job, as a clause; None where nothing does, or of two runs.

    Ranks of a job say which they are, or communicate. Profiles that do neither, and ran one after
    the other or another program, were put together by whoever gave them.
    """
    files, wall = tables["files"], tables["wall"]
    files = files[files["status"] == "ok"]
    if len(files) < 2 or "run" in files.columns or not (files["rank_source"] == _BY_ORDER).all():
        return None
    if int(wall.loc[wall["wall_class"] == COMMUNICATION, "time_ns"].sum()):
        return None
    if files["process_name"].nunique() == len(files):
        return "each is of another program"
    return "they ran one after the other" if _in_turn(files, wall) else None


def _in_turn(files: pd.DataFrame, wall: pd.DataFrame) -> bool:
    if files["clock_offset_ns"].isna().any() or files["clock_source"].isna().any():
        return False
    spans = wall.groupby("file").agg({"span_start_ns": "min", "span_end_ns": "max"})
    offset_ns = files.set_index("File")["clock_offset_ns"].reindex(spans.index)
    # A span is null where the filters leave nothing.
    if offset_ns.isna().any() or spans.isna().any(axis=None) or len(spans) < len(files):
        return False
    starts, ends = spans["span_start_ns"] + offset_ns, spans["span_end_ns"] + offset_ns
    edges = sorted(zip(starts, ends, strict=True))
    return all(end <= start for (_, end), (start, _) in pairwise(edges))


def without_comparisons(findings: Iterable[Finding]) -> list[Finding]:
    """Return findings without those that blame a rank, by what others do."""
    return [
        finding
        for finding in findings
        if finding.kind != PERFORMANCE or not (finding.cause and finding.cause.kind == "rank")
    ]
