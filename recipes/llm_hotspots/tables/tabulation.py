"""Makes the tables of llm_hotspots of all ranks, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsys_llm.facts.operations.exposed import ExposedOperation
from nsys_llm.facts.operations.fusions import FusionRow
from nsys_llm.facts.operations.kernels import KernelRows, SourceRows
from nsys_llm.facts.operations.overheads import OverheadRow
from nsys_llm.facts.operations.rank import DeviceTimes, OperationFacts, RankRows
from nsys_llm.numeric.distributions import Moments
from nsys_llm.numeric.grouping import joined
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.stacking import stacked
from nsys_llm.reduced.job import Job
from nsys_llm.report.columns import (
    Columns,
    percent,
    rank_columns,
    record_columns,
    sorted_columns,
    spread_columns,
)
from nsys_llm.report.ncu import ncu_commands
from nsys_llm.report.outputs import Cells
from nsys_llm.taxonomy.categories import Classification, rules_for
from nsys_llm.taxonomy.kernel_levers import fused_already
from nsys_llm.trace.kernel_launches import NcuLaunches

from .bandwidth import bandwidth_columns
from .categories import category_tables, class_columns
from .extras import extra_tables
from .host_calls import api_tables, kernel_launch_columns, launch_columns
from .memops import memop_columns, overlap_columns

_Names = npt.NDArray[Any]
_OF_RANK: Final = ("launches_n", "mean_ns", "min_ns", "p50_ns", "p99_ns", "max_ns")
_OF_KERNEL: Final = (*_OF_RANK, "q1_ns", "q3_ns")


def tabulate(job: Job) -> dict[str, Cells]:
    """Return the recipe's tables by name."""
    facts, options = job.facts.operations, job.options
    rows = [(rank, facts.ranks[rank.key]) for rank in job.ranks]
    sources = _sources(rows)
    full_names = sources["full_name"].unique().tolist()
    rules = rules_for(job.kernel_names, options["engine"])
    known = {name: rules.classify(name) for name in full_names}
    sources["category"] = [known[name].category for name in sources["full_name"]]
    names_of = sources[["name", "full_name"]].drop_duplicates()
    shown = rules.shown_classes(names_of.itertuples(index=False, name=None))
    devices = record_columns(
        [(rank, device) for rank, part in rows for device in part.devices],
        *DeviceTimes.__dataclass_fields__,
    )
    names, everywhere = _over_all_ranks(facts, sources)
    kernels = _kernels(names, everywhere, sources, shown, devices)
    fused = fused_already(job.kernel_names)
    top = pd.Series(kernels["name"]).head(options["top"]).tolist()
    return {
        "rank_stats": _rank_stats(rows),
        "all_stats": _all_stats(names, everywhere, rows),
        "kernels": kernels,
        "rank_kernels": _rank_kernels(rows, shown, devices),
        "devices": devices,
        **category_tables(sources, known, rules.engine),
        "memops": memop_columns(rows),
        "overheads": record_columns(
            [(rank, item) for rank, part in rows for item in part.overheads],
            *OverheadRow.__dataclass_fields__,
        ),
        "overlap": overlap_columns(rows),
        "exposed_communication": record_columns(
            [(rank, item) for rank, part in rows for item in part.exposed],
            *ExposedOperation.__dataclass_fields__,
        ),
        "fusions": record_columns(
            [
                (rank, item)
                for rank, part in rows
                for item in part.fusions
                if item.fusion not in fused
            ],
            *FusionRow.__dataclass_fields__,
        ),
        "bandwidth": bandwidth_columns(
            options["weights"] or (),
            facts.kernels,
            [part.memops for _, part in rows],
        ),
        **api_tables(rows, facts.api_durations),
        "launches": launch_columns(rows, devices),
        "kernel_launches": kernel_launch_columns(rows),
        **extra_tables(rows, shown, top, options),
    }


def _sources(rows: RankRows) -> pd.DataFrame:
    """Return one row a rank, shown name and full name; integers exact."""
    sources = stacked(SourceRows, [part.sources for _, part in rows])
    per_rank = rank_columns([(rank, len(part.sources.name)) for rank, part in rows])
    return pd.DataFrame({**per_rank, **vars(sources)})


def _rank_stats(rows: RankRows) -> Columns:
    """Return NVIDIA's columns a rank, over its devices; shares are those of the rank."""
    stats = stacked(KernelRows, [part.stats for _, part in rows])
    per_rank = rank_columns([(rank, len(part.stats.name)) for rank, part in rows])
    rank_ns = [np.full(len(part.stats.name), part.stats.total_ns.sum()) for _, part in rows]
    whole_ns = joined(rank_ns)
    columns = {
        **_nvidia_columns(_shown_names(rows, "stats"), stats, whole_ns),
        "File": per_rank["file"],
        "Rank": per_rank["rank"],
    }
    return sorted_columns(columns, "Rank", "-Total Time", "Name")


def _all_stats(names: _Names, everywhere: KernelRows, rows: RankRows) -> Columns:
    columns = _nvidia_columns(names, everywhere, everywhere.total_ns.sum())
    shortest, longest = _extreme_files(rows, names, everywhere.spread.moments)
    columns |= {"Min File": shortest, "Max File": longest}
    return sorted_columns(columns, "-Total Time", "Name")


