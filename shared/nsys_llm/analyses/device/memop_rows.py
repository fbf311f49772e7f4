"""Copies and fills of one rank as rows of one table. Pure numpy."""

from __future__ import annotations

from typing import Final

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.memory_kinds import fill_codes, move_codes
from nsys_llm.trace.rank_trace import RankTrace

#: No copy is as large; a thousand such sizes still fit into a sum.
LARGEST_SIZE_BYTES: Final = 1 << 53


def memop_table(trace: RankTrace) -> Table:
    """Return copies, then fills, as one table, with their packed `kind`.

    `same_device` is 1 where the export says that a copy stays on its device.
    """
    copies, fills = trace.tables["memcpys"], trace.tables["memsets"]
    source, target = copies["source_device_id"], copies["target_device_id"]
    memory = copies["source_memory_kind"], copies["target_memory_kind"]
    kinds = move_codes(copies["copy_kind"], *memory), fill_codes(fills["memory_kind"])
    same = (source != NULL_INT) & (source == target)
    shared = ("start_ns", "end_ns", "device_id", "size_bytes", "launch_row")
    return Table(
        {
            **{name: np.concatenate((copies[name], fills[name])) for name in shared},
            "kind": np.concatenate(kinds),
            "same_device": np.concatenate((same, np.zeros(len(fills), dtype=bool))).astype(
                np.int64
            ),
        }
    )
