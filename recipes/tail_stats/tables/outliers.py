"""The table of outliers: single launches far beyond the median of their configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.tails.instances import Instances
from nsys_llm.numeric.grouping import positions
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.numeric.tails import is_outlier, ratio
from nsys_llm.report.columns import Columns, nullable, percent
from nsys_llm.report.ncu import ncu_commands
from nsys_llm.taxonomy.cuda_codes import MIGRATION
from nsys_llm.trace.identity import Rank, clock_offsets
from nsys_llm.trace.kernel_launches import NcuLaunches

from .medians import Medians

#: What a launch did beside page migrations, whose copies are a part of the time that faults take.
PAGES: Final = "waited for pages of unified memory"
_MIGRATES: Final = f"memcpy {MIGRATION}"
_PAGES_PCT: Final = 25.0
#: Where in the life of its kernel a launch stands.
STATES: Final = ("first", "warm-up", "steady")
#: So many launches of a configuration on a device are its warm-up, where no steps are known.
_WARMUP_LAUNCHES: Final = 2
#: Part of an outlier's time that something else has to run beside it to be named as its cause.
_BESIDE_PCT: Final = 50.0


def outlying(instances: Instances, medians: Medians) -> Instances:
    """Return the instances longer than twice their median, most time beyond it first.

    After them come those that are another kind of work (a second mode), which would crowd them out
    of a list, and then communication: it is long because it waits, which other tables tell of. Of
    equals the longer first, then by rank, name and configuration, and time.
    """
    numbers = instances.numbers
    twice = medians.twice[numbers["key"]]
    rows = np.flatnonzero(is_outlier(numbers["duration_ns"], twice))
    beyond = 2 * numbers["duration_ns"][rows] - twice[rows]
    ties = [numbers[name][rows] for name in ("owner", "key")]
    key = numbers["key"][rows]
    last = np.where(medians.communication[key], 2, medians.modes[key])
    order = np.lexsort((rows, *ties[::-1], -numbers["duration_ns"][rows], -beyond, last))
    return instances.take(rows[order])


def outlier_columns(
    instances: Instances, medians: Medians, ranks: Sequence[Rank], options: Mapping[str, Any]
) -> Columns:
    """Return the columns of the table outliers."""
    numbers = instances.numbers
    owner = owners(instances, ranks)
    twice = medians.twice[numbers["key"]]
    beyond = 2 * numbers["duration_ns"] - twice
    offset_ns = np.array(offsets_ns(ranks, options), dtype=np.int64)[owner]
    aligned = np.where(offset_ns == NULL_INT, NULL_INT, numbers["start_ns"] + offset_ns)
    states = states_of(instances)
    columns = {
        "rank": [ranks[value].number for value in owner.tolist()],
        "file": [ranks[value].file for value in owner.tolist()],
        "device_id": numbers["device_id"],
        "stream_id": nullable(numbers["stream_id"]),
        "start_ns": numbers["start_ns"],
        "end_ns": numbers["start_ns"] + numbers["duration_ns"],
        "aligned_start_ns": nullable(aligned),
        **medians.configs(numbers["key"]),
        "duration_ns": numbers["duration_ns"],
        "p50_ns": twice / 2,
        "duration_p50": ratio(numbers["duration_ns"].astype(np.float64), twice / 2),
        "excess_ns": beyond // 2,
        "launch": numbers["launch"],
        "config_launch": numbers["config_launch"],
        "state": states,
        "range": instances.texts["range"],
        **{f"{name}_beside_ns": numbers[f"{name}_ns"] for name in _BESIDE},
        "beside": instances.texts["beside"],
        "beside_pct": percent(numbers["beside_ns"], numbers["duration_ns"]),
    }
    launches = NcuLaunches(
        instances.texts["function"], numbers["ncu_skip_n"], np.asarray(columns["graph_node"])
    )
    columns["ncu"] = ncu_commands(launches, columns["rank"])
    return {**columns, "likely_cause": _causes(columns, medians.modes[numbers["key"]])}


def states_of(instances: Instances) -> npt.NDArray[Any]:
    """Return which of `STATES` each launch is in."""
    numbers = instances.numbers
    warm = np.where(
        numbers["before_first_step_end"] == NULL_INT,
        numbers["config_launch"] < _WARMUP_LAUNCHES,
        numbers["before_first_step_end"] == 1,
    )
    code = np.where(numbers["launch"] == 0, 0, np.where(warm, 1, 2))
    return np.array(STATES, dtype=object)[code]


def offsets_ns(ranks: Sequence[Rank], options: Mapping[str, Any]) -> list[int]:
    """Return how much later than the first the capture of each rank began; NULL_INT: not known."""
    if options["disable_alignment"] or len({rank.key.path for rank in ranks}) == 1:
        return [0] * len(ranks)
    facts = {rank.key.path: rank.facts for rank in ranks if rank.facts is not None}
    offsets, _ = clock_offsets(facts)
    return [offsets.get(rank.key.path, NULL_INT) for rank in ranks]


#: What may run beside a launch, in the order of preference among equals, and how it is told.
_BESIDE: Final = {
    "kernels": "other kernels",
    "communication": "communication",
    "copies": "copies",
}


def owners(instances: Instances, ranks: Sequence[Rank]) -> IntArray:
    """Return for each launch the position of its rank among the numbered ones."""
    place = positions(instances.ranks, (rank.key for rank in ranks))
    return place[instances.numbers["owner"]]


def _causes(columns: Columns, mode: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """Return what the trace shows about each launch, in words; not a proof."""
    shares = np.nan_to_num(
        [percent(columns[f"{name}_beside_ns"], columns["duration_ns"]) for name in _BESIDE]
    )
    most = shares.argmax(axis=0)
    migrates = [(text or "").startswith(_MIGRATES) for text in columns["beside"]]
    causes = {
        "waits for other ranks": columns["communication"],
        "another kind of work": mode,
        "first launch": columns["state"] == "first",
        PAGES: np.array(migrates, dtype=bool) & (shares[-1] >= _PAGES_PCT),  # copies
        **{
            f"shared the device with {words}": (most == at) & (shares[at] >= _BESIDE_PCT)
            for at, words in enumerate(_BESIDE.values())
        },
        "warm-up": columns["state"] == "warm-up",
    }
    return np.select(list(causes.values()), list(causes), "ran alone").astype(object)
