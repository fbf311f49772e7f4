"""Findings on kernels whose results may differ between runs, or between batch sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import pandas as pd

from nsys_llm.report.findings import Finding
from nsys_llm.view.text import format_count, format_ns, format_percent, quoted, shortened

#: Kernels named in one finding.
_NAMED: Final = 3


@dataclass(frozen=True)
class _Flag:
    """What a flag of the kernel rules means for its reader; see `load_flag_meanings`."""

    severity: str
    title: str
    advice: str


_FLAGS: Final = {
    "atomics": _Flag(
        "low",
        "Some kernels may give other last bits from run to run",
        "Sums with atomic additions have no fixed order. Where two runs must agree, ask for the "
        "deterministic variant (torch.use_deterministic_algorithms(True); FlashAttention's "
        "deterministic=True), and expect it to be slower.",
    ),
    "split_k": _Flag(
        "note",
        "Some kernels split the sum along K, so results follow the shape",
        "One shape repeats bit for bit with cuBLASLt; another batch size may split otherwise. For "
        "results that do not depend on the batch, use batch-invariant kernels "
        "(VLLM_BATCH_INVARIANT=1 in vLLM, --enable-deterministic-inference in SGLang).",
    ),
    "cascade_merge": _Flag(
        "note",
        "Some kernels merge partial attention, so results follow batch and prefix",
        "Results at batch sizes 1 and 16 may differ in the last bits. To rule it out while hunting "
        "a difference: disable_cascade_attn=True in vLLM, a fixed number of KV splits elsewhere.",
    ),
    "cublas_heuristic": _Flag(
        "note",
        "Some kernels are chosen by cuBLAS by shape, so another batch size may get another kernel",
        "Runs of one shape agree (CUBLAS_WORKSPACE_CONFIG=:4096:8 where several streams share a "
        "handle); between batch sizes compare the kernel names first, with trace_diff.",
    ),
}


def determinism_findings(tables: Mapping[str, pd.DataFrame]) -> list[Finding]:
    """Return a finding for each flag that kernels of the run carry.

    Args:
        tables: `kernels` is read.
    """
    kernels = tables["kernels"]
    flags = kernels["flags"].fillna("").str.split(", ")
    found = []
    for flag, meaning in _FLAGS.items():
        own = kernels[pd.Series([flag in some for some in flags], index=kernels.index, dtype=bool)]
        own = own[own["total_ns"] > 0]
        if not own.empty:
            found.append(_finding(flag, meaning, own))
    return found


def _finding(flag: str, meaning: _Flag, own: pd.DataFrame) -> Finding:
    heaviest = own.sort_values("total_ns", ascending=False, kind="stable").head(_NAMED)
    pairs = zip(heaviest["name"], heaviest["total_ns"], strict=True)
    named = ", ".join(f"{quoted(shortened(str(name)))} ({format_ns(ns)})" for name, ns in pairs)
    launches_n, share = int(own["launches_n"].sum()), float(own["total_pct"].sum())
    return Finding(
        rule=f"determinism_{flag}",
        severity=meaning.severity,
        scope="kernel",
        title=meaning.title,
        evidence=f"Flag {quoted(flag)}: kernels {format_count(len(own))}, launches "
        f"{format_count(launches_n)}, {format_percent(share)} of kernel time; most of it in "
        f"{named}.",
        tables=("kernels", "rules"),
        recommendation=meaning.advice,
        name=str(heaviest["name"].iloc[0]),
        impact_ns=int(own["total_ns"].sum()),
    )
