"""The operations of one device in order of time, with its window and its gaps; copies and fills."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.numeric.gaps import Gaps, Positions, find_gaps, start_order
from nsys_llm.numeric.grouping import distinct_codes, joined
from nsys_llm.numeric.intervals import (
    IntArray,
    clip_to_windows,
    intersect_intervals,
    total_length_ns,
    union_intervals,
)
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.cuda_codes import copy_kind_name, fill_codes, move_codes
from nsys_llm.trace.attribution import launched_before, uncalled
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.rank_trace import OP_TABLES, RankTrace

#: Where a window comes from.
OPERATIONS: Final = "operations"
SELECTED: Final = "selected operations"
WINDOW: Final = "filter"
CAPTURE: Final = "capture"
#: What computes; copies and fills do not.
_COMPUTING: Final = ("kernels", "graph_traces")

_NEVER: Final = int(np.iinfo(np.int64).max)

#: No copy is as large; a thousand such sizes still fit into a sum.
LARGEST_SIZE_BYTES: Final = 1 << 53


@dataclass(frozen=True)
class OpNames:
    """Names of the operations of a rank.

    Attributes:
        texts: Distinct names; those of kernels first.
        codes: For each operation table, each row's position in `texts`.
        computing: Shape (texts,), whether it is the name of a kernel or a whole graph.
    """

    texts: tuple[str, ...]
    codes: Mapping[str, IntArray]
    computing: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class DeviceOps:
    """All operations of a device, before any filter; arrays of shape (operations,).

    Attributes:
        start_ns: Ascending.
        launch_row: Row of the launching call, -1 without one; of what no call launches that of the
            next operation that one did: the GPU waited for the same thread.
        early: Whether it was launched before the capture began, see `launched_before`.
        computing: Shape (names,), whether a name is that of a kernel or a whole graph.
        windows_ns: Shape (n, 2), sorted and disjoint.
    """

    device_id: int
    start_ns: IntArray
    end_ns: IntArray
    launch_row: Positions
    name: npt.NDArray[np.int32]
    early: npt.NDArray[np.bool_]
    computing: npt.NDArray[np.bool_]
    windows_ns: IntArray
    window_source: str
    gaps: Gaps

    @classmethod
    def of(
        cls,
        trace: RankTrace,
        device: int,
        names: OpNames,
        *,
        whole_capture: bool = False,
    ) -> DeviceOps:
        """Line up the operations of one device of a rank.

        Args:
            whole_capture: Where filters leave all operations, look at all of the capture, if its
                length is recorded.
        """
        starts, ends, launch, name, early = _lined_up(trace, device, names)
        windows, source = device_windows(trace, device, whole_capture=whole_capture)
        return cls(
            device_id=device,
            start_ns=starts,
            end_ns=ends,
            launch_row=launch,
            name=name,
            early=early,
            computing=names.computing,
            windows_ns=windows,
            window_source=source,
            gaps=find_gaps(starts, ends, windows),
        )

    @property
    def computing_ns(self) -> int:
        """Time of the windows with at least one kernel or whole graph."""
        starts = self.start_ns
        ends = np.where(self.computing[self.name], self.end_ns, starts)
        if self.window_source != OPERATIONS:
            _, starts, ends = clip_to_windows(starts, ends, self.windows_ns)
        return total_length_ns(union_intervals(starts, ends))


def _lined_up(
    trace: RankTrace, device: int, names: OpNames
) -> tuple[IntArray, IntArray, Positions, npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
    """Return start, end, launching call, name and `early` of a device's operations, in order."""
    rows = {name: _of_device(op, device) for name, op in trace.unfiltered.items()}
    rows = {name: selected for name, selected in rows.items() if selected is None or selected.size}

    def column(name: str) -> IntArray:
        return _joined([_taken(trace.unfiltered[table][name], rows[table]) for table in rows])

    def code() -> IntArray:
        return _joined([_taken(names.codes[table], rows[table]) for table in rows])

    starts = column("start_ns")
    order = start_order(
        starts,
        lambda some: (
            _launched_ns(trace, column("launch_row")[some]),
            column("end_ns")[some],
            code()[some],
            column("correlation_id")[some],
        ),
    )

    def ordered(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return values if order is None else values[order]

    # One column after the other: each is as long as the trace.
    launch = column("launch_row").astype(np.int32)
    uncertain = launch.size > 0 and int(launch.min()) < 0
    early = np.broadcast_to(np.False_, starts.shape)
    if uncertain:
        calls = trace.tables.get("api_calls")
        early = ordered(launched_before(starts, column("correlation_id"), launch, calls))
    name, launch = ordered(code().astype(np.int32)), ordered(launch)
    if uncertain:
        free = (launch < 0) & ordered(uncalled(column("correlation_id")))
        launch = _of_next_called(launch, free)
    starts = ordered(starts)
    return starts, ordered(column("end_ns")), launch, name, early


def _of_next_called(launch: Positions, free: npt.NDArray[np.bool_]) -> Positions:
    """Return launching calls, for what no call launches that of the next operation with one."""
    if not free.any():
        return launch
    rows = np.arange(launch.size, dtype=np.int64)
    following = np.minimum.accumulate(np.where(free, launch.size, rows)[::-1])[::-1]
    return np.append(launch, np.int32(-1))[following]


def op_names(trace: RankTrace, options: Mapping[str, Any]) -> OpNames:
    """Name the operations of a rank; kernels in the form that base or mangled chooses."""
    texts: list[str] = []
    computing: list[bool] = []
    codes: dict[str, IntArray] = {}
    for table in (name for name in OP_TABLES if name in trace.unfiltered):
        rows = trace.unfiltered[table]
        if table == "kernels":
            names, code = coded_names(shown_name_ids(rows, options), trace.strings)
        elif table == "memcpys":
            kinds, code = distinct_codes(rows["copy_kind"])
            known = [0 if kind == NULL_INT else kind for kind in kinds.tolist()]
            names = tuple(f"memcpy {copy_kind_name(kind)}" for kind in known)
        else:
            names, code = (OP_TABLES[table],), np.zeros(len(rows), dtype=np.int64)
        codes[table] = code + len(texts)
        texts += names
        computing += [table in _COMPUTING] * len(names)
    return OpNames(tuple(texts), codes, np.array(computing, dtype=bool))


def shown_name_ids(kernels: Table, options: Mapping[str, Any]) -> IntArray:
    """Return the ids of the names by which kernels are shown, in the form base or mangled."""
    full = kernels["demangled_name_id"]
    if options["base"]:
        return kernels["short_name_id"]
    if options["mangled"]:
        # Not every kernel has a mangled name: one compiled as C has only the plain one.
        ids = kernels["mangled_name_id"]
        return np.where(ids == NULL_INT, full, ids)
    return full


def _of_device(op: Table, device: int) -> IntArray | None:
    """Return the rows of a device; None for all."""
    selected = op["device_id"] == device
    return None if selected.all() and len(op) else np.flatnonzero(selected)


def _taken(column: IntArray, rows: IntArray | None) -> IntArray:
    return column if rows is None else column[rows]


def _joined(parts: list[IntArray]) -> IntArray:
    return parts[0] if len(parts) == 1 else joined(parts)


def _launched_ns(trace: RankTrace, launch_row: IntArray) -> IntArray:
    """Return when each operation was launched; last of all where that is not known."""
    calls = trace.tables.get("api_calls")
    if calls is None or not len(calls):
        return np.full(launch_row.shape, _NEVER, dtype=np.int64)
    return np.where(launch_row >= 0, calls["start_ns"][np.maximum(launch_row, 0)], _NEVER)


def device_windows(
    trace: RankTrace, device: int, *, whole_capture: bool = False
) -> tuple[IntArray, str]:
    """Return the windows of a device, shape (n, 2), sorted and disjoint, and their source."""
    capture = trace.capture
    if trace.windows_ns is not None:
        # What was not watched was not idle.
        windows = trace.windows_ns
        return windows if capture is None else intersect_intervals(windows, capture), WINDOW
    complete = trace.complete or all(
        np.count_nonzero(trace.tables[name]["device_id"] == device)
        == np.count_nonzero(op["device_id"] == device)
        for name, op in trace.unfiltered.items()
    )
    if complete and whole_capture and capture is not None:
        return capture, CAPTURE
    return trace.device_span(device), OPERATIONS if complete else SELECTED


def memop_table(trace: RankTrace) -> Table:
    """Return copies, then fills, as one table, with their packed `kind`."""
    copies, fills = trace.tables["memcpys"], trace.tables["memsets"]
    memory = copies["source_memory_kind"], copies["target_memory_kind"]
    kinds = move_codes(copies["copy_kind"], *memory), fill_codes(fills["memory_kind"])
    shared = ("start_ns", "end_ns", "device_id", "size_bytes", "launch_row")
    return Table(
        {
            **{name: np.concatenate((copies[name], fills[name])) for name in shared},
            "kind": np.concatenate(kinds),
        }
    )
