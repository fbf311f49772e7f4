"""GPU time by phase against a plain search, and hand-made cases of each method."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_builder import TraceBuilder

from nsys_llm.facts.nvtx.attributed_ops import METHODS
from nsys_llm.facts.nvtx.phase_times import phase_codes, phase_times, ranged_ops
from nsys_llm.manifest.declared import TableRead
from nsys_llm.profile.inputs import open_profile
from nsys_llm.profile.reader import read_trace
from nsys_llm.taxonomy.phase_maps import phase_map
from nsys_llm.trace.selection import gpu_processes, select_rank

OP = ("start_ns", "end_ns", "device_id", "correlation_id", "global_pid", "graph_node_id")
NVTX = ("start_ns", "end_ns", "event_type", "text", "text_id", "global_tid", "domain_id")
NODE = ("start_ns", "global_tid", "graph_node_id", "original_graph_node_id")
READS = [
    TableRead("kernels", (*OP, "demangled_name_id"), "x"),
    TableRead("memcpys", (*OP, "copy_kind"), "x"),
    TableRead("memsets", OP, "x"),
    TableRead("graph_traces", OP[:5], "x"),
    TableRead("api_calls", ("start_ns", "end_ns", "correlation_id", "global_tid", "name_id"), "x"),
    TableRead("nvtx_events", NVTX, "x"),
    TableRead("graph_node_events", NODE, "x"),
    TableRead("old_graph_node_events", NODE, "x"),
]
MAP = (("decode", "dec"), ("prefill", "re:^pre"), ("sampling", "sample"))


def ranks(path, options=None):
    with open_profile(
        path, tuple(read.table for read in READS), export_dir=None, nsys=None
    ) as file:
        trace = read_trace(file, READS, {})
    return [select_rank(trace, pid, options or {})[0] for pid in gpu_processes(trace)]


def rank(trace, tmp_path, options=None):
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.sqlite"
    (rank_trace,) = ranks(trace.write_sqlite(path), options)
    return rank_trace


def times(trace, tmp_path, **options):
    options = {"phase_map": MAP, **options}
    rank_trace = rank(trace, tmp_path, options)
    return phase_times(rank_trace, options)


def by_phase(sums):
    pairs = zip(sums.phases, sums.gpu_ns.tolist(), strict=True)
    return {name: ns for name, ns in pairs if ns}


def methods(trace, tmp_path, **options):
    ops = ranged_ops(rank(trace, tmp_path), options)
    named = [METHODS[code] for code in ops.every.method.tolist()]
    texts = [ops.names.texts[ops.names.code[at]] if at >= 0 else None for at in ops.every.piece]
    return list(zip(named, texts, strict=True))


def graph(**options):
    trace = TraceBuilder(**options).nvtx("capture", 0, 20).nvtx("layer 1", 1, 10)
    trace.nvtx("layer 2", 11, 19)
    # Node 1 of the graph that runs is a copy of a copy of the one that was captured.
    for copy, start in enumerate([2, 30, 40]):
        for node in (1, 2):
            node_id, origin = (copy << 32) + node, ((copy - 1) << 32) + node
            made_ns = (4 if node == 1 else 14) if copy == 0 else start
            node_id = 500 + node if copy == 0 else node_id
            origin = None if copy == 0 else 500 + node if copy == 1 else origin
            trace.graph_node(node_id, start_ns=made_ns, original_node_id=origin)
    return trace


@pytest.mark.parametrize("schema", ["3.7.2", "3.25.0"])
def test_nodes_of_graphs_go_to_the_launch_s_range_or_to_that_of_their_capture(tmp_path, schema):
    trace = graph(schema=schema).nvtx("decode", 50, 60)
    nodes = [("a", 100, 103), ("b", 104, 109)]
    trace.graph_launch(nodes, launch=(55, 56), graph_exec_id=2)
    trace.graph_launch([(name, a + 100, b + 100) for name, a, b in nodes], launch=(70, 71))
    assert methods(trace, tmp_path) == [
        ("graph_launch", "decode"),
        ("graph_launch", "decode"),
        ("graph_capture", "layer 1"),
        ("graph_capture", "layer 2"),
    ]
    first = methods(trace, tmp_path, graph_ranges="capture")
    assert first[:2] == [("graph_capture", "layer 1"), ("graph_capture", "layer 2")]


def test_whole_graphs_go_to_the_launch_s_range(tmp_path):
    trace = TraceBuilder().nvtx("decode", 50, 60)
    trace.graph_launch([("a", 100, 103)], launch=(55, 56), mode="graph")
    trace.graph_launch([("a", 200, 203)], launch=(65, 66), mode="graph")
    trace.kernel("k", start_ns=1, end_ns=2)
    assert methods(trace, tmp_path) == [
        ("no_api", None),
        ("graph_launch", "decode"),
        ("no_range", None),
    ]


def backward(launches=3, between=None):
    trace = TraceBuilder().nvtx("step", 0, 100).nvtx("backward", 10, 38)
    trace.kernel("f", start_ns=101, end_ns=102, launch=(11, 12))
    for number in range(launches):
        at = 14 + 10 * number
        trace.kernel(f"b{number}", start_ns=at + 100, end_ns=at + 101, launch=(at, at + 1), tid=9)
    if between is not None:
        trace.api("cudaEventQuery_v3020", start_ns=between, end_ns=between + 1)
    return trace.api("cudaDeviceSynchronize_v3020", start_ns=95, end_ns=96)


def test_launches_for_a_thread_that_waits_go_to_its_range(tmp_path):
    assert methods(backward(), tmp_path) == [
        ("launch", "backward"),
        *[("delegated", "backward")] * 3,
    ]


@pytest.mark.parametrize(
    "trace",
    [
        backward(launches=2),
        backward(between=30),
        # Two threads have a range open: nobody knows for which of them.
        backward().nvtx("other", 0, 99, tid=12),
        backward().nvtx("other", 20, 30, tid=12),
    ],
    ids=["too few", "does not wait", "two threads", "two threads once"],
)
def test_nothing_is_delegated_that_is_not_certain(tmp_path, trace):
    attributions = methods(trace, tmp_path)
    assert [name for name, _ in attributions].count("no_range") >= 2
    assert attributions[1] == ("no_range", None) or attributions[2] == ("no_range", None)


def test_without_calls_or_ranges_nothing_is_attributed(tmp_path):
    trace = TraceBuilder().kernel("a", start_ns=0, end_ns=4)
    assert by_phase(times(trace, tmp_path)) == {"no_api": 4}
    trace.kernel("b", start_ns=5, end_ns=7, launch=(1, 2))
    assert by_phase(times(trace, tmp_path)) == {"no_api": 4, "no_range": 2}


def test_sums_are_cut_to_the_window_and_counts_are_of_what_starts_in_it(tmp_path):
    trace = TraceBuilder().nvtx("prefill", 0, 9).kernel("a", start_ns=10, end_ns=20, launch=(1, 2))
    trace.kernel("b", start_ns=22, end_ns=30, launch=(3, 4))
    sums = times(trace, tmp_path, filter_time=(15, 25))
    assert by_phase(sums) == {"prefill": 5 + 3}
    assert sums.ops_n.tolist()[sums.phases.index("prefill")] == 1


RANGE = st.tuples(
    st.sampled_from(["prefill", "dec", "op", "sample", "step"]),
    st.integers(0, 30),
    st.integers(1, 15),
    st.sampled_from([1, 2]),
    st.sampled_from(["push_pop", "push_pop", "start_end"]),
    st.sampled_from(["", "NCCL"]),
)
KERNEL = st.tuples(st.integers(0, 40), st.sampled_from([1, 2, 3]), st.integers(0, 9), st.booleans())


@given(st.lists(RANGE, max_size=10), st.lists(KERNEL, min_size=1, max_size=10))
def test_phases_are_those_of_a_plain_search(tmp_path_factory, ranges, kernels):
    trace = TraceBuilder()
    for text, start, length, tid, kind, domain in ranges:
        trace.nvtx(text, start, start + length, tid=tid, kind=kind, domain=domain)
    for at, tid, length, launched in kernels:
        launch = (at, at + 1) if launched else None
        trace.kernel("k", start_ns=50 + at, end_ns=50 + at + length, launch=launch, tid=tid)
    rank_trace = rank(trace, tmp_path_factory.mktemp("r"))
    ops, phases = ranged_ops(rank_trace, {}), phase_map(MAP)
    codes = phase_codes(ops, phases)
    names = [*phases.phases, "unmapped", "no_range", "no_api"]
    for (at, tid, _, launched), code, method in zip(
        kernels, codes.tolist(), ops.every.method.tolist(), strict=True
    ):
        if METHODS[method] != "delegated":
            assert names[code] == plain_phase(ranges, at, tid) if launched else "no_api"


def plain_phase(ranges, at, tid):
    """Return the phase of a launch by looking at every range."""
    around = [
        (start, -length, row, text, kind, owner)
        for row, (text, start, length, owner, kind, _) in enumerate(ranges)
        if start <= at < start + length
    ]
    pushed = [row for row in around if row[4] == "push_pop" and row[5] == tid]
    used = pushed or [row for row in around if row[4] == "start_end"]
    if not used:
        return "no_range"
    phase_by_name = {"prefill": "prefill", "dec": "decode", "sample": "sampling"}
    named = [phase_by_name[row[3]] for row in sorted(used) if row[3] in phase_by_name]
    return named[-1] if named else "unmapped"


def test_a_built_in_map_knows_the_engines():
    known = phase_map(None)
    expected = {
        "execute_context_2(153)_generation_0(0)": "prefill",
        "execute_context_1(64)_generation_8(8)": "mixed",
        "execute_context_0(0)_generation_16(16)": "decode",
        "execute_3_context_0()_generation_2(sq1sk300sqsq1sqsk1)": "decode",
        "execute_new_2_cached_0": "prefill",
        "execute_new_1_cached_8": "mixed",
        "execute_new_0_cached_16": "decode",
        "gpu_model_runner: sample": "sampling",
        "gpu_model_runner: forward": None,
        "step[EXTEND bs=1 toks=107]": "prefill",
        "step[DECODE bs=63]": "decode",
        "step[MIXED bs=2]": "mixed",
        "scheduler.run_batch": None,
        "scheduler.get_next_batch_to_run": "scheduling",
        "[Executor] _forward_step 12: 3 ctx reqs, 0 gen reqs": "prefill",
        "[Executor] _forward_step 12: 0 ctx reqs, 0 ctx tokens, 32 gen reqs": "decode",
        "[Executor] _forward_step 12: 1 ctx reqs, 9 gen reqs": "mixed",
        "[Executor] _forward_step: 2 ctx reqs, 0 gen reqs": "prefill",
        "_forward_step: 0 ctx reqs, 8 gen reqs": "decode",
        "_forward_step: 1 ctx reqs, 8 gen reqs": "mixed",
        "_sample_async": "sampling",
        "autograd::engine::evaluate_function: AddmmBackward0": "backward",
        "torch::autograd::AccumulateGrad": None,
        "AddmmBackward0": "backward",
        "Optimizer.step#AdamW.step": "optimizer",
        "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__": "data loading",
        "prefill": "prefill",
        "Prefill_3": "prefill",
        "unprefilled": None,
        "decode step 7": "decode",
        "backward": "backward",
        "forward": "forward",
        "Forward": "forward",
        "Forward Pass 3": "forward",
        "aten::mul": None,
        "ncclAllReduce": None,
        "ResNet.forward": None,
        "schedule": "scheduling",
        "resample": None,
    }
    codes = dict(zip(expected, known.codes(expected), strict=True))
    assert {
        name: None if code < 0 else known.phases[code] for name, code in codes.items()
    } == expected


def test_a_forward_pass_inside_of_vllms_step_keeps_the_phase_of_the_step():
    known, names = phase_map(None), ["Preprocess", "Forward", "Postprocess", "forward"]
    phases = [None if code < 0 else known.phases[code] for code in known.codes(names)]
    assert phases == ["preparation", None, "bookkeeping", "forward"]
    chosen = phase_map((("mine", "Forward"),))
    assert chosen.codes(["Preprocess", "Forward", "Postprocess"]) == [-1, 0, -1]
