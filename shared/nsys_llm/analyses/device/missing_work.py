"""What a report cannot show of the GPU's work: graphs traced without a row, copies without one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.api_classes import classify_api
from nsys_llm.trace.capture_edges import cut_graph_launches, queued_at_end
from nsys_llm.trace.rank_trace import RankTrace

_COPIES: Final = ("memcpy", "memset", "sync_memop")
#: Of these, calls that move nothing by themselves.
_HINTS: Final = re.compile("Prefetch|Discard")
#: What returns only when all work of a stream or device is done; an event may be an older one.
_WAITS: Final = re.compile("(Device|Stream|Thread|Ctx)Synchronize")
_COPY_TABLES: Final = ("memcpys", "memsets")
_CAPTURE_BEGINS: Final = re.compile("StreamBeginCapture")
_CAPTURE_ENDS: Final = re.compile("StreamEndCapture")

_Rows = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class MissingWork:
    """Calls of one rank that start GPU work, before the end of its window.

    Attributes:
        opaque_launches_n: Graph launches of which no operation is recorded: their work is not seen.
            Where nodes are traced one by one and the window ends with the last operation, not those
            after all launches with one: the capture ended before they ran.
        graphs_cut_n: Those of them that are counted only because the window reaches beyond the last
            operation: they may run there.
        copy_calls_n: Calls that copy or fill; those that a graph captured run later, if ever.
        copies_seen_n: Those of them of which an operation is recorded. A copy of no bytes, or
            within the host, has none.
        copies_cut_n: Those of them that may have run only after the capture had ended.
    """

    opaque_launches_n: int
    graphs_cut_n: int
    copy_calls_n: int
    copies_seen_n: int
    copies_cut_n: int


def find_missing_work(trace: RankTrace, *, whole_capture: bool = False) -> MissingWork:
    """Count calls whose GPU work is not recorded; `whole_capture`: the window is all of it."""
    calls = trace.tables.get("api_calls")
    if calls is None or not len(calls):
        return MissingWork(0, 0, 0, 0, 0)
    classes = {key: classify_api(text) for key, text in trace.strings.items()}
    graphs = np.isin(calls["name_id"], _ids(classes, ("graph_launch",)))
    copies = np.isin(calls["name_id"], _ids(classes, _COPIES))
    if not (graphs.any() or copies.any()):
        return MissingWork(0, 0, 0, 0, 0)
    copies &= ~np.isin(calls["name_id"], _matching(trace.strings, _HINTS))
    copies &= ~_captured(calls, trace.strings)
    seen, by_node = np.zeros(len(calls), dtype=bool), np.zeros(len(calls), dtype=bool)
    last_ns = 0
    for name, op in trace.unfiltered.items():
        launched = op["launch_row"][op["launch_row"] >= 0]
        seen[launched] = True
        by_node[launched] |= name != "graph_traces"
        last_ns = max(last_ns, int(op["end_ns"].max(initial=0)))
    windows = trace.windows_ns
    if windows is not None and len(windows):
        # What was launched before the window may still run in it.
        early = calls["start_ns"] < windows[-1, 1]
        graphs, copies = graphs & early, copies & early
        whole_capture = windows[-1, 1] > last_ns
    late = graphs & cut_graph_launches(calls["start_ns"], seen, graphs & by_node)
    if not whole_capture:
        graphs &= ~late
    waits = np.isin(calls["name_id"], _matching(trace.strings, _WAITS))
    cut = copies & ~seen
    if cut.any():
        cut &= ~np.isin(calls["name_id"], _ids(classes, ("sync_memop",)))
        cut &= queued_at_end(calls, waits, trace.unfiltered, _COPY_TABLES)
    return MissingWork(
        opaque_launches_n=int((graphs & ~seen).sum()),
        graphs_cut_n=int((graphs & late & ~seen).sum()),
        copy_calls_n=int(copies.sum()),
        copies_seen_n=int((copies & seen).sum()),
        copies_cut_n=int(cut.sum()),
    )


def _captured(calls: Table, strings: Mapping[int, str]) -> _Rows:
    """Return which calls their thread made while it captured a graph: none of them ran then."""
    begins = np.isin(calls["name_id"], _matching(strings, _CAPTURE_BEGINS))
    ends = np.isin(calls["name_id"], _matching(strings, _CAPTURE_ENDS))
    captured = np.zeros(len(calls), dtype=bool)
    for thread in np.unique(calls["global_tid"][begins]).tolist():
        of_thread = calls["global_tid"] == thread
        at_ns = calls["start_ns"][of_thread]
        begun_n, ended_n = (
            np.searchsorted(np.sort(calls["start_ns"][of_thread & edge]), at_ns, side="left")
            for edge in (begins, ends)
        )
        captured[of_thread] = begun_n > ended_n
    return captured


def _ids(classes: Mapping[int, str], wanted: tuple[str, ...]) -> list[int]:
    return [key for key, name in classes.items() if name in wanted]


def _matching(strings: Mapping[int, str], pattern: re.Pattern[str]) -> list[int]:
    return [key for key, text in strings.items() if pattern.search(text)]
