"""What roofline tells first, and its findings. Reads tables only."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from nsys_llm.report.causes import Cause, Change
from nsys_llm.report.findings import Finding, cells
from nsys_llm.report.rank_findings import rank_findings
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.report.screen import Scale
from nsys_llm.report.walls import Walls
from nsys_llm.taxonomy.wall_classes import (
    COMMUNICATION,
    COMPUTE,
    COPIES,
    DEVICE_LATENCY,
    HOST,
    IDLE,
    PROFILER,
    START_UP,
    TRANSFER,
    UNKNOWN,
    WAITING,
)
from nsys_llm.view.text import format_bytes, format_ns, quoted

from .texts import (
    DECODE_PCT,
    GEMM_PCT,
    GEMM_REACHABLE_PCT,
    GEMM_SPAN_PCT,
    REACHABLE,
    RULES,
    USED_PCT,
)

_DECODE: Final = "decode"
_PHASES: Final = (_DECODE, "mixed", "prefill", "train")
_MOST_LINES: Final = 2
#: What is lost is said in so many classes, of at least so many percent of it.
_MOST_CLASSES: Final = 3
_LEAST_LOST_PCT: Final = 3.0
_LOST_IN: Final = {
    COMPUTE: "in kernels",
    WAITING: "in waits for ranks",
    TRANSFER: "in transfer",
    COMMUNICATION: "in communication",
    COPIES: "in copies",
    PROFILER: "in the profiler",
    HOST: "on the host",
    START_UP: "in start-up",
    DEVICE_LATENCY: "between queued kernels",
    UNKNOWN: "idle",
}
_HOW: Final = (
    "No roofline: give --model config.json where steps of vLLM, SGLang or TensorRT-LLM tell their "
    "batches (docs/capturing.md), or of training with --tokens-per-step; or record the shapes of "
    "operators with `--pytorch=autograd-shapes-nvtx`."
)
_WITHOUT_STEPS: Final = (
    "No roofline: no step tells what it computes. Ranges of vLLM, SGLang or TensorRT-LLM around "
    "steps do (docs/capturing.md); of training, give --tokens-per-step, and --step where no steps "
    "are found."
)


def answer(tables: Tables) -> str:
    """Return what steps, products and categories reach, a line each; how to know where nothing."""
    return "\n".join([*headline(tables), *_category_line(tables)]) or _why_not(tables)


def headline(tables: Tables) -> list[str]:
    """Return the lines that an overview repeats: on the slowest rank, and on the longest GEMM."""
    return [*_step_lines(tables), *_gemm_line(tables)][:_MOST_LINES]


def kernels_bound(tables: Tables) -> str | None:
    """Return what holds the time of kernels, memory or compute; None where nothing says.

    It is what the floor of steps is that take half of the time of all steps; where none has one,
    the counter of the GPU that is used to `USED_PCT` or more, of two the one with more.
    """
    steps = tables["step_roofline"]
    sums_ns = steps.groupby("bound")["cost_ns"].sum()
    costs_ns = {str(bound): int(cost_ns) for bound, cost_ns in sums_ns.items()}
    if costs_ns:
        most = max(costs_ns, key=lambda bound: costs_ns[bound])
        return most if 2 * costs_ns[most] >= steps["cost_ns"].sum() else None
    sampled = tables["category_roofline"]
    used: dict[str, float] = {}
    for name, column in (("memory", "mbu_pct"), ("compute", "tensor_active_pct")):
        some = sampled[sampled[column].notna()]
        if some["own_ns"].sum():
            used[name] = float(np.average(some[column], weights=some["own_ns"]))
    highly = [name for name, pct in used.items() if pct >= USED_PCT]
    return max(highly, key=lambda name: used[name], default=None)


def _slowest(steps: pd.DataFrame) -> pd.DataFrame:
    """Return the steps of the rank whose steps take longest."""
    if steps.empty:
        return steps
    means = steps.groupby("rank")["cost_ns"].mean()
    return steps[steps["rank"] == means.idxmax()]


def _known(tables: Tables) -> pd.DataFrame:
    steps = tables["step_roofline"]
    return _slowest(steps[steps["roofline_ns"].notna()])


def _step_lines(tables: Tables) -> list[str]:
    steps = _known(tables)
    lines = []
    for phase in _PHASES:
        some = steps[steps["phase"] == phase]
        if some.empty:
            continue
        cost_ns, floor_ns = (float(some[name].mean()) for name in ("cost_ns", "roofline_ns"))
        scale = Scale.of(10 * cost_ns)
        bound = some["bound"].mode().iloc[0]
        pct = [
            f"{name.upper()} {some[f'{name}_pct'].median():.1f} %"
            for name in ("mbu", "mfu")
            if some[f"{name}_pct"].notna().any()
        ]
        notes = some["note"].dropna().unique().tolist()
        lines.append(
            f"a {phase} step takes {scale.number(cost_ns)} {scale.unit}, its roofline is "
            f"{scale.number(floor_ns)} ({bound}): {', '.join(pct)}"
            f"{_lost_words(tables, some, phase, scale)}{f' ({notes[0]})' if notes else ''}"
        )
    return lines


def _lost_words(tables: Tables, steps: pd.DataFrame, phase: str, scale: Scale) -> str:
    """Say where most of what is lost goes; nothing where the floor overlaps other classes."""
    lost = tables["lost"]
    rows = records(lost[(lost["rank"] == steps["rank"].iloc[0]) & (lost["phase"] == phase)])
    if not rows or any(row["lost_ns"] is None for row in rows):
        return ""
    total = scale.number(float(steps["lost_ns"].mean()))
    parts = [
        f"{scale.number(row['lost_ns'])} {_LOST_IN[row['class']]}"
        for row in rows[:_MOST_CLASSES]
        if row["lost_pct"] >= _LEAST_LOST_PCT
    ]
    return f"; of the {total} lost {', '.join(parts)}"


def _gemm_line(tables: Tables) -> list[str]:
    rows = tables["gemm_roofline"]
    rows = rows[rows["mfu_pct"].notna()].sort_values("total_ns", ascending=False, kind="stable")
    return [
        f"GEMM {row['m']} x {row['n']} x {row['k']} ({row['type']}): MFU {row['mfu_pct']:.1f} %, "
        f"{format_ns(row['p50_ns'])} each, {format_ns(row['total_ns'])} together"
        for row in records(rows.head(1))
    ]


def _category_line(tables: Tables) -> list[str]:
    table = tables["category_roofline"]
    return [
        f"GPU metrics: {row['category']} kernels use {row['mbu_pct']:.1f} % of the memory's peak "
        f"bandwidth ({row['samples_n']} samples)"
        for row in records(table[table["mbu_pct"].notna()].head(1))
    ]


def _why_not(tables: Tables) -> str:
    peaks = tables["peaks"]
    reasons = [*peaks["reason"].dropna(), *tables["step_roofline"]["reason"].dropna()]
    if not reasons:
        gemms = tables["gemm_roofline"]["reason"].dropna().tolist()
        if gemms:
            return f"No peak is known for the GEMMs ({gemms[0]})."
        return _WITHOUT_STEPS if peaks["has_model"].any() else _HOW
    too_large = records(peaks[peaks["reason"] == "wrong_model"])
    if too_large:
        row = too_large[0]
        return (
            f"{format_bytes(row['weights_bytes'])} of weights do not fit into the memory of "
            f"{quoted(row['gpu'] or 'the GPU')}: check the config, --tp and --ep."
        )
    words = {
        "wrong_model": "Steps would be above 100 % of the GPU's peaks: check the config, --tp and "
        "--kv-dtype.",
        "over_peak": "Steps take less than their bytes at the peak: fewer experts are read than "
        "uniform routing reaches.",
        "peak": "The peaks of this GPU are not known: give --peak-flops and --peak-bandwidth.",
        "tp": "Over how many GPUs the model is spread is not known: give --tp.",
        "ep": "Experts are spread over GPUs: give --ep.",
        "pipeline": "The model runs in a pipeline, whose stages are not told apart here.",
        "tokens": "The names of the steps do not tell their tokens.",
    }
    return words.get(reasons[0], f"No roofline: {quoted(reasons[0])} of the config is not known.")


def caveats(tables: Tables) -> list[str]:
    """Return what to know before reading the numbers, as prose."""
    if tables["step_roofline"].empty:
        return []
    return [
        "FLOPs and bytes are those that the model needs: recomputation, padding and dropped tokens "
        "are not in them. Tracing CUDA graphs node by node makes steps longer, MFU and MBU less."
    ]


def findings(tables: Tables) -> list[Finding]:
    """Return all findings of the recipe, in no order."""
    wrong = tables["step_roofline"]
    wrong_ranks = set(wrong.loc[wrong["reason"] == "wrong_model", "rank"])
    made = [
        RULES["wrong_model"].finding(
            fields={"gpu": row["gpu"] or "the GPU", "weights_bytes": row["weights_bytes"]},
            evidence=cells("peaks", row, ("rank",), ("tp",)),
            rank=row["rank"],
        )
        for row in records(tables["peaks"])
        if row["reason"] == "wrong_model" or row["rank"] in wrong_ranks
    ]
    walls, devices = (
        Walls(tables),
        {row["rank"]: row["device_id"] for row in records(tables["peaks"])},
    )
    decode = _decode(_known(tables), devices)
    gemms = [_gemm(row, walls) for row in records(tables["gemm_roofline"])]
    reported = [finding for finding in (decode, *gemms) if finding is not None]
    return [*made, *reported, *rank_findings(tables)]


def _decode(steps: pd.DataFrame, devices: dict[int, int]) -> Finding | None:
    some = steps[(steps["phase"] == _DECODE) & steps["mbu_pct"].notna()]
    # Many requests are bound by computation; a bound on bytes says nothing of what is left.
    some = some[(some["bound"] == "memory") & ~some["note"].fillna("").str.contains("bytes at")]
    if some.empty or (mbu_pct := float(some["mbu_pct"].median())) >= DECODE_PCT:
        return None
    time_ns = float((some["cost_ns"] - some["roofline_ns"] / REACHABLE).clip(lower=0).sum())
    rank = int(some["rank"].iloc[0])
    return RULES["decode_below_roofline"].finding(
        cause=Cause("place", detail="decode beyond the roofline"),
        change=Change("roofline", time_ns=time_ns, wall_classes=(COMPUTE, COMMUNICATION, IDLE)),
        fields={
            "mbu_pct": mbu_pct,
            "steps_n": len(some),
            "cost_ns": float(some["cost_ns"].median()),
            "roofline_ns": float(some["roofline_ns"].median()),
            "time_ns": time_ns,
        },
        name=_DECODE,
        rank=rank,
        device_id=devices[rank],
        impact_ns=round(time_ns),
    )


def _gemm(row: Record, walls: Walls) -> Finding | None:
    if row["bound"] != "compute" or row["mfu_pct"] is None or row["mfu_pct"] >= GEMM_PCT:
        return None
    if 100 * row["total_ns"] < GEMM_SPAN_PCT * walls.span_ns(row["rank"], row["device_id"]):
        return None
    time_ns = row["total_ns"] * (1 - row["mfu_pct"] / GEMM_REACHABLE_PCT)
    where = ("rank", "kernel", "m", "n", "k")
    return RULES["gemm_below_roofline"].finding(
        cause=Cause("kernels", detail=row["kernel"]),
        change=Change("roofline", time_ns=time_ns, wall_classes=(COMPUTE,)),
        fields={"time_ns": time_ns},
        evidence=cells(
            "gemm_roofline", row, where, ("mfu_pct", "total_ns", "operators_n", "p50_ns")
        ),
        name=row["kernel"],
        rank=row["rank"],
        device_id=row["device_id"],
        impact_ns=round(time_ns),
    )
