"""The tables of what phases are made of: kernels, categories, idle time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pandas as pd

from nsys_llm.reduced.job import Job
from nsys_llm.report.columns import Columns, percent
from nsys_llm.taxonomy.categories import MIXED, Classification, rules_for

from .phases import Parts, PhaseFrames, sums_frame

_GRAPH: Final = "whole graph"
_SUMS: Final = ["launches_n", "total_ns", "exclusive_ns"]


def content_columns(job: Job, frames: PhaseFrames, parts: Parts) -> dict[str, Columns]:
    """Return the tables phase_kernels, phase_categories, phase_idle and model_parts."""
    sums, rules = job.facts.phases.kernels, rules_for(job.kernel_names, job.options["engine"])
    names = ["phase", "op", "name", "full_name"]
    sources = pd.DataFrame([*sums.keys], columns=names).assign(
        **{name: sums[name] for name in (*_SUMS, "whole_ns")}
    )
    sources["code"] = frames.order(sources["phase"].tolist())
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


def _kernels(sources: pd.DataFrame, known: Mapping[str, Classification]) -> Columns:
    keys = ["code", "phase", "op", "name"]
    groups = sources.groupby(keys, sort=True)
    rows = groups[[*_SUMS, "whole_ns"]].sum()
    mixed = groups["category"].nunique() > 1
    rows["category"] = groups["category"].first().mask(mixed, MIXED)
    rows["full_name"] = groups["full_name"].first()
    rows = rows.reset_index().sort_values(
        ["total_ns", "code", "name", "op"], ascending=[False, True, True, True], kind="stable"
    )
    return {
        **{name: rows[name] for name in ("phase", "op", "name", "category", *_SUMS)},
        "operation": [
            known[full].operation if op == "kernel" and category != MIXED else None
            for full, op, category in zip(
                rows["full_name"], rows["op"], rows["category"], strict=True
            )
        ],
        "mean_ns": rows["whole_ns"] / rows["launches_n"].where(rows["launches_n"] > 0),
        **_shares(rows),
    }


def _categories(sources: pd.DataFrame, engine: str) -> Columns:
    rows = sources.groupby(["code", "phase", "category"], sort=True)[_SUMS].sum().reset_index()
    rows = rows.sort_values(
        ["code", "total_ns", "category"], ascending=[True, False, True], kind="stable"
    )
    return {
        **{name: rows[name] for name in ("phase", "category", *_SUMS)},
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
    names = ["gaps_n", "idle_ns", "within_ns"]
    rows = sums_frame(parts, lambda part: part.idle, ["phase"], names)
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
    rows = sums_frame(parts, lambda part: part.parts.sums, keys, _SUMS)
    if not (rows["found_by"] != "").any():
        return {}
    rows["device_id"] = rows["device_id"].astype("int64")
    rows["category"] = [known[name].category for name in rows["full_name"]]
    gpu = ["rank", "file", "device_id"]
    keys = [*gpu, "model_part", "source", "found_by", "category", "name"]
    rows = rows.groupby(keys, sort=True)[_SUMS].sum().reset_index()
    rows = rows.sort_values([*gpu, "total_ns"], ascending=[True] * 3 + [False], kind="stable")
    of_gpu = rows.groupby(gpu)["total_ns"].transform("sum").to_numpy(dtype=np.int64)
    texts = {name: [text or None for text in rows[name]] for name in keys[3:6]}
    return {
        **{name: rows[name] for name in rows.columns},
        **texts,
        "kernel_pct": percent(rows["total_ns"].to_numpy(dtype=np.int64), of_gpu),
    }
