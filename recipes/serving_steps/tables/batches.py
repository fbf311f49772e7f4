"""Steps by what is in their batch: the tables `batch_steps`, `batches` and `servers`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.serving.rank import RankServing, ServedSteps
from nsys_llm.job.ranks.verdicts import RankVerdict
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import Columns, nullable, of_rank, rank_columns
from nsys_llm.taxonomy.phase_maps import DECODE, OF_BATCHES, PREFILL
from nsys_llm.taxonomy.step_names import FIELDS, recording_advice
from nsys_llm.trace.identity import Rank

#: Of a rank whose steps no name tells of, and of one with too many names of no known format.
NO_FORMAT: Final = "no format"
UNPARSED: Final = "unparsed"
#: Tokens of prompts in the first bucket; each further one has twice as many.
_LEAST_TOKENS: Final = 128
_S: Final = 1e9
#: Steps of ranks that wait for each other take as long, within this share.
_ALIKE: Final = 0.02

Served = tuple[Rank, ServedSteps]
#: A row of a table by column name.
Row = dict[str, Any]


def title_of(engine: str | None) -> str | None:
    """Return what an engine is called."""
    advice = None if engine is None else recording_advice(engine)
    return None if advice is None else advice[0]


def server_rows(ranks: Sequence[tuple[Rank, RankServing]], slowest: Served | None) -> list[Row]:
    """Return the rows of `servers`, one a rank."""
    first = None if slowest is None else slowest[0]
    return [of_rank(rank) | _server(part) | {"slowest": rank == first} for rank, part in ranks]


def _server(part: RankServing) -> Row:
    row: Row = {"device_id": part.device_id, "kernels_of": part.kernels_of}
    served = part.served
    if served is None:
        numbers = dict.fromkeys(("steps_n", "counted_n", "unparsed_n", "drafts_n"), 0)
        return row | numbers | {"only_reads": False, "reason": NO_FORMAT}
    batches, counted = served.batches, served.times.counted
    return row | {
        "engine": title_of(batches.engine),
        "step_name": served.name,
        "steps_n": len(batches.format),
        "counted_n": int(counted.sum()),
        "unparsed_n": batches.unparsed_n,
        "drafts_n": 0 if served.draft_busy_ns is None else served.draft_busy_ns.size,
        "unparsed": " | ".join(batches.unparsed) or None,
        "cost_ns": float(served.times.cost_ns[counted].mean()) if counted.any() else None,
        "only_reads": only_reads(served),
        "reason": None if batches.is_read else UNPARSED,
    }


def batch_step_columns(ranks: Sequence[Served]) -> Columns:
    """Return the columns of `batch_steps`: steps in their order, then drafts."""
    parts = [part for served in ranks for part in _step_parts(served)]
    names = parts[0].keys() if parts else ()
    return {name: [value for part in parts for value in part[name]] for name in names}


def _step_parts(row: Served) -> list[Columns]:
    rank, served = row
    times, steps_n = served.times, len(served.batches.format)
    title = title_of(served.batches.engine)
    columns: Columns = {
        **rank_columns([(rank, steps_n)]),
        "step": list(range(steps_n)),
        "mark": list(times.mark),
        "format": [item and f"{title}, {item}" for item in served.batches.format],
        "phase": list(served.batches.phase),
        **{name: list(nullable(served.batches.field(name))) for name in FIELDS},
        "start_ns": times.before_ns.tolist(),
        "window_ns": (times.end_ns - times.before_ns).tolist(),
        "between_ns": (times.begin_ns - times.before_ns).tolist(),
        **{name: getattr(times, name).tolist() for name in ("no_work_ns", "cost_ns", "busy_ns")},
        "idle_ns": (times.cost_ns - times.busy_ns).tolist(),
        "graph": [str(item) if item != -1 else None for item in served.graph.tolist()],
        "graph_size": [item if item > 0 else None for item in served.graph_size.tolist()],
    }
    if served.draft_busy_ns is None:
        return [columns]
    drafts_n = served.draft_busy_ns.size
    drafts: Columns = {name: [None] * drafts_n for name in columns}
    drafts |= rank_columns([(rank, drafts_n)])
    drafts |= {"mark": ["draft"] * drafts_n, "busy_ns": served.draft_busy_ns.tolist()}
    return [columns, drafts]


def bucket_of(values: IntArray, least: int = 1) -> IntArray:
    """Return the upper bound of each value's bucket: 0, least, and its doubles; -1: not told."""
    powers = least * 2 ** np.arange(52, dtype=np.int64)
    bound = powers[np.searchsorted(powers, np.maximum(values, 1))]
    return np.where(values < 0, -1, np.where(values == 0, 0, bound))


def bucket_words(bound: int, least: int = 1) -> str | None:
    """Return a bucket as a reader knows it: 0, 1, 2, 3-4, 129-256; None: not told."""
    if bound < 0:
        return None
    low = 1 if bound == least else bound // 2 + 1
    return str(bound) if bound == 0 or low == bound else f"{low}-{bound}"


