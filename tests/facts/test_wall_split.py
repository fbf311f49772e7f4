"""The wall split against a walk over single nanoseconds."""

from __future__ import annotations

import numpy as np
import pytest
from effort import over_seeds
from rank_views import view_of

from nsys_llm.facts.wall.split import compute_by_kernel, map_wall, wall_of_steps
from nsys_llm.profile.tables import Table
from nsys_llm.trace.rank_trace import RankTrace

HORIZON_NS = 90
NAMES = {1: "gemm_a", 2: "softmax_b", 3: "ncclDevKernel_AllReduce_Sum_bf16", 4: "CUPTI flush"}
FLUSH, LOADING = 3, 6


def table(rows, names):
    columns = np.array(rows, dtype=np.int64).reshape(-1, len(names)).T
    return Table(dict(zip(names, columns, strict=True)))


def trace_of(kernels=(), copies=(), fills=(), graphs=(), overheads=(), windows=None, kept=None):
    """Return a rank: kernels (start, end, device, name), others (start, end, device).

    Args:
        kernels: And the others: operations; copies with kind and bytes.
        overheads: (start, end, type).
        windows: As `RankTrace` has them.
        kept: Which kernels the filters leave; None for all.
    """
    place = ("start_ns", "end_ns", "device_id")
    ops = {
        "kernels": table(kernels, (*place, "demangled_name_id")),
        "memcpys": table(copies, (*place, "copy_kind", "size_bytes")),
        "memsets": table(fills, place),
        "graph_traces": table(graphs, place),
    }
    # No call is recorded.
    ops = {name: op.plus(launch_row=np.full(len(op), -1)) for name, op in ops.items()}
    flushes = [(start, end, 7, 4, kind) for start, end, kind in overheads]
    columns = ("start_ns", "end_ns", "global_tid", "name_id", "overhead_type")
    tables = {**ops, "profiler_overheads": table(flushes, columns)}
    if kept is not None:
        tables["kernels"] = ops["kernels"].take(np.array(kept, dtype=bool))
    used = np.unique(np.concatenate([op["device_id"] for op in ops.values()]))
    return RankTrace(tables, NAMES, windows, ops, tuple(used.tolist()))


def walked(kernels, copies, fills, graphs, overheads, device):
    """Return the class of each nanosecond of one device: the rule, written as a rule."""
    wall_classes = ["idle"] * HORIZON_NS

    def paint(spans, name):
        for start, end in spans:
            wall_classes[start:end] = [name] * (end - start)

    paint([(start, end) for start, end, kind in overheads if kind == FLUSH], "profiler")
    paint([op[:2] for op in (*copies, *fills) if op[2] == device], "copies")
    paint(loaded(kernels, copies, fills, graphs, device), "load")
    paint(
        [kernel[:2] for kernel in kernels if kernel[2] == device and kernel[3] == 3],
        "communication",
    )
    computing = [
        (kernel[:2], NAMES[kernel[3]])
        for kernel in kernels
        if kernel[2] == device and kernel[3] != 3
    ]
    computing += [(graph[:2], "whole_graph") for graph in graphs if graph[2] == device]
    labels = {"gemm_a": 0, "softmax_b": 1, "whole_graph": 2}
    # What began first has the time: paint it last.
    for span, name in sorted(
        computing, key=lambda piece: (piece[0][0], piece[0][1], labels[piece[1]]), reverse=True
    ):
        paint([span], name)
    return wall_classes


def loaded(kernels, copies, fills, graphs, device):
    """Return the copies of a load: the rule, written as a rule."""
    mine = [op for op in (*kernels, *graphs) if op[2] == device]
    if not mine:
        return []
    mine.sort(key=lambda op: op[0])
    spent = [sum(op[1] - op[0] for op in mine[: n + 1]) for n in range(len(mine))]
    first = next(op[0] for op, ns in zip(mine, spent, strict=True) if 100 * ns >= spent[-1])
    begin = min(op[0] for op in (*mine, *copies, *fills) if op[2] == device)
    from_host = [op for op in copies if op[2:4] == (device, 1) and op[0] < first]
    later = sum(op[4] for op in copies if op[2] == device and op[3] in (1, 2) and op[0] >= first)
    spans = [(op[0], min(op[1], first)) for op in from_host]
    size = sum(op[4] for op in from_host)
    if not size or size < 10 * later:
        return []
    lasted = max(end for _, end in spans) - min(start for start, _ in spans)
    return spans if 2 * lasted >= first - begin else []


