"""What users wait between tokens, and GPUs before steps: tables inter_token, before_steps."""

from __future__ import annotations

from typing import Final

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.serving.rank import ServedSteps
from nsys_llm.facts.steps.token_waits import (
    MOST_UNKNOWN_PCT,
    TokenWaits,
    read_on,
    token_waits,
    weighted_percentile,
)
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import of_rank
from nsys_llm.taxonomy.step_names import holds_every_request
from nsys_llm.trace.identity import Rank

from .batches import Row

#: No server has more: sums of them stay below 2^63.
_MOST_REQUESTS: Final = 1 << 30
#: One in so many intervals, the longest, may be a pause, which no prompt makes.
_UNUSUAL: Final = 20
_NOT_KNOWN: Final[Row] = {
    **dict.fromkeys(("intervals_n", "tokens_n", "mixed_n"), 0),
    "reason": "step names do not show all requests",
}


def inter_token(served: ServedSteps) -> Row:
    """Return the row of `inter_token`, but for the rank."""
    generating, context = (
        np.minimum(served.batches.field(name), _MOST_REQUESTS) for name in ("gen_reqs", "ctx_reqs")
    )
    engine = served.batches.engine
    unknown = (generating == NULL_INT) | (context == NULL_INT)
    every = token_waits(
        served.times.end_ns,
        generating,
        context,
        read_on(context, served.batches.field("ctx_tokens"), served.batches.field("c_sk")),
        unknown,
        ~served.times.counted | (served.times.no_work_ns > 0),
        together=engine is not None and holds_every_request(engine),
    )
    every_n = every.time_ns.size + every.left_out_n
    if 100 * every.unknown_n > MOST_UNKNOWN_PCT * every_n or (not every_n and unknown.any()):
        return _NOT_KNOWN | {"left_out_n": every_n}
    adds = _mixed_adds(every, generating[every.last])
    adds_ns = adds["mixed_adds_ns"]
    waited = every.time_ns, every.tokens_n, every.most_n
    none = None, None
    p50_ns, _ = weighted_percentile(*waited, 50) or none
    p99_ns, most_ns = weighted_percentile(*waited, 99) or none
    is_known = adds_ns is not None and most_ns
    return {
        "intervals_n": every.time_ns.size,
        "left_out_n": every.left_out_n,
        "tokens_n": int(every.tokens_n.sum()),
        "p50_ns": p50_ns,
        "p99_ns": p99_ns,
        "p99_most_ns": most_ns,
        **adds,
        "adds_p99_pct": float(np.clip(100 * adds_ns / most_ns, 0, 100)) if is_known else None,
    }


def _mixed_adds(every: TokenWaits, generating: IntArray) -> Row:
    """Return what a step with context adds at equal requests, and the mean without."""
    beyond, pure, weights = [], [], []
    certain = every.tokens_n > 0
    for requests in np.unique(generating[every.mixed & certain]).tolist():
        same = certain & (generating == requests)
        mixed_ns, pure_ns = (every.time_ns[same & kind] for kind in (every.mixed, ~every.mixed))
        if pure_ns.size:
            beyond.append(mixed_ns - pure_ns.mean())
            pure.append(float(pure_ns.mean()))
            weights.append(mixed_ns.size)
    mixed_n = sum(weights)
    adds_ns = np.sort(np.concatenate(beyond)) if beyond else np.empty(0)
    usual_ns = adds_ns[: mixed_n - max(mixed_n // _UNUSUAL, 1)]
    return {
        "mixed_n": mixed_n,
        "mixed_adds_ns": float(adds_ns.mean()) if mixed_n else None,
        "mixed_usual_ns": float(usual_ns.mean()) if usual_ns.size else None,
        "pure_ns": float(np.average(pure, weights=weights)) if mixed_n else None,
    }


def before_rows(rank: Rank, served: ServedSteps) -> list[Row]:
    """Return where the host is while the GPU idles before a step, the most time first."""
    times, counted = served.times, served.times.counted
    window_ns = int((times.end_ns - times.before_ns - times.no_work_ns)[counted].sum())
    order = sorted(served.before_ns.items(), key=lambda item: (-item[1], item[0]))
    return [
        of_rank(rank)
        | {
            "range": name,
            "idle_ns": time_ns / int(counted.sum()),
            "total_ns": time_ns,
            "window_pct": 100.0 * time_ns / window_ns if window_ns else None,
        }
        for name, time_ns in order
    ]
