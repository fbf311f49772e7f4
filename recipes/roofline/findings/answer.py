"""What roofline says first, and its findings."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from nsys_llm.report.causes import Cause, Change
from nsys_llm.report.findings import Finding, How, cells, claim
from nsys_llm.report.rank_findings import rank_findings
from nsys_llm.report.records import Record, Tables, records
from nsys_llm.report.screen import Screen
from nsys_llm.report.walls import Walls
from nsys_llm.taxonomy import wall_classes as wall
from nsys_llm.view.text import format_ns, quoted

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
#: Numbers on decode steps: name, column, and what is made of that.
_OF_DECODE: Final[tuple[tuple[str, str, How], ...]] = (
    ("steps_n", "mbu_pct", "count"),
    ("mbu_pct", "mbu_pct", "median"),
    ("cost_ns", "cost_ns", "median"),
    ("roofline_ns", "roofline_ns", "median"),
)
_OF_STEPS: Final = (wall.COMPUTE, wall.COMMUNICATION, wall.IDLE)
_OF_GEMM: Final = ("mfu_pct", "total_ns", "operators_n", "p50_ns")
#: What is lost is said in so many classes, of at least so many percent of it.
_MOST_CLASSES: Final = 3
_LEAST_LOST_PCT: Final = 3.0
_LOST_IN: Final = {
    wall.COMPUTE: "in kernels",
    wall.WAITING: "in waits for ranks",
    wall.TRANSFER: "in transfer",
    wall.COMMUNICATION: "in communication",
    wall.COPIES: "in copies",
    wall.PROFILER: "in the profiler",
    wall.HOST: "on the host",
    wall.START_UP: "in start-up",
    wall.DEVICE_LATENCY: "between queued kernels",
    wall.UNKNOWN: "idle",
}
_HOW: Final = (
    "No roofline: give --model config.json if step names of vLLM, SGLang or TensorRT-LLM show "
    "their batches (docs/capturing.md), or for training with --tokens-per-step; or record operator "
    "shapes with `--pytorch=autograd-shapes-nvtx`."
)
_WITHOUT_STEPS: Final = (
    "No roofline: no step name describes its work. Step ranges of vLLM, SGLang or TensorRT-LLM do "
    "(docs/capturing.md). For training, give --tokens-per-step, and --step if no steps are found."
)


def answer(tables: Tables) -> str:
    """Return what steps, products and categories reach, a line each; how to know where nothing."""
    table = tables["category_roofline"]
    metrics = [
        f"GPU metrics: {row['category']} kernels use {row['mbu_pct']:.1f} % of the memory's peak "
        f"bandwidth ({row['samples_n']} samples)"
        for row in records(table[table["mbu_pct"].notna()].head(1))
    ]
    return "\n".join([*screen(tables).lines, *metrics]) or _why_not(tables)


def screen(tables: Tables) -> Screen:
    """Return what an overview repeats: of the slowest rank, of the longest GEMM, what bounds."""
    rows = tables["gemm_roofline"]
    rows = rows[rows["mfu_pct"].notna()].sort_values("total_ns", ascending=False, kind="stable")
    gemm = [
        f"GEMM {row['m']} x {row['n']} x {row['k']} ({row['type']}): MFU {row['mfu_pct']:.1f} %, "
        f"{format_ns(row['p50_ns'])} each, {format_ns(row['total_ns'])} together"
        for row in records(rows.head(1))
    ]
    lines = (*_step_lines(tables), *gemm)[:_MOST_LINES]
    return Screen(lines=lines, kernels_bound=kernels_bound(tables))


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


def _known(tables: Tables) -> pd.DataFrame:
    """Return the steps with a roofline, of the rank where these take longest."""
    steps = tables["step_roofline"]
    steps = steps[steps["roofline_ns"].notna()]
    means = steps.groupby("rank")["cost_ns"].mean()
    return steps[steps["rank"] == means.idxmax()] if len(steps) else steps


def _step_lines(tables: Tables) -> list[str]:
    steps = _known(tables)
    lines = []
    for phase in _PHASES:
        some = steps[steps["phase"] == phase]
        if some.empty:
            continue
        cost_ns, floor_ns = (float(some[name].mean()) for name in ("cost_ns", "roofline_ns"))
        bound = some["bound"].mode().iloc[0]
        pct = [
            f"{name.upper()} {some[f'{name}_pct'].median():.1f} %"
            for name in ("mbu", "mfu")
            if some[f"{name}_pct"].notna().any()
        ]
        notes = some["note"].dropna().unique().tolist()
        lines.append(
            f"a {phase} step takes {format_ns(cost_ns)}, its roofline is {format_ns(floor_ns)} "
            f"({bound}): {', '.join(pct)}"
            f"{_lost_words(tables, some, phase)}{f' ({notes[0]})' if notes else ''}"
        )
    return lines


def _lost_words(tables: Tables, steps: pd.DataFrame, phase: str) -> str:
    """Say where most of what is lost goes; nothing where the floor overlaps other classes."""
    lost = tables["lost"]
    rows = records(lost[(lost["rank"] == steps["rank"].iloc[0]) & (lost["phase"] == phase)])
    if not rows or any(row["lost_ns"] is None for row in rows):
        return ""
    total = format_ns(float(steps["lost_ns"].mean()))
    parts = [
        f"{format_ns(row['lost_ns'])} {_LOST_IN[row['class']]}"
        for row in rows[:_MOST_CLASSES]
        if row["lost_pct"] >= _LEAST_LOST_PCT
    ]
    return f"; of the {total} lost {', '.join(parts)}"


def _why_not(tables: Tables) -> str:
    peaks = tables["peaks"]
    reasons = [*peaks["reason"].dropna(), *tables["step_roofline"]["reason"].dropna()]
    if not reasons:
        gemms = tables["gemm_roofline"]["reason"].dropna().tolist()
        if gemms:
            return f"No peak is known for the GEMMs ({gemms[0]})."
        return _WITHOUT_STEPS if peaks["has_model"].any() else _HOW
    if wrong := _wrong(tables):
        return f"No roofline: {wrong[0].details} {wrong[0].recommendation}"
    words = {
        "over_peak": "Steps take less than their bytes at the peak: fewer experts are read than "
        "uniform routing reaches.",
        "peak": "The peaks of this GPU are not known: give --peak-flops and --peak-bandwidth.",
        "tp": "Over how many GPUs the model is spread is not known: give --tp.",
        "ep": "Experts are spread over GPUs: give --ep.",
        "pipeline": "The model runs in a pipeline, and its stages are not separated here.",
        "tokens": "Step names do not show their tokens.",
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
    gemms = [_gemm(row, Walls(tables)) for row in records(tables["gemm_roofline"])]
    reported = [finding for finding in (_decode(tables), *gemms) if finding is not None]
    return [*_wrong(tables), *reported, *rank_findings(tables)]


def _wrong(tables: Tables) -> list[Finding]:
    """Return the ranks that the model does not fit, and why."""
    steps = tables["step_roofline"]
    ranks = set(steps.loc[steps["reason"] == "wrong_model", "rank"])
    names = ("tp", "joined_ranks_n", "layers_n", "layers_seen_n", "weights_bytes")
    return [
        RULES["wrong_model"].finding(
            case=row["misfit"],
            fields={"gpu": row["gpu"] or "the GPU"},
            evidence=cells("peaks", row, ("rank", "gpu"), names),
            rank=row["rank"],
        )
        for row in records(tables["peaks"])
        if row["misfit"] is not None or row["rank"] in ranks
    ]


def _decode(tables: Tables) -> Finding | None:
    steps = _known(tables)
    some = steps[(steps["phase"] == _DECODE) & steps["mbu_pct"].notna()]
    # Many requests are bound by computation; a bound on bytes says nothing of what is left.
    some = some[(some["bound"] == "memory") & some["note"].isna()]
    if some.empty or some["mbu_pct"].median() >= DECODE_PCT:
        return None
    time_ns = float((some["cost_ns"] - some["roofline_ns"] / REACHABLE).clip(lower=0).sum())
    rank, devices = int(some["rank"].iloc[0]), tables["peaks"].set_index("rank")["device_id"]
    where = {"rank": rank, "phase": _DECODE, "bound": "memory", "note": None}
    return RULES["decode_below_roofline"].finding(
        cause=Cause("place", detail="decode beyond the roofline"),
        change=Change(
            "roofline", time_ns=time_ns, wall_classes=(wall.COMPUTE, wall.COMMUNICATION, wall.IDLE)
        ),
        fields={"time_ns": time_ns},
        evidence=tuple(
            claim(tables, name, "step_roofline", column, how, **where)
            for name, column, how in _OF_DECODE
        ),
        name=_DECODE,
        rank=rank,
        device_id=int(devices[rank]),
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
        change=Change("roofline", time_ns=time_ns, wall_classes=(wall.COMPUTE,)),
        fields={"time_ns": time_ns},
        evidence=cells("gemm_roofline", row, where, (*_OF_GEMM, *where[2:])),
        name=row["kernel"],
        rank=row["rank"],
        device_id=row["device_id"],
        impact_ns=round(time_ns),
    )
