"""Findings about what could not be attributed to a range, or to a phase."""

from __future__ import annotations

from functools import partial
from typing import Final

from nsys_llm.report.findings import Finding, cells, claim
from nsys_llm.report.records import Tables, records
from nsys_llm.taxonomy.model_parts import LEAST_JOINED
from nsys_llm.taxonomy.phase_maps import UNMAPPED
from nsys_llm.view.text import format_percent, quoted

from .texts import LOST_PCT, LOW_COVERAGE_PCT, RULES, UNMAPPED_PCT

_TOP_RANGES: Final = 4
#: The parts of attribution cut by the start of the capture.
_CUT: Final = ("before_capture", "cut_range")


def coverage_findings(tables: Tables) -> list[Finding]:
    """Return the findings of the tables attribution, phases and marks."""
    lost = (*_low_coverage(tables), *_unmarked_threads(tables), *_unmapped(tables))
    return [*lost, *_few_annotated(tables)]


def _few_annotated(tables: Tables) -> list[Finding]:
    marks = tables["marks"]
    given = marks[marks["annotation_key"].notna()]
    share = given["annotated_n"] / given["graph_kernels_n"]
    few, odd = given[share < LEAST_JOINED], given[given["contradicted_n"] > 0]
    if few.empty and odd.empty:
        return []
    case = "contradicted" if few.empty else None
    few, column = (odd, "contradicted_n") if few.empty else (few, "annotated_n")
    rank = int(few.iloc[0]["rank"] if case else few.loc[share[few.index].idxmin(), "rank"])
    of = partial(claim, tables, rank=rank)
    kernels = of("graph_kernels_n", "marks", "graph_kernels_n")
    return [
        RULES["few_annotated"].finding(
            evidence=(
                of("annotated_pct", "marks", column, "sum", kernels),
                *(of("annotated_n", "marks", column), kernels),
            ),
            case=case,
            ranks=(rank, *(int(other) for other in few["rank"] if other != rank)),
            rank=rank,
        )
    ]


def _low_coverage(tables: Tables) -> list[Finding]:
    rows = tables["attribution"]
    # What was launched, or marked, before the capture began is cut off: no range could hold it.
    rows = rows[~rows["part"].isin(_CUT)]
    by_rank = rows.groupby(["rank", "file"], sort=True)["gpu_ns"].sum()
    held = rows[rows["attributed"]].groupby(["rank", "file"], sort=True)["gpu_ns"].sum()
    share = 100.0 * held.reindex(by_rank.index).fillna(0) / by_rank[by_rank > 0]
    low = share[share < LOW_COVERAGE_PCT].dropna()
    if low.empty:
        return []
    rank, file = low.idxmin()
    lost = rows[(rows["rank"] == rank) & ~rows["attributed"]]
    worst = records(lost.loc[[lost["gpu_ns"].idxmax()]])[0]
    of = partial(claim, tables, rank=int(rank), file=file)
    of_rest = partial(of, part=tuple(sorted(set(rows["part"]))))
    gpu = of_rest("gpu_ns", "attribution", "gpu_ns")
    held_ns = of_rest("held_ns", "attribution", "gpu_ns", attributed=True)
    return [
        RULES["low_range_coverage"].finding(
            fields={"meaning": worst["meaning"]},
            evidence=(
                of_rest("share_pct", "attribution", "gpu_ns", "sum", gpu, attributed=True),
                *(held_ns, gpu),
                of("cut_ns", "attribution", "gpu_ns", part=_CUT),
                of("lost_ns", "attribution", "gpu_ns", part=worst["part"]),
            ),
            ranks=tuple(int(key) for key, _ in low.index),
            rank=int(rank),
            record=worst["capture"],
            impact_ns=gpu.value - held_ns.value,
        )
    ]


def _unmarked_threads(tables: Tables) -> list[Finding]:
    rows = tables["attribution"]
    unmarked = rows[(rows["part"] == "unmarked_thread") & (rows["gpu_pct"] >= LOST_PCT)]
    if unmarked.empty:
        return []
    worst = records(unmarked.loc[[unmarked["gpu_ns"].idxmax()]])[0]
    return [
        RULES["unmarked_thread"].finding(
            evidence=cells("attribution", worst, ("rank", "part"), ("gpu_ns", "gpu_pct")),
            ranks=tuple(int(rank) for rank in unmarked["rank"]),
            rank=int(worst["rank"]),
            record=str(worst["capture"]),
            impact_ns=int(worst["gpu_ns"]),
        )
    ]


def _unmapped(tables: Tables) -> list[Finding]:
    phases = tables["phases"]
    rows = phases[(phases["phase"] == UNMAPPED) & (phases["gpu_pct"] >= UNMAPPED_PCT)]
    if rows.empty:
        return []
    row = records(rows)[0]
    tree = tables["range_tree"]
    outer = records(tree[(tree["depth"] == 0) & (tree["inclusive_ns"] > 0)].head(_TOP_RANGES))
    named = (f"{quoted(top['label'])} {format_percent(top['inclusive_pct'])}" for top in outer)
    path, share = ("path", "kind", "label"), ("inclusive_pct",)
    return [
        RULES["unmapped_ranges"].finding(
            fields={"outer": ", ".join(named) or "none"},
            evidence=(
                *cells("phases", row, ("phase",), ("gpu_pct",)),
                *(cell for top in outer for cell in cells("range_tree", top, path, share)),
            ),
            name=UNMAPPED,
            impact_ns=int(row["gpu_ns"]),
        )
    ]
