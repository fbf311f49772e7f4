"""What threads that launch did when a job pauses, where it has a name: garbage collection, ...

A range of the engine says it, samples inside of it, or the calls: those that load code or allocate.
A kernel that runs for the first time behind such a load was compiled: all since the last launch or
long call is its compilation, but for what anything else holds, and unless samples deny it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from nsys_llm.facts.rank_view import RankView
from nsys_llm.facts.steps.marked_ranges import MarkedRanges
from nsys_llm.numeric.clock_lines import lower_median
from nsys_llm.numeric.gaps import Positions
from nsys_llm.numeric.grouping import distinct, distinct_codes
from nsys_llm.numeric.intervals import (
    IntArray,
    covered_ns,
    intersect_intervals,
    merged_unions,
    subtract_intervals,
    union_intervals,
)
from nsys_llm.profile.tables import Table
from nsys_llm.taxonomy.advice import advised_name
from nsys_llm.taxonomy.host_modules import collects_garbage, compiles
from nsys_llm.taxonomy.idle_causes import ALLOC, MODULE_LOAD
from nsys_llm.taxonomy.names import strip_api_version
from nsys_llm.trace.coded_names import text_of
from nsys_llm.trace.rank_trace import RankTrace

COLLECTION: Final = "garbage collection"
COMPILATION: Final = "compilation"
LOADING: Final = "code loading"
ALLOCATION: Final = "allocation"
_INPUTS: Final = "inputs"
#: Kinds of pauses by the advice on their ranges.
_OF_RANGE: Final[Mapping[str | None, str]] = {
    "garbage collection, by range": COLLECTION,
    "checkpoint": "checkpoint",
    "compilation": COMPILATION,
    "graph capture": "graph capture",
    "KV eviction": "KV eviction",
    "data loader": _INPUTS,  # which has words of its own
}
#: Shorter calls, and less of a step, are no pause: ours.
_LEAST_CALL_NS: Final = 20_000
_LEAST_NS: Final = 100_000

_NEVER: Final = int(np.iinfo(np.int64).max)
_Mask = npt.NDArray[np.bool_]

#: What it is, and the range, kernel or call that says so; "" of samples.
_Named = tuple[str, str]


@dataclass(frozen=True)
class PauseTime:
    """Idle time of a device in one of its steps by a named cause."""

    step: int
    kind: str
    detail: str
    time_ns: int


class NamedPauses:
    """When threads of a rank that launch did something that pauses a job.

    Attributes:
        named: By thread, what it is and what says so: spans of shape (n, 2).
    """

    def __init__(self, view: RankView) -> None:
        self.named: dict[tuple[int, str, str], list[IntArray]] = {}
        calls, launched = view.trace.tables.get("api_calls"), _launched(view.trace)
        if calls is None or not launched.size:
            return
        kinds = {name: _OF_RANGE.get(advised_name(range=name)) for name in view.marked.plain}
        for thread in distinct(calls["global_tid"][launched]).tolist():
            found = [*_ranges(view.marked, kinds, thread), *_sampled(view, thread)]
            found += _calls(view, thread, launched)
            held = merged_unions(
                [union_intervals(*spans.T) for (kind, _), spans in found if kind != COMPILATION]
            )
            for (kind, detail), spans in found:
                if kind == COMPILATION and detail not in kinds:  # the weakest evidence
                    spans = subtract_intervals(union_intervals(*spans.T), held)
                if kind != _INPUTS:
                    self.named.setdefault((thread, kind, detail), []).append(spans)

    def times(self, edge_ns: IntArray, idle: Mapping[int, IntArray]) -> tuple[PauseTime, ...]:
        """Return the idle time of each step that they have.

        Args:
            edge_ns: Shape (steps + 1,), ascending.
            idle: By thread what ended with its launch, shape (n, 2), sorted and disjoint.
        """
        rows = list[PauseTime]()
        for (thread, kind, detail), parts in sorted(self.named.items()):
            spans = union_intervals(*np.concatenate(parts).T)
            spans = intersect_intervals(spans, idle.get(thread, spans[:0]))
            time_ns = np.diff(covered_ns(edge_ns, spans))
            rows += [
                PauseTime(step, kind, detail, int(time_ns[step]))
                for step in np.flatnonzero(time_ns >= _LEAST_NS).tolist()
            ]
        return tuple(rows)


def _launched(trace: RankTrace) -> IntArray:
    """Return the rows of the calls that launched kernels, of a kernel each or of several."""
    row = trace.unfiltered["kernels"]["launch_row"]
    return distinct(row[row >= 0])


def _ranges(
    marked: MarkedRanges, kinds: Mapping[str, str | None], thread: int
) -> Iterator[tuple[_Named, IntArray]]:
    of = marked.of_thread(thread)
    for code, name in enumerate(marked.plain):
        if (kind := kinds[name]) is not None and (rows := of[marked.name[of] == code]).size:
            yield (kind, name), np.column_stack((marked.start_ns[rows], marked.end_ns[rows]))


def _sampled(view: RankView, thread: int) -> Iterator[tuple[_Named, IntArray]]:
    """Yield the time around samples that are in a collection or a compiler."""
    at_ns, row = view.records.samples(thread)
    if at_ns.size < 2:
        return
    half_ns = (lower_median(np.diff(at_ns)) + 1) // 2
    for kind, column, is_it in (
        (COLLECTION, "symbol_id", collects_garbage),
        (COMPILATION, "module_id", compiles),
    ):
        inside = _inside(view, row, column, is_it)
        yield (kind, ""), np.column_stack((at_ns - half_ns, at_ns + half_ns))[inside]


def _inside(view: RankView, row: IntArray, column: str, is_it: Callable[[str], bool]) -> _Mask:
    """Return which samples, by their rows, have a frame of some kind."""
    frames = view.trace.tables.get("sample_frames", Table.empty(("id", "symbol_id", "module_id")))
    ids = distinct(frames[column])
    some = ids[[is_it(view.trace.strings.get(key, "")) for key in ids.tolist()]]
    stacks = frames["id"][np.isin(frames[column], some)]
    samples = view.trace.tables.get("cpu_samples", Table.empty(("id",)))
    return np.isin(samples["id"][row], stacks)


def _calls(view: RankView, thread: int, launched: IntArray) -> Iterator[tuple[_Named, IntArray]]:
    """Yield calls that load code or allocate, and what was compiled before a first launch."""
    calls, code = view.host.calls, view.host.calls.code(thread)
    some = slice(*calls.bounds[code : code + 2].tolist())
    starts, ends, row = calls.start_ns[some], calls.end_ns[some], calls.row[some]
    cause = view.host.cause[some]
    long = ends - starts >= _LEAST_CALL_NS
    yield from _by_api(view.trace, ALLOCATION, row, starts, ends, long & (cause == ALLOC))
    loads = long & (cause == MODULE_LOAD)
    if not loads.any():
        return
    first = _first_launches(view.trace)
    launches = np.flatnonzero(np.isin(row, launched))
    ahead = np.union1d(launches, np.flatnonzero(long))
    alone, ended_ns = loads.copy(), np.sort(view.marked.end_ns[view.marked.of_thread(thread)])
    at_ns, samples = view.records.samples(thread)
    told, compiling = (_inside(view, samples, "module_id", is_it) for is_it in (bool, compiles))
    at_ns, compiling = at_ns[told], compiling[told]
    for at in np.flatnonzero(loads).tolist():
        place = int(np.searchsorted(launches, at))
        after = int(launches[place]) if place < launches.size else at
        if (name := first.get(int(row[after]))) is None:
            continue
        alone[at] = False
        begin_ns, kind = starts[at], LOADING
        if after > at:
            free = ended_ns[: np.searchsorted(ended_ns, begin_ns, side="right")]
            before = int(np.searchsorted(ahead, at)) - 1
            since_ns = max(*free[-1:], ends[ahead[before]] if before >= 0 else begin_ns, 0)
            seen = compiling[slice(*np.searchsorted(at_ns, (since_ns, begin_ns)))]
            if 2 * seen.sum() > seen.size or not seen.size:
                kind, begin_ns = COMPILATION, since_ns
        spans = [[begin_ns, ends[at]], [starts[after], ends[after]]]
        yield (kind, name), np.array(spans[: 1 + (after > at)], dtype=np.int64)
    yield from _by_api(view.trace, LOADING, row, starts, ends, alone)


def _by_api(
    trace: RankTrace, kind: str, row: Positions, starts: IntArray, ends: IntArray, chosen: _Mask
) -> Iterator[tuple[_Named, IntArray]]:
    ids = trace.tables["api_calls"]["name_id"][row]
    for key in distinct(ids[chosen]).tolist():
        some = chosen & (ids == key)
        name = strip_api_version(text_of(key, trace.strings))
        yield (kind, name), np.column_stack((starts[some], ends[some]))


def _first_launches(trace: RankTrace) -> dict[int, str]:
    """Return the kernels by the rows of the calls that launched them first."""
    kernels, calls = trace.unfiltered["kernels"], trace.tables["api_calls"]
    row = kernels["launch_row"]
    ids, name = distinct_codes(kernels["demangled_name_id"])
    at_ns = np.where(row >= 0, calls["start_ns"][row], _NEVER)
    first_ns = np.full(ids.size, _NEVER)
    np.minimum.at(first_ns, name, at_ns)
    rows = np.flatnonzero((row >= 0) & (at_ns == first_ns[name]))
    texts = [text_of(key, trace.strings) for key in ids.tolist()]
    pairs = ((int(row[at]), texts[int(name[at])]) for at in rows.tolist())
    return dict(sorted(pairs, reverse=True))  # of a graph's kernels the first by name
