"""Cutting one rank out of a profile: what is counted, what is left out, what the filters leave."""

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from nsys_llm.core.nulls import NULL_INT
from nsys_llm.profile.tables import Table, Trace
from nsys_llm.trace.rank_trace import OP_TABLES
from nsys_llm.trace.selection import gpu_processes, select_rank

PROCESS, OTHER = 100 << 24, 101 << 24
THREAD = PROCESS | 7
STRINGS = {1: "gemm", 2: "cudaLaunchKernel_v7000", 3: "cudaGraphLaunch_v10000"}
OP_COLUMNS = {
    "start_ns": 0,
    "end_ns": 0,
    "device_id": 0,
    "correlation_id": NULL_INT,
    "global_pid": PROCESS,
    "graph_node_id": NULL_INT,
    "demangled_name_id": 1,
}
CALL_COLUMNS = {"start_ns": 0, "correlation_id": NULL_INT, "global_tid": THREAD, "name_id": 2}


def table(columns, rows):
    return Table(
        {
            name: np.array([row.get(name, default) for row in rows], dtype=np.int64)
            for name, default in columns.items()
        }
    )


def op(start_ns, end_ns, correlation_id=NULL_INT, **cells):
    return {"start_ns": start_ns, "end_ns": end_ns, "correlation_id": correlation_id, **cells}


def call(start_ns, correlation_id, **cells):
    return {"start_ns": start_ns, "correlation_id": correlation_id, **cells}


def trace(*kernels, calls=None, **others):
    names = {"kernels": kernels, "memcpys": (), "memsets": (), "graph_traces": (), **others}
    tables = {name: table(OP_COLUMNS, rows) for name, rows in names.items()}
    tables["api_calls"] = table(CALL_COLUMNS, calls or ())
    return Trace(tables, frozenset(() if calls else ("api_calls",)), STRINGS)


def selected(profile, process=PROCESS, **options):
    rank, coverage, _ = select_rank(profile, process, options)
    return rank, {row.op: row for row in coverage}


def starts(rank, name="kernels"):
    return rank.tables[name]["start_ns"].tolist()


def test_the_processes_of_a_profile_are_those_with_gpu_work():
    profile = trace(op(0, 1, global_pid=OTHER), memsets=[op(2, 3), op(4, 5, global_pid=NULL_INT)])
    assert gpu_processes(profile) == [NULL_INT, PROCESS, OTHER]
    assert gpu_processes(trace(calls=[call(0, 1)])) == []


def test_rows_of_no_process_belong_to_the_only_one_there_is():
    profile = trace(op(0, 1, 5), op(2, 4, 6, global_pid=NULL_INT), calls=[call(1, 6)])
    assert gpu_processes(profile) == [PROCESS]
    rank, coverage = selected(profile)
    assert starts(rank) == [0, 2]
    assert rank.tables["kernels"]["launch_row"].tolist() == [-1, 0]
    assert (coverage["kernel"].total_n, coverage["kernel"].no_process_n) == (2, 1)


def test_rows_of_no_process_beside_several_are_nobodys():
    profile = trace(op(0, 1), op(2, 3, global_pid=OTHER), op(4, 5, global_pid=NULL_INT))
    assert gpu_processes(profile) == [NULL_INT, PROCESS, OTHER]
    assert [starts(selected(profile, process)[0]) for process in gpu_processes(profile)] == [
        [4],
        [0],
        [2],
    ]


def test_a_rank_holds_its_own_operations_and_calls_only():
    # Both processes use the correlation id 5; each finds its own call.
    profile = trace(
        op(10, 12, 5),
        op(20, 23, 5, global_pid=OTHER),
        calls=[call(8, 5, global_tid=OTHER | 1), call(9, 5)],
    )
    rank, coverage = selected(profile)
    assert starts(rank) == [10]
    assert rank.tables["api_calls"]["start_ns"].tolist() == [9]
    assert rank.tables["kernels"]["launch_row"].tolist() == [0]
    assert coverage["kernel"].total_ns == 2
    assert starts(selected(profile, OTHER)[0]) == [20]


