"""The tables on what host threads did while a GPU waited for them; of several recipes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, Final

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.capture import NO_KERNEL
from nsys_llm.report.columns import Columns, nullable, percent, record_columns, sorted_columns
from nsys_llm.taxonomy.host_modules import KERNEL
from nsys_llm.trace.host_part import (
    SAMPLED,
    STEP,
    Exposure,
    HostModule,
    HostPart,
    HostState,
    Where,
)
from nsys_llm.trace.identity import Rank, RankKey

#: What is missing of the samples that there should be.
NOT_SAMPLED: Final = "not_sampled"

_Z_95: Final = 1.959963984540054
#: What samples are counted of.
_WHERE: Final[Callable[[Exposure], Where]] = attrgetter(*Exposure.__dataclass_fields__)


def host_tables(ranks: Sequence[tuple[Rank, HostPart | None]]) -> dict[str, Columns]:
    """Return host_states and host_modules; of ranks without, no rows."""
    told = [(rank, part) for rank, part in ranks if part is not None]
    return {"host_states": _state_columns(told), "host_modules": _module_columns(told)}


def _state_columns(ranks: Sequence[tuple[Rank, HostPart]]) -> Columns:
    rows = [(rank, row) for rank, part in ranks for row in part.states]
    whole_ns = Counter[tuple[RankKey, int]]()
    for rank, row in rows:
        whole_ns[rank.key, row.device_id] += row.time_ns
    time_ns = np.array([row.time_ns for _, row in rows], dtype=np.int64)
    all_ns = np.array([whole_ns[rank.key, row.device_id] for rank, row in rows], dtype=np.int64)
    steps_n = {rank.key: part.steps_n for rank, part in ranks}
    columns = {
        **record_columns(rows, *HostState.__dataclass_fields__),
        "steps_n": [steps_n[rank.key] if row.part == STEP else None for rank, row in rows],
        "share_pct": percent(time_ns, all_ns),
    }
    return sorted_columns(columns, "rank", "device_id", "-time_ns", "tid", "cause", "part", "range")


def _module_columns(ranks: Sequence[tuple[Rank, HostPart]]) -> Columns:
    """Return samples of each group by class, and what is missing of those that there should be."""
    rows, beside = list[tuple[Rank, HostModule]](), list[tuple[int, ...]]()
    for rank, part in ranks:
        counts, on_core_ns = Counter[Where](), Counter[Where]()
        period_ns = (rank.facts and rank.facts.sample_period_ns) or part.period_ns
        for module in part.modules:
            counts[_WHERE(module)] += module.samples_n
        for state in part.states:
            if state.state in SAMPLED and state.on_core_ns is not None:
                on_core_ns[_WHERE(state)] += state.on_core_ns
        expected = {key: round(ns / period_ns) for key, ns in on_core_ns.items() if period_ns}
        lost = [
            HostModule(*key, NOT_SAMPLED, expected_n - counts[key], 0)
            for key, expected_n in expected.items()
            if expected_n > counts[key]
        ]
        of_rank = period_ns or NULL_INT, _is_user_mode(rank, part)
        for module in (*part.modules, *lost):
            whole = counts[_WHERE(module)], expected.get(_WHERE(module), NULL_INT)
            rows.append((rank, module))
            beside.append((*whole, *of_rank))
    of_n, expected_n, period, user_mode = np.array(beside, dtype=np.int64).reshape(-1, 4).T
    is_lost = np.array([row.module_class == NOT_SAMPLED for _, row in rows], dtype=bool)
    counted_n = np.array([row.samples_n for _, row in rows], dtype=np.int64)
    low_pct, high_pct = wilson_pct(np.where(is_lost, 0, counted_n), np.maximum(of_n, 1))
    columns = {
        **record_columns(rows, *HostModule.__dataclass_fields__),
        "of_n": of_n,
        "expected_n": nullable(expected_n),
        "share_pct": percent(counted_n, np.where(is_lost, expected_n, of_n)),
        "low_pct": np.where(is_lost, np.nan, low_pct),
        "high_pct": np.where(is_lost, np.nan, high_pct),
        "period_ns": nullable(period),
        "user_mode": user_mode != 0,
    }
    order = ("rank", "device_id", "tid", "part", "range", "cause", "state", "-samples_n")
    return sorted_columns(columns, *order, "module_class")


def _is_user_mode(rank: Rank, part: HostPart) -> bool:
    """Return whether samples of the kernel are missing: Linux allows none, or there are none."""
    if rank.facts and rank.facts.paranoid_level not in (None, NO_KERNEL):
        return False  # above that level only root samples, and all
    return all(module.module_class != KERNEL for module in part.modules)


def wilson_pct(count: IntArray, of_n: IntArray) -> tuple[Any, Any]:
    """Return the 95 % interval of shares, in percent, by Wilson's score (1927).

    Unlike the usual one it lies within 0 and 100 %, and holds where few or all were counted.
    """
    share, z2 = count / of_n, _Z_95**2
    middle = share + z2 / (2 * of_n)
    half = _Z_95 * np.sqrt(share * (1 - share) / of_n + z2 / (4.0 * of_n * of_n))
    low, high = ((middle + side) / (1 + z2 / of_n) for side in (-half, half))
    low = np.where(count == 0, 0.0, low)  # exactly, whatever the rounding
    return 100.0 * low, 100.0 * np.where(count == of_n, 1.0, high)
