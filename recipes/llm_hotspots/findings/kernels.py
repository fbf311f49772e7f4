"""Findings on kernels: they could be faster, results may differ, or no rule matches them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import pandas as pd

from nsys_llm.core.patterns import parse_pattern
from nsys_llm.report.causes import Cause, Change
from nsys_llm.report.findings import Evidence, Finding, cells, claim
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

from ..tables.bandwidth import LITTLE_HEADROOM_PCT
from .memops import by_gpu, largest_share, place_of, summed
from .texts import RULES, UNMATCHED_PCT

#: Kernels that a finding names.
_NAMED: Final = 3
_KERNEL: Final = ("rank", "device_id", "name")
_RATE: Final = (
    *("efficiency_pct", "mean_ns", "size_bytes", "launches_n", "rate_gb_s", "peak_gb_s"),
)

#: Rule by the flag of the kernel rules; see its `flag_meanings`. That cuBLAS chooses kernels by
#: shape is true of every run, and no remark.
_FLAGS: Final = {
    "atomics": "determinism_atomics",
    "split_k": "determinism_split_k",
    "cascade_merge": "determinism_cascade_merge",
}
_OF_FLAG: Final = ("flag", "since", "source", "slower")
#: Its kernels that are in a sequence which engines fuse are said there.
_UNFUSED: Final = "unfused_pointwise"


def lever_findings(tables: Tables) -> list[Finding]:
    """Return what is to be said about kernels that are known to have something faster."""
    gpus = {row["File"]: row["gpu"] for row in records(tables["files"])}
    fusible = {
        gpu: {row[name] for row in some for name in ("first", "last")}
        for gpu, some in by_gpu(records(tables["fusions"])).items()
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
    times = {gpu: summed(rows, "exclusive_ns") for gpu, rows in kernels.items()}
    times = {gpu: time_ns for gpu, time_ns in times.items() if time_ns}
    if not times:
        return
    gpu = largest_share(times, walls)
    rows, place, span = kernels[gpu], place_of(gpu), span_of(tables, gpu)
    of = partial(claim, tables, **place, name=tuple(row["name"] for row in rows))
    yield RULES[lever.id].finding(
        cause=Cause("kernels", detail=lever.detail),
        change=Change("kernels", lever.id, time_ns=times[gpu]),
        evidence=(
            *_named_cells("rank_kernels", rows, _KERNEL, "exclusive_ns"),
            of("launches_n", "rank_kernels", "launches_n"),
            of("kernels_n", "rank_kernels", "name", "count"),
            of("time_ns", "rank_kernels", "exclusive_ns"),
            of("share_pct", "rank_kernels", "exclusive_ns", "sum", span),
            span,
        ),
        # What a usual fix leaves of the time.
        fields={"named": _named(rows, "exclusive_ns"), "left_pct": 100.0 * lever.left},
        name=rows[0]["category"],
        impact_ns=times[gpu],
        **place,
    )


def _named(rows: Sequence[Record], time: str) -> str:
    """Return the names of the first kernels, each with its time."""
    return ", ".join(
        f"{quoted(shortened(row['name']))} ({format_ns(row[time])})" for row in rows[:_NAMED]
    )


def _named_cells(
    table: str, rows: Sequence[Record], where: Sequence[str], time: str
) -> Iterator[Evidence]:
    for row in rows[:_NAMED]:
        yield from cells(table, row, where, [time])


def bandwidth_findings(tables: Tables) -> Iterator[Finding]:
    """Yield what kernels far below the bandwidth gain where they are as fast as it allows."""
    kernels, walls = tables["rank_kernels"], Walls(tables)
    # A kernel belongs to the first pattern that fits it, as in the table.
    free = kernels["exclusive_ns"] > 0
    for row in records(tables["bandwidth"]):
        fits = free & kernels["name"].map(parse_pattern(row["pattern"]).matches).astype(bool)
        free &= ~fits
        if row["judgement"] == "room" and fits.any():
            yield _room(row, kernels[fits], walls)


def _room(row: Record, kernels: pd.DataFrame, walls: Walls) -> Finding:
    groups = by_gpu(records(kernels))
    times = {gpu: summed(some, "exclusive_ns") for gpu, some in groups.items()}
    left = 1.0 - row["efficiency_pct"] / LITTLE_HEADROOM_PCT
    gpu = largest_share(times, walls)
    return RULES["bandwidth_room"].finding(
        cause=Cause("kernels", detail=row["pattern"]),
        change=Change("kernels", time_ns=left * times[gpu]),
        evidence=cells("bandwidth", row, ["pattern"], _RATE),
        fields={
            "exclusive_ns": times[gpu],
            "headroom_pct": LITTLE_HEADROOM_PCT,
            "left_pct": 100.0 * left,
        },
        name=row["example"],
        impact_ns=times[gpu],
        **place_of(gpu),
    )


def fusion_findings(tables: Tables) -> list[Finding]:
    """Return a finding for each sequence of kernels that could be one, on the GPU that has most."""
    engine = next(iter(tables["categories"]["engine"]), None)
    return [
        _fusion_finding(load_fusions()[name], by_gpu(rows), engine, tables)
        for (name,), rows in grouped(records(tables["fusions"]), "fusion").items()
    ]


def _fusion_finding(
    fusion: Fusion, rows: dict[Gpu, list[Record]], engine: str | None, tables: Tables
) -> Finding:
    saved = {gpu: summed(some, "saved_ns") for gpu, some in rows.items()}
    gpu = largest_share(saved, Walls(tables))
    most = max(rows[gpu], key=lambda row: row["saved_ns"])
    of, span = partial(claim, tables, **place_of(gpu), fusion=fusion.id), span_of(tables, gpu)
    flag = fusion.flags.get(engine or "")
    gpus = {row["File"]: row["gpu"] for row in records(tables["files"])}
    if flag is not None and not flag.fits(gpus.get(most["file"]), most["first"], most["last"]):
        flag = None
    each = most["layers_n"] >= EACH_SHARE * most["attentions_n"]
    attentions = of("attentions_n", "fusions", "attentions_n", "cell")
    part = of("layers_pct", "fusions", "layers_n", "cell", attentions)
    sums = ("sequences_n", "time_ns", "gaps_ns", "saved_ns")
    return RULES["fusible_kernels"].finding(
        case="flag" if flag and flag.flag else None,
        cause=Cause("kernels", detail=fusion.id),
        change=Change("kernels", time_ns=saved[gpu], wall_classes=(COMPUTE, IDLE)),
        evidence=(
            *(of(name, "fusions", name) for name in sums),
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
            **{name: flag and getattr(flag, name) for name in _OF_FLAG},
        },
        ranks=tuple(sorted({rank for rank, _ in saved})),
        name=fusion.id,
        impact_ns=saved[gpu],
        **place_of(gpu),
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
    kernels = kernels[kernels["total_ns"] > 0]
    flags = kernels["flags"].fillna("").str.split(", ")
    of_flag = {flag: kernels[[flag in some for some in flags]] for flag in _FLAGS}
    return [_flag_finding(flag, some, tables) for flag, some in of_flag.items() if len(some)]


def _flag_finding(flag: str, flagged: pd.DataFrame, tables: Tables) -> Finding:
    rows = records(flagged.sort_values("total_ns", ascending=False, kind="stable"))
    of = partial(claim, tables, name=tuple(flagged["name"]))
    return RULES[_FLAGS[flag]].finding(
        fields={"flag": flag, "named": _named(rows, "total_ns")},
        evidence=(
            of("kernels_n", "kernels", "name", "count"),
            of("launches_n", "kernels", "launches_n"),
            of("total_pct", "kernels", "total_pct"),
            *_named_cells("kernels", rows, ("name",), "total_ns"),
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
