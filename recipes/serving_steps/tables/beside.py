"""The tables `before_steps`, `context_growth` and `speculation`."""

from __future__ import annotations

from typing import Final

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.report.columns import of_rank
from nsys_llm.taxonomy.categories import load_rules
from nsys_llm.trace.identity import Rank

from ..partials import RankServing, ServedSteps
from ..per_rank.growth import ContextGrowth, KernelGrowth
from .batches import Row

#: A kernel is listed that grows by more than this, and by so many standard errors.
GROWN_PCT: Final = 10.0
ERRORS: Final = 3.0
#: What reads the keys of a request grows with them.
_MAY_GROW: Final = "attention"
_MAY_GROW_WORDS: Final = ("combine", "merge")
_PS: Final = 1000


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


def growth_rows(rank: Rank, part: RankServing) -> list[Row]:
    """Return the rows of `context_growth`, the largest ratio first."""
    growth = None if part.served is None else part.served.growth
    if growth is None or not growth.kernels:
        return []
    rules = load_rules(part.kernels_of)
    rows = [
        of_rank(rank) | _growth(growth, kernel, rules.classify(kernel.kernel).category)
        for kernel in growth.kernels
    ]
    # Contexts grow over time: where most kernels are slower later, so is the GPU.
    usual = float(np.median([row["ratio"] for row in rows]))
    for row in rows:
        row["listed"] &= 100 * row["ratio"] > (100 + GROWN_PCT) * usual
    return sorted(rows, key=lambda row: (-row["ratio"], row["kernel"]))


def _growth(growth: ContextGrowth, kernel: KernelGrowth, category: str) -> Row:
    low_ps, high_ps = max(kernel.low_ps, 1), kernel.high_ps
    name = kernel.kernel.lower()
    may_grow = category == _MAY_GROW or any(word in name for word in _MAY_GROW_WORDS)
    listed = (
        not may_grow
        and 100 * high_ps > (100 + GROWN_PCT) * low_ps
        and high_ps - low_ps > ERRORS * kernel.error_ps
    )
    return {
        "kernel": kernel.kernel,
        "category": category,
        "low_ns": low_ps / _PS,
        "high_ns": high_ps / _PS,
        "error_ns": kernel.error_ps / _PS,
        "ratio": high_ps / low_ps,
        "listed": bool(listed),
        "steps_n": growth.steps_n,
        "low_keys": growth.low_keys,
        "high_keys": growth.high_keys,
        "exclusive_ns": kernel.exclusive_ns,
        "grown_ns": max(kernel.exclusive_ns * (1.0 - low_ps / max(high_ps, low_ps)), 0.0),
    }


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
