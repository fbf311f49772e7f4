"""Makes the tables of tail_stats of all ranks, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from nsys_llm.facts.tails.kernels import KernelTails
from nsys_llm.job.collectives.profiler import delays_ns
from nsys_llm.numeric.grouping import joined
from nsys_llm.reduced.job import Job
from nsys_llm.report.outputs import Cells
from nsys_llm.trace.identity import Rank

from .clusters import burst_pcts, cluster_rows, clusters, outlier_events
from .collectives import (
    clock_columns,
    collective_columns,
    coverage_rows,
    sequence_columns,
    straggler_rows,
)
from .kernels import rank_tail_numbers, tail_numbers, tail_rank_columns
from .medians import Medians, ShownKeys
from .outliers import outlier_columns, outlying

_ORDER: Final = ("-excess_ns", "-total_ns", "name", "config")
_RANK_ORDER: Final = ("rank", "-excess_ns", "-total_ns", "device_id", "name", "config")


def tabulate(job: Job) -> dict[str, Cells]:
    """Return the recipe's tables by name."""
    collectives = job.collectives
    delays = delays_ns(collectives, job.facts.held)
    return {
        **_kernel_columns(job.facts.tails, job.ranks, job.options),
        "communicators": sequence_columns(collectives),
        "collectives": collective_columns(collectives, delays),
        "stragglers": straggler_rows(collectives, delays),
        "collective_coverage": coverage_rows(collectives),
        "rank_clocks": clock_columns(collectives),
    }


def _kernel_columns(
    kernels: KernelTails, ranks: Sequence[Rank], options: Mapping[str, Any]
) -> dict[str, Cells]:
    parts = [(rank, kernels.ranks[rank.key]) for rank in ranks]
    medians = Medians(kernels)
    outliers = outlying(kernels.instances, medians)
    listed = outliers.take(slice(options["top"]))
    events = outlier_events(outliers, medians, parts)
    bursts = clusters(events, medians, parts, options)
    beyond = [medians.beyond_of(rank, tails) for rank, tails in parts]
    rows_n = sum(len(tails.key) for _, tails in parts)
    by_rank = rank_tail_numbers(medians, parts, beyond, burst_pcts(events, bursts, rows_n))
    numbers = tail_numbers(medians, parts)
    together = [outliers.numbers["key"][rows] for rows, _ in bursts]
    shown = ShownKeys.of(medians, parts, beyond, joined([listed.numbers["key"], *together]))
    tails, rank_tails = shown.rows(numbers, _ORDER), shown.rows(by_rank, _RANK_ORDER)
    del tails["key"], rank_tails["key"]
    return {
        "tails": shown.with_rest(tails, numbers),
        "rank_tails": rank_tails,
        "tail_ranks": tail_rank_columns(by_rank, parts),
        "outliers": outlier_columns(listed, medians, ranks, options),
        "outlier_clusters": cluster_rows(bursts, outliers, medians, ranks, options),
    }
