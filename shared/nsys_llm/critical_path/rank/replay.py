"""Reduces one rank to the graph that replays of the job need, with weights for each change."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

import numpy as np

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.critical_path.path.classes import COMPUTE, COPY
from nsys_llm.critical_path.path.edges import Clues, Edges
from nsys_llm.critical_path.path.ops import PathOps
from nsys_llm.critical_path.rank.windows import OpSteps, Windows
from nsys_llm.critical_path.replay.changes import GRAPH_NODE_NS, Names, changed
from nsys_llm.critical_path.replay.condensed import USUAL, Condenser, RankReplay
from nsys_llm.critical_path.replay.skeleton import NEVER, Marks, skeleton
from nsys_llm.critical_path.replay.weights import RankGraph, Weights, rank_graph
from nsys_llm.manifest import what_if
from nsys_llm.manifest.what_if import ReplayChange, parse_change
from nsys_llm.numeric.intervals import IntArray
from nsys_llm.taxonomy.categories import rules_for
from nsys_llm.taxonomy.kernel_levers import lever_of, load_kernel_levers
from nsys_llm.taxonomy.names import strip_api_version
from nsys_llm.trace.coded_names import coded_names
from nsys_llm.trace.rank_trace import RankTrace

#: How much shorter a category of kernels is tried: an effort that one has seen succeed. Ours.
FASTER: Final = 0.8
#: Categories with less of the compute time than this are not tried.
_LEAST_SHARE: Final = 0.05
_LEAST_OF_LEVER: Final = 0.01
_MOST_WAITS: Final = 3
#: Nodes of a rank up to which it is replayed: a graph of more takes longer than the paths.
MOST_NODES: Final = 300_000


def rank_replay(
    trace: RankTrace,
    edges: Edges,
    clues: Clues,
    kernels: Sequence[str],
    members: IntArray,
    windows: Sequence[Windows],
    steps: OpSteps,
    options: Mapping[str, Any],
) -> RankReplay:
    """Return the graph of one rank."""
    # Each has two nodes at least, each call that waited has a node.
    if 2 * members.size + edges.waits.place.size > MOST_NODES:
        return RankReplay.without("too_large")
    graph = rank_graph(edges, clues)
    marks = _marks(edges, members, windows, steps)
    rank_skeleton = skeleton(graph, marks)
    if rank_skeleton.base_ns.size > MOST_NODES:
        return RankReplay.without("too_large")
    names = _names(trace, edges, kernels)
    asked = [parse_change(text) for text in options["what_if"] or ()]
    changes = dict.fromkeys([*_changes(graph, names), *asked])
    texts, ns, codes = _columns(Condenser(graph, marks, rank_skeleton), graph, names, [*changes])
    return RankReplay(
        reason="",
        columns=texts,
        base_ns=rank_skeleton.base_ns,
        source=rank_skeleton.source.astype(np.int32),
        target=rank_skeleton.target.astype(np.int32),
        ns=ns,
        code=codes,
        member_start=rank_skeleton.member_start,
        member_end=rank_skeleton.member_end,
        begun=np.flatnonzero(rank_skeleton.base_ns[: rank_skeleton.at_call.size] != NEVER),
        ends_from=rank_skeleton.ends_from,
        begins_from=rank_skeleton.begins_from,
    )


def _changed(
    graph: RankGraph, names: Names, changes: Iterable[ReplayChange]
) -> Iterator[tuple[str, Weights]]:
    """Return changes with their weights; those that change nothing are left out."""
    for change in changes:
        reported = changed(graph, names, change)
        if reported is not None and reported is not graph.observed:
            yield change.text, reported


def _columns(
    condenser: Condenser, graph: RankGraph, names: Names, changes: Sequence[ReplayChange]
) -> tuple[tuple[str, ...], Any, Any]:
    """Return names of columns, weights of edges, and what they are, as `RankReplay` has them."""
    texts, ns, codes = [], [], []
    for text, weights in chain([("", graph.observed)], _changed(graph, names, changes)):
        column, through = condenser.weights(weights)
        texts.append(text)
        ns.append(column)
        codes.append(condenser.codes(weights, through))
    condenser.forget()
    texts.append(USUAL)
    ns.append(condenser.weights(graph.usual)[0])
    table = np.stack(ns, axis=1)
    there = table[table != NEVER]
    narrow = np.iinfo(np.int32)
    if there.size and (int(there.max()) > narrow.max or int(there.min()) <= narrow.min):
        return tuple(texts), table, np.stack(codes, axis=1)
    table = np.maximum(table, narrow.min).astype(np.int32)
    return tuple(texts), table, np.stack(codes, axis=1)


def _names(trace: RankTrace, edges: Edges, kernels: Sequence[str]) -> Names:
    ops, calls = edges.ops, edges.host.calls
    used = set(np.unique(ops.name[ops.kind == COMPUTE]).tolist())
    rules = rules_for({kernels[code] for code in used})
    categories = [
        rules.classify(text).category if code in used else "" for code, text in enumerate(kernels)
    ]
    table = trace.tables.get("api_calls")
    if table is None or not calls.row.size:
        return Names(kernels, categories, (), np.empty(0, dtype=np.int64))
    apis, api = coded_names(table["name_id"], trace.strings, strip_api_version)
    return Names(kernels, categories, apis, api[calls.row])


def _changes(graph: RankGraph, names: Names) -> list[ReplayChange]:
    ops, observed = graph.edges.ops, graph.observed
    sums = np.bincount(ops.name, weights=observed.op * (ops.kind == COMPUTE)).astype(np.int64)
    by_category: dict[str, int] = {}
    for code, ns in enumerate(sums.tolist()):
        by_category[names.categories[code]] = by_category.get(names.categories[code], 0) + ns
    least = _LEAST_SHARE * max(sum(by_category.values()), 1)
    tried = [
        ReplayChange(what_if.CATEGORY, name, FASTER)
        for name, ns in by_category.items()
        if ns > least
    ]
    tried += _levers(names, sums.tolist())
    if (ops.kind == COPY).any():
        tried.append(ReplayChange(what_if.COPIES))
    tried += [
        ReplayChange(what_if.HOST),
        ReplayChange(what_if.DEVICE),
        ReplayChange(what_if.LAUNCHES, factor=GRAPH_NODE_NS),
    ]
    if graph.waiting.size and len(names.apis):
        length_ns = observed.call[graph.waiting]
        waited = np.bincount(names.api[graph.waiting], weights=length_ns, minlength=len(names.apis))
        most = np.argsort(-waited, kind="stable")[:_MOST_WAITS].tolist()
        tried += [ReplayChange(what_if.WAIT, names.apis[code]) for code in most if waited[code] > 0]
    return tried


def _levers(names: Names, sums: Sequence[int]) -> list[ReplayChange]:
    """Return the levers whose kernels take some of the compute time.

    Where a GPU's name decides whether one applies, there have to be kernels of such GPUs alone.
    """
    levers, times = load_kernel_levers(), dict[str | None, int]()
    for text, category, ns in zip(names.kernels, names.categories, sums, strict=False):
        lever = lever_of(text, category) if ns else None
        times[lever] = times.get(lever, 0) + ns
    least = _LEAST_OF_LEVER * max(sum(times.values()), 1)
    ran = [text for text, ns in zip(names.kernels, sums, strict=False) if ns]
    return [
        ReplayChange(what_if.KERNELS, lever.id)
        for lever in levers.values()
        if times.get(lever.id, 0) > least and not lever.fuses and lever.applies(None, ran)
    ]


def _marks(edges: Edges, members: IntArray, windows: Sequence[Windows], steps: OpSteps) -> Marks:
    tails = [np.empty((0, 2), dtype=np.int64)]
    for place, window in enumerate(windows):
        tails.append(_tails(edges.ops, window, steps) + np.array([0, place * steps.n]))
    return Marks(
        members=members,
        tails=np.concatenate(tails),
        ends_n=len(windows) * steps.n,
        begin_ns=np.array([window.edge_ns[0] for window in windows], dtype=np.int64),
        begin_ops=np.concatenate(
            [
                np.empty((0, 2), dtype=np.int64),
                *(_before(edges.ops, window, steps, place) for place, window in enumerate(windows)),
            ]
        ),
        begin_is_start=steps.detected is None,
        begin_call=_call_before(edges, steps),
        call_ns=_first_ns(steps),
    )


def _tails(ops: PathOps, window: Windows, steps: OpSteps) -> IntArray:
    """Return the last operation of each step on each stream of a device, with the step."""
    rows = np.flatnonzero((ops.device_ids[ops.stream] == window.device_id) & (steps.of_op >= 0))
    last = np.full(ops.stream_ids.size * steps.n, -1, dtype=np.int64)
    last[ops.stream[rows] * steps.n + steps.of_op[rows]] = rows
    known = np.flatnonzero(last >= 0)
    ended = np.flatnonzero(window.tail >= 0)  # where a stream's operations overlap, not the last
    pairs = np.concatenate(
        (
            np.column_stack((last[known], known % steps.n)),
            np.column_stack((window.tail[ended], ended)),
        )
    )
    return np.unique(pairs, axis=0)


def _before(ops: PathOps, window: Windows, steps: OpSteps, place: int) -> IntArray:
    """Return what the first step of a device begins after, with the place of the device.

    The last operation on each stream of what was launched before it; without steps, the operation
    with which it begins.
    """
    device_ops = np.flatnonzero(ops.device_ids[ops.stream] == window.device_id)
    begin_ns = int(window.edge_ns[0])
    if steps.detected is None:
        chosen = device_ops[ops.kept[device_ops] & (ops.start_ns[device_ops] == begin_ns)][:1]
    else:
        some = device_ops[(steps.of_op[device_ops] < 0) & (ops.end_ns[device_ops] <= begin_ns)]
        last = np.full(ops.stream_ids.size, -1, dtype=np.int64)
        last[ops.stream[some]] = some
        chosen = last[last >= 0]
    return np.column_stack((np.full(chosen.size, place), chosen))


def _first_ns(steps: OpSteps) -> int:
    """Return when the first step begins on the host; NULL_INT where it does not."""
    return int(steps.detected.start_ns[0]) if steps.detected is not None else NULL_INT


def _call_before(edges: Edges, steps: OpSteps) -> int:
    """Return the last call before the first step, on the thread that launches it; -1 for none."""
    ops, calls, at_ns = edges.ops, edges.host.calls, _first_ns(steps)
    launched = np.flatnonzero((steps.of_op == 0) & (ops.place >= 0))
    if not launched.size or at_ns == NULL_INT:
        return -1
    thread = int(calls.thread[ops.place[launched].min()])
    low, high = int(calls.bounds[thread]), int(calls.bounds[thread + 1])
    call = low + int(np.searchsorted(calls.start_ns[low:high], at_ns, side="right")) - 1
    return call if call >= low else -1
