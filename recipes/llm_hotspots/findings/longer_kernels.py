"""Whether a rank or machine that computes longer has slow GPUs, or more work in some kernels."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

import pandas as pd

from nsys_llm.report.records import Record
from nsys_llm.view.text import counted, format_count, quoted, shortened

from .launch_split import LaunchSplit, mix_words

#: How much more compute than the others makes a rank or a machine slow; ours. Boards of one model
#: differ by 2 to 4 % in clock.
SLOW_RATIO: Final = {"high": 1.25, "medium": 1.10, "low": 1.05}
#: A GPU is slow where more than this share of its kernels are longer than elsewhere; kernels with
#: less than the other share of all compute are left out. Ours.
_MOST_KERNELS: Final = 0.5
_TELLING_SHARE: Final = 0.005


def longer_kernels(imbalance: Sequence[Record], rank: int) -> list[Record]:
    """Return the kernels that a rank alone has longer, most first; none where most are longer.

    A slow GPU is slow in most kernels; more work shows in those that do it.
    """
    own = [
        row
        for row in imbalance
        if row["scope"] == "kernel" and not row["communication"] and row["others_p50_ns"] > 0
    ]
    whole_ns = sum(row["total_ns"] for row in own)
    own = [row for row in own if row["total_ns"] >= _TELLING_SHARE * whole_ns]
    longer = [
        row for row in own if row["most_rank"] == rank and row["most_over_p50"] >= SLOW_RATIO["low"]
    ]
    if not longer or len(longer) > _MOST_KERNELS * len(own):
        return []
    return sorted(longer, key=lambda row: (row["others_p50_ns"] - row["max_ns"], row["name"]))


def longer_on_host(
    rank_kernels: pd.DataFrame, compute: Collection[str], mine: Sequence[int]
) -> list[str]:
    """Return the kernels that the ranks of a machine have longer, most first.

    None where most are longer, as on a rank.

    Args:
        rank_kernels: The table.
        compute: Kernels that are no communication.
        mine: The ranks of the machine.
    """
    rows = rank_kernels[rank_kernels["name"].isin(compute)]
    ranks = rank_kernels["rank"].unique()
    times = rows.pivot_table(index="rank", columns="name", values="total_ns", aggfunc="sum")
    times = times.reindex(ranks).fillna(0).astype("float64")
    own = times.index.isin(mine)
    mean, usual = times[own].mean(), times[~own].median()
    telling = (usual > 0) & (times.sum() >= _TELLING_SHARE * float(times.to_numpy().sum()))
    longer = telling & (mean >= SLOW_RATIO["low"] * usual)
    if not longer.any() or int(longer.sum()) > _MOST_KERNELS * int(telling.sum()):
        return []
    more = (mean - usual)[longer]
    return sorted(more.index, key=lambda name: (-more[name], name))


def host_words(longer: Sequence[str], split: LaunchSplit, launches_n: float) -> tuple[str, str]:
    """Return evidence and advice for a machine whose ranks compute longer.

    Args:
        longer: See `longer_on_host`.
        split: Of its ranks.
        launches_n: Of its median rank.
    """
    if split.mixed:
        evidence, _ = mix_words(split, round(launches_n))
        return (
            evidence,
            "Look for work that only the ranks of this machine have: that kernel is not slower, it "
            "runs more often.",
        )
    if longer:
        more = f" and {counted(len(longer) - 1, 'more kernel')}" if len(longer) > 1 else ""
        return (
            f"{quoted(shortened(longer[0]))}{more} takes longer there; the other kernels are as "
            "fast as elsewhere, so the machine is not slow.",
            "This is uneven work: look at what decides the size of that kernel's input on these "
            "ranks (experts, sequence lengths), and spread it over the machines.",
        )
    return (
        "Its ranks launch as much, so each launch takes longer.",
        "Compare that machine's clocks, power limits and cooling with the others, and look for "
        "other jobs on it.",
    )


def named(rows: Sequence[Record]) -> str:
    """Name the first kernel, and say how many more there are."""
    more = f" and {counted(len(rows) - 1, 'more kernel')}" if len(rows) > 1 else ""
    return f"{quoted(shortened(rows[0]['name']))}{more}"


def slow_words(longer: Sequence[Record], launches_n: int, usual: str) -> tuple[str, str]:
    """Return evidence and advice for a rank with as many launches as the others.

    Args:
        longer: See `longer_kernels`.
        launches_n: Its launches.
        usual: Those of the others, in words.
    """
    counts = f"{format_count(launches_n)} launches, {usual}"
    if not longer:
        return (
            f"It launches as much ({counts}), so each launch takes longer.",
            "Compare clocks, power and temperature of that GPU with the others (nvidia-smi -q -d "
            "CLOCK,PERFORMANCE), look for another job on it, and for larger shapes of its kernels.",
        )
    return (
        f"It launches as much ({counts}). {named(longer)} takes "
        f"{longer[0]['most_over_p50']:.2f} times as long as elsewhere; the rank's other kernels "
        "are as fast as elsewhere, so the GPU is not slow.",
        "This is uneven work: look at what decides the size of that kernel's input (experts that "
        "get most tokens, the longer sequences of a batch), and spread it over the ranks.",
    )


def more_words(launches_n: int, usual: str) -> tuple[str, str]:
    """Return evidence and advice for a rank with another number of launches."""
    return (
        f"It has another number of launches: {format_count(launches_n)} launches, {usual}.",
        "Look for work that only this rank has: experts that get most tokens, the longer "
        "sequences of a batch, embedding or output layers of a pipeline stage, sampling.",
    )
