"""What users wait between tokens: the table `inter_token`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.analyses.steps.batches import Batches
from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import Columns
from nsys_llm.taxonomy.step_names import holds_every_request

from ..partials import ServedSteps
from .batches import Row, Served, columns_of, of_rank

#: No server has more: sums of them stay below 2^63.
_MOST_REQUESTS: Final = 1 << 30
#: Share of intervals, in percent, whose requests names do not tell: those with prompts are the
#: longest, so that percentiles of the others say too little from here on.
_MOST_UNKNOWN_PCT: Final = 1.0
_NOT_KNOWN: Final[Row] = {
    **dict.fromkeys(("intervals_n", "tokens_n", "mixed_n"), 0),
    **dict.fromkeys(("p50_ns", "p99_ns", "mixed_adds_ns", "pure_ns", "adds_p99_pct")),
    "reason": "names do not tell the requests of each step",
}


@dataclass(frozen=True)
class Intervals:
    """Times from the end of a step that generates to that of the next; of shape (intervals,).

    Attributes:
        time_ns: Length of each.
        tokens_n: Requests that got a token at both ends.
        requests: That generate in the step that ends it.
        mixed: Whether a step in it reads a prompt.
        left_out_n: How many are not here: a step in them is in no statistic or does not tell its
            requests, or nobody waited.
        unknown_n: Those of them that do not tell, or contradict each other.
    """

    time_ns: IntArray
    tokens_n: IntArray
    requests: IntArray
    mixed: npt.NDArray[np.bool_]
    left_out_n: int
    unknown_n: int


def token_intervals(served: ServedSteps) -> Intervals:
    """Return the intervals of a rank's steps, in order of time."""
    generating, context = (
        np.minimum(served.batches.field(name), _MOST_REQUESTS) for name in ("gen_reqs", "ctx_reqs")
    )
    unknown = (generating == NULL_INT) | (context == NULL_INT)
    place = np.flatnonzero(generating > 0)
    first, last = place[:-1], place[1:]

    def until(values: npt.NDArray[Any]) -> IntArray:
        return np.concatenate(([0], np.cumsum(values)))

    unknown_n, reading_n = until(unknown), until(context > 0)
    cut_n = until(~served.times.counted)
    context_n = until(np.maximum(context, 0) - _read_on(served.batches))
    # Who was read strictly between had the first token later.
    tokens_n = generating[last] - (context_n[last] - context_n[first + 1])
    is_known = unknown_n[last + 1] == unknown_n[first + 1]
    if served.batches.engine is None or not holds_every_request(served.batches.engine):
        # One prompt in several steps counts several times, where others may have waited for it.
        times_read_n = reading_n[last] - reading_n[first + 1]
        contradicts = (tokens_n < 0) | ((tokens_n == 0) & (times_read_n > 1))
        is_known &= ~(contradicts & (generating[last] > 1))
    kept = is_known & (cut_n[last + 1] == cut_n[first + 1]) & (tokens_n > 0)
    time_ns = served.times.end_ns[last] - served.times.end_ns[first]
    mixed = reading_n[last + 1] > reading_n[first + 1]
    return Intervals(
        time_ns[kept],
        tokens_n[kept],
        generating[last][kept],
        mixed[kept],
        int((~kept).sum()),
        int((~is_known).sum()) if place.size else int(unknown.sum()),
    )


def _read_on(batches: Batches) -> IntArray:
    """Return 1 for each step that reads on in the prompt of the step before, as keys tell."""
    requests, tokens, keys = (batches.field(name) for name in ("ctx_reqs", "ctx_tokens", "c_sk"))
    alone = (requests[1:] == 1) & (requests[:-1] == 1) & (keys[:-1] > 0) & (tokens[1:] > 0)
    return np.append(0, alone & (keys[1:] - tokens[1:] == keys[:-1]))[: requests.size]


def inter_token_columns(ranks: Sequence[Served]) -> Columns:
    """Return the columns of `inter_token`, a row a rank."""
    return columns_of([of_rank(rank) | _row(served) for rank, served in ranks])


def _row(served: ServedSteps) -> Row:
    every = token_intervals(served)
    every_n = every.time_ns.size + every.left_out_n
    if 100 * every.unknown_n > _MOST_UNKNOWN_PCT * max(every_n, 1):
        return _NOT_KNOWN | {"left_out_n": every_n}
    adds_ns, mixed_n, pure_ns = _mixed_adds(every)
    p50_ns, p99_ns = (weighted_percentile(every.time_ns, every.tokens_n, q) for q in (50, 99))
    return {
        "intervals_n": every.time_ns.size,
        "left_out_n": every.left_out_n,
        "tokens_n": int(every.tokens_n.sum()),
        "p50_ns": p50_ns,
        "p99_ns": p99_ns,
        "mixed_n": mixed_n,
        "mixed_adds_ns": adds_ns,
        "pure_ns": pure_ns,
        "adds_p99_pct": None
        if adds_ns is None or not p99_ns
        else float(np.clip(100 * adds_ns / p99_ns, 0, 100)),
        "reason": None,
    }


def _mixed_adds(every: Intervals) -> tuple[float | None, int, float | None]:
    """Return what a step with context adds at equal requests, over how many, and the pure mean."""
    adds, pure, weights = [], [], []
    for requests in np.unique(every.requests[every.mixed]).tolist():
        same = every.requests == requests
        mixed_ns, pure_ns = (every.time_ns[same & kind] for kind in (every.mixed, ~every.mixed))
        if pure_ns.size:
            adds.append(float(mixed_ns.mean() - pure_ns.mean()))
            pure.append(float(pure_ns.mean()))
            weights.append(mixed_ns.size)
    if not weights:
        return None, 0, None
    means = (float(np.average(values, weights=weights)) for values in (adds, pure))
    return next(means), sum(weights), next(means)


def weighted_percentile(values: IntArray, counts: IntArray, percent: float) -> float | None:
    """Return a percentile of values of which each stands so many times; None for none.

    The first value that so many of them do not exceed, as in the gate of trace_diff.
    """
    if not values.size:
        return None
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(counts[order])
    return float(values[order][np.searchsorted(reached, percent / 100 * reached[-1])])
