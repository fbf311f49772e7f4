"""What a profile holds of one rank, counted before any filter, and what of it can be attributed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.grouping import distinct
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.profile.tables import Table
from nsys_llm.trace.attribution import early_starts, launched_before, uncalled
from nsys_llm.trace.graph_nodes import is_graph_node
from nsys_llm.trace.rank_trace import OP_TABLES, RankTrace

_NAME_COLUMNS: Final = ("demangled_name_id", "short_name_id", "mangled_name_id")
_MAY_LACK: Final = ("mangled_name_id",)


@dataclass(frozen=True)
class CoverageRow:
    """What a profile holds of one kind of operation for one rank. See manifests/common.json."""

    op: str
    table_present: bool
    total_n: int
    total_ns: int
    uncalled_n: int
    uncalled_ns: int
    api_missing_n: int
    api_missing_ns: int
    api_cut_n: int
    api_cut_ns: int
    range_missing_n: int | None
    range_missing_ns: int | None
    attributed_n: int
    attributed_ns: int
    selected_n: int
    selected_ns: int
    broken_n: int
    zero_length_n: int
    no_process_n: int
    unknown_name_n: int
    graph_node_n: int
    replaced_n: int
    duplicate_key_n: int
    early_start_n: int
    early_start_p99_ns: int
    early_start_max_ns: int

    def without_ranges(self, missing_n: int, missing_ns: int) -> CoverageRow:
        """Return the row of a recipe that looks at ranges: what lies in none is not attributed."""
        return replace(
            self,
            range_missing_n=missing_n,
            range_missing_ns=missing_ns,
            attributed_n=self.attributed_n - missing_n,
            attributed_ns=self.attributed_ns - missing_ns,
        )


def count_coverage(
    name: str,
    raw: Table,
    op: Table,
    broken_n: int,
    rank_trace: RankTrace,
    table_present: bool,
    duplicates: IntArray,
) -> CoverageRow:
    """Count one kind of operation of one rank.

    Args:
        raw: All rows of the rank; what is not in `op` and not broken was replaced by other rows.
    """
    duration_ns = op["end_ns"] - op["start_ns"]
    total_ns = int(duration_ns.sum())
    orphan = op["launch_row"] < 0
    free = orphan & uncalled(op["correlation_id"])
    free_n, free_ns = int(np.count_nonzero(free)), int(duration_ns[free].sum())
    orphan &= ~free
    missing_n, missing_ns = int(np.count_nonzero(orphan)), int(duration_ns[orphan].sum())
    calls, selected = rank_trace.tables.get("api_calls"), rank_trace.tables[name]
    cut = launched_before(op["start_ns"], op["correlation_id"], op["launch_row"], calls)
    starts = early_starts(op, calls)
    return CoverageRow(
        op=OP_TABLES[name],
        table_present=table_present,
        total_n=len(op),
        total_ns=total_ns,
        uncalled_n=free_n,
        uncalled_ns=free_ns,
        api_missing_n=missing_n,
        api_missing_ns=missing_ns,
        api_cut_n=int(np.count_nonzero(cut)),
        api_cut_ns=int(duration_ns[cut].sum()),
        range_missing_n=None,
        range_missing_ns=None,
        attributed_n=len(op) - free_n - missing_n,
        attributed_ns=total_ns - free_ns - missing_ns,
        selected_n=int(np.count_nonzero(rank_trace.starts_inside(selected))),
        selected_ns=int(rank_trace.clipped_ns(selected).sum()),
        broken_n=broken_n,
        zero_length_n=int(np.count_nonzero(duration_ns == 0)),
        no_process_n=int(np.count_nonzero(raw["global_pid"] == NULL_INT)),
        unknown_name_n=_unknown_names_n(op, rank_trace.strings),
        graph_node_n=int(is_graph_node(op).sum()),
        replaced_n=len(raw) - broken_n - len(op),
        duplicate_key_n=int(np.isin(duplicates, op["correlation_id"]).sum()),
        early_start_n=starts.early_n,
        early_start_p99_ns=starts.usual_ns,
        early_start_max_ns=starts.most_ns,
    )


def _unknown_names_n(op: Table, strings: Mapping[int, str]) -> int:
    unknown = np.zeros(len(op), dtype=bool)
    for column in _NAME_COLUMNS:
        if column in op:
            # A kernel compiled as C has no mangled name; its plain one stands for it.
            odd = [
                key
                for key in distinct(op[column]).tolist()
                if key not in strings and not (key == NULL_INT and column in _MAY_LACK)
            ]
            if odd:
                unknown |= np.isin(op[column], odd)
    return int(unknown.sum())