def test_broken_rows_are_counted_and_left_out():
    # Backwards, without an end, without a device, beyond any real time; and one of 0 ns that stays.
    rank, coverage = selected(
        trace(
            op(5, 3),
            op(5, NULL_INT),
            op(5, 6, device_id=NULL_INT),
            op(5, 2**62),
            op(-(2**62), 6),
            op(7, 7),
        )
    )
    assert starts(rank) == [7]
    row = coverage["kernel"]
    assert (row.broken_n, row.total_n, row.zero_length_n, row.total_ns) == (5, 1, 1, 0)


def test_operations_without_their_call_are_counted_apart():
    # 4 ns launched, 2 + 3 ns not: no id, and an id that no call has.
    _, coverage = selected(trace(op(1, 5, 9), op(6, 8), op(10, 13, 8), calls=[call(0, 9)]))
    row = coverage["kernel"]
    assert (row.total_n, row.total_ns) == (3, 9)
    assert (row.api_missing_n, row.api_missing_ns) == (2, 5)
    assert (row.attributed_n, row.attributed_ns) == (1, 4)


def test_names_and_graph_nodes_are_counted():
    _, coverage = selected(
        trace(
            op(0, 1, 2**53 + 1, demangled_name_id=NULL_INT),
            op(1, 2, 2**53, demangled_name_id=99, graph_node_id=4),
            op(2, 3, -5, graph_node_id=0),
            op(3, 4),
        )
    )
    row = coverage["kernel"]
    assert (row.unknown_name_n, row.graph_node_n) == (2, 1)


def test_a_key_that_two_calls_claim_is_counted_and_the_earliest_taken():
    rank, coverage = selected(trace(op(9, 10, 5), calls=[call(4, 5), call(2, 5), call(6, 8)]))
    assert rank.tables["kernels"]["launch_row"].tolist() == [1]
    assert coverage["kernel"].duplicate_key_n == 1
    assert coverage["memset"].duplicate_key_n == 0


def test_a_whole_graph_is_left_out_where_its_nodes_are_recorded():
    # Graph 5 has its node among the kernels, graph 6 has none; one row of each names no launch.
    rank, coverage = selected(
        trace(op(10, 12, 5), op(1, 2), graph_traces=[op(10, 14, 5), op(20, 24, 6), op(30, 34)])
    )
    assert starts(rank, "graph_traces") == [20, 30]
    assert coverage["graph"].total_ns == 4 + 4


def test_coverage_tells_absent_tables_from_empty_ones_and_rows_of_no_process():
    profile = trace(op(0, 1, global_pid=NULL_INT))
    profile = Trace(profile.tables, frozenset({"memsets"}), STRINGS)
    _, coverage = selected(profile, NULL_INT)
    assert coverage["kernel"].no_process_n == 1
    assert coverage["memcpy"].table_present
    assert not coverage["memset"].table_present
    assert list(coverage) == list(OP_TABLES.values())


def test_sums_are_clipped_to_a_window_and_counts_take_what_starts_in_it():
    # Window 10..20: 8..12 gives 2 ns but no launch, 12..15 all 3, 18..25 2 ns and a launch,
    # 20..22 starts where the window ends, 15..15 has no length but starts inside.
    kernels = [op(8, 12), op(12, 15), op(18, 25), op(20, 22), op(15, 15), op(1, 9)]
    rank, coverage = selected(trace(*kernels), filter_time=(10, 20))
    assert starts(rank) == [8, 12, 18, 15]
    assert rank.clipped_ns(rank.tables["kernels"]).tolist() == [2, 3, 2, 0]
    assert rank.starts_inside(rank.tables["kernels"]).tolist() == [False, True, True, True]
    assert (coverage["kernel"].selected_n, coverage["kernel"].selected_ns) == (3, 7)
    # Before any filter: 4 + 3 + 7 + 2 + 0 + 8.
    assert coverage["kernel"].total_ns == 24


def test_devices_are_chosen_by_id():
    profile = trace(op(0, 1), op(2, 3, device_id=1), memsets=[op(4, 5, device_id=3)])
    assert selected(profile)[0].device_ids == (0, 1, 3)
    rank, _ = selected(profile, device=(1, 3))
    assert rank.device_ids == (1, 3)
    assert (starts(rank), starts(rank, "memsets")) == ([2], [4])