def drawn(random):
    def spans(count, *more):
        starts = random.integers(0, 60, count)
        lengths = random.integers(0, 25, count)
        return [
            (int(start), int(start + length), *(int(random.choice(values)) for values in more))
            for start, length in zip(starts, lengths, strict=True)
        ]

    devices = (0, 1)
    if random.random() < 0.5:  # copies first, so that many are a load
        late = spans(random.integers(1, 6), devices, (1, 2, 3))
        kernels = [(min(start + 40, 80), min(end + 40, 89), *more) for start, end, *more in late]
        copies = spans(random.integers(1, 6), devices, (1, 1, 2, 8), (1, 9, 200))
        copies = [(start // 2, end // 2 + 3, *more) for start, end, *more in copies]
        return {"kernels": kernels, "copies": copies, "fills": [], "graphs": [], "overheads": []}
    return {
        "kernels": spans(random.integers(0, 9), devices, (1, 2, 3)),
        "copies": spans(random.integers(0, 4), devices, (1, 2, 8), (1, 9, 200)),
        "fills": spans(random.integers(0, 3), devices),
        "graphs": spans(random.integers(0, 3) * random.integers(0, 2), devices),
        "overheads": spans(random.integers(0, 4), (FLUSH, LOADING)),
    }


@over_seeds(range(400))
def test_each_nanosecond_has_the_class_that_the_walk_gives_it(seed):
    random = np.random.default_rng(seed)
    rows = drawn(random)
    trace = trace_of(**rows)
    edges = np.sort(random.choice(HORIZON_NS, 6, replace=False)).reshape(-1, 2)
    names, layers = view_of(trace).wall_layers
    for layer in layers:
        truth = walked(*rows.values(), layer.device_id)
        split, compute_ns = wall_of_steps(layer, edges), compute_by_kernel(layer, edges)
        assert split.compute_ns.tolist() == compute_ns.sum(axis=1).tolist()
        for step, (start, end) in enumerate(edges.tolist()):
            part = ["copies" if name == "load" else name for name in truth[start:end]]
            split_ns = {
                "communication": split.communication_ns[step],
                "copies": split.copies_ns[step],
                "profiler": split.profiler_ns[step],
                "idle": split.idle_ns[step],
                "whole_graph": compute_ns[step][-1],
                **dict(zip(names, compute_ns[step], strict=False)),
            }
            assert {name: int(ns) for name, ns in split_ns.items() if ns} == {
                name: part.count(name) for name in set(part)
            }


@over_seeds(range(100))
def test_the_order_of_rows_decides_nothing(seed):
    random = np.random.default_rng(seed)
    rows = drawn(random)
    shuffled = {
        name: [some[i] for i in random.permutation(len(some))] for name, some in rows.items()
    }
    assert map_wall(view_of(trace_of(**rows))) == map_wall(view_of(trace_of(**shuffled)))


@over_seeds(range(100))
def test_the_span_is_from_first_to_last_operation_and_the_classes_add_up_to_it(seed):
    rows = drawn(np.random.default_rng(seed))
    ops = [*rows["kernels"], *rows["copies"], *rows["fills"], *rows["graphs"]]
    for wall in map_wall(view_of(trace_of(**rows))).devices:
        device_ops = [op for op in ops if op[2] == wall.device_id]
        span = (min(op[0] for op in device_ops), max(op[1] for op in device_ops))
        assert (wall.span_start_ns, wall.span_end_ns) == span
        truth = walked(*rows.values(), wall.device_id)[span[0] : span[1]]
        assert wall.span_ns == len(truth)
        # Between the copies of a load a program starts up.
        assert wall.idle_ns + wall.start_up_ns == truth.count("idle")
        assert (wall.load_ns, wall.copies_ns) == (truth.count("load"), truth.count("copies"))
        assert wall.span_ns == (
            sum(wall.kernels_ns.values())
            + wall.graphs_ns
            + wall.communication_ns
            + wall.load_ns
            + wall.copies_ns
            + wall.profiler_ns
            + wall.no_work_ns
            + wall.start_up_ns
            + wall.idle_ns
        )


def test_what_else_ran_beside_the_chosen_operations_ran():
    # --filter-nvtx chose the two kernels at 10 and 50: the one between them is no idle time.
    kernels = [(10, 20, 0, 1), (25, 40, 0, 2), (50, 60, 0, 1), (70, 80, 0, 1)]
    trace = trace_of(kernels, kept=[True, False, True, False])
    (wall,) = map_wall(view_of(trace)).devices
    assert (wall.span_start_ns, wall.span_end_ns) == (10, 60)
    assert wall.kernels_ns == {"gemm_a": 20, "softmax_b": 15}
    assert wall.idle_ns == 15


def test_windows_are_the_span_where_a_filter_gives_them():
    windows = np.array([[0, 15], [30, 35]], dtype=np.int64)
    trace = trace_of([(10, 20, 0, 1), (30, 40, 0, 3)], windows=windows)
    (wall,) = map_wall(view_of(trace)).devices
    assert (wall.span_start_ns, wall.span_end_ns, wall.span_ns) == (0, 35, 20)
    assert (wall.kernels_ns, wall.communication_ns, wall.idle_ns) == ({"gemm_a": 5}, 5, 10)


def test_filters_that_leave_nothing_leave_an_empty_span():
    (wall,) = map_wall(view_of(trace_of([(10, 20, 0, 1)], kept=[False]))).devices
    assert (wall.span_start_ns, wall.span_end_ns, wall.span_ns) == (None, None, 0)
    assert (wall.kernels_ns, wall.idle_ns) == ({}, 0)


@pytest.mark.parametrize(
    ("copied_ns", "later_bytes", "load_ns"), [(50, 10, 50), (50, 11, 0), (49, 10, 0), (99, 0, 99)]
)
def test_a_load_is_half_of_the_time_before_the_first_kernel_and_ten_times_the_later_bytes(
    copied_ns, later_bytes, load_ns
):
    # From the first operation, a fill at 0, to the first kernel at 100.
    copies = [(0, copied_ns, 0, 1, 100), (110, 111, 0, 2, later_bytes)]
    trace = trace_of([(100, 110, 0, 1)], copies=copies, fills=[(0, 0, 0)])
    (wall,) = map_wall(view_of(trace)).devices
    assert (wall.load_ns, wall.copies_ns) == (load_ns, copied_ns + 1 - load_ns)


@pytest.mark.parametrize(("kernel_ns", "load_ns"), [(99, 0), (100, 98)])
def test_a_kernel_of_less_than_a_hundredth_of_all_may_come_before_a_load(kernel_ns, load_ns):
    trace = trace_of([(0, 1, 0, 1), (100, 100 + kernel_ns, 0, 1)], copies=[(1, 99, 0, 1, 100)])
    (wall,) = map_wall(view_of(trace)).devices
    assert wall.load_ns == load_ns
