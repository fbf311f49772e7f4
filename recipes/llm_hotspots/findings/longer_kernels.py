"""Whether a rank or machine that computes longer has slow GPUs, or more work in some kernels."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import pandas as pd

from nsys_llm.report.numbers import Numbers
from nsys_llm.report.records import Record
from nsys_llm.view.text import quoted, shortened

from .launch_split import LaunchSplit, mix_words
from .texts import SLOW_RATIO

#: A GPU is slow where more than this share of its kernels are longer than elsewhere; kernels with
#: less than the other share of all compute are left out. Ours.
_MOST_KERNELS: Final = 0.5
_TELLING_SHARE: Final = 0.005


def longer_kernels(imbalance: Sequence[Record], rank: int) -> list[Record]:
    """Return the kernels that a rank alone has longer, most first; none where most are longer.

    A slow GPU is slow in most kernels; more work shows in those that do it.
    """
    kernels = [
        row
        for row in imbalance
        if row["scope"] == "kernel" and not row["communication"] and row["others_p50_ns"] > 0
    ]
    whole_ns = sum(row["total_ns"] for row in kernels)
    kernels = [row for row in kernels if row["total_ns"] >= _TELLING_SHARE * whole_ns]
    longer = [
        row for row in kernels if row["most_rank"] == rank and row["most_over_p50"] >= SLOW_RATIO
    ]
    if not longer or len(longer) > _MOST_KERNELS * len(kernels):
        return []
    return sorted(longer, key=lambda row: (row["others_p50_ns"] - row["max_ns"], row["name"]))


def longer_on_host(
    rank_kernels: pd.DataFrame, compute: Collection[str], host_ranks: Sequence[int]
) -> list[str]:
    """Return the kernels that the ranks of a machine have longer, most first.

    None where most are longer, as on a rank.

    Args:
        rank_kernels: The table.
        compute: Kernels that are no communication.
        host_ranks: The ranks of the machine.
    """
    rows = rank_kernels[rank_kernels["name"].isin(compute)]
    ranks = rank_kernels["rank"].unique()
    times = rows.pivot_table(index="rank", columns="name", values="total_ns", aggfunc="sum")
    times = times.reindex(ranks).fillna(0).astype("float64")
    on_host = times.index.isin(host_ranks)
    mean, usual = times[on_host].mean(), times[~on_host].median()
    telling = (usual > 0) & (times.sum() >= _TELLING_SHARE * float(times.to_numpy().sum()))
    longer = telling & (mean >= SLOW_RATIO * usual)
    if not longer.any() or int(longer.sum()) > _MOST_KERNELS * int(telling.sum()):
        return []
    more = (mean - usual)[longer]
    return sorted(more.index, key=lambda name: (-more[name], name))


def host_words(
    longer: Sequence[str], split: LaunchSplit, launches_n: float, numbers: Numbers
) -> tuple[str, str | None]:
    """Return evidence and the case of advice for a machine whose ranks compute longer.

    Args:
        longer: See `longer_on_host`.
        split: Of its ranks.
        launches_n: Of its median rank.
        numbers: Takes those of the evidence.
    """
    if split.mixed:
        return mix_words(split, round(launches_n), numbers), "other_mix"
    if longer:
        return (
            f"{named(longer, numbers)} takes longer there; the other kernels are as fast as "
            "elsewhere, so the machine is not slow.",
            "machine",
        )
    return "Its ranks launch as much, so each launch takes longer.", None


def named(names: Sequence[str], numbers: Numbers) -> str:
    """Name the first kernel, and say how many more there are."""
    more_n = len(names) - 1
    more = f" and {numbers.counted('more_kernels_n', more_n, 'more kernel')}" if more_n else ""
    return f"{quoted(shortened(names[0]))}{more}"


def slow_words(longer: Sequence[Record], counts: str, numbers: Numbers) -> str:
    """Return the evidence for a rank with as many launches as the others.

    Args:
        longer: See `longer_kernels`.
        counts: Its launches and those of the others, in words.
        numbers: Takes those of the evidence.
    """
    if not longer:
        return f"It launches as much ({counts}), so each launch takes longer."
    times = numbers.ratio("kernel_over_others", longer[0]["most_over_p50"])
    return (
        f"It launches as much ({counts}). {named([row['name'] for row in longer], numbers)} takes "
        f"{times} times as long as elsewhere; the rank's other kernels are as fast as elsewhere, "
        "so the GPU is not slow."
    )


def more_words(counts: str) -> str:
    """Return the evidence for a rank with another number of launches."""
    return f"It has a different number of launches: {counts}."
