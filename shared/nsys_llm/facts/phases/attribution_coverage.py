"""How GPU work was attributed to ranges, and why some was not, with what would have helped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.facts.nvtx.attributed_ops import NO_API, NO_RANGE
from nsys_llm.facts.nvtx.phase_times import RangedOps
from nsys_llm.facts.phases.rank_ops import RankOps
from nsys_llm.numeric.blocks import blocks
from nsys_llm.numeric.by_key import ByKey
from nsys_llm.numeric.grouping import exact_sums
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.trace.attribution import first_call_ns, launched_before
from nsys_llm.trace.rank_trace import OP_TABLES, RankTrace, sane_instants


@dataclass(frozen=True)
class Way:
    """One way to a range, or one reason for a loss.

    Attributes:
        capture: Flags that record more; None where none helps.
    """

    attributed: bool
    meaning: str
    capture: str | None = None


#: By name, in the order of the table. The first are those of `METHODS`.
PARTS: Final = {
    "launch": Way(True, "launched inside a push/pop range of the launching thread"),
    "start_end": Way(
        True, "launched where no push/pop range was open, inside a start/end range of the process"
    ),
    "graph_launch": Way(True, "in a CUDA graph that was launched inside a range"),
    "graph_capture": Way(True, "a node of a CUDA graph that was captured inside a range"),
    "delegated": Way(
        True,
        "launched by a thread without a range, for the only thread with one, which calls CUDA "
        "before and after, not meanwhile: PyTorch's backward pass",
    ),
    "unmarked_thread": Way(
        False,
        "launched by a thread that opens no range in the whole profile, and not clearly for one "
        "that does",
        "--trace=cuda,nvtx --pytorch=autograd-nvtx",
    ),
    "outside_ranges": Way(
        False,
        "launched while no range was open on the launching thread",
        "--trace=cuda,nvtx --pytorch=autograd-nvtx",
    ),
    "cut_range": Way(
        False,
        "launched before the first outermost range of its thread, in a capture that began while "
        "work was running: a range pushed before the capture began is not recorded",
        "--capture-range=cudaProfilerApi",
    ),
    "no_ranges": Way(False, "the profile has no NVTX ranges of this process", "--trace=cuda,nvtx"),
    "before_capture": Way(
        False,
        "launched before the first API call that the profile has: the capture began too late",
        "--capture-range=cudaProfilerApi",
    ),
    "no_calls": Way(False, "the profile has no API calls of this process", "--trace=cuda"),
    "no_call": Way(False, "the launching API call is not in the profile", "--trace=cuda"),
}
_NAMES: Final = tuple(PARTS)


def map_attribution(trace: RankTrace, ops: RankOps) -> ByKey:
    """Add up the operations of one rank that the filters leave, by part."""
    every_part = ops.ranged.chosen(_parts(trace, ops))
    parts_n = len(_NAMES)
    ops_n, gpu_ns = np.zeros((2, parts_n), dtype=np.int64)
    for block in blocks(every_part.size):
        part = every_part[block]
        ops_n += np.bincount(part[ops.inside[block]], minlength=parts_n)
        gpu_ns += exact_sums(part, ops.clipped_ns[block], parts_n)
    return ByKey.of([(name,) for name in _NAMES], {"ops_n": ops_n, "gpu_ns": gpu_ns})


def range_missing(ops: RankOps) -> dict[str, tuple[int, int]]:
    """Return operations launched in no range, and their time, by kind; before any filter."""
    every, code = ops.ranged.every, ops.ranged.table_codes()
    lost = every.method == NO_RANGE
    missing = {}
    for index, table in enumerate(ops.ranged.tables):
        rows = np.flatnonzero(lost & (code == index))
        time_ns = int((every.end_ns[rows] - every.start_ns[rows]).sum())
        missing[OP_TABLES[table]] = (rows.size, time_ns)
    return missing


def _parts(trace: RankTrace, ops: RankOps) -> npt.NDArray[np.int8]:
    """Return the position in `PARTS` of every operation."""
    every, tree = ops.ranged.every, ops.ranged.tree
    part = every.method.copy()  # its codes are the first positions
    calls = trace.tables.get("api_calls")
    lost = np.flatnonzero(every.method == NO_API)
    running = False
    if calls is None or not len(calls):
        part[lost] = _NAMES.index("no_calls")
    elif lost.size:
        early = launched_before(
            every.start_ns[lost],
            ops.ranged.column("correlation_id")[lost],
            every.launch_row[lost].astype(np.int64),
            calls,
        )
        part[lost] = np.where(early, _NAMES.index("before_capture"), _NAMES.index("no_call"))
        running = bool(early.any())
    lost = np.flatnonzero(every.method == NO_RANGE)
    if not len(tree):
        part[lost] = _NAMES.index("no_ranges")
    elif lost.size and calls is not None:
        code = tree.thread_codes(calls["global_tid"][every.launch_row[lost]])
        part[lost] = np.where(
            code < 0, _NAMES.index("unmarked_thread"), _NAMES.index("outside_ranges")
        )
        if running:
            until_ns = np.append(_cut_until(ops.ranged, first_call_ns(calls)), NULL_INT)
            at_ns = every.launched_ns(lost)
            cut = sane_instants(at_ns) & (at_ns < until_ns[code])
            part[lost[cut]] = _NAMES.index("cut_range")
    return part


def _cut_until(ranged: RangedOps, begin_ns: int) -> IntArray:
    """Return until when each thread may have been in a range that was pushed before the capture.

    That is until its first outermost range begins, and for no longer than any such range lasts. A
    name that stands inside another range elsewhere is none of an outermost range: what was around
    it is not recorded.
    """
    tree, code = ranged.tree, ranged.names.code
    alone = tree.parent < 0
    outermost = alone & ~np.isin(code, np.unique(code[~alone]))
    until_ns = np.full(tree.threads.size, begin_ns, dtype=np.int64)
    for thread in range(tree.threads.size):
        selected = slice(tree.bounds[thread], tree.bounds[thread + 1])
        rows = np.flatnonzero(outermost[selected]) + tree.bounds[thread]
        if rows.size:
            longest_ns = int((tree.end_ns[rows] - tree.start_ns[rows]).max())
            until_ns[thread] = min(int(tree.start_ns[rows[0]]), begin_ns + longest_ns)
    return until_ns
