"""What a rank computes more than the median rank: more launches, or longer ones, by kernel.

A rank with as many launches may have another mix of them: the sum of launches says nothing of how
long each takes. As in trace_diff, each kernel's difference is split exactly
(`nsys_llm.numeric.effects`) against one rank, that with the median compute time; the parts add up
to the whole.

Of many ranks one is always the slowest: what is called slow has to be beyond what the largest of
as many equal ranks would show (Bonferroni over the ranks or machines that are compared).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist, median
from typing import Final

import numpy as np
import pandas as pd

from nsys_llm.numeric.effects import split_change
from nsys_llm.report.numbers import Numbers
from nsys_llm.report.records import Record
from nsys_llm.view.text import quoted, shortened

#: How often the slowest of equal ranks may be called slow; the usual level.
_ALPHA: Final = 0.05
#: Fewer ranks do not show how ranks spread.
_LEAST_RANKS: Final = 8
#: The median deviation of normal values times this is their standard deviation.
_TO_SIGMA: Final = 1.4826
#: Of few ranks the median deviation comes out too small: by simulation of 20,000 sets of 8 to 64
#: normal values the slowest is beyond the limit in at most 5 % with the factor (1 + 13 / ranks).
_FEW: Final = 13


@dataclass(frozen=True)
class LaunchSplit:
    """The difference in compute time of a rank to the median rank; or of all ranks of a machine.

    Attributes:
        reference: Number of the median rank, of those elsewhere.
        count_ns: What more or fewer launches of each kernel make, at the reference's mean.
        per_call_ns: The rest: longer or shorter launches.
        sure: Whether the second is beyond what chance among launches makes of it.
        name: The kernel with the largest count effect.
        launches_n: Its launches on the rank; on the mean of several.
        reference_n: Those on the reference.
    """

    reference: int
    count_ns: int
    per_call_ns: int
    sure: bool
    name: str
    launches_n: int
    reference_n: int

    @property
    def mixed(self) -> bool:
        """Whether another mix of kernels makes more of the difference than longer launches."""
        return self.count_ns > self.per_call_ns


def split_rank(
    rank_kernels: pd.DataFrame, compute: Collection[str], rank: int, times: Mapping[int, int]
) -> LaunchSplit:
    """Split what a rank computes more than the median rank.

    Args:
        rank_kernels: The table.
        compute: Kernels that are no communication.
        rank: The rank.
        times: Compute time of the ranks that are compared, by rank; two or more.
    """
    rows = rank_kernels[rank_kernels["name"].isin(compute)]
    return _split(rows, [rank], median_rank(times, [rank]), len(times))


def split_host(
    rank_kernels: pd.DataFrame,
    compute: Collection[str],
    host_ranks: Sequence[int],
    times: Mapping[int, int],
    hosts_n: int,
) -> LaunchSplit:
    """Split what the ranks of a machine compute more than as many times the median rank elsewhere.

    Args:
        rank_kernels: The table.
        compute: Kernels that are no communication.
        host_ranks: The ranks of the machine.
        times: Compute time of all ranks, by rank; some are of other machines.
        hosts_n: How many machines are compared.
    """
    rows = rank_kernels[rank_kernels["name"].isin(compute)]
    return _split(rows, host_ranks, median_rank(times, host_ranks), hosts_n)


def median_rank(times: Mapping[int, int], without: Collection[int]) -> int:
    """Return the rank with the median compute time of the others; of two, that with less."""
    others = sorted((ns, number) for number, ns in times.items() if number not in without)
    return others[(len(others) - 1) // 2][1]


def _split(
    rows: pd.DataFrame, selected: Sequence[int], reference: int, compared_n: int
) -> LaunchSplit:
    """Split the kernels of some ranks against as many times those of the reference."""
    names = sorted(set(rows.loc[rows["rank"].isin([*selected, reference]), "name"]))
    n0, t0, v0 = _by_name(rows[rows["rank"] == reference], names)
    n1, t1, v1 = _by_name(rows[rows["rank"].isin(selected)], names)
    times = len(selected)
    effects = split_change(
        n0.astype(np.int64) * times,
        t0.astype(np.int64) * times,
        n1.astype(np.int64),
        t1.astype(np.int64),
    )
    per_call_ns = int(effects.per_call.sum())
    both = (n0 > 0) & (n1 > 0)
    # The mean of n1 launches against that of n0, n1 times.
    noise_ns = math.sqrt(float((n1 * v1 + n1 * n1 * v0 / np.maximum(n0, 1))[both].sum()))
    largest = int(np.argmax(effects.count)) if names else 0
    return LaunchSplit(
        reference,
        int(effects.count.sum()),
        per_call_ns,
        per_call_ns > _limit(compared_n) * noise_ns,
        names[largest] if names else "",
        round(n1[largest] / times) if names else 0,
        int(n0[largest]) if names else 0,
    )


def split_beyond_chance(
    rank_kernels: pd.DataFrame,
    imbalance: Sequence[Record],
    worst: Record,
    working: Sequence[Record],
) -> LaunchSplit | None:
    """Return the split of the slowest rank; None where chance alone may have made it that.

    Args:
        rank_kernels: The table.
        imbalance: Rows of the table, which say what is communication.
        worst: Its row of the table processes.
        working: Those of all ranks that are compared, its own too.
    """
    names = compute_kernels(imbalance)
    times = {row["rank"]: row["compute_total_ns"] for row in working}
    split = split_rank(rank_kernels, names, worst["rank"], times)
    others_ns = [ns for rank, ns in times.items() if rank != worst["rank"]]
    if not ranks_beyond_chance(worst["compute_total_ns"], others_ns):
        return None
    return split if split.mixed or split.sure else None


def compute_kernels(imbalance: Sequence[Record]) -> set[str]:
    """Return the names of the kernels that are no communication."""
    return {
        row["name"] for row in imbalance if row["scope"] == "kernel" and not row["communication"]
    }


def mix_words(split: LaunchSplit, launches_n: int, numbers: Numbers) -> str:
    """Return the evidence for a rank with as many launches, of another mix."""
    return (
        f"It launches about as much ({numbers.count('launches_n', launches_n)} launches), but "
        f"another mix of kernels: {quoted(shortened(split.name))} runs "
        f"{numbers.count('kernel_launches_n', split.launches_n)} times, "
        f"{numbers.count('reference_launches_n', split.reference_n)} times on rank "
        f"{numbers.count('reference_rank', split.reference)}."
    )


def split_words(split: LaunchSplit, numbers: Numbers, ranks_n: int = 1) -> str:
    """Return what the difference to the median rank is made of, a rank, with a space before."""
    parts = {"by_launches_ns": split.count_ns, "by_length_ns": split.per_call_ns}
    count, per_call = (
        f"{'+' if ns > 0 else ''}{numbers.ns(name, round(ns / ranks_n))}"
        for name, ns in parts.items()
    )
    each = " a rank" if ranks_n > 1 else ""
    return (
        f" Kernel by kernel against rank {numbers.count('reference_rank', split.reference)}: "
        f"{count}{each} by the number of launches, {per_call} by their length."
    )


def ranks_beyond_chance(worst_ns: int, others_ns: Sequence[int]) -> bool:
    """Return whether the slowest rank is slower than the slowest of as many equal ones would be."""
    ranks_n = len(others_ns) + 1
    if ranks_n < _LEAST_RANKS:
        return True
    usual_ns = median(others_ns)
    sigma_ns = _TO_SIGMA * median(abs(ns - usual_ns) for ns in others_ns)
    return worst_ns - usual_ns > _limit(ranks_n) * sigma_ns * (1 + _FEW / ranks_n)


def hosts_beyond_chance(excess_ns: float, host: str, processes: Sequence[Record]) -> bool:
    """Return whether a machine's mean is farther off than the ranks within machines spread.

    Args:
        excess_ns: The mean compute time of its ranks above the usual one.
        host: The machine.
        processes: Rows of the table of all ranks.
    """
    by_host: dict[str, list[int]] = {}
    for row in processes:
        by_host.setdefault(row["host"], []).append(row["compute_total_ns"])
    means: dict[str, float] = {
        name: sum(times_ns) / len(times_ns) for name, times_ns in by_host.items()
    }
    free = len(processes) - len(by_host)
    squares = sum((ns - means[name]) ** 2 for name, times_ns in by_host.items() for ns in times_ns)
    sigma_ns = math.sqrt(squares / max(free, 1))
    return excess_ns > _limit(len(by_host)) * sigma_ns / math.sqrt(len(by_host[host]))


def _limit(compared_n: int) -> float:
    """Return how many standard deviations the largest of so many may lie above the mean."""
    return NormalDist().inv_cdf(1 - _ALPHA / max(compared_n, 1))


def _by_name(rows: pd.DataFrame, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return launches, time and the variance of durations of each name, of all its devices."""
    kernel_rows = pd.DataFrame(
        {
            "name": rows["name"],
            "n": rows["launches_n"].astype("float64"),
            "ns": rows["total_ns"].astype("int64"),
            "spread": rows["std_ns"].astype("float64").fillna(0.0) ** 2 * rows["launches_n"],
        }
    )
    sums = kernel_rows.groupby("name")[["n", "ns", "spread"]].sum().reindex(names, fill_value=0)
    n = sums["n"].to_numpy("float64")
    return n, sums["ns"].to_numpy("int64"), sums["spread"].to_numpy("float64") / np.maximum(n, 1)
