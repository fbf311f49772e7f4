"""What is in the window that is not the steady state: model load, first runs, the profiler."""

from __future__ import annotations

from typing import Final

from nsys_llm.report.records import Tables
from nsys_llm.taxonomy.overheads import APPLICATION, COLD_START_KINDS, PROFILER
from nsys_llm.view.text import counted, format_bytes, format_ns, format_percent, quoted

#: As much as the weights of a small model in 16 bits; inputs of a step are far smaller. Ours.
_MODEL_BYTES: Final = 1_000_000_000
#: Share of the window from which the profiler's own time is worth a word; ours.
_PROFILER_PCT: Final = 0.1


def caveats(tables: Tables) -> list[str]:
    """Return what to know before reading the numbers, as prose."""
    return [
        *_model_load(tables),
        *_cold_start(tables),
        *_profiler(tables),
    ]


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
        f"of copies include it; {quoted('--filter-time')} or {quoted('--skip-warmup')} leaves it "
        "out."
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
        f"{format_ns(int(by_rank.max()))} on rank {by_rank.idxmax()}. Longest launches and early "
        f"steps are no steady state; {quoted('--skip-warmup')} leaves them out."
    ]


def _profiler(tables: Tables) -> list[str]:
    overheads, devices = tables["overheads"], tables["devices"]
    profiler_rows = overheads[(overheads["owner"] == PROFILER) & overheads["kind"].isna()]
    if profiler_rows.empty:
        return []
    # Overhead is a process's, a window a device's; the longest of its devices stands for it.
    windows = devices.groupby("rank")["window_ns"].max()
    share = (
        100.0 * profiler_rows.set_index("rank")["union_ns"] / windows.reindex(profiler_rows["rank"])
    )
    share = share.astype("float64")
    if not share.max() >= _PROFILER_PCT:
        return []
    worst = profiler_rows.set_index("rank").loc[share.idxmax()]
    return [
        f"The profiler itself was at work for up to {format_ns(int(worst['union_ns']))} of the "
        f"window ({format_percent(float(share.max()))}, rank {share.idxmax()}); the GPU was idle "
        f"for {format_ns(int(worst['gpu_idle_ns']))} of that, which an unprofiled run would not "
        "be."
    ]