def with_ranges(profile, *rows):
    """Add NVTX push/pop ranges (text, start, end) of the rank's thread."""
    names, low, high = zip(*rows, strict=True)
    cells = {"start_ns": low, "end_ns": high}
    for name, value in (("event_type", 59), ("text_id", NULL_INT), ("domain_id", 0)):
        cells[name] = [value] * len(rows)
    events = {name: np.array(values, dtype=np.int64) for name, values in cells.items()}
    events["global_tid"] = np.full(len(rows), THREAD)
    events["text"] = np.array(names, dtype=object)
    return Trace({**profile.tables, "nvtx_events": Table(events)}, profile.absent, STRINGS)


def test_a_range_selects_what_is_launched_in_it_whichever_table_it_stands_in():
    # Launched at 1, 4 and 6; the range is 3..6. One kernel has no call.
    profile = trace(
        op(10, 12, 1),
        op(20, 23, 2),
        op(24, 25),
        memsets=[op(30, 31, 3)],
        calls=[call(1, 1), call(4, 2), call(6, 3)],
    )
    rank, coverage = selected(with_ranges(profile, ("step", 3, 6)), filter_nvtx="step")
    assert (starts(rank), starts(rank, "memsets")) == ([20], [])
    assert (coverage["kernel"].selected_n, coverage["memset"].selected_n) == (1, 0)
    assert coverage["kernel"].total_n == 3


ids = st.sampled_from([NULL_INT, -3, 0, 1, 2, 2**53 + 1])
operations = st.lists(
    st.builds(
        op,
        st.integers(0, 20),
        st.integers(0, 25),
        ids,
        global_pid=st.sampled_from([PROCESS, OTHER]),
    ),
    max_size=8,
)
api_calls = st.lists(st.builds(call, st.integers(0, 9), ids), max_size=5)
windows = st.one_of(st.none(), st.tuples(st.integers(0, 9), st.integers(10, 25)))


@given(operations, operations, api_calls, windows)
def test_coverage_adds_up_whatever_the_rows_and_filters(kernels, memcpys, calls, window):
    profile = trace(*kernels, memcpys=memcpys, calls=calls)
    rank, coverage = selected(profile, filter_time=window)
    for name, rows in (("kernel", kernels), ("memcpy", memcpys)):
        row = coverage[name]
        process_rows = [row for row in rows if row["global_pid"] == PROCESS]
        sane = [
            row["end_ns"] - row["start_ns"]
            for row in process_rows
            if row["end_ns"] >= row["start_ns"] and row["end_ns"] > 0
        ]
        assert (row.total_n, row.total_ns) == (len(sane), sum(sane))
        assert row.broken_n + row.total_n == len(process_rows)
        assert row.uncalled_n + row.api_missing_n + row.attributed_n == row.total_n
        assert row.uncalled_ns + row.api_missing_ns + row.attributed_ns == row.total_ns
        assert row.selected_n <= row.total_n
        assert row.selected_ns <= row.total_ns
    if window is None:
        assert len(rank.tables["kernels"]) == coverage["kernel"].total_n


LOCK_NAMES = ("", "Holding GIL", "Waiting for GIL", "step")


@given(st.lists(st.tuples(st.sampled_from(LOCK_NAMES), st.sampled_from(("id", "text", "both")))))
@example([("step", "id"), ("Holding GIL", "text")])
def test_ranges_of_the_interpreter_s_lock_are_apart_however_their_names_are_kept(named):
    names = [name for name, _ in named]
    by_id = {10 + LOCK_NAMES.index(name): name for name, kept in named if kept != "text"}
    ids = [NULL_INT if kept == "text" else 10 + LOCK_NAMES.index(name) for name, kept in named]
    texts = [None if kept == "id" else name for name, kept in named]
    columns = {
        "global_tid": np.full(len(named), THREAD),
        "start_ns": np.arange(len(named)),
        "text_id": np.array(ids, dtype=np.int64),
        "text": np.array(texts, dtype=object),
    }
    tables = {**trace(op(0, 1)).tables, "nvtx_events": Table(columns)}
    rank, _ = selected(Trace(tables, strings=STRINGS | by_id))
    ranges = rank.tables["nvtx_events"]["start_ns"].tolist()
    waits = rank.tables.get("lock_waits", Table({"start_ns": np.empty(0)}))["start_ns"].tolist()
    assert ranges == [at for at, name in enumerate(names) if not name.endswith(" GIL")]
    assert waits == [at for at, name in enumerate(names) if name.startswith("Waiting")]
