"""How much a profile may hold: sums of times that fit into 64 bits, what fits one machine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import numpy as np

from nsys_llm.core.errors import ProfileError
from nsys_llm.numeric.grouping import distinct_rows
from nsys_llm.profile.tables import Table, Trace
from nsys_llm.trace.outcomes import RankOutcome
from nsys_llm.trace.rank_trace import OP_TABLES, RankTrace, sane_times

#: 2.3 years in one table of one rank: a thousand streams that are busy for 20 hours.
_MOST_OF_RANK_NS: Final = 1 << 56
#: 73 years: so that four times as much is a 64-bit number.
_MOST_OF_RUN_NS: Final = 1 << 61
_DAY_NS: Final = 86_400 * 10**9


#: Processes with GPU work, and devices of one: a machine has 16 GPUs, or 7 times as many parts.
_MOST_PROCESSES: Final = 1024
_MOST_DEVICES: Final = 128


def refuse_crowded(trace: Trace, label: str) -> None:
    """Refuse a profile with more processes or devices than a machine has: its ids are damaged.

    Raises:
        ProfileError: It is so.
    """
    devices: dict[int, set[int]] = {}
    for op in (trace[name] for name in OP_TABLES if name in trace):
        columns = [op["global_pid"], op["device_id"]]
        rows, _ = distinct_rows(columns)
        for global_pid, device in zip(*(column[rows].tolist() for column in columns), strict=True):
            devices.setdefault(global_pid, set()).add(device)
    for what, there_n, most in (
        ("processes with GPU work", len(devices), _MOST_PROCESSES),
        ("devices of one process", max(map(len, devices.values()), default=0), _MOST_DEVICES),
    ):
        if there_n > most:
            raise ProfileError(
                f"{label}: damaged ids ({there_n:,} {what}, of at most {most:,}); copy or export "
                "it again."
            )


def refuse_endless(trace: RankTrace, label: str) -> None:
    """Refuse a rank of which the times in a table add up to more than any capture can hold.

    Args:
        trace: The rank.
        label: Of its profile.

    Raises:
        ProfileError: They do; the times are damaged.
    """
    tables: Mapping[str, Table] = {**trace.tables, **trace.unfiltered}
    for name, table in tables.items():
        if not {"start_ns", "end_ns"} <= table.columns.keys() or not len(table):
            continue
        if (added_ns := _added_ns(table)) >= _MOST_OF_RANK_NS:
            raise ProfileError(
                f"{label}: damaged times ({name} last {added_ns / _DAY_NS:,.0f} days when added "
                "up); copy or export it again."
            )


def refuse_endless_run(ranks: Iterable[RankOutcome]) -> None:
    """Refuse ranks whose operations add up to more than numbers can hold.

    Raises:
        ProfileError: They do.
    """
    added_ns = sum(row.total_ns for rank in ranks for row in rank.coverage)
    if added_ns >= _MOST_OF_RUN_NS:
        raise ProfileError(
            f"damaged times: the GPU work of all ranks lasts {added_ns / _DAY_NS:,.0f} days when "
            "added up; give fewer profiles, or copy or export them again."
        )


def _added_ns(table: Table) -> float:
    """Return the sum of the durations of all rows that have one; exact to a millionth."""
    start_ns, end_ns = table["start_ns"], table["end_ns"]
    # Whole columns first, which is quick; rows that are broken make it too large, never too small.
    ends, starts = end_ns.sum(dtype=np.float64), start_ns.sum(dtype=np.float64)
    if abs(quick_ns := float(ends - starts)) < _MOST_OF_RANK_NS and (end_ns >= start_ns).all():
        return quick_ns
    sane = sane_times(start_ns, end_ns)
    return float((end_ns[sane] - start_ns[sane]).sum(dtype=np.float64))
