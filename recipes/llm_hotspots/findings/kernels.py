"""Findings on kernels: something faster is known, results may differ, or no rule matches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import pandas as pd

from nsys_llm.report.causes import Cause, Change
from nsys_llm.report.findings import Finding, cells
from nsys_llm.report.records import Record, Tables, first_record, records
from nsys_llm.report.walls import Walls
from nsys_llm.taxonomy.categories import UNMATCHED
from nsys_llm.taxonomy.kernel_levers import KernelLever, load_kernel_levers
from nsys_llm.view.text import format_ns, quoted, shortened

from .memops import by_gpu
from .texts import RULES, UNMATCHED_PCT

#: Kernels that a finding names.
_NAMED: Final = 3

#: Rule by the flag of the kernel rules; see its `flag_meanings`. That cuBLAS chooses kernels by
#: shape is true of every run, and no remark.
_FLAGS: Final = {
    "atomics": "determinism_atomics",
    "split_k": "determinism_split_k",
    "cascade_merge": "determinism_cascade_merge",
}


def lever_findings(tables: Tables) -> list[Finding]:
    """Return what is to be said about kernels that are known to have something faster."""
    gpus = {row["File"]: row["gpu"] for row in records(tables["files"])}
    left = {gpu: some for gpu, some in by_gpu(records(tables["rank_kernels"])).items() if some}
    names = {gpu: [row["name"] for row in some] for gpu, some in left.items()}
    walls = Walls(tables)
    reported: list[Finding] = []
    # A kernel is of the first lever that applies: those of few kernels stand first.
    for lever in load_kernel_levers().values():
        chosen = {
            gpu: [row for row in some if lever.fits(row["name"], row["category"])]
            for gpu, some in left.items()
            if lever.applies(gpus.get(some[0]["file"]) if some else None, names[gpu])
        }
        left |= {gpu: [row for row in left[gpu] if row not in some] for gpu, some in chosen.items()}
        reported += _finding(lever, chosen, walls)
    return reported


def _finding(
    lever: KernelLever, kernels: dict[tuple[int, int], list[Record]], walls: Walls
) -> Iterator[Finding]:
    times = {gpu: sum(row["exclusive_ns"] for row in rows) for gpu, rows in kernels.items()}
    spans = {gpu: walls.span_ns(*gpu) for gpu, time_ns in times.items() if time_ns}
    if not spans:
        return
    rank, device = gpu = max(spans, key=lambda gpu: times[gpu] / max(spans[gpu], 1))
    rows, time_ns, span_ns = kernels[gpu], times[gpu], spans[gpu]
    named = [
        f"{quoted(shortened(row['name']))} ({format_ns(row['exclusive_ns'])})"
        for row in rows[:_NAMED]
    ]
    yield RULES[lever.id].finding(
        cause=Cause("kernels", detail=lever.detail),
        change=Change("kernels", lever.id, time_ns=time_ns),
        evidence=tuple(
            cell
            for row in rows[:_NAMED]
            for cell in cells("rank_kernels", row, ("rank", "device_id", "name"), ["exclusive_ns"])
        ),
        fields={
            "launches_n": sum(row["launches_n"] for row in rows),
            "kernels_n": len(rows),
            "exclusive_ns": time_ns,
            "span_ns": span_ns,
            "share_pct": 100.0 * time_ns / max(span_ns, 1),
            "named": ", ".join(named),
            # What a usual fix leaves of the time.
            "left_pct": 100.0 * lever.left,
        },
        rank=rank,
        device_id=device,
        name=rows[0]["category"],
        impact_ns=time_ns,
    )


def with_ncu(findings: Iterable[Finding], tables: Tables) -> list[Finding]:
    """Return findings, those on kernels with the command that profiles a typical launch.

    Of the kernel that a finding names first, on its GPU or else where it takes most time.
    """
    rows = [row for row in records(tables["rank_kernels"]) if row["ncu"] is not None]
    rows.sort(key=lambda row: -row["exclusive_ns"])
    return [replace(finding, ncu=_ncu(finding, rows)) for finding in findings]


def _ncu(finding: Finding, rows: list[Record]) -> str | None:
    where = (dict(cell.where) for cell in finding.evidence if cell.table == "rank_kernels")
    name = next((keys["name"] for keys in where), None)
    if finding.scope == "kernel":
        name = finding.name
    gpu = (finding.rank, finding.device_id)
    alike = [row for row in rows if row["name"] == name]
    alike.sort(key=lambda row: (row["rank"], row["device_id"]) != gpu)
    return alike[0]["ncu"] if alike else None


def determinism_findings(tables: Tables) -> list[Finding]:
    """Return a finding for each flag that kernels of the run carry."""
    kernels = tables["kernels"]
    flags = kernels["flags"].fillna("").str.split(", ")
    reported = []
    for flag in _FLAGS:
        flagged = kernels[
            pd.Series([flag in some for some in flags], index=kernels.index, dtype=bool)
        ]
        flagged = flagged[flagged["total_ns"] > 0]
        if not flagged.empty:
            reported.append(_flag_finding(flag, flagged))
    return reported


def _flag_finding(flag: str, flagged: pd.DataFrame) -> Finding:
    heaviest = flagged.sort_values("total_ns", ascending=False, kind="stable").head(_NAMED)
    times = {f"kernel_{nth}_ns": int(ns) for nth, ns in enumerate(heaviest["total_ns"])}
    named = [
        f"{quoted(shortened(str(name)))} ({format_ns(time_ns)})"
        for name, time_ns in zip(heaviest["name"], times.values(), strict=True)
    ]
    return RULES[_FLAGS[flag]].finding(
        fields={
            "flag": flag,
            "kernels_n": len(flagged),
            "launches_n": int(flagged["launches_n"].sum()),
            "total_pct": float(flagged["total_pct"].sum()),
            "named": ", ".join(named),
        },
        numbers=times,
        name=str(heaviest["name"].iloc[0]),
        impact_ns=int(flagged["total_ns"].sum()),
    )


def category_findings(tables: Tables) -> list[Finding]:
    """Return what is to be said about categories."""
    categories = tables["categories"]
    rows = categories[categories["category"] == UNMATCHED]
    if rows.empty or not rows["busy_pct"].fillna(0).iloc[0] >= UNMATCHED_PCT:
        return []
    row, kernels = first_record(rows), tables["kernels"]
    unknown = kernels.loc[kernels["category"] == UNMATCHED, "name"]
    return [
        RULES["unmatched_kernels"].finding(
            fields={
                "busy_pct": row["busy_pct"],
                "heaviest": unknown.iloc[0] if len(unknown) else None,
            },
            evidence=cells("categories", row, ["category"], ["kernels_n", "exclusive_ns"]),
            name=UNMATCHED,
            impact_ns=row["exclusive_ns"],
        )
    ]
