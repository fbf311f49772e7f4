"""The table of durations over time: the worst configurations, where they are worst."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.report.columns import Columns, nullable, taken

from ..per_rank.kernels import RankTails
from ..per_rank.times import part_edges
from .kernels import Medians, RankParts

#: Configurations that are shown; a chart shows one of them at a time.
WORST_OVER_TIME: Final = 6
#: Devices of each configuration, a color for each.
_MOST_DEVICES: Final = 12

_PLACE: Final = ["worst", "rank", "device_id"]
_DEVICES: Final = ("rank", "device_id", "excess_ns")


def time_columns(
    medians: Medians,
    parts: RankParts,
    worst: Sequence[int],
    tables: tuple[Columns, Columns],
    offsets_ns: Sequence[int | None],
) -> Columns:
    """Return the table tail_times: one row a configuration, device and part of the time.

    Args:
        medians: Over all ranks.
        worst: Positions of keys, worst first.
        tables: tails, worst first; and rank_tails, which says where a configuration is worst.
        offsets_ns: For each rank, what to add to its clock; None: not known.
    """
    tails, rank_tails = tables
    place = np.full(len(medians.keys), -1, dtype=np.int64)
    place[list(worst)] = np.arange(len(worst))
    sent = [
        pd.DataFrame(_shown(kernel_tails, place[medians.codes(kernel_tails.keys)])).assign(
            owner=index, rank=rank.number
        )
        for index, (rank, kernel_tails) in enumerate(parts)
    ]
    rows = _worst_devices(tails, rank_tails, len(worst))
    if sent:
        rows = rows.merge(pd.concat(sent, ignore_index=True), on=_PLACE, how="inner")
    rows = rows.reindex(columns=_ROWS, fill_value=0).astype(np.int64)
    rows = rows.sort_values([*_PLACE, "start_ns"], kind="stable", ignore_index=True)
    owner, index = rows["owner"].to_numpy(), rows["worst"].tolist()
    return {
        **{name: [tails[name][item] for item in index] for name in ("label", "communication")},
        "rank": rows["rank"],
        "file": [parts[value][0].file for value in owner.tolist()],
        **{name: rows[name] for name in ("device_id", "start_ns", "end_ns")},
        "aligned_start_ns": nullable(aligned_ns(rows["start_ns"].to_numpy(), owner, offsets_ns)),
        **{name: rows[name] for name in ("launches_n", "min_ns")},
        "p50_ns": rows["twice_p50_ns"].to_numpy() / 2,
        "max_ns": rows["max_ns"],
    }


_COUNTED: Final = ("launches_n", "min_ns", "twice_p50_ns", "max_ns")
_ROWS: Final = [*_PLACE, "owner", "start_ns", "end_ns", *_COUNTED]


def aligned_ns(start_ns: IntArray, owner: IntArray, offsets_ns: Sequence[int | None]) -> IntArray:
    """Return instants in the clock of the first capture; NULL_INT where no clock is known.

    Args:
        start_ns: Shape (n,), in the clock of each one's rank.
        owner: Shape (n,), position of that rank.
        offsets_ns: For each rank, what to add to its clock; None: not known.
    """
    offset = np.array([NULL_INT if item is None else item for item in offsets_ns], dtype=np.int64)
    offset = offset[owner] if offset.size else owner
    return np.where(offset == NULL_INT, NULL_INT, start_ns + offset)


def _shown(kernel_tails: RankTails, place: IntArray) -> dict[str, IntArray]:
    """Return what a rank sent of the worst configurations.

    Args:
        place: For each of its keys, the position among the worst, or -1.
    """
    worst = place[kernel_tails.key][kernel_tails.parts.row]
    rows = np.flatnonzero(worst >= 0)
    sent = kernel_tails.parts.take(rows)
    device_id = kernel_tails.device_id[sent["row"]]
    start_ns, end_ns = np.zeros_like(rows), np.zeros_like(rows)
    for span in kernel_tails.devices:
        selected = np.flatnonzero(device_id == span.device_id)
        edges = part_edges(span.ends_ns)
        start_ns[selected], end_ns[selected] = (
            edges[sent["part"][selected]],
            edges[sent["part"][selected] + 1],
        )
    times = {"worst": worst[rows], "device_id": device_id, "start_ns": start_ns, "end_ns": end_ns}
    return {**times, **{name: sent[name] for name in _COUNTED}}


def _worst_devices(tails: Columns, rank_tails: Columns, worst_n: int) -> pd.DataFrame:
    """Return the devices that are shown of each of the worst configurations."""
    named = ["label", "communication"]
    worst = pd.DataFrame({name: tails[name][:worst_n] for name in named})
    worst["worst"] = np.arange(worst_n)
    labels = set(worst["label"])
    rows = np.flatnonzero([label in labels for label in rank_tails["label"]])
    shown = taken({name: rank_tails[name] for name in (*named, *_DEVICES)}, rows)
    devices = pd.DataFrame(shown).merge(worst, on=named)
    devices = devices.sort_values(
        ["worst", "excess_ns", "rank", "device_id"], ascending=[True, False, True, True]
    )
    return devices.groupby("worst", sort=False).head(_MOST_DEVICES)[_PLACE]
