"""The tables of what phases are made of: kernels, categories, idle time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pandas as pd

from nsys_llm.known.job import Job
from nsys_llm.numeric.by_key import ByKey
from nsys_llm.report.columns import Columns, percent
from nsys_llm.taxonomy.categories import MIXED, Classification, rules_for

from .phases import PhaseFrames
from .rank_frames import Parts, sums_frame

#: Category of a shown name that stands for full names of different categories.
_GRAPH: Final = "whole graph"


def content_columns(job: Job, frames: PhaseFrames, parts: Parts) -> dict[str, Columns]:
    """Return the tables phase_kernels, phase_categories, phase_idle and model_parts."""
    rules = rules_for(job.kernel_names, job.options["engine"])
    sources = _sources(job.facts.phases.kernels, frames)
    known = {
        name: rules.classify(name)
        for name in sources.loc[sources["op"] == "kernel", "full_name"].unique()
    }
    sources["category"] = [
        known[full].category if op == "kernel" else _GRAPH if op == "graph" else op
        for op, full in zip(sources["op"], sources["full_name"], strict=True)
    ]
    return {
        "phase_kernels": _kernels(sources, known),
        "phase_categories": _categories(sources, rules.engine),
        "phase_idle": _idle(frames, parts),
        "model_parts": _model_parts(parts, known),
    }


def _sources(sums: ByKey, frames: PhaseFrames) -> pd.DataFrame:
    names = ("phase", "op", "name", "full_name")
    columns: Columns = {name: [key[i] for key in sums.keys] for i, name in enumerate(names)}
    for name in ("launches_n", "total_ns", "exclusive_ns", "whole_ns"):
        columns[name] = sums[name]
    frame = pd.DataFrame(columns)
    return frame.assign(code=frames.order(columns["phase"]))


def _kernels(sources: pd.DataFrame, known: Mapping[str, Classification]) -> Columns:
    keys = ["code", "phase", "op", "name"]
    groups = sources.groupby(keys, sort=True)
    rows = groups[["launches_n", "total_ns", "exclusive_ns", "whole_ns"]].sum()
    mixed = groups["category"].nunique() > 1
    rows["category"] = groups["category"].first().mask(mixed, MIXED)
    rows["full_name"] = groups["full_name"].first()
    rows = rows.reset_index().sort_values(
        ["total_ns", "code", "name", "op"], ascending=[False, True, True, True], kind="stable"
    )
    launches_n = rows["launches_n"].to_numpy(dtype=np.int64)
    total_ns = rows["total_ns"].to_numpy(dtype=np.int64)
    whole_ns = rows["whole_ns"].to_numpy(dtype=np.float64)
    mean_ns = np.where(launches_n == 0, np.nan, whole_ns / np.where(launches_n == 0, 1, launches_n))
    return {
        **{name: rows[name] for name in ("phase", "op", "name", "category")},
        "operation": [
            known[full].operation if op == "kernel" and category != MIXED else None
            for full, op, category in zip(
                rows["full_name"], rows["op"], rows["category"], strict=True
            )
        ],
        "launches_n": launches_n,
        "total_ns": total_ns,
        "exclusive_ns": rows["exclusive_ns"],
        "mean_ns": mean_ns,
        **_shares(rows),
    }


def _categories(sources: pd.DataFrame, engine: str) -> Columns:
    names = ["launches_n", "total_ns", "exclusive_ns"]
    rows = sources.groupby(["code", "phase", "category"], sort=True)[names].sum().reset_index()
    rows = rows.sort_values(
        ["code", "total_ns", "category"], ascending=[True, False, True], kind="stable"
    )
    return {
        **{name: rows[name] for name in ("phase", "category", *names)},
        "engine": [engine] * len(rows),
        **_shares(rows),
    }


def _shares(rows: pd.DataFrame) -> Columns:
    total_ns = rows["total_ns"].to_numpy(dtype=np.int64)
    of_phase = rows.groupby("code")["total_ns"].transform("sum").to_numpy(dtype=np.int64)
    return {
        "phase_pct": percent(total_ns, of_phase),
        "gpu_pct": percent(total_ns, int(total_ns.sum())),
    }


def _idle(frames: PhaseFrames, parts: Parts) -> Columns:
    rows = sums_frame(parts, lambda part: part.idle, ["phase"])
    if rows.empty:
        return {}
    names = ["gaps_n", "idle_ns", "within_ns"]
    sums = rows[rows["gaps_n"] > 0].groupby("phase", sort=True)[names].sum().reset_index()
    sums["code"] = frames.order(sums["phase"].tolist())
    sums = sums.sort_values(["idle_ns", "code"], ascending=[False, True], kind="stable")
    idle_ns = sums["idle_ns"].to_numpy(dtype=np.int64)
    return {
        **{name: sums[name] for name in ("phase", *names)},
        "idle_pct": percent(idle_ns, int(idle_ns.sum())),
        "before_ns": idle_ns - sums["within_ns"].to_numpy(dtype=np.int64),
    }


def _model_parts(parts: Parts, known: Mapping[str, Classification]) -> Columns:
    """Return the kernels of each GPU by part; nothing where no rank knows any part."""
    keys = ["device_id", "name", "full_name", "model_part", "source", "found_by"]
    rows = sums_frame(parts, lambda part: part.parts, keys)
    if rows.empty or not (rows["found_by"] != "").any():
        return {}
    rows["device_id"] = rows["device_id"].astype("int64")
    rows["category"] = [known[name].category for name in rows["full_name"]]
    gpu = ["rank", "file", "device_id"]
    keys = [*gpu, "model_part", "source", "found_by", "category", "name"]
    rows = rows.groupby(keys, sort=True)[["launches_n", "total_ns", "exclusive_ns"]].sum()
    rows = rows.reset_index()
    rows = rows.sort_values(
        ["rank", "file", "device_id", "total_ns"],
        ascending=[True, True, True, False],
        kind="stable",
    )
    of_gpu = rows.groupby(gpu)["total_ns"].transform("sum").to_numpy(dtype=np.int64)
    texts = {name: [text or None for text in rows[name]] for name in keys[3:6]}
    return {
        **{name: rows[name] for name in rows.columns},
        **texts,
        "kernel_pct": percent(rows["total_ns"].to_numpy(dtype=np.int64), of_gpu),
    }
