"""Tables of kernels: tails over all ranks and by rank, the sums of ranks, the worst in bins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from nsys_llm.analyses.device.places import device_places
from nsys_llm.analyses.steps.of_job import common_step
from nsys_llm.numeric.distributions import Moments, OrderStatistics, ValueCounts
from nsys_llm.numeric.grouping import joined, summed
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.tails import (
    Beyond,
    beyond_medians,
    medians_of_others,
    ratio,
    second_modes,
    twice_medians,
)
from nsys_llm.numeric.time_bins import log_edges
from nsys_llm.report.columns import (
    Columns,
    distribution_columns,
    nullable,
    percent,
    rank_columns,
    sorted_columns,
    taken,
)
from nsys_llm.trace.identity import Rank

from ..per_rank.kernels import KernelTails, RankTails
from ..per_rank.launches import CONFIG, CONFIG_AT, Key, config_text, key_codes
from .distributions import ratio_columns, tail_columns

#: Launches of a configuration from which its median says anything about its kernel's shapes; ours.
_LEAST_LAUNCHES: Final = 5
#: Ratio of medians between two configurations that makes the kernel a mix; ours.
SHAPE_RATIO: Final = 2.0

RankParts = Sequence[tuple[Rank, RankTails]]


class Medians:
    """Each key over all ranks.

    Attributes:
        keys: See `per_rank.launches`.
        order: Around their percentiles.
        twice: Twice the median of each.
        modes: Which have a second mode, see `nsys_llm.numeric.tails.second_modes`.
        communication: Which move data between GPUs.
        configs: Name and configuration, in columns and as texts.
    """

    def __init__(self, kernels: KernelTails) -> None:
        self.keys = kernels.keys
        self.moments = kernels.counts.moments(len(kernels.keys))
        self.order = kernels.counts.order_statistics(len(kernels.keys))
        self.twice = twice_medians(self.order)
        self.modes = second_modes(kernels.counts, self.twice, len(kernels.keys))
        self.configs = _config_columns(kernels.keys)
        self.communication: npt.NDArray[np.bool_] = self.configs["communication"]
        self._place = {key: index for index, key in enumerate(kernels.keys)}

    def codes(self, keys: Sequence[Key]) -> IntArray:
        """Return the position of each key."""
        if keys == self.keys:  # compares by identity first, which takes no time
            return np.arange(len(keys))
        return key_codes(keys, self._place)


def tails_columns(kernels: KernelTails, medians: Medians, parts: RankParts) -> Columns:
    """Return the table tails: one row a kernel and configuration, most excess first."""
    keys_n = len(kernels.keys)
    codes = [medians.codes(tails.keys)[tails.key] for _, tails in parts]
    total_ns = summed(joined(codes), joined([tails.total_ns for _, tails in parts]), keys_n)
    beyond = beyond_medians(kernels.counts, medians.twice, keys_n)
    rich = tail_columns(medians.moments, medians.order, total_ns, int(total_ns.sum()), beyond)
    launched = [
        np.unique(code[tails.moments.n > 0]) for code, (_, tails) in zip(codes, parts, strict=True)
    ]
    columns = {
        **medians.configs,
        "ranks_n": np.bincount(joined(launched), minlength=keys_n).astype(np.int64),
        **rich,
        "second_mode": medians.modes,
        **_pooled_columns(kernels, medians),
    }
    return sorted_columns(columns, "-excess_ns", "-total_ns", "name", "config")


def rank_tail_columns(medians: Medians, parts: RankParts) -> Columns:
    """Return the table rank_tails: one row a kernel and configuration on a device of a rank."""
    rows_n = [len(tails.key) for _, tails in parts]
    code = joined([medians.codes(tails.keys)[tails.key] for _, tails in parts])
    group = code + len(medians.keys) * _places(medians, parts)
    rank_ns = [int(tails.total_ns.sum()) for _, tails in parts]
    rich = tail_columns(
        Moments.joined([tails.moments for _, tails in parts]),
        OrderStatistics.joined([tails.order for _, tails in parts]),
        joined([tails.total_ns for _, tails in parts]),
        np.repeat(np.array(rank_ns, dtype=np.int64), rows_n),
        Beyond.joined([_beyond(tails, medians) for _, tails in parts]),
    )
    everywhere = np.where(medians.moments.n[code] > 0, medians.twice[code] / 2, np.nan)
    columns = {
        **rank_columns([(rank, n) for (rank, _), n in zip(parts, rows_n, strict=True)]),
        "device_id": joined([tails.device_id for _, tails in parts]),
        **taken(medians.configs, code),
        **rich,
        "all_p50_ns": everywhere,
        "p50_all_p50": ratio(np.asarray(rich["p50_ns"], dtype=np.float64), everywhere),
        "others_p50_ns": medians_of_others(group, np.asarray(rich["p50_ns"], dtype=np.float64)),
        "first_start_ns": nullable(joined([tails.first_start_ns for _, tails in parts])),
        "first_ns": nullable(joined([tails.first_ns for _, tails in parts])),
        "longest_start_ns": nullable(joined([tails.longest_start_ns for _, tails in parts])),
    }
    return sorted_columns(columns, "rank", "-excess_ns", "-total_ns", "device_id", "name", "config")


def _places(medians: Medians, parts: RankParts) -> IntArray:
    """Return for each row of rank_tails the place of its device, see `device_places`."""
    devices = [
        (
            index,
            span.device_id,
            int(tails.total_ns[compute & (tails.device_id == span.device_id)].sum()),
        )
        for index, (_, tails) in enumerate(parts)
        for compute in [~medians.communication[medians.codes(tails.keys)[tails.key]]]
        for span in tails.devices
    ]
    place = device_places(*np.array(devices, dtype=np.int64).reshape(-1, 3).T)
    place_of = {device[:2]: of for device, of in zip(devices, place.tolist(), strict=True)}
    return _ints(
        [
            place_of[index, device_id]
            for index, (_, tails) in enumerate(parts)
            for device_id in tails.device_id.tolist()
        ]
    )


def _step_columns(parts: RankParts) -> Columns:
    """Return what the job calls a step, by device of each rank; null where its rank does not."""
    job = common_step({rank.key: tails.step for rank, tails in parts})
    rows: list[tuple[Any, ...]] = []
    for rank, tails in parts:
        for span in tails.devices:
            device = tails.steps.get(span.device_id)
            if job is None or rank.key in job.others or device is None:
                rows.append((None,) * 4)
                continue
            times_ns, worst_ns = device.whole_ns, device.worst_ns
            # Where steps hold less than half of the time, they say little of it.
            known = worst_ns is not None and 2 * times_ns.sum() >= span.window_ns
            mean_ns = int(times_ns.sum()) / times_ns.size if known else None
            rows.append((job.unit, mean_ns, *worst_ns) if worst_ns and known else (None,) * 4)
    unit, step_ns, start_ns, end_ns = zip(*rows, strict=True) if rows else ((),) * 4
    return {
        "step_unit": list(unit),
        "step_ns": pd.array(list(step_ns), dtype="Float64"),
        "worst_step_start_ns": pd.array(list(start_ns), dtype="Int64"),
        "worst_step_end_ns": pd.array(list(end_ns), dtype="Int64"),
    }


def tail_rank_columns(rank_tails: Columns, parts: RankParts) -> Columns:
    """Return the table tail_ranks: the sums of each device of each rank.

    Communication apart: a rank that is slow makes the others wait in it.
    """
    spans = [(rank, tails, span) for rank, tails in parts for span in tails.devices]
    places = [(rank.number, span.device_id) for rank, _, span in spans]
    frame = pd.DataFrame({name: rank_tails[name] for name in _SUMMED})
    compute = _sums(frame[~frame["communication"]], places)
    communication = _sums(frame[frame["communication"]], places)
    whole = {name: compute[name].to_numpy(np.int64) for name in _SUMS}
    return {
        "rank": [rank.number for rank, _, _ in spans],
        "file": [rank.file for rank, _, _ in spans],
        "device_id": [span.device_id for _, _, span in spans],
        "window_start_ns": nullable(_ints([span.window_start_ns for _, _, span in spans])),
        "window_end_ns": nullable(_ints([span.window_end_ns for _, _, span in spans])),
        "window_ns": [span.window_ns for _, _, span in spans],
        "steps_n": [tails.step and tails.step.steps_n for _, tails, _ in spans],
        **_step_columns(parts),
        "launches_n": whole["launches_n"],
        "launches_pct": percent(whole["launches_n"], int(whole["launches_n"].sum())),
        "total_ns": whole["total_ns"],
        "outliers_n": whole["outliers_n"],
        "outliers_pct": percent(whole["outliers_n"], int(whole["outliers_n"].sum())),
        "outlier_excess_ns": whole["outlier_excess_ns"],
        "excess_ns": whole["excess_ns"],
        "excess_pct": percent(whole["excess_ns"], int(whole["excess_ns"].sum())),
        "p50_others_p50": ratio(
            compute["weight"].to_numpy(np.float64), compute["weighed_ns"].to_numpy(np.float64)
        ),
        **{f"communication_{name}": communication[name].to_numpy(np.int64) for name in _SUMS},
    }


_SUMS: Final = ("launches_n", "total_ns", "outliers_n", "outlier_excess_ns", "excess_ns")
_SUMMED: Final = ("rank", "device_id", "communication", "others_p50_ns", "p50_ns", *_SUMS)


def _sums(rows: pd.DataFrame, places: Sequence[tuple[Any, int]]) -> pd.DataFrame:
    """Return sums of rows of rank_tails by rank and device, and what weighs their medians."""
    usual = rows["others_p50_ns"].astype("float64")
    shift = rows["p50_ns"].astype("float64") / usual.where(usual > 0)
    weighed = rows.assign(
        weight=(shift * rows["total_ns"]).fillna(0.0),
        weighed_ns=rows["total_ns"].where(shift.notna(), 0),
    )
    sums = weighed.groupby(["rank", "device_id"])[[*_SUMS, "weight", "weighed_ns"]].sum()
    index = pd.MultiIndex.from_tuples(places, names=["rank", "device_id"])
    return sums.reindex(index, fill_value=0)


def duration_columns(kernels: KernelTails, worst: Sequence[int], labels: Sequence[str]) -> Columns:
    """Return how the durations of the worst configurations are spread, in bins of a log axis.

    Args:
        worst: Positions of keys, worst first.
    """
    place = np.full(len(kernels.keys), -1, dtype=np.int64)
    place[list(worst)] = np.arange(len(worst))
    shown = place[kernels.counts.group]
    kept = shown >= 0
    value, count = kernels.counts.value[kept], kernels.counts.count[kept]
    edges = log_edges(int(value.max(initial=0)))
    bin_of = np.searchsorted(edges, value, side="right") - 1
    binned = ValueCounts.merge([ValueCounts(shown[kept], bin_of, count)])
    total = binned.moments(len(worst)).n
    up_to_n = np.cumsum(binned.count) - (np.cumsum(total) - total)[binned.group]
    return {
        "label": [labels[index] for index in binned.group],
        "low_ns": edges[binned.value],
        "high_ns": edges[binned.value + 1],
        "launches_n": binned.count,
        "up_to_pct": percent(up_to_n, total[binned.group]),
    }


def _config_columns(keys: Sequence[Key]) -> Columns:
    texts = [config_text(key) for key in keys]
    labels = [f"{key[0]} [{text}]" for key, text in zip(keys, texts, strict=True)]
    return {
        # Not lists: their rows are taken one by one.
        "name": np.array([key[0] for key in keys], dtype=object),
        "config": np.array(texts, dtype=object),
        "label": np.array(labels, dtype=object),
        "communication": np.array([bool(key[1]) for key in keys], dtype=bool),
        "graph_node": np.array([bool(key[2]) for key in keys], dtype=bool),
        "phase": np.array([key[3] or None for key in keys], dtype=object),
        **{
            name: nullable(_ints([key[i] for key in keys]))
            for i, name in enumerate(CONFIG, CONFIG_AT)
        },
    }


def _ints(values: Sequence[int]) -> IntArray:
    return np.array(values, dtype=np.int64)


def _beyond(tails: RankTails, medians: Medians) -> Beyond:
    """Return what each row of a rank has beyond the medians over all ranks."""
    twice = medians.twice[medians.codes(tails.keys)][tails.key]
    return beyond_medians(tails.counts.widened(), twice, len(tails.key))


def _pooled_columns(kernels: KernelTails, medians: Medians) -> Columns:
    """Return what pooling all configurations of a kernel would say, and whether they differ."""
    names = pd.Series([key[0] for key in kernels.keys], dtype=object)
    kernel, _ = pd.factorize(names)
    kernels_n = int(kernel.max(initial=-1)) + 1
    pooled = kernels.counts.regrouped(kernel.astype(np.int64))
    rich = distribution_columns(pooled.moments(kernels_n), pooled.order_statistics(kernels_n))
    ratios = ratio_columns(rich)
    return {
        "configs_n": np.bincount(kernel, minlength=kernels_n)[kernel].astype(np.int64),
        "pooled_p50_ns": rich["p50_ns"][kernel],
        "pooled_p99_p50": ratios["p99_p50"][kernel],
        "pooled_max_p50": ratios["max_p50"][kernel],
        "shape_mix": _mixed(kernel, medians)[kernel] if kernels_n else np.empty(0, dtype=bool),
    }


def _mixed(kernel: IntArray, medians: Medians) -> npt.NDArray[np.bool_]:
    """Return which kernels have configurations whose medians lie `SHAPE_RATIO` or more apart."""
    reported = medians.moments.n >= _LEAST_LAUNCHES
    halves = pd.Series(medians.twice[reported]).groupby(kernel[reported])
    ends = pd.DataFrame({"low": halves.min(), "high": halves.max()})
    ends = ends.reindex(np.arange(int(kernel.max()) + 1), fill_value=0)
    apart = ends["high"].to_numpy() >= SHAPE_RATIO * ends["low"].to_numpy()
    return np.asarray(apart & (ends["low"].to_numpy() > 0))


def worst_keys(medians: Medians, tails: Mapping[str, Any], most: int) -> list[int]:
    """Return the positions of the keys with the most excess, as the table tails orders them."""
    columns = ("name", "config", "communication")
    wanted = list(zip(*(tails[column][:most] for column in columns), strict=True))
    every = zip(*(medians.configs[column] for column in columns), strict=True)
    names = {key[0] for key in wanted}
    place = {key: index for index, key in enumerate(every) if key[0] in names}
    return [place[key] for key in wanted]
