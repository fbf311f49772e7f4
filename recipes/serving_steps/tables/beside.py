"""The tables `before_steps` and `speculation`."""

from __future__ import annotations

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.report.columns import of_rank
from nsys_llm.trace.identity import Rank

from ..partials import ServedSteps
from .batches import Row


def before_rows(rank: Rank, served: ServedSteps) -> list[Row]:
    """Return the rows of `before_steps`, the most time first."""
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


def speculation(served: ServedSteps) -> Row | None:
    """Return the row of `speculation`, but for the rank; None for one that verifies no drafts."""
    names = ("gen_reqs", "gen_tokens", "g_sk", "ctx_reqs")
    requests, tokens, keys, context = (served.batches.field(name) for name in names)
    counted = served.times.counted
    # Names may tell that drafts are verified, and not of how many tokens.
    no_width = counted & (requests > 0) & (context == 0) & (tokens == NULL_INT)
    verifying = counted & (requests > 0) & (tokens > requests)
    drafts_ns = served.draft_busy_ns
    if not (verifying | no_width).any() and drafts_ns is None:
        return None
    # Nobody came or went between two steps in a row: what their keys grew by was accepted.
    first = np.flatnonzero(verifying[:-1] & verifying[1:] & (context[:-1] == 0))
    after = first + 1
    alike = (requests[first] == requests[after]) & (keys[first] != NULL_INT)
    alike &= (keys[after] != NULL_INT) & (tokens[first] == tokens[after])
    # Whom another replaced brought keys: each request keeps a token at least, and at most all.
    grown = keys[after] - keys[first]
    alike &= (grown >= requests[first]) & (grown <= tokens[first])
    first, after = first[alike], after[alike]
    # The token that each always keeps is no draft.
    accepted_n = int((grown[alike] - requests[first]).sum())
    proposed_n = int((tokens[first] - requests[first]).sum())
    known = first.size > 0
    verified_n, steps_n = int((verifying | no_width).sum()), int(counted.sum())
    window_ns = int((served.times.end_ns - served.times.before_ns)[counted].sum())
    draft_ns = None if drafts_ns is None else int(drafts_ns.sum())
    return {
        "steps_n": verified_n,
        "width": float((tokens[verifying] / requests[verifying]).mean())
        if verifying.any()
        else None,
        "pairs_n": first.size,
        "pairs_pct": 100.0 * first.size / max(verified_n - 1, 1),
        "accepted_n": accepted_n if known else None,
        "proposed_n": proposed_n if known else None,
        "accepted_pct": 100.0 * accepted_n / proposed_n if known else None,
        "drafts_n": 0 if drafts_ns is None else drafts_ns.size,
        "draft_ns": None if draft_ns is None else draft_ns / max(steps_n, 1),
        "draft_pct": None if draft_ns is None or not window_ns else 100.0 * draft_ns / window_ns,
    }
