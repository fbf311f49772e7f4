"""Steps against what their GPU can do: the table `step_roofline`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.roofline.rank import RankRoofline
from nsys_llm.facts.steps.batches import Batches
from nsys_llm.report.columns import of_rank
from nsys_llm.trace.identity import Rank

from .peaks import WRONG_MODEL, Peaks, RankRows, Row
from .step_work import Batch, Floats, causal_pairs, read_bytes, step_flops, training_flops

TRAIN: Final = "train"
MEMORY, COMPUTE = "memory", "compute"
_S: Final = 1e9
_NUMBERS: Final = ("flops", "bytes", "roofline_ns", "lost_ns", "mfu_pct", "mbu_pct", "bound")


def step_rows(rows: RankRows, peaks: Sequence[Peaks], options: Mapping[str, Any]) -> list[Row]:
    """Return the rows of `step_roofline`: steps in statistics, of ranks with a model."""
    made: list[Row] = []
    for (rank, part), peak in zip(rows, peaks, strict=True):
        if peak.model is None or part.times is None:
            continue
        some = _of_rank(rank, part, peak, len(rows), options)
        made += _checked(some, is_estimate=peak.model.experts is not None)
    return made


def _of_rank(
    rank: Rank, part: RankRoofline, peak: Peaks, ranks_n: int, options: Mapping[str, Any]
) -> list[Row]:
    times, batches = part.times, part.batches
    assert times is not None
    if options["tokens_per_step"] is not None:
        work = _training(peak, times.end_ns.size, ranks_n, options)
        phases: Sequence[str | None] = (TRAIN,) * times.end_ns.size
    elif batches is not None and batches.is_read:
        work, phases = _served(batches, peak), batches.phase
    else:
        return []
    flops, size_bytes, notes = work
    cost_ns = times.cost_ns.tolist()
    return [
        {
            **of_rank(rank),
            "step": step,
            "phase": phases[step],
            "source": "model",
            "cost_ns": cost_ns[step],
            **_floor(flops[step], size_bytes[step], cost_ns[step], peak),
            "note": notes[step],
        }
        for step in np.flatnonzero(times.counted & (times.cost_ns > 0)).tolist()
    ]


def _training(
    peak: Peaks, steps_n: int, ranks_n: int, options: Mapping[str, Any]
) -> tuple[Floats, Floats, list[str | None]]:
    none = np.full(steps_n, np.nan)
    length, note = options["sequence_length"], "causal"
    if peak.layout is None or peak.model is None:
        return none, none, [None] * steps_n
    tokens = options["tokens_per_step"] * peak.layout.tp / ranks_n
    if length is None:
        note = "without attention"
    flops = training_flops(peak.model, peak.layout, tokens, length)
    return np.full(steps_n, flops), none, [note] * steps_n


def _served(batches: Batches, peak: Peaks) -> tuple[Floats, Floats, list[str | None]]:
    n = len(batches.format)
    if peak.layout is None or peak.model is None:
        return np.full(n, np.nan), np.full(n, np.nan), [None] * n
    names = ("ctx_tokens", "gen_tokens", "ctx_reqs", "c_sk", "g_sk")
    context, new, requests, c_sk, g_sk = (_told(batches, name) for name in names)
    pairs = [
        causal_pairs(tokens, _told(batches, f"{kind}_sqsq"), _told(batches, f"{kind}_sqsk"))
        for kind, tokens in (("c", context), ("g", new))
    ]
    batch = Batch(context + new, new + requests, c_sk + g_sk, pairs[0] + pairs[1])
    notes = [
        ", ".join(
            word
            for word, holds in (
                ("bytes at least, without attention", no_keys or no_pairs),
                ("bytes at most", peak.model.experts is not None),
            )
            if holds
        )
        or None
        for no_keys, no_pairs in zip(
            np.isnan(batch.keys).tolist(), np.isnan(batch.pairs).tolist(), strict=True
        )
    ]
    flops = step_flops(peak.model, peak.layout, batch)
    return flops, read_bytes(peak.model, peak.layout, batch, peak.kv_bytes), notes


def _told(batches: Batches, name: str) -> Floats:
    values = batches.field(name)
    return np.where(values == NULL_INT, np.nan, values)


def _floor(flops: float, size_bytes: float, cost_ns: int, peak: Peaks) -> Row:
    """Return what a step computes and reads, how long that takes at least, and what is lost."""
    row: Row = {**dict.fromkeys(_NUMBERS), "reason": peak.reason}
    if peak.reason is not None:
        return row
    if np.isnan(flops):
        return row | {"reason": "tokens"}
    row |= {"flops": flops, "bytes": None if np.isnan(size_bytes) else size_bytes}
    rates = (("mfu", flops, peak.flops_s), ("mbu", size_bytes, peak.bandwidth_bytes_s))
    floors = {}
    for name, amount, rate in rates:
        if rate is None:
            return row | {"reason": "peak"}
        if not np.isnan(amount):
            floors[name] = _S * amount / rate
            row[f"{name}_pct"] = 100 * floors[name] / cost_ns
    floor_ns = round(max(floors.values()))
    bound = MEMORY if floors.get("mbu", 0.0) >= floors["mfu"] else COMPUTE
    return row | {"roofline_ns": floor_ns, "lost_ns": cost_ns - floor_ns, "bound": bound}


def _checked(rows: list[Row], *, is_estimate: bool) -> list[Row]:
    """Return rows of a rank without numbers above 100 %.

    Where the median of a phase is, the model is wrong; not where bytes are an estimate from above.
    """
    names = ["mfu_pct"] if is_estimate else ["mfu_pct", "mbu_pct"]
    phases = {row["phase"] for row in rows}
    values = [
        [row[name] for row in rows if row["phase"] == phase and row[name] is not None]
        for phase in phases
        for name in names
    ]
    is_wrong = any(some and np.median(some) > 100 for some in values)
    checked = []
    for row in rows:
        is_over = any((row[f"{name}_pct"] or 0) > 100 for name in ("mfu", "mbu"))
        reason = WRONG_MODEL if is_wrong else "over_peak" if is_over else None
        checked.append(row | dict.fromkeys(_NUMBERS) | {"reason": reason} if reason else row)
    return checked