def batch_rows(rank: Rank, served: ServedSteps) -> list[Row]:
    """Return the rows of `batches`: steps of one phase and of batches of about one size."""
    batches = served.batches
    requests = bucket_of(batches.field("gen_reqs"))
    tokens = bucket_of(batches.field("ctx_tokens"), _LEAST_TOKENS)
    phase = np.array([OF_BATCHES.index(item) if item else -1 for item in batches.phase])
    counted = served.times.counted & (phase >= 0)
    cells = np.column_stack((phase, requests, tokens))
    decoding = counted & (phase == OF_BATCHES.index(DECODE))
    idle_ns = served.times.cost_ns - served.times.busy_ns
    # What decode steps idle, too, is not for want of a graph.
    usual_ns = float(idle_ns[decoding].mean()) if decoding.any() else 0.0
    rows = []
    for cell in np.unique(cells[counted], axis=0).tolist():
        name, generating = OF_BATCHES[cell[0]], bucket_words(cell[1])
        reading = bucket_words(cell[2], _LEAST_TOKENS)
        of_requests = f", {generating} request{'s' * (cell[1] > 1)}" if cell[1] > 0 else ""
        of_tokens = f", {reading} prompt tokens" if cell[2] > 0 else ""
        rows.append(
            {
                **of_rank(rank),
                "phase": name,
                "gen_bucket": generating,
                "ctx_bucket": reading,
                "batch": f"{name}{of_requests}{of_tokens}",
                **_bucket(served, np.flatnonzero(counted & (cells == cell).all(axis=1)), usual_ns),
            }
        )
    return rows


def _bucket(served: ServedSteps, rows: IntArray, usual_ns: float) -> Row:
    """Return what steps of one bucket have in common; decode steps idle as usual."""
    batches, times = served.batches, served.times
    cost_ns = times.cost_ns[rows]
    between_ns = (times.begin_ns - times.before_ns - times.no_work_ns)[rows]
    tokens = batches.tokens(rows)
    replayed = served.graph[rows] != -1
    has_both = (batches.field("ctx_reqs")[rows] > 0).all() and 0 < replayed.sum() < rows.size
    eager_ns = float(cost_ns[~replayed].mean() - cost_ns[replayed].mean()) if has_both else None
    rate = float(_S * tokens.sum() / (cost_ns + between_ns).sum()) if (tokens >= 0).all() else None
    return {
        "steps_n": rows.size,
        **{
            name: None if (values == NULL_INT).any() else float(values.mean())
            for name in ("gen_reqs", "ctx_tokens", "g_sk")
            for values in [batches.field(name)[rows]]
        },
        "cost_p50_ns": float(np.median(cost_ns)),
        "cost_p99_ns": float(np.percentile(cost_ns, 99)),
        "busy_ns": float(times.busy_ns[rows].mean()),
        "idle_ns": float((cost_ns - times.busy_ns[rows]).mean()),
        "between_ns": float(between_ns.mean()),
        "tokens_per_s": rate,
        "graph_pct": float(100 * replayed.mean()),
        "eager_ns": eager_ns,
        "total_ns": int(cost_ns.sum()),
        "eager_idle_ns": rows.size * max(float(served.host_idle_ns[rows].mean()) - usual_ns, 0.0),
    }


def only_reads(served: ServedSteps) -> bool:
    """Return whether all steps of a rank that count read prompts and generate nothing."""
    phases = zip(served.batches.phase, served.times.counted.tolist(), strict=True)
    counted = [phase for phase, is_counted in phases if is_counted]
    return set(counted) == {PREFILL}


def pace(ranks: Sequence[Served], verdicts: Sequence[RankVerdict]) -> Served | None:
    """Return the rank whose steps take longest on average; None for none.

    Users wait for those that generate: ranks that only read prompts are not among them if any does.
    Of ranks that wait for each other, and so take as long, it is the one that is waited for.
    """
    counted = [row for row in ranks if row[1].batches.is_read and row[1].times.counted.any()]
    counted = [row for row in counted if not only_reads(row[1])] or counted
    means = [row[1].times.cost_ns[row[1].times.counted].mean() for row in counted]
    if not counted:
        return None
    cost_ns = Counter[int]()
    for verdict in verdicts:
        if verdict.verdict not in (None, "profiler", "less_work"):  # others wait for it
            price_ns = verdict.about_ns or verdict.bound_ns or 0
            cost_ns[verdict.rank] = max(cost_ns[verdict.rank], price_ns)
    near = np.array(means) >= (1 - _ALIKE) * max(means)
    judged = near * [cost_ns[rank.number or 0] for rank, _ in counted]
    return counted[int(np.argmax(judged if judged.any() else means))]