def _kernels(
    names: _Names,
    everywhere: KernelRows,
    sources: pd.DataFrame,
    shown: Mapping[str, Classification],
    devices: Columns,
) -> Columns:
    launched = sources[sources["launches_n"] > 0]
    ranks_n = launched.groupby("name")["rank"].nunique().reindex(names, fill_value=0)
    columns = {
        "name": names,
        **class_columns([shown[name] for name in names]),
        "ranks_n": ranks_n.to_numpy(np.int64),
        **_statistics(
            everywhere,
            _OF_KERNEL,
            kernel_total_ns=sum(devices["kernel_total_ns"]),
            kernel_busy_ns=sum(devices["kernel_busy_ns"]),
        ),
    }
    return sorted_columns(columns, "-exclusive_ns", "name")


def _rank_kernels(rows: RankRows, shown: Mapping[str, Classification], devices: Columns) -> Columns:
    kernels = stacked(KernelRows, [part.kernels for _, part in rows])
    per_rank = rank_columns([(rank, len(part.kernels.name)) for rank, part in rows])
    names = _shown_names(rows, "kernels")
    typical = stacked(NcuLaunches, [part.typical for _, part in rows])
    device_index = pd.MultiIndex.from_arrays([devices["rank"], devices["device_id"]])
    row = device_index.get_indexer(pd.MultiIndex.from_arrays([per_rank["rank"], kernels.device_id]))
    rank_ns = pd.DataFrame(devices).groupby("rank")["kernel_total_ns"].sum()
    columns = {
        **per_rank,
        "device_id": kernels.device_id,
        "name": names,
        "category": [shown[name].category for name in names],
        **_statistics(
            kernels,
            _OF_RANK,
            kernel_total_ns=rank_ns.reindex(per_rank["rank"]).to_numpy(np.int64),
            kernel_busy_ns=np.array(devices["kernel_busy_ns"], dtype=np.int64)[row],
        ),
        "ncu": ncu_commands(typical, per_rank["rank"]),
    }
    return sorted_columns(columns, "rank", "-exclusive_ns", "device_id", "name")


def _over_all_ranks(facts: OperationFacts, sources: pd.DataFrame) -> tuple[_Names, KernelRows]:
    """Return the shown names, sorted, and their statistics over all launches of all ranks."""
    names = np.array(facts.kernels.keys, dtype=object)
    sums = sources.groupby("name")[["total_ns", "exclusive_ns"]].sum().reindex(names)
    codes = np.arange(len(names))
    return names, KernelRows(
        device_id=codes * 0,
        name=codes,
        total_ns=sums["total_ns"].to_numpy(np.int64),
        exclusive_ns=sums["exclusive_ns"].to_numpy(np.int64),
        spread=facts.kernels.counts.spread(len(names)),
    )


def _statistics(
    kernels: KernelRows,
    names: Sequence[str],
    *,
    kernel_total_ns: IntArray | int,
    kernel_busy_ns: IntArray | int,
) -> Columns:
    return {
        **spread_columns(kernels.spread, names),
        "total_ns": kernels.total_ns,
        "exclusive_ns": kernels.exclusive_ns,
        "total_pct": percent(kernels.total_ns, kernel_total_ns),
        "busy_pct": percent(kernels.exclusive_ns, kernel_busy_ns),
    }


def _nvidia_columns(names: _Names, kernels: KernelRows, whole_ns: IntArray | int) -> Columns:
    rich = spread_columns(kernels.spread)
    return {
        "Name": names,
        "Time": percent(kernels.total_ns, whole_ns, empty=0.0),
        "Total Time": kernels.total_ns,
        "Instances": rich["launches_n"],
        "Avg": rich["mean_ns"],
        "Q1": rich["q1_ns"],
        "Med": rich["p50_ns"],
        "Q3": rich["q3_ns"],
        "Min": rich["min_ns"],
        "Max": rich["max_ns"],
        "StdDev": rich["std_ns"],
    }


def _extreme_files(
    rows: RankRows, names: _Names, moments: Moments
) -> tuple[list[str | None], list[str | None]]:
    """Return for each name the ranks that have its shortest and its longest launch."""
    shortest: list[list[str]] = [[] for _ in names]
    longest: list[list[str]] = [[] for _ in names]
    position = {name: index for index, name in enumerate(names)}
    for rank, part in rows:
        selected = part.stats.spread.moments
        code = np.array([position[name] for name in part.names], dtype=np.int64)[part.stats.name]
        for files, extreme in (
            (shortest, selected.minimum == moments.minimum[code]),
            (longest, selected.maximum == moments.maximum[code]),
        ):
            for index in code[(selected.n > 0) & extreme]:
                files[index].append(rank.file)
    return [", ".join(item) or None for item in shortest], [
        ", ".join(item) or None for item in longest
    ]


def _shown_names(rows: RankRows, attribute: str) -> _Names:
    names = [np.array(part.names, dtype=object)[getattr(part, attribute).name] for _, part in rows]
    return joined(names).astype(object)
