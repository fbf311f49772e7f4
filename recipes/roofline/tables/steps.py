"""Steps against what their GPU can do, and where the time beyond goes: step_roofline and lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.roofline.rank import RankRoofline
from nsys_llm.facts.roofline.step_classes import StepClasses
from nsys_llm.facts.steps.batches import Batches
from nsys_llm.job.collectives.matched import MatchedCollectives
from nsys_llm.job.communication_split import exposed_ns, waiting_and_transfer
from nsys_llm.manifest.model_config import ModelConfig
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import of_rank
from nsys_llm.taxonomy import wall_classes as wall
from nsys_llm.trace.identity import Rank

from .peaks import WRONG_MODEL, Peaks, RankRows, Row
from .step_work import (
    Batch,
    Floats,
    ModelLayout,
    causal_pairs,
    read_bytes,
    step_flops,
    training_flops,
)

TRAIN: Final = "train"
MEMORY, COMPUTE = "memory", "compute"
_S: Final = 1e9
OVERLAPS: Final = "the roofline is longer than the GPU computes"
_NUMBERS: Final = ("flops", "bytes", "roofline_ns", "lost_ns", "mfu_pct", "mbu_pct", "bound")
#: FLOPs and bytes of steps, and what is to be said of each.
_Work = tuple[Floats, Floats, Sequence[str | None]]


def step_rows(rows: RankRows, peaks: Sequence[Peaks], options: Mapping[str, Any]) -> list[Row]:
    """Return the rows of `step_roofline`: steps in statistics, of ranks with a model."""
    made: list[Row] = []
    for (rank, part), peak in zip(rows, peaks, strict=True):
        if peak.model is not None and part.times is not None:
            some = _of_rank(rank, part, peak, len(rows), options)
            made += _checked(some, is_estimate=peak.model.experts is not None)
    return made


def _of_rank(
    rank: Rank, part: RankRoofline, peak: Peaks, ranks_n: int, options: Mapping[str, Any]
) -> list[Row]:
    times, batches, model, layout = part.times, part.batches, peak.model, peak.layout
    assert times is not None
    assert model is not None
    n = times.end_ns.size
    none = np.full(n, np.nan)
    work: _Work = none, none, [None] * n
    if options["tokens_per_step"] is not None:
        phases: Sequence[str | None] = (TRAIN,) * n
        if layout is not None:
            length = options["sequence_length"]
            tokens = options["tokens_per_step"] * layout.tp / ranks_n
            flops = training_flops(model, layout, tokens, length)
            note = "without attention" if length is None else "causal"
            work = np.full(n, flops), none, [note] * n
    elif batches is not None and batches.is_read:
        phases = batches.phase
        if layout is not None:
            work = _served(batches, model, layout, peak.kv_bytes)
    else:
        return []
    cost_ns = times.cost_ns.tolist()
    return [
        {
            **of_rank(rank),
            "step": step,
            "phase": phases[step],
            "source": "model",
            "cost_ns": cost_ns[step],
            **_floor(work[0][step], work[1][step], cost_ns[step], peak),
            "note": work[2][step],
        }
        for step in np.flatnonzero(times.counted & (times.cost_ns > 0)).tolist()
    ]


def _served(batches: Batches, model: ModelConfig, layout: ModelLayout, kv_bytes: float) -> _Work:
    names = ("ctx_tokens", "gen_tokens", "ctx_reqs", "c_sk", "g_sk")
    context, new, requests, c_sk, g_sk = (_told(batches, name) for name in names)
    pairs = [
        causal_pairs(tokens, _told(batches, f"{kind}_sqsq"), _told(batches, f"{kind}_sqsk"))
        for kind, tokens in (("c", context), ("g", new))
    ]
    batch = Batch(context + new, new + requests, c_sk + g_sk, pairs[0] + pairs[1])
    untold = np.isnan(batch.keys) | np.isnan(batch.pairs)
    least = ["bytes at least, without attention"]
    most = ["bytes at most"] * (model.experts is not None)
    notes = [", ".join(least * is_untold + most) or None for is_untold in untold.tolist()]
    return step_flops(model, layout, batch), read_bytes(model, layout, batch, kv_bytes), notes


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
    numbers = pd.DataFrame(rows, columns=["phase", *names]).astype(dict.fromkeys(names, "float64"))
    medians = numbers.groupby("phase", dropna=False)[names].median()
    is_wrong = bool((medians > 100).to_numpy().any())
    checked = []
    for row in rows:
        is_over = any((row[f"{name}_pct"] or 0) > 100 for name in ("mfu", "mbu"))
        reason = WRONG_MODEL if is_wrong else "over_peak" if is_over else None
        checked.append(row | dict.fromkeys(_NUMBERS) | {"reason": reason} if reason else row)
    return checked


def lost_rows(ranks: RankRows, steps: Sequence[Row], collectives: MatchedCollectives) -> list[Row]:
    """Return the rows of `lost`: of each rank and phase what steps take beyond their roofline.

    Args:
        steps: Rows of `step_roofline`.
    """
    known: dict[tuple[int, str, str | None], dict[int, Row]] = {}
    for row in steps:
        if row["roofline_ns"] is not None:
            known.setdefault((row["rank"], row["file"], row["phase"]), {})[row["step"]] = row
    parts = {rank.number: (rank, part.classes) for rank, part in ranks}
    made: list[Row] = []
    for key, rows in known.items():
        rank, classes = parts[key[0]]
        if classes is not None:
            chosen = np.isin(classes.row, list(rows))
            spent = {
                name: int(values[chosen].sum())
                for name, values in _divided(rank, classes, collectives).items()
            }
            made += _of_phase(key, list(rows.values()), spent)
    return made


def _of_phase(
    key: tuple[int, str, str | None], steps: Sequence[Row], spent: Mapping[str, int]
) -> list[Row]:
    """Return a row for each class that holds time, the largest first; computation always."""
    lost_ns = sum(row["lost_ns"] for row in steps)
    beyond_ns = spent[wall.COMPUTE] - sum(row["roofline_ns"] for row in steps)
    lost = {name: time_ns for name, time_ns in spent.items() if time_ns} | {wall.COMPUTE: beyond_ns}
    overlaps = beyond_ns < 0
    return [
        {
            **dict(zip(("rank", "file", "phase"), key, strict=True)),
            "class": name,
            "steps_n": len(steps),
            "total_ns": None if (is_null := overlaps and name == wall.COMPUTE) else total_ns,
            "lost_ns": None if is_null else total_ns / len(steps),
            "lost_pct": None if overlaps or not lost_ns else 100 * total_ns / lost_ns,
            "reason": OVERLAPS if is_null else None,
        }
        for name, total_ns in sorted(lost.items(), key=lambda item: -item[1])
    ]


def _divided(
    rank: Rank, classes: StepClasses, collectives: MatchedCollectives
) -> dict[str, IntArray]:
    """Return the classes with waiting and transfer apart, where collectives are matched."""
    spent = dict(classes.spent_ns)
    owner = collectives.owners.get((rank.key, classes.device_id))
    if owner is not None:
        spans = waiting_and_transfer(collectives.sequences, owner)
        waited, moved = exposed_ns(*spans, classes.communicating, classes.spans[:, 0])
        rest = spent[wall.COMMUNICATION] - waited - moved
        spent |= {wall.WAITING: waited, wall.TRANSFER: moved, wall.COMMUNICATION: rest}
    return spent
