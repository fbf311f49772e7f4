"""Findings about what could not be led to a range, or to a phase."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pandas as pd

from nsys_llm.report.findings import Finding
from nsys_llm.taxonomy.phase_maps import UNMAPPED
from nsys_llm.view.text import counted, format_ns, format_percent, quoted

_Tables = Mapping[str, pd.DataFrame]

#: Share of the GPU time in ranges below which nsys-llm-explainer 0.1.0 warns (report.py).
_LOW_COVERAGE_PCT: Final = 70.0
#: Share of the GPU time in ranges of no phase from which the map is to be mended; ours.
_UNMAPPED_PCT: Final = 50.0
_TOP_RANGES: Final = 4
#: The parts of attribution that the begin of the capture cut.
_CUT: Final = ("before_capture", "cut_range")
#: Share of the GPU time from which that of a loss by itself is told; ours.
_LOST_PCT: Final = 5.0


def coverage_findings(tables: _Tables) -> list[Finding]:
    """Return what the tables attribution and phases tell."""
    return [*_low_coverage(tables), *_unmarked_threads(tables), *_unmapped(tables)]


def _low_coverage(tables: _Tables) -> list[Finding]:
    rows = tables["attribution"]
    # What was launched, or marked, before the capture began is cut off: no range could hold it.
    is_cut = rows["part"].isin(_CUT)
    cut = rows[is_cut].groupby(["rank", "file"], sort=True)["gpu_ns"].sum()
    rows = rows[~is_cut]
    by_rank = rows.groupby(["rank", "file"], sort=True)["gpu_ns"].sum()
    found = rows[rows["attributed"]].groupby(["rank", "file"], sort=True)["gpu_ns"].sum()
    share = 100.0 * found.reindex(by_rank.index).fillna(0) / by_rank[by_rank > 0]
    low = share[share < _LOW_COVERAGE_PCT].dropna()
    if low.empty:
        return []
    rank, file = low.idxmin()
    lost = rows[(rows["rank"] == rank) & ~rows["attributed"]]
    worst = lost.loc[lost["gpu_ns"].idxmax()]
    cut_ns = int(cut.get((rank, file), 0))
    without = (
        f" (without {format_ns(cut_ns)} launched before the capture began, or in a range that "
        "was pushed by then)"
        if cut_ns
        else ""
    )
    return [
        Finding(
            rule="low_range_coverage",
            severity="medium",
            scope="rank",
            rank=int(rank),
            title=f"Only {format_percent(low.min())} of the GPU time of {quoted(file)} lies in "
            "NVTX ranges",
            evidence=f"{format_ns(found.get((rank, file), 0))} of "
            f"{format_ns(by_rank[rank, file])}{without}; "
            f"most of the rest, {format_ns(worst['gpu_ns'])}, is "
            f"{worst['meaning']}. {len(low)} of {counted(len(by_rank), 'rank')} "
            f"{'is' if len(low) == 1 else 'are'} below {_LOW_COVERAGE_PCT:.0f} %.",
            tables=("attribution", "coverage"),
            recommendation="Read shares of phases as shares of what was marked, and no more. Mark "
            "the phases on the threads that launch, and record as below.",
            capture=None if pd.isna(worst["capture"]) else str(worst["capture"]),
            impact_ns=int(by_rank.sum() - found.sum()),
        )
    ]


def _unmarked_threads(tables: _Tables) -> list[Finding]:
    rows = tables["attribution"]
    own = rows[rows["part"] == "unmarked_thread"]
    total_ns, lost_ns = int(rows["gpu_ns"].sum()), int(own["gpu_ns"].sum())
    if not total_ns or 100.0 * lost_ns < _LOST_PCT * total_ns:
        return []
    worst = own.loc[own["gpu_ns"].idxmax()]
    return [
        Finding(
            rule="unmarked_thread",
            severity="low",
            scope="rank",
            rank=int(worst["rank"]),
            title=f"{format_percent(100.0 * lost_ns / total_ns)} of the GPU time was launched by "
            "threads that mark nothing",
            evidence=f"{format_ns(lost_ns)} on {counted(own['rank'].nunique(), 'rank')}, most on "
            f"rank {worst['rank']} ({format_ns(worst['gpu_ns'])}). A range of one thread does not "
            "hold what another one launches.",
            tables=("attribution",),
            recommendation="If this is PyTorch's backward pass, its thread is not the one that "
            "calls backward(): let PyTorch mark its operators. Else mark the work of that thread, "
            "or use start/end ranges, which hold the launches of all threads.",
            capture=str(worst["capture"]),
            impact_ns=lost_ns,
        )
    ]


def _unmapped(tables: _Tables) -> list[Finding]:
    phases = tables["phases"]
    row = phases[(phases["phase"] == UNMAPPED) & (phases["gpu_pct"] >= _UNMAPPED_PCT)]
    if row.empty:
        return []
    one = row.iloc[0]
    tree = tables["range_tree"]
    outer = tree[(tree["depth"] == 0) & (tree["inclusive_ns"] > 0)].head(_TOP_RANGES)
    names = ", ".join(
        f"{quoted(name)} {format_percent(share)}"
        for name, share in zip(outer["label"], outer["inclusive_pct"], strict=True)
    )
    return [
        Finding(
            rule="unmapped_ranges",
            severity="low",
            scope="phase",
            name=UNMAPPED,
            title=f"{format_percent(one['gpu_pct'])} of the GPU time lies in ranges of which none "
            "is a phase",
            evidence=f"{format_ns(one['gpu_ns'])}. The outermost ranges with most of it: {names}.",
            tables=("phases", "range_tree"),
            recommendation="Say which ranges are phases, with `--phase-map FILE` and a file like "
            '`{"attention": "re:^aten::scaled_dot", "mlp": ["linear", "gelu"]}`; or mark phases in '
            "the code: `torch.cuda.nvtx.range_push`, in vLLM `VLLM_NVTX_SCOPES_FOR_PROFILING=1`, "
            "in SGLang `SGLANG_ENABLE_NVTX_SCHEDULER=1`.",
            impact_ns=int(one["gpu_ns"]),
        )
    ]
