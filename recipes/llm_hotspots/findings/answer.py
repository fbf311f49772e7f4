"""What llm_hotspots says to its reader: the answer in two sentences, and findings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pandas as pd

from nsys_llm.report.findings import UNRECORDED_WORK, Finding
from nsys_llm.report.price import LEAST_PCT, price_of, price_words
from nsys_llm.report.rank_findings import rank_findings
from nsys_llm.report.records import Tables, records
from nsys_llm.report.wall_line import wall_lines
from nsys_llm.taxonomy.api_classes import APPLICATION, COLD_START_KINDS, PROFILER
from nsys_llm.taxonomy.categories import UNMATCHED
from nsys_llm.taxonomy.wall_classes import COMPUTE, IDLE, WHOLE_GRAPH
from nsys_llm.view.text import counted, format_bytes, format_ns, format_percent, listed, quoted

from .communication import communication_findings
from .extras import graph_findings, measured_findings, secret_findings, unrecorded_findings
from .kernels import (
    bandwidth_findings,
    category_findings,
    determinism_findings,
    fusion_findings,
    lever_findings,
    with_ncu,
)
from .memops import copy_findings

#: Classes beside computation, and kinds of it, that the answer names.
_TOP_CLASSES: Final = 2
_TOP_KINDS: Final = 3
_CAUSES: Final = "`nsys recipe idle_gaps` lists the causes"
#: As much as the weights of a small model in 16 bits; inputs of a step are far smaller. Ours.
_MODEL_BYTES: Final = 1_000_000_000
#: Share of the window from which the profiler's own time is worth a word; ours.
_PROFILER_PCT: Final = 0.1


def answer(tables: Tables) -> str:
    """Return where the GPU time goes and what would gain most of it, in two sentences."""
    lines = wall_lines(tables)
    if not lines or not int(tables["devices"]["kernel_busy_ns"].sum()):
        return (
            "No kernel took any time in the selection. `coverage` shows what the profiles "
            "contain, and what a filter left."
        )
    line, shares = lines[0], {part.label: part.share_pct for part in lines[0].classes}
    where = "The GPU computes" if line.gpus_n == 1 else f"{counted(line.gpus_n, 'GPU')} compute"
    computes = f"{where} for {format_percent(shares.get(COMPUTE, 0.0))} of the time"
    inside = ", ".join(_named_shares(_kinds(tables["wall"]), _TOP_KINDS))
    rest = _named_shares({name: shares[name] for name in shares if name != COMPUTE}, _TOP_CLASSES)
    next_is = f"; next {'is' if len(rest) == 1 else 'are'} {listed(rest)}" if rest else ""
    split = f"{computes}{f' ({inside})' if inside else ''}{next_is}."
    return f"{split} {_lever(shares, tables)}"


def _kinds(wall: pd.DataFrame) -> dict[str, float]:
    """Return the share of the known categories of computation in the spans of all GPUs."""
    span_ns = int(wall.drop_duplicates(["file", "device_id"])["span_ns"].sum())
    known = wall[(wall["wall_class"] == COMPUTE) & wall["detail"].notna()]
    known = known[~known["detail"].isin((UNMATCHED, WHOLE_GRAPH))]
    times = known.groupby("detail", sort=True)["time_ns"].sum()
    times = times.sort_values(ascending=False, kind="stable")
    return {quoted(name): 100.0 * int(time_ns) / span_ns for name, time_ns in times.items()}


def _named_shares(shares: Mapping[str, float], most_n: int) -> list[str]:
    reported = [f"{name} {format_percent(pct)}" for name, pct in shares.items() if pct >= LEAST_PCT]
    return reported[:most_n]


def _lever(shares: Mapping[str, float], tables: Tables) -> str:
    """Return the largest gain, and where to look where idle time is more than that."""
    candidates = tables["findings"]
    if UNRECORDED_WORK in candidates["rule"].tolist():
        return "Most of its work is not recorded, so idle time and gains are unknown."
    rows = records(candidates[candidates["severity"].notna()].head(1))
    gain_pct = float(rows[0]["gain_pct"] or 0.0) if rows else 0.0
    idle_pct = shares.get(IDLE, 0.0)
    said = f"no finding here would gain {format_percent(LEAST_PCT)}"
    if rows:
        # No table here says what a step is: of an overview it may be a layer.
        price = price_of({**rows[0], "gain_step_ns": None})
        said = f"first of the findings here: {rows[0]['title']} ({price_words(price)})"
    if idle_pct >= max(shares.values()):
        return f"Look at the idle time first ({_CAUSES}); {said}."
    more = f"; idle time is more than that ({_CAUSES})"
    return f"{said[0].upper()}{said[1:]}{more if idle_pct >= max(gain_pct, LEAST_PCT) else ''}."


def findings(tables: Tables) -> list[Finding]:
    """Return all findings of the recipe, in no order."""
    reported = [
        *communication_findings(tables),
        *rank_findings(tables),
        *bandwidth_findings(tables),
        *category_findings(tables),
        *copy_findings(tables),
        *measured_findings(tables),
        *determinism_findings(tables),
        *graph_findings(tables),
        *lever_findings(tables),
        *fusion_findings(tables),
        *secret_findings(tables),
        *unrecorded_findings(tables),
    ]
    return with_ncu(reported, tables)


def caveats(tables: Tables) -> list[str]:
    """Return what to know before reading the numbers, as prose."""
    return [*_model_load(tables), *_cold_start(tables), *_profiler(tables)]


def _model_load(tables: Tables) -> list[str]:
    copies = tables["memops"]
    loads = copies[copies["kind"] == "HtoD"].groupby("rank", sort=True)["size_bytes"].sum()
    loads = loads[loads >= _MODEL_BYTES]
    if loads.empty:
        return []
    return [
        f"Up to {format_bytes(int(loads.max()))} were copied from the host to the GPUs of a rank "
        f"inside the window (rank {loads.idxmax()}; {counted(len(loads), 'rank')} above "
        f"{format_bytes(_MODEL_BYTES)}): that looks like loading a model. Shares of the window and "
        f"of copies include it; {quoted('--filter-time')} or {quoted('--skip-warmup')} excludes "
        "it."
    ]


def _cold_start(tables: Tables) -> list[str]:
    overheads = tables["overheads"]
    cold = overheads[(overheads["owner"] == APPLICATION) & overheads["kind"].isin(COLD_START_KINDS)]
    if cold.empty:
        return []
    by_rank = cold.groupby("rank", sort=True)["union_ns"].sum()
    kinds = ", ".join(cold["kind"].drop_duplicates())
    return [
        f"Code ran for the first time inside the window ({kinds}): up to "
        f"{format_ns(int(by_rank.max()))} on rank {by_rank.idxmax()}. The longest launches and "
        f"early steps are not steady state; {quoted('--skip-warmup')} excludes them."
    ]


def _profiler(tables: Tables) -> list[str]:
    overheads, devices = tables["overheads"], tables["devices"]
    profiler_rows = overheads[(overheads["owner"] == PROFILER) & overheads["kind"].isna()]
    if profiler_rows.empty:
        return []
    # Overhead is a process's, a window a device's; the longest of its devices stands for it.
    windows = devices.groupby("rank")["window_ns"].max()
    by_rank = profiler_rows.set_index("rank")
    share = (100.0 * by_rank["union_ns"] / windows.reindex(by_rank.index)).astype("float64")
    if not share.max() >= _PROFILER_PCT:
        return []
    worst = by_rank.loc[share.idxmax()]
    return [
        f"The profiler itself worked for up to {format_ns(int(worst['union_ns']))} of the "
        f"window ({format_percent(float(share.max()))}, rank {share.idxmax()}); the GPU was idle "
        f"for {format_ns(int(worst['gpu_idle_ns']))} of that, which an unprofiled run avoids."
    ]
