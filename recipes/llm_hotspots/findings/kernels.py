"""Findings on kernels: something faster is known, results may differ, or no rule matches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, Final

import pandas as pd

from nsys_llm.report.causes import Cause, Change
from nsys_llm.report.findings import Finding, cells, claim
from nsys_llm.report.records import Record, Tables, first_record, grouped, records
from nsys_llm.report.walls import Gpu, Walls, span_of
from nsys_llm.taxonomy.categories import UNMATCHED
from nsys_llm.taxonomy.kernel_levers import (
    EACH_SHARE,
    Fusion,
    KernelLever,
    load_fusions,
    load_kernel_levers,
)
from nsys_llm.taxonomy.wall_classes import COMPUTE, IDLE
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


#: Its kernels that are in a sequence which engines fuse are said there.
_UNFUSED: Final = "unfused_pointwise"


def lever_findings(tables: Tables) -> list[Finding]:
    """Return what is to be said about kernels that are known to have something faster."""
    gpus = {row["File"]: row["gpu"] for row in records(tables["files"])}
    fusible = {
        gpu: {row[name] for row in some for name in ("first", "last")}
        for gpu, some in grouped(records(tables["fusions"]), "rank", "device_id").items()
    }
    left = {gpu: some for gpu, some in by_gpu(records(tables["rank_kernels"])).items() if some}
    names = {gpu: [row["name"] for row in some] for gpu, some in left.items()}
    walls = Walls(tables)
    reported: list[Finding] = []
    # A kernel is of the first lever that applies: those of few kernels stand first.
    for lever in load_kernel_levers().values():
        chosen = {
            gpu: [
                row
                for row in some
                if lever.fits(row["name"], row["category"])
                and (lever.id != _UNFUSED or row["name"] not in fusible.get(gpu, ()))
            ]
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


def fusion_findings(tables: Tables) -> list[Finding]:
    """Return a finding for each sequence of kernels that could be one, on the GPU that has most."""
    engine = next(iter(tables["categories"]["engine"]), None)
    return [
        _fusion_finding(load_fusions()[name], grouped(rows, "rank", "device_id"), engine, tables)
        for (name,), rows in grouped(records(tables["fusions"]), "fusion").items()
    ]


def _fusion_finding(
    fusion: Fusion, rows: dict[Any, list[Record]], engine: str | None, tables: Tables
) -> Finding:
    walls = Walls(tables)
    saved = {gpu: sum(row["saved_ns"] for row in some) for gpu, some in rows.items()}
    rank, device = gpu = max(saved, key=lambda gpu: saved[gpu] / max(walls.span_ns(*gpu), 1))
    most = max(rows[gpu], key=lambda row: row["saved_ns"])
    where = {"rank": rank, "device_id": device, "fusion": fusion.id}
    of, span = partial(claim, tables, **where), span_of(tables, gpu)
    flag = fusion.flags.get(engine or "")
    gpus = {row["File"]: row["gpu"] for row in records(tables["files"])}
    if flag is not None and not flag.fits(gpus.get(most["file"]), most["first"], most["last"]):
        flag = None
    named = None if flag is None else flag.flag
    each = most["layers_n"] >= EACH_SHARE * most["attentions_n"]
    attentions = of("attentions_n", "fusions", "attentions_n", "cell")
    part = of("layers_pct", "fusions", "layers_n", "cell", attentions)
    return RULES["fusible_kernels"].finding(
        case="flag" if named else None,
        cause=Cause("kernels", detail=fusion.id),
        change=Change("kernels", time_ns=saved[gpu], wall_classes=(COMPUTE, IDLE)),
        evidence=(
            of("sequences_n", "fusions", "sequences_n"),
            of("time_ns", "fusions", "time_ns"),
            of("gaps_ns", "fusions", "gaps_ns"),
            of("saved_ns", "fusions", "saved_ns"),
            of("share_pct", "fusions", "saved_ns", "sum", span),
            span,
            *(() if each else (part, attentions)),
        ),
        fields={
            "each": "each layer" if each else None,
            **({"layers_pct": None} if each else {}),
            "beyond": fusion.beyond,
            "whats": f"{fusion.what[0].upper()}{fusion.what[1:]}",
            "first": quoted(shortened(most["first"])),
            "last": quoted(shortened(most["last"])),
            "flag": named,
            "since": flag and flag.since,
            "source": flag and flag.source,
            "slower": flag and flag.slower,
        },
        ranks=tuple(sorted({rank for rank, _ in saved})),
        rank=rank,
        device_id=device,
        name=fusion.id,
        impact_ns=saved[gpu],
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
