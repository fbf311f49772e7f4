"""Findings on kernels: something faster is known, results may differ, or no rule matches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

import pandas as pd

from nsys_llm.report.causes import Cause, Change
from nsys_llm.report.findings import Finding, cells, claim
from nsys_llm.report.records import Record, Tables, first_record, records
from nsys_llm.report.walls import Gpu, Walls, span_of
from nsys_llm.taxonomy.categories import UNMATCHED
from nsys_llm.taxonomy.kernel_levers import KernelLever, load_kernel_levers
from nsys_llm.view.text import format_ns, quoted, shortened

from .memops import by_gpu
from .texts import RULES, UNMATCHED_PCT

#: Kernels that a finding names.
_NAMED: Final = 3
_KERNEL: Final = ("rank", "device_id", "name")

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
        reported += _finding(lever, chosen, walls, tables)
    return reported


def _finding(
    lever: KernelLever, kernels: dict[Gpu, list[Record]], walls: Walls, tables: Tables
) -> Iterator[Finding]:
    times = {gpu: sum(row["exclusive_ns"] for row in rows) for gpu, rows in kernels.items()}
    spans = {gpu: walls.span_ns(*gpu) for gpu, time_ns in times.items() if time_ns}
    if not spans:
        return
    rank, device = gpu = max(spans, key=lambda gpu: times[gpu] / max(spans[gpu], 1))
    rows, time_ns, span = kernels[gpu], times[gpu], span_of(tables, gpu)
    names = tuple(row["name"] for row in rows)
    of = partial(claim, tables, rank=rank, device_id=device, name=names)
    named = [
        f"{quoted(shortened(row['name']))} ({format_ns(row['exclusive_ns'])})"
        for row in rows[:_NAMED]
    ]
    yield RULES[lever.id].finding(
        cause=Cause("kernels", detail=lever.detail),
        change=Change("kernels", lever.id, time_ns=time_ns),
        evidence=(
            *(
                cell
                for row in rows[:_NAMED]
                for cell in cells("rank_kernels", row, _KERNEL, ["exclusive_ns"])
            ),
            of("launches_n", "rank_kernels", "launches_n"),
            of("kernels_n", "rank_kernels", "name", "count"),
            of("time_ns", "rank_kernels", "exclusive_ns"),
            of("share_pct", "rank_kernels", "exclusive_ns", "sum", span),
            span,
        ),
        fields={
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
            reported.append(_flag_finding(flag, flagged, tables))
    return reported


def _flag_finding(flag: str, flagged: pd.DataFrame, tables: Tables) -> Finding:
    heaviest = flagged.sort_values("total_ns", ascending=False, kind="stable").head(_NAMED)
    rows = records(heaviest)
    named = [f"{quoted(shortened(row['name']))} ({format_ns(row['total_ns'])})" for row in rows]
    of = partial(claim, tables, name=tuple(flagged["name"]))
    return RULES[_FLAGS[flag]].finding(
        fields={"flag": flag, "named": ", ".join(named)},
        evidence=(
            of("kernels_n", "kernels", "name", "count"),
            of("launches_n", "kernels", "launches_n"),
            of("total_pct", "kernels", "total_pct"),
            *(cell for row in rows for cell in cells("kernels", row, ("name",), ("total_ns",))),
        ),
        name=rows[0]["name"],
        impact_ns=int(flagged["total_ns"].sum()),
    )


def category_findings(tables: Tables) -> list[Finding]:
    """Return what is to be said about categories."""
    categories = tables["categories"]
    rows = categories[categories["category"] == UNMATCHED]
    if rows.empty or not rows["busy_pct"].fillna(0).iloc[0] >= UNMATCHED_PCT:
        return []
    row = first_record(rows)
    kernels = records(tables["kernels"])
    name = next((item["name"] for item in kernels if item["category"] == UNMATCHED), None)
    # Where it takes most time, for the command that profiles it.
    places = [item for item in records(tables["rank_kernels"]) if item["name"] == name]
    places.sort(key=lambda item: -item["exclusive_ns"])
    return [
        RULES["unmatched_kernels"].finding(
            fields={"heaviest": name},
            evidence=(
                *cells("categories", row, ["category"], ["busy_pct", "kernels_n", "exclusive_ns"]),
                claim(tables, "heaviest_pct", "kernels", "busy_pct", "max", name=name),
                *(cells("rank_kernels", places[0], _KERNEL, ["launches_n"]) if places else ()),
            ),
            name=UNMATCHED,
            impact_ns=row["exclusive_ns"],
        )
    ]
